"""``hdpmf device``."""
