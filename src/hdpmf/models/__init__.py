"""Estimators, one per method."""

from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.models.base import Estimator, add_method, make_model
from hdpmf.models.baselines import (
    BPR,
    EASE,
    IALS,
    BiasedMF,
    GlobalMean,
    ItemKNN,
    MostPopular,
    PrivatePopular,
    UserMean,
)
from hdpmf.models.factorization import DPMF, HDPMF, MF, PDPMF
from hdpmf.models.files import load_model
from hdpmf.models.hdp_bit import HDPBit
from hdpmf.models.hdp_pairs import HDPPairs
from hdpmf.models.one_round import HDPSum
from hdpmf.models.training import EpochRecord
from hdpmf.models.validation import compare, cross_validate, grid_search
from hdpmf.private.client.ranking import Recommendation

__all__ = [
    "BPR",
    "DPMF",
    "EASE",
    "HDPMF",
    "IALS",
    "MF",
    "PDPMF",
    "BiasedMF",
    "EpochRecord",
    "Estimator",
    "GlobalMean",
    "HDPBit",
    "HDPPairs",
    "HDPSum",
    "ItemFeatures",
    "ItemKNN",
    "MostPopular",
    "PrivatePopular",
    "Recommendation",
    "UserMean",
    "add_method",
    "compare",
    "cross_validate",
    "grid_search",
    "load_model",
    "make_model",
]
