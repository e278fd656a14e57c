"""``hdpmf train``, ``evaluate``, ``recommend``, ``predict``, ``fold-in`` and ``tune``."""
