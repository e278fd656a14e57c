"""The owner's page in the browser (``hdpmf device open``): a thin layer over
``hdpmf.private.device``.
"""
