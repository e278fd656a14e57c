"""The methods that come with the library."""

from __future__ import annotations

from hdpmf.methods.baselines import BIASED_MF, GLOBAL_MEAN, LISTS, USER_MEAN
from hdpmf.methods.one_round import HDP_BIT, HDP_SUM
from hdpmf.methods.pairs import with_pairs
from hdpmf.methods.paper import DPMF, HDPMF, HDPMF_PAID, HDPMF_R, HDPMF_W, MF, PDPMF

BUILTIN = (
    MF, BIASED_MF, HDPMF, HDPMF_W, HDPMF_R, HDPMF_PAID, PDPMF, DPMF, HDP_SUM, with_pairs(HDP_SUM), HDP_BIT,
    USER_MEAN, GLOBAL_MEAN, *LISTS,
)  # fmt: skip
