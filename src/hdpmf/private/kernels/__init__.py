"""The loops over ratings, compiled by Numba.

``batch`` works on all ratings of a row at once, ``sequential`` on one rating after the other. Both
stand on ``simd`` (fixed-width vectors for Numba) and on balanced chunks of rows, whose results do
not depend on how many threads there are. Their specification is plain NumPy:
``tests/unit/kernels/reference.py``. ``gpu`` has the same loops for GPUs.
"""
