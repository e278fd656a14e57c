"""``hdpmf train``, ``release``, ``evaluate``, ``tune``, ``recommend``, ``predict`` and
``fold-in``.
"""
