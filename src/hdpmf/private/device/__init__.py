"""The PRIVATE device of a person, without a page: ratings live here, and zeros or a row leave.

``participant`` takes a step: it reads what is public (``public``), decides (``decide``) on the one
state (``state``, ``state_file``) and its ledger (``ledger``), commits, and only then lets ``seal``
make what ``carrier`` sends.
"""
