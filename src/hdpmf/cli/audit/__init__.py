"""``hdpmf audit``."""
