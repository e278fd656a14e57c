"""``hdpmf aggregator``."""
