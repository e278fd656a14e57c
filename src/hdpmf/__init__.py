"""Recommendations without trusting the recommender.

Matrix factorization with heterogeneous differential privacy: every rating has its own privacy.

The names below are the public interface; everything else may change. They load on first use, so
that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hdpmf.common.data import (
        ItemFilter,
        ItemTable,
        Ratings,
        RatingScale,
        load_dataset,
        load_split,
        read_split,
        synthetic_world,
    )
    from hdpmf.common.methods import option
    from hdpmf.common.privacy import Group, PrivacySpec, PrivacyWeights
    from hdpmf.errors import HdpmfError
    from hdpmf.models import (
        DPMF,
        HDPMF,
        MF,
        PDPMF,
        BiasedMF,
        Estimator,
        GlobalMean,
        HDPBit,
        HDPPairs,
        HDPSum,
        UserMean,
        add_method,
        compare,
        cross_validate,
        grid_search,
        load_model,
        make_model,
    )

_HOMES = (
    "hdpmf.errors",
    "hdpmf.common.methods",
    "hdpmf.common.data",
    "hdpmf.common.privacy",
    "hdpmf.models",
)
"""Where names are looked for, the lightest first."""

__all__ = [
    "DPMF",
    "HDPMF",
    "MF",
    "PDPMF",
    "BiasedMF",
    "Estimator",
    "GlobalMean",
    "Group",
    "HDPBit",
    "HDPPairs",
    "HDPSum",
    "HdpmfError",
    "ItemFilter",
    "ItemTable",
    "PrivacySpec",
    "PrivacyWeights",
    "RatingScale",
    "Ratings",
    "UserMean",
    "add_method",
    "compare",
    "cross_validate",
    "grid_search",
    "load_dataset",
    "load_model",
    "load_split",
    "make_model",
    "option",
    "read_split",
    "synthetic_world",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("hdpmf")
    for home in _HOMES if name in __all__ else ():
        if hasattr(module := import_module(home), name):
            found = globals()[name] = getattr(module, name)
            return found
    raise AttributeError(f"module 'hdpmf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
