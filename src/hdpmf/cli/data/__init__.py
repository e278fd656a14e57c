"""``hdpmf data``."""
