"""``hdpmf paper``."""
