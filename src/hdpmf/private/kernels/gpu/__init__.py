"""The loops over ratings on a GPU, with PyTorch and Triton.

These modules know arrays and numbers only, neither ratings nor mechanisms, and import nothing but
NumPy and (when used) PyTorch and Triton: a machine with a GPU need not have the rest of our
dependencies.

``availability`` finds out what can be used. ``layout`` sorts ratings into segments,
``triton_engine`` does the passes, and ``solvers`` trains.
"""
