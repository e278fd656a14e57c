"""``hdpmf experiment``."""
