"""Words and claims that several methods share."""

from __future__ import annotations

from hdpmf.methods.method import Claim, Form

ALL_MESSAGES, SUMS_OVER_USERS = "all messages", "sums over users (secure aggregation)"
ROSTER = (
    "secure sums that work (a roster that people compared, fewer colluding devices than docs/secure-sums.md allows for)"
)
ENOUGH_USERS = "; as many honest users in every sum as the noise is divided among"
TWO_SERVERS = "the recommender and one of the two servers, with any number of devices"
HONEST_SERVER = (
    "one of the two servers is honest: it does not work with the other, keeps its keys, adds its whole noise, and "
    "counts each report once"
)
NO_NOISE = "ratings are used without any noise"

SUM_SEEN_ALONE = Claim(
    status="none",
    against=ALL_MESSAGES,
    reason="a single device's numbers have only its share of the noise, and that is mostly zero",
    sees="every device's coded ratings and weights, almost without noise",
)


def nothing_hidden(sent: str, sees: str, sums: str, reason: str) -> Form:
    """A method that hides nothing."""
    return Form(
        claims={
            "messages": Claim(status="none", against="everything", reason=reason, sees=sees),
            "sums": Claim(status="none", against="everything", reason=reason, sees=sums),
        },
        sent=sent,
        stays_open="Nothing is protected.",
    )
