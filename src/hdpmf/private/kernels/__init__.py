"""The loops over ratings.

``batch`` works on all ratings of a row at once, compiled by Numba or in NumPy; ``sequential`` on
one rating after the other, compiled. Compiled loops stand on ``simd`` (fixed-width vectors for
Numba) and on balanced chunks of rows, whose results do not depend on how many threads there are.
Their specification is plain NumPy: ``tests/unit/gpu/kernel_reference.py``. ``gpu`` has the same
loops for GPUs.
"""
