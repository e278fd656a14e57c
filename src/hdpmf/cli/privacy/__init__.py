"""``hdpmf privacy``."""
