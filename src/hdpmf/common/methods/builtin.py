"""The methods of the library, each as one value."""

from dataclasses import replace

from hdpmf.common.methods.method import (
    ALL_MESSAGES,
    HONEST_SERVER,
    NO_NOISE,
    SECURE_SUMS,
    SUM_SEEN_ALONE,
    SUMS_OVER_USERS,
    TWO_SERVERS,
    VIEWS,
    WHOLE_NOISE,
    Claim,
    Form,
    Method,
    nothing_hidden,
)
from hdpmf.common.methods.options import (
    BiasedOptions,
    BitOptions,
    FactorizationOptions,
    HDPMFOptions,
    ListOptions,
    NoOptions,
    PairsOptions,
    PopularityOptions,
    PrivateFactorizationOptions,
    SampledOptions,
    SumOptions,
)

USER_MEAN = Method(
    name="user-mean",
    label="User mean",
    summary="each user's own mean; nothing leaves the device",
    family="local",
    estimator="hdpmf.models.baselines:UserMean",
    configuration=NoOptions,
    accounting="nothing",
    form=Form(
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
    form=nothing_hidden(
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
    form=nothing_hidden(
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
    form=Form(
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
                "with the whole noise; not which items a device rated, nor how; and which devices "
                "took part",
                value=0.0,
                presence=1.0,
                needs=SECURE_SUMS + WHOLE_NOISE,
            ),
        },
        sent="For every item of the catalogue one whole number, once, only into a secure sum over "
        "all users: the rating's privacy weight. The sum has the whole noise, once.",
        stays_open="Visible: who takes part. Needs: sums that nobody sees into. Nothing that is "
        "sent depends on the value of a rating.",
        rounds=1,
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
        form=nothing_hidden(
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
                needs=SECURE_SUMS + _NO_ROOM,
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
    form=nothing_hidden(
        "The ratings' gradients, without any noise. A recommender can compute the "
        "ratings from them.",
        "in every round every device's gradients, without any noise, and which items it rated",
        "in every round sums over devices of gradients without any noise, how many ratings each "
        "item has, and which devices took part",
        NO_NOISE,
    ),
    views=("messages",),
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
    form=_nominal(budgets=False),
    views=("messages",),
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
    form=Form(
        claims={
            "messages": Claim(
                status="none",
                against=ALL_MESSAGES,
                reason="a single device's numbers have no noise: it is added to their sum",
                sees="in every round every device's gradients, and which items it rated",
            ),
            "sums": Claim(
                status="proved",
                against=SUMS_OVER_USERS,
                reason="all rounds together, for a change of a rating's value",
                sees="in every round only sums over devices, of gradients and noise, how many "
                "ratings each item has, and which devices took part",
                value=1.0,
                needs=SECURE_SUMS + WHOLE_NOISE,
            ),
        },
        sent="In every round, for every item, a gradient, only into a secure sum over all users, "
        "which has the whole noise. The gradient is computed from a vector that depends on which "
        "items were rated, but not on how.",
        stays_open="Visible: how many users rated each item, and who takes part. Needs: sums that "
        "nobody sees into.",
    ),
    headline="sums",
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
    form=_nominal(budgets=True),
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


def _presence(factor: float) -> str:
    """Return a sentence on the cost of a rating's presence (proofs/hdp-sum.md)."""
    return (
        f"The presence of a rating of weight W is hidden at {factor:g} W epsilon. For a person "
        f"whose ratings reach a limit (max_ratings) it is {2 * factor:g} W epsilon, "
        "because one more rating takes weight from others."
    )


def _by_two_servers(reason: str, sees: str, presence: float) -> Claim:
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
        needs=HONEST_SERVER,
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
        sent="For every item of the catalogue two whole numbers (of choices without ratings, one), "
        "and with ratings one for all items together: once, only into a secure sum over all users. "
        "Nobody sees one user's numbers. Each of the two servers that sum adds the "
        "whole noise; in the library the sum has it once.",
        stays_open="Visible: who takes part. Needs: two servers, of which one is honest. "
        + _presence(0.75),
        rounds=1,
    ),
    headline="sums",
    audited=True,
    version=3,
)

_OF_A_PERSON = (
    "all that is sent about a person enters a sum of rows and a sum of their pairs once, with "
    "discrete Gaussian noise; epsilon is the whole person's, with delta, against an empty history"
)

_PAIR_SUMS = (
    "one sum over {of} for every item and one for every pair of heads (public items), with the "
    "{noise}; not what a device rated, nor how many items"
)

HDP_PAIRS = Method(
    name="hdp-pairs",
    version=1,
    label="HDP-Pairs",
    summary="sums of what goes together; epsilon is a whole person's, proved where only sums are "
    "seen",
    family="sums",
    estimator="hdpmf.models.hdp_pairs:HDPPairs",
    configuration=PairsOptions,
    accounting="pairs",
    form=Form(
        claims={
            "messages": replace(SUM_SEEN_ALONE, sees="every device's rows, without noise"),
            "sums": Claim(
                status="proved",
                against=SUMS_OVER_USERS,
                reason=_OF_A_PERSON,
                sees=_PAIR_SUMS.format(of="devices", noise="noise of two servers")
                + "; and which devices took part",
                value=1.0,
                presence=1.0,
                needs=SECURE_SUMS
                + "; whoever adds up adds the whole noise; for single ratings the usual "
                "cap",
            ),
            "two-servers": _by_two_servers(
                _OF_A_PERSON,
                _PAIR_SUMS.format(of="all reports", noise="noise of both servers"),
                1.0,
            ),
        },
        sent="Twice a row of whole numbers, only into secure sums over all users: first one for "
        "every item of the catalogue (with stars, two, and one for all together) and then the "
        "products of all pairs of one over the heads, the items that the first sum shows to be "
        "popular. Nobody sees one user's numbers. A device scales its rows so that all of it is "
        "within the budget of its person.",
        stays_open="Visible: who takes part. Needs: two servers, of which one is honest. Epsilon "
        "is for a person's history against none; one history against another costs more "
        "(proofs/hdp-pairs.md). With the usual cap the presence of one rating of weight 1 costs "
        "about a quarter of the person's, in zero-concentrated privacy, and a lighter one less, if "
        "not in proportion: with stars rounding is a part of it.",
        rounds=2,
    ),
    headline="sums",
    colour="#b07d00",
    views=("two-servers",),
    audited=True,
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
    ),
    audited=True,
    version=3,
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
    HDP_PAIRS,
    HDP_BIT,
    USER_MEAN,
    GLOBAL_MEAN,
    *LISTS,
)
