"""Everything that touches Flower. Nothing else in this package imports ``flwr``.

Which of its internals are used, and why, is in ``docs/transport.md``;
``tests/unit/transport/test_flower_internals.py`` checks each of them against the installed release.
"""
