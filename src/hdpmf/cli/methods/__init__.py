"""``hdpmf methods``."""
