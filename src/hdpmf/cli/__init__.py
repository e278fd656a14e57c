"""The ``hdpmf`` command: a module or a small package for each noun, assembled in ``main``."""
