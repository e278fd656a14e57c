"""Estimators with scikit-learn's manners, one per method."""

from hdpmf.models.base import Estimator
from hdpmf.models.baselines import GlobalMean, UserMean
from hdpmf.models.biased import BiasedMF
from hdpmf.models.comparing import compare
from hdpmf.models.factorization import DPMF, HDPMF, MF, PDPMF
from hdpmf.models.files import load_model
from hdpmf.models.hdp_bit import HDPBit
from hdpmf.models.lists import BPR, EASE, IALS, ItemKNN, MostPopular, NeuralLists, PrivatePopular
from hdpmf.models.methods import make_model
from hdpmf.models.one_round import HDPSum
from hdpmf.models.own import add_method
from hdpmf.models.training import EpochRecord
from hdpmf.public.priors import Prior, load_prior
from hdpmf.ratings.item_features import ItemFeatures
from hdpmf.shard.recommending import Recommendation

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
    "HDPSum",
    "ItemFeatures",
    "ItemKNN",
    "MostPopular",
    "NeuralLists",
    "Prior",
    "PrivatePopular",
    "Recommendation",
    "UserMean",
    "add_method",
    "compare",
    "load_model",
    "load_prior",
    "make_model",
]
