"""Models for lists, trained on who rated what.

That is what ``hdp-bit`` shows the recommender, or raw data without privacy.

Everything here is post-processing of what was released. What devices get is a
`hdpmf.common.model.list_model.ListModel`.
"""
