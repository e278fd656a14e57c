"""The one-round designs: secure sums, and bits."""

from __future__ import annotations

from hdpmf.common.methods.method import (
    HONEST_SERVER,
    SECURE_SUMS,
    SUM_SEEN_ALONE,
    SUMS_OVER_USERS,
    TWO_SERVERS,
    WHOLE_NOISE,
    Claim,
    Form,
    Method,
)
from hdpmf.common.methods.options import BitOptions, SumOptions


def _presence(factor: float) -> str:
    """Return a sentence on the cost of a rating's presence (proofs/hdp-sum.md)."""
    return (
        f"The presence of a rating of weight W is hidden at {factor:g} W epsilon. For a person "
        f"whose ratings reach a limit (max_total or max_ratings) it is {2 * factor:g} W epsilon, "
        "because one more rating takes weight from others."
    )


def _by_two_servers(reason: str, sees: str, presence: float, needs: str = "") -> Claim:
    """Sums by two servers, against the recommender with one of them (proofs/hdp-sum.md)."""
    return Claim(
        status="proved",
        against=TWO_SERVERS,
        reason=f"{reason}; each server adds the whole noise, so that the honest one's is enough",
        sees=f"{sees}; it also sees which devices took part (they ask it for a token), and the "
        "leader of the two sees when reports came, from which address and not of whom; each "
        "server alone sees shares that are uniformly random",
        value=1.0,
        presence=presence,
        needs=HONEST_SERVER + needs,
    )


HDP_SUM = Method(
    name="hdp-sum",
    label="HDP-Sum",
    summary="one round of secure sums; epsilon is proved where only sums are seen",
    family="sums",
    estimator="hdpmf.models.one_round:HDPSum",
    configuration=SumOptions,
    accounting="sums",
    form=Form(
        claims={
            "messages": SUM_SEEN_ALONE,
            "sums": Claim(
                status="proved",
                against=SUMS_OVER_USERS,
                reason="every rating enters one sum once, with discrete Laplace noise; what else "
                "is computed never leaves devices",
                sees="one sum over devices, for every item: coded ratings and weights of all users "
                "together, with the whole noise; not which items a device rated; and which devices "
                "took part",
                value=1.0,
                presence=0.75,
                needs=SECURE_SUMS + WHOLE_NOISE,
            ),
            "two-servers": _by_two_servers(
                "every rating enters one sum once, with discrete Laplace noise",
                "one sum over all reports, for every item: coded ratings and weights of all users "
                "together, with the noise of both servers",
                0.75,
            ),
        },
        sent="For every item of the catalogue two whole numbers, once, only into a secure sum over "
        "all users. Nobody sees one user's numbers. Each of the two servers that sum adds the "
        "whole noise; in the library the sum has it once.",
        stays_open="Visible: who takes part. Needs: two servers, of which one is honest. "
        + _presence(0.75),
        rounds=1,
        sums=1,
    ),
    headline="sums",
    views=("two-servers",),
    audited=True,
    version=2,
)

VALUES_ALONE = (
    "all messages, for how items were rated; NO GUARANTEE for who rated what, against anybody who "
    "downloads the model"
)
"""Goes with every epsilon of bits: lists and similarity are made of who rated what."""

_ONE_BIT = "every rating sends one randomised bit, once; what else is computed never leaves devices"

HDP_BIT = Method(
    name="hdp-bit",
    label="HDP-Bit",
    summary="one bit per rating; epsilon is proved against every message, for values alone",
    family="bits",
    estimator="hdpmf.models.hdp_bit:HDPBit",
    configuration=BitOptions,
    accounting="bits",
    form=Form(
        claims={
            "messages": Claim(
                status="proved",
                against=VALUES_ALONE,
                reason=_ONE_BIT,
                sees="which items each device rated, how strict it is about each (the privacy "
                "weight), and one randomised bit per rating",
                value=1.0,
            ),
            "sums": Claim(
                status="proved",
                against=VALUES_ALONE,
                reason=_ONE_BIT,
                sees="sums of bits",
                value=1.0,
            ),
        },
        sent="For every rating one bit, once in its life: 'rather good' or 'rather bad', drawn at "
        "random so that either answer is always possible.",
        stays_open="Visible: which items a user rated, and how strict the user is about each (the "
        "privacy weight). The model is made of that, so that anybody who downloads it can tell: a "
        "stranger who knows three rare items of a person names most of the others.",
        rounds=1,
        sums=0,
    ),
    audited=True,
    version=2,
)
