"""The methods by the names that the command line and the experiments use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from hdpmf.errors import ConfigError
from hdpmf.models.base import Model
from hdpmf.models.baselines import GlobalMean, UserMean
from hdpmf.models.factorization import DPMF, HDPMF, MF, PDPMF
from hdpmf.models.one_round import HDPBit, HDPSum
from hdpmf.models.params import with_current_names


@dataclass(frozen=True, slots=True)
class Method:
    """A model class with some of its parameters fixed.

    Attributes:
        name: As on the command line.
        label: As in tables and figures.
        model: The class.
        fixed: Parameters that make the method what it is.
        summary: One line for people.
    """

    name: str
    label: str
    model: type[Model]
    summary: str
    fixed: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("mf", "MF", MF, "matrix factorization, no privacy"),
        Method("hdpmf", "HDPMF", HDPMF, "the paper's method: stretched ratings, rescaled predictions"),
        Method("hdpmf-w", "HDPMF-W", HDPMF, "HDPMF with weighted residuals", {"mechanism": "weight"}),
        Method("hdpmf-r", "HDPMF-R", HDPMF, "the paper's ablation: no rescaling", {"rescale": False}),
        Method(
            "hdpmf-paid",
            "HDPMF, paid",
            HDPMF,
            "HDPMF whose epsilon is a guarantee where sums are secure: 10 rounds share it",
            {"mechanism": "paid", "solver": "batch", "epochs": 10},
        ),
        Method("pdpmf", "PDPMF", PDPMF, "ratings with small budgets are sampled"),
        Method("dpmf", "DPMF", DPMF, "everybody at the smallest budget"),
        Method("hdp-sum", "HDP-Sum", HDPSum, "one round of secure sums; epsilon is proved where only sums are seen"),
        Method("hdp-bit", "HDP-Bit", HDPBit, "one bit per rating; epsilon is proved against every message"),
        Method("user-mean", "User mean", UserMean, "each user's own mean; nothing leaves the device"),
        Method("global-mean", "Global mean", GlobalMean, "one number for everything; not private"),
    )
}
"""Everything that evaluates, compares or reports goes through this; a method added here appears there by itself."""


def make_model(name: str, **params: Any) -> Model:
    """A model of the method ``name``; parameters that its class does not have are left out.

    Leaving them out lets one set of options serve every method (the user's mean has no learning rate).
    """
    if name not in METHODS:
        raise ConfigError(f"unknown method {name!r}; choose from {', '.join(METHODS)}")
    method = METHODS[name]
    accepted = method.model.parameter_names()
    usable = {key: value for key, value in with_current_names(params).items() if key in accepted}
    return method.model(**{**usable, **method.fixed})
