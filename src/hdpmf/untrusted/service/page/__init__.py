"""The operator's page in the browser (``hdpmf recommender page``). It is read-only."""
