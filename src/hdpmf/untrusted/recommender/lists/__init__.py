"""List models, trained on who rated what: released by ``hdp-bit``, or raw data.

Everything here is post-processing of what was released. What devices get is a
`hdpmf.common.model.list_model.ListModel`.
"""
