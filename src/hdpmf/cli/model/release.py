"""``hdpmf release``: write the bits that a recommender would hold of some ratings to a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from hdpmf.cli.model.train import persons_cost
from hdpmf.cli.options.common import Method, Seed, command, data_option, option, privacy_option
from hdpmf.cli.options.methods import ModelOptions
from hdpmf.cli.options.ratings import ExplicitRatingsOptions
from hdpmf.cli.options.weights import WeightOptions
from hdpmf.cli.output import Result, claim_fields, claim_sentence
from hdpmf.common.methods.builtin import HDP_BIT
from hdpmf.errors import ConfigError


class ReleaseOptions(ModelOptions):
    """The options that are settled when bits are drawn; the rest is for training on them."""

    only = ("epsilon", "max_ratings", "coding", "features")


@command
def release(
    method: Method,
    out: Annotated[Path, option("Where to write the released data set.", "FILE", "--out", "-o")],
    source: ExplicitRatingsOptions,
    options: ReleaseOptions,
    wishes: WeightOptions,
    noise: Annotated[
        Literal["simulated", "released"],
        privacy_option(
            "simulated: by the seed, to evaluate with; released: from the operating "
            "system, to give away."
        ),
    ] = "simulated",
    terms: Annotated[
        str | None,
        data_option("Under which terms the ratings were given; stored in the file.", "TEXT"),
    ] = None,
    seed: Seed = 0,
) -> Result:
    """Draw one random bit per rating, as METHOD (hdp-bit) does on devices; write a data set.

    Who rated what, and the privacy weights, are in it in plain sight. Train on it with: hdpmf train
    --from-release.
    """
    if method != HDP_BIT.name:
        raise ConfigError(
            f"{method} leaves no data set with the recommender; the method that does is "
            f"{HDP_BIT.name}"
        )
    from hdpmf.common.privacy.sampling import ReleasedNoise
    from hdpmf.models.hdp_bit import HDPBit

    model = HDPBit(**options.chosen(HDP_BIT.name), rng=seed)
    ratings = source.load()
    weights = wishes.draw(ratings, seed, source)
    made = model.release(ratings, weights, noise=ReleasedNoise() if noise == "released" else None)
    made = replace(made, terms=_terms(source.data) if terms is None else terms)
    made.save(out)
    cost = persons_cost(method, model, ratings, weights)
    fields = {
        "method": method,
        "out": str(out),
        "n_bits": len(made.bits.items),
        "n_users": made.presence.n_users,
        "n_items": len(made.items),
        **claim_fields(made.claim),
        "epsilon_per_person": None if cost is None else cost.fields(),
        **wishes.fields(seed, source),
        "seed": seed if noise == "simulated" else None,
        "data": ratings.name,
        "provenance": made.provenance(),
    }
    text = [
        f"{len(made.bits.items):,} bits of {made.presence.n_users:,} people about "
        f"{len(made.items):,} items: {out}",
        *([] if cost is None else [f"Epsilon is of one rating; {cost}."]),
        claim_sentence(made.claim),
        wishes.sentence(seed, source),
        f"Who rated what, and the weights, are in plain sight in it: hdpmf privacy release {out}",
    ]
    return Result(fields, text)


def _terms(name: str | None) -> str:
    from hdpmf.common.data import dataset_info

    if name is None:
        return "not stated"
    page = dataset_info(name).page
    return (
        "none: made here" if page is None else f"those of {page}, which may forbid to pass this on"
    )
