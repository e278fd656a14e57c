"""The ``hdpmf`` command: one module per command, assembled in ``main``."""
