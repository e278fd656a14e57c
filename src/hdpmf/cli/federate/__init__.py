"""``hdpmf federate``."""
