"""The PRIVATE device: its store, policy and ledger, and the participant that uses them.

Nothing here is shared with the recommender's side but the messages of ``hdpmf.common.protocol`` and
``hdpmf.common.aggregation.masks``.
"""
