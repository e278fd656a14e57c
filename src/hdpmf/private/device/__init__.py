"""The PRIVATE device: its store, its policy, its ledger, and the agent that answers a recommender
with them.

Nothing here is shared with the recommender's side but the messages of ``hdpmf.common.protocol`` and
``hdpmf.common.aggregation.masks``.
"""
