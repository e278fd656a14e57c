"""Baselines: means, and list models that are not private or only count."""

from __future__ import annotations

from dataclasses import replace

from hdpmf.common.methods.method import (
    ALL_MESSAGES,
    ENOUGH_USERS,
    NO_NOISE,
    ROSTER,
    SUM_SEEN_ALONE,
    SUMS_OVER_USERS,
    VIEWS,
    Claim,
    Form,
    Method,
    nothing_hidden,
)
from hdpmf.common.methods.options import BiasedOptions, ListOptions, NoOptions, PopularityOptions

USER_MEAN = Method(
    name="user-mean",
    label="User mean",
    summary="each user's own mean; nothing leaves the device",
    family="local",
    estimator="hdpmf.models.baselines:UserMean",
    configuration=NoOptions,
    accounting="nothing",
    plain=Form(
        claims={
            view: Claim(
                status="proved",
                against=ALL_MESSAGES,
                reason="nothing leaves the device",
                sees="nothing",
                value=0.0,
                presence=0.0,
            )
            for view in VIEWS
        },
        sent="Nothing. Each device predicts with the mean of its own ratings.",
        stays_open="Nothing is sent, so nothing is left to protect.",
        rounds=0,
        sums=0,
    ),
    audited=True,
    colour="#2f9fd8",
)

GLOBAL_MEAN = Method(
    name="global-mean",
    label="Global mean",
    summary="one number for everything; not private",
    family="central",
    estimator="hdpmf.models.baselines:GlobalMean",
    configuration=NoOptions,
    accounting="raw-mean",
    plain=nothing_hidden(
        "The ratings themselves, of which the recommender computes one mean.",
        "all ratings",
        "all ratings",
        NO_NOISE,
    ),
    colour="#8c8f94",
)

BIASED_MF = Method(
    name="biased-mf",
    label="Biased MF",
    summary="matrix factorization with user and item biases, trained on ratings given "
    "away; not private",
    family="clear",
    estimator="hdpmf.models.baselines:BiasedMF",
    configuration=BiasedOptions,
    defaults={"epochs": 20},
    tuning={"learning_rate": (0.005, 0.01, 0.02), "reg": (0.05, 0.1)},
    accounting="no-noise",
    plain=nothing_hidden(
        "The ratings themselves, on which the recommender trains.",
        "all ratings",
        "all ratings",
        NO_NOISE,
    ),
    colour="#4d4d4d",
)

PRIVATE_POPULAR = Method(
    name="private-popular",
    label="Most popular, private",
    summary="what most people rated, counted by one secure sum; lists only, epsilon is "
    "proved where only sums are seen",
    family="sums",
    estimator="hdpmf.models.baselines:PrivatePopular",
    configuration=PopularityOptions,
    accounting="counts",
    plain=Form(
        claims={
            "messages": replace(
                SUM_SEEN_ALONE, sees="every device's weights, item by item, almost without noise"
            ),
            "sums": Claim(
                status="proved",
                against=SUMS_OVER_USERS,
                reason="every rating's weight enters one sum once, with discrete Laplace noise; "
                "values are not in it",
                sees="one sum over devices, for every item the weights of all users together, "
                "with noise that nobody "
                "holds alone; not which items a device rated, nor how; and which devices took part",
                value=0.0,
                presence=1.0,
                needs=ROSTER + ENOUGH_USERS,
            ),
        },
        sent="For every item of the catalogue one whole number, once, only into a secure sum over "
        "all users: the rating's privacy weight, with noise of which every user adds a share.",
        stays_open="Visible: who takes part. Needs: a secure aggregation that works, and as many "
        "honest users as the noise was divided among. Nothing that is sent depends on the value of "
        "a rating.",
        rounds=1,
        sums=1,
    ),
    headline="sums",
    lists_only=True,
    colour="#8c4a3c",
)

_PAIRS_SEEN = "all pairs of user and item"


def _yardstick(name: str, label: str, summary: str, estimator: str, colour: str) -> Method:
    """A model for lists that is not private."""
    return Method(
        name=name,
        label=label,
        summary=f"{summary}; lists only, not private",
        family="central",
        estimator=f"hdpmf.models.baselines:{estimator}",
        configuration=ListOptions,
        accounting="no-noise",
        plain=nothing_hidden(
            "Which items were rated, without any noise.", _PAIRS_SEEN, _PAIRS_SEEN, NO_NOISE
        ),
        lists_only=True,
        colour=colour,
    )


LISTS = (
    PRIVATE_POPULAR,
    _yardstick(
        "most-popular",
        "Most popular",
        "what most people rated, for everyone",
        "MostPopular",
        "#5b6a3c",
    ),
    _yardstick("item-knn", "Item kNN", "what goes with what one has rated", "ItemKNN", "#9467bd"),
    _yardstick("ease", "EASE", "linear item-item model in closed form", "EASE", "#17a2b0"),
    _yardstick("ials", "iALS", "implicit alternating least squares", "IALS", "#a3a500"),
    _yardstick("bpr", "BPR", "pair-wise item-item model", "BPR", "#e0569b"),
    _yardstick("neural", "Autoencoder", "denoising autoencoder", "NeuralLists", "#3b3b98"),
)
