"""The methods of the library: the paper's and those that train like them, and all together."""

from __future__ import annotations

from dataclasses import replace

from hdpmf.common.methods.baselines import BIASED_MF, GLOBAL_MEAN, LISTS, USER_MEAN
from hdpmf.common.methods.method import (
    ALL_MESSAGES,
    ENOUGH_USERS,
    NO_NOISE,
    ROSTER,
    SUMS_OVER_USERS,
    Claim,
    Form,
    Method,
    nothing_hidden,
)
from hdpmf.common.methods.one_round import HDP_BIT, HDP_SHARE, HDP_SUM
from hdpmf.common.methods.options import (
    FactorizationOptions,
    HDPMFOptions,
    PrivateFactorizationOptions,
    SampledOptions,
)

_RULE = "hdpmf.models.factorization"

_RATES = {"batch": 0.01, "sequential": 0.005}

_NO_ROOM = (
    "; honest raters only: the noise is divided among all raters of an item and "
    "leaves no room for colluders"
)

_GRADIENTS_SEEN = (
    "in every round every device's gradients, each with its own small share of the "
    "noise, and which items it rated"
)

_GRADIENT_SUMS_SEEN = (
    "in every round only sums over devices, of gradients and noise (half of which, h, it drew "
    "itself), how many ratings each item has, and which devices took part"
)

_BUDGETS_SEEN = (
    "; beside that, how many ratings each device has and the sum, smallest and "
    "largest of their budgets"
)

_NOMINAL_REASON = (
    "as stated in the paper; training sends fresh messages every round, which its "
    "proof does not cover"
)

_NOMINAL_AGAINST = "final item factors, one noise draw, user vectors independent of the ratings"


def _nominal(budgets: bool) -> Form:
    more = _BUDGETS_SEEN if budgets else ""
    return Form(
        claims={
            "messages": Claim(
                status="nominal",
                against=_NOMINAL_AGAINST,
                reason=_NOMINAL_REASON,
                sees=_GRADIENTS_SEEN + more,
            ),
            "sums": Claim(
                status="nominal",
                against=_NOMINAL_AGAINST,
                reason=_NOMINAL_REASON,
                sees=_GRADIENT_SUMS_SEEN + more,
                needs=ROSTER + _NO_ROOM,
            ),
        },
        sent="In every round, for every rated item, a gradient computed from the rating, with a "
        "share of noise. The paper's epsilon is about the noise of all raters of the item "
        "together.",
        stays_open="Visible: which items a user rated, and how many users rated each. Every rating "
        "also changes the messages about the user's other items, through the user's vector. No "
        "number below counts that.",
    )


MF = Method(
    name="mf",
    label="MF",
    summary="matrix factorization, no privacy",
    family="factorization",
    estimator=f"{_RULE}:MF",
    configuration=FactorizationOptions,
    rates=_RATES | {"sequential": 0.01},
    mechanism="none",
    accounting="no-noise",
    plain=nothing_hidden(
        "The ratings' gradients, without any noise. A recommender can compute the "
        "ratings from them.",
        "in every round every device's gradients, without any noise, and which items it rated",
        "in every round sums over devices of gradients without any noise, how many ratings each "
        "item has, and which devices took part",
        NO_NOISE,
    ),
    views=("sums", "messages"),
    audited=True,
    colour="#4a525b",
)

HDPMF = Method(
    name="hdpmf",
    label="HDPMF",
    summary="the paper's method: stretched ratings, rescaled predictions",
    family="factorization",
    estimator=f"{_RULE}:HDPMF",
    configuration=HDPMFOptions,
    fixed={"mechanism": "stretch", "rescale": True},
    rates=_RATES,
    mechanism="stretch",
    accounting="gradients",
    plain=_nominal(budgets=False),
    views=("sums", "messages"),
    has_h=True,
    audited=True,
    colour="#0072b2",
)

HDPMF_W = replace(
    HDPMF,
    name="hdpmf-w",
    label="HDPMF-W",
    summary="HDPMF with weighted residuals",
    fixed={"mechanism": "weight", "rescale": True},
    rates=_RATES | {"batch": 0.05},
    mechanism="weight",
    colour="#009e73",
)

HDPMF_R = replace(
    HDPMF,
    name="hdpmf-r",
    label="HDPMF-R",
    summary="the paper's ablation: no rescaling",
    fixed={"mechanism": "stretch", "rescale": False},
    audited=False,
    colour="#b5578c",
    tuned_like="hdpmf",
)

HDPMF_PAID = Method(
    name="hdpmf-paid",
    label="HDPMF, paid",
    summary="HDPMF whose epsilon is a guarantee where sums are secure: its rounds share "
    "it, 10 by default",
    family="factorization",
    estimator=f"{_RULE}:HDPMF",
    configuration=HDPMFOptions,
    # Other solvers, noise drawn once and stopping early would each void the guarantee; there is no
    # h.
    fixed={
        "mechanism": "paid",
        "rescale": True,
        "solver": "batch",
        "noise": "epoch",
        "early_stopping": None,
        "h": "auto",
    },
    defaults={"epochs": 10},
    rates={"batch": 0.1},  # few rounds, so large steps
    mechanism="paid",
    accounting="paid",
    plain=Form(
        claims={
            "messages": Claim(
                status="none",
                against=ALL_MESSAGES,
                reason="a single device's numbers have only its share of the noise",
                sees="in every round every device's gradients, each with its own small share of "
                "the noise, and which "
                "items it rated",
            ),
            "sums": Claim(
                status="proved",
                against=SUMS_OVER_USERS,
                reason="all rounds together, for a change of a rating's value",
                sees="in every round only sums over devices, of gradients and noise, how many "
                "ratings each item has, "
                "and which devices took part",
                value=1.0,
                needs=ROSTER + ENOUGH_USERS,
            ),
        },
        sent="In every round, for every item, a gradient with a share of noise, only into a secure "
        "sum over all users. The gradient is computed from a vector that depends on which items "
        "were rated, but not on how.",
        stays_open="Visible: how many users rated each item, and who takes part. Needs: a secure "
        "aggregation that works, and as many honest users in every sum as the noise was divided "
        "among.",
    ),
    headline="sums",
    views=("sums", "messages"),
    audited=True,
    tuning={"learning_rate": (0.2, 0.1, 0.05, 0.01), "reg": (0.01, 0.001)},
    version=1,
)

PDPMF = replace(
    HDPMF,
    name="pdpmf",
    label="PDPMF",
    summary="ratings with small budgets are sampled",
    estimator=f"{_RULE}:PDPMF",
    configuration=SampledOptions,
    fixed={},
    mechanism="sample",
    accounting="sampled-gradients",
    plain=_nominal(budgets=True),
    colour="#d55e00",
)

DPMF = replace(
    PDPMF,
    name="dpmf",
    label="DPMF",
    summary="everybody at the smallest budget",
    estimator=f"{_RULE}:DPMF",
    configuration=PrivateFactorizationOptions,
    mechanism="uniform",
    accounting="uniform-gradients",
    colour="#a87a00",
    tuning={"learning_rate": (0.005, 0.001, 0.0005, 0.0001), "reg": (0.01, 0.001)},
)


BUILTIN = (
    MF,
    BIASED_MF,
    HDPMF,
    HDPMF_W,
    HDPMF_R,
    HDPMF_PAID,
    PDPMF,
    DPMF,
    HDP_SUM,
    HDP_BIT,
    HDP_SHARE,
    USER_MEAN,
    GLOBAL_MEAN,
    *LISTS,
)
