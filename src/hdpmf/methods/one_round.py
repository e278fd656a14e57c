"""The proved designs: one round of sums, one bit per rating."""

from __future__ import annotations

from hdpmf.methods.claims import (
    ALL_MESSAGES,
    ENOUGH_USERS,
    HONEST_SERVER,
    ROSTER,
    SUM_SEEN_ALONE,
    SUMS_OVER_USERS,
    TWO_SERVERS,
)
from hdpmf.methods.configurations import BitOptions, SumOptions
from hdpmf.methods.method import Claim, Form, Method


def _presence(factor: float) -> str:
    """What it costs that a rating is there, and why more at a limit: see proofs/hdp-sum.md."""
    return (
        f"That a rating of weight W is there is hidden at {factor:g} W epsilon; for a person whose ratings reach a "
        f"limit (max_total or max_ratings) at up to {factor:g} (2 W + 1) epsilon, because one more pushes others out."
    )


def _by_two_servers(reason: str, sees: str, presence: float, needs: str = "") -> Claim:
    """Sums by two servers, against the recommender together with one of them: see proofs/hdp-sum.md."""
    return Claim(
        status="proved",
        against=TWO_SERVERS,
        reason=f"{reason}; each server adds the whole noise, so that the honest one's is enough",
        sees=f"{sees}; the leader of the two sees which devices reported, and when; each server alone sees shares that "
        "are uniformly random",
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
    fixed={"pairs": False},
    accounting="sums",
    plain=Form(
        claims={
            "messages": SUM_SEEN_ALONE,
            "sums": Claim(
                status="proved",
                against=SUMS_OVER_USERS,
                reason="every rating enters one sum once, with discrete Laplace noise; what else is computed never "
                "leaves devices",
                sees="one sum over devices, for every item: coded ratings and weights of all users together, with "
                "noise that nobody holds alone; not which items a device rated; and which devices took part",
                value=1.0,
                presence=0.75,
                needs=ROSTER + ENOUGH_USERS,
            ),
            "two-servers": _by_two_servers(
                "every rating enters one sum once, with discrete Laplace noise",
                "one sum over all reports, for every item: coded ratings and weights of all users together, with the "
                "noise of both servers",
                0.75,
            ),
        },
        sent="For every item of the catalogue two whole numbers, once, and only into a secure sum over all users: "
        "nobody sees one user's numbers, and the sum has noise: a share of every user, or all of it from each of two "
        "servers.",
        stays_open="Visible: who takes part. Needs: secure sums by masks that work, and as many honest users as the "
        "noise was divided among; or two servers, of which one is honest. " + _presence(0.75),
        rounds=1,
        sums=1,
    ),
    labelled=Form(
        claims={
            "messages": SUM_SEEN_ALONE,
            "sums": Claim(
                status="proved",
                against=SUMS_OVER_USERS,
                reason="every rating enters two sums of weights and one of ratings, with discrete Laplace noise, and "
                "its presence the draw of its device's label; what else is computed never leaves devices",
                sees="two sums over devices, with noise that nobody holds alone: for every item the weights of all "
                "users together, then coded ratings and weights, which for much-rated items are apart by a label that "
                "each device draws once at random and tells nobody; not which items a device rated; and which devices "
                "took part",
                value=1.0,
                presence=0.992,
                needs=ROSTER + ENOUGH_USERS + ", both times",
            ),
            "two-servers": _by_two_servers(
                "every rating enters two sums of weights and one of ratings, with discrete Laplace noise, and its "
                "presence the draw of its device's label",
                "two sums over all reports, with the noise of both servers: for every item the weights of all users "
                "together, then coded ratings and weights, which for much-rated items are apart by a label that each "
                "device draws once at random and tells nobody",
                0.992,
                ", both times",
            ),
        },
        sent="Twice, and only into secure sums over all users with noise, a share of every user or all of it from "
        "each of two servers: for every item of the catalogue one whole number, then two. The second time "
        "much-rated items have a sum for each of two labels; a device draws its label once, at random by what it "
        "rated, and tells nobody.",
        stays_open="Visible: who takes part. Needs: secure sums by masks that work, and as many honest users as the "
        "noise was divided among, both times; or two servers, of which one is honest. " + _presence(0.992),
        rounds=2,
        sums=2,
    ),
    headline="sums",
    views=("sums", "two-servers"),
    audited=True,
    version=2,
)

_ONE_BIT = "every rating sends one randomised bit, once; what else is computed never leaves devices"

HDP_BIT = Method(
    name="hdp-bit",
    label="HDP-Bit",
    summary="one bit per rating; epsilon is proved against every message",
    family="bits",
    estimator="hdpmf.models.hdp_bit:HDPBit",
    configuration=BitOptions,
    accounting="bits",
    plain=Form(
        claims={
            "messages": Claim(
                status="proved",
                against=ALL_MESSAGES,
                reason=_ONE_BIT,
                sees="which items each device rated, how strict it is about each (the privacy weight), and one "
                "randomised bit per rating",
                value=1.0,
            ),
            "sums": Claim(status="proved", against=ALL_MESSAGES, reason=_ONE_BIT, sees="sums of bits", value=1.0),
        },
        sent="For every rating one bit, once in its life: 'rather good' or 'rather bad', drawn at random so that "
        "either answer is always possible.",
        stays_open="Visible: which items a user rated, and how strict the user is about each (the privacy weight).",
        rounds=1,
        sums=0,
    ),
    views=("messages",),
    audited=True,
    version=2,
)
