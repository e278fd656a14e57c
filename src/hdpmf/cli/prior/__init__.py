"""``hdpmf prior``."""
