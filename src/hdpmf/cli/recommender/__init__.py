"""``hdpmf recommender``."""
