"""The operator's page in the browser (``hdpmf recommender page``): it reads the folder and never
writes.
"""
