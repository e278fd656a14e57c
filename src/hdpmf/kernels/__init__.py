"""The loops over ratings.

``reference`` is the specification: plain NumPy, slow, readable. ``batch`` and ``sequential`` are the fast kernels and
are tested against it; both stand on ``simd`` (fixed-width vectors for Numba), ``gauss`` (simulation noise drawn inside
a loop) and ``threads`` (running a kernel over balanced chunks, with results that do not depend on how many threads).
``grouping`` lays ratings out by item and by user.
"""
