"""What ``hdpmf privacy explain`` says in words."""

from __future__ import annotations

LEAVES = {
    "mf": "The ratings' gradients, without any noise. A recommender can compute the ratings from them.",
    "global-mean": "The ratings themselves, of which the recommender computes one mean.",
    "user-mean": "Nothing. Each device predicts with the mean of its own ratings.",
    "hdp-bit": "For every rating one bit, once in its life: 'rather good' or 'rather bad', drawn at random so that "
    "either answer is always possible.",
    "hdp-sum": "For every item of the catalogue two whole numbers, once, and only into a secure sum over all users: "
    "nobody sees one user's numbers, and the sum has noise of which every user adds a share.",
    "hdpmf-paid": "For every item rated, in every round, a gradient with a share of noise, and only into a secure sum "
    "over all users. The gradient is made of a vector that knows what was rated but not how.",
}
_GRADIENTS = (
    "For every item rated, in every round, a gradient computed from the rating, with a share of noise. The noise of "
    "all raters of the item together is what the paper's epsilon speaks of."
)

SEERS = {
    "messages": "Sees every message of every device (no secure sums)",
    "sums": "Sees only sums over users",
    "sums-h-known": "Sees only sums over users, but made half of the noise (h): the recommender",
    "sums-h-hidden": "Sees only sums over users, and none of the noise: somebody else",
    "final": "Gets only the finished model",
}

STATUS = {
    "proved": "PROVED",
    "nominal": "NOMINAL",
    "no guarantee": "NO GUARANTEE",
}

MEANING = {
    "proved": "PROVED: holds against everything that this observer sees, whatever else it knows.",
    "nominal": "NOMINAL: counts the rating's own messages only, in a typical run. No guarantee: the true cost may be "
    "higher.",
    "no guarantee": "NO GUARANTEE: nothing keeps this observer from being certain.",
}

NOT_PROTECTED = {
    "user-mean": "Nothing is sent, so nothing is left to protect.",
    "hdp-sum": "Visible: who takes part. Needs: a secure aggregation that works, and as many honest users as the noise "
    "was divided among. Which items a user rated is hidden at three quarters of the cost of a value.",
    "hdp-bit": "Visible: which items a user rated, and how strict the user is about each (the privacy weight).",
    "hdpmf-paid": "Visible: which items a user rated and how many rated each. Needs: a secure aggregation that works, "
    "and every rater's share of the noise (drop-outs take theirs away).",
    "mf": "Nothing is protected.",
    "global-mean": "Nothing is protected.",
}
_LABELS_LEAVE = (
    "Twice, and only into secure sums over all users with noise of which every user adds a share: for every item of "
    "the catalogue one whole number, then two. The second time much-rated items have a sum for each of two labels; a "
    "device draws its label once, at random by what it rated, and tells nobody."
)
_LABELS_PROTECT = (
    "Visible: who takes part. Needs: a secure aggregation that works, and as many honest users as the noise was "
    "divided among, both times. Which items a user rated is hidden at about the cost of a value."
)
_NOT_PROTECTED = (
    "Visible: which items a user rated and how many rated each. And through the user's vector every rating also moves "
    "the messages about all other items of the user; no number below counts that."
)


def leaves(method: str, labels: bool = False) -> str:
    """What leaves the device."""
    return _LABELS_LEAVE if labels else LEAVES.get(method, _GRADIENTS)


def not_protected(method: str, labels: bool = False) -> str:
    """What stays open."""
    return _LABELS_PROTECT if labels else NOT_PROTECTED.get(method, _NOT_PROTECTED)


def has_h(method: str) -> bool:
    """Whether the recommender draws a part of the noise, so that it matters who knows it."""
    return method not in LEAVES
