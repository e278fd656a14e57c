"""``hdpmf train``, ``evaluate`` and the other commands about models."""
