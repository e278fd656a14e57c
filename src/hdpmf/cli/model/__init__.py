"""``hdpmf train``, ``evaluate``, ``recommend`` and ``tune``."""
