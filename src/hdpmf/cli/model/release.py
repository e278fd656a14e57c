"""``hdpmf release``: what a recommender would hold of some ratings, as a file that anything can
be trained on.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hdpmf.cli.model.train import persons
from hdpmf.cli.options.common import (
    Json,
    Method,
    Seed,
    data_option,
    privacy_option,
    with_option_groups,
)
from hdpmf.cli.options.methods import ModelOptions
from hdpmf.cli.options.ratings import SteppedRatingsOptions
from hdpmf.cli.options.weights import WeightOptions
from hdpmf.cli.output import claim_fields, claim_sentence, print_json, print_lines
from hdpmf.common.methods.builtin import HDP_BIT
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.models.hdp_bit import HDPBit


class ReleaseOptions(ModelOptions):
    """What is settled when bits are drawn; all else is for whoever trains on them."""

    only = ("epsilon", "max_ratings", "coding", "features")


@with_option_groups
def release(
    method: Method,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="Where to write the released data set."),
    ],
    source: SteppedRatingsOptions,
    options: ReleaseOptions,
    wishes: WeightOptions,
    noise: Annotated[
        Literal["simulated", "released"],
        privacy_option(
            "--noise",
            help="simulated: by the seed, to evaluate with; released: from the operating "
            "system, to give away.",
        ),
    ] = "simulated",
    terms: Annotated[
        str | None,
        data_option(
            "--terms",
            metavar="TEXT",
            help="Under which terms the ratings were given; kept in the file.",
        ),
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Draw one random bit per rating, as METHOD (hdp-bit) does on devices, and write them as a data
    set.

    Who rated what, and the privacy weights, are in it in plain sight. Train on it with: hdpmf train
    --from-release.
    """
    if method != HDP_BIT.name:
        raise ConfigError(
            f"{method} leaves no data set with the recommender; the method that does is "
            f"{HDP_BIT.name}"
        )
    model: HDPBit = _model(options, seed)
    ratings = source.load()
    weights = wishes.draw(ratings, seed, source)
    from hdpmf.common.privacy.sampling import ReleasedNoise

    made = model.release(ratings, weights, noise=ReleasedNoise() if noise == "released" else None)
    made = replace(made, terms=_terms(source.data) if terms is None else terms)
    made.save(out)
    whole = persons(method, model, ratings, weights)
    if json:
        print_json(
            {
                "method": method,
                "out": str(out),
                "n_bits": len(made.bits.items),
                "n_users": made.presence.n_users,
                "n_items": len(made.items),
                **claim_fields(made.claim),
                "epsilon_per_person": None if whole is None else whole.fields(),
                **wishes.record(seed, source),
                "seed": seed if noise == "simulated" else None,
                "data": ratings.name,
                "provenance": made.provenance(),
            }
        )
        return
    print_lines(
        f"{len(made.bits.items):,} bits of {made.presence.n_users:,} people about "
        f"{len(made.items):,} items: {out}",
        *([] if whole is None else [f"Epsilon is of one rating; {whole}."]),
        claim_sentence(made.claim),
        wishes.sentence(seed, source),
        f"Who rated what, and the weights, are in plain sight in it: hdpmf privacy release {out}",
    )


def _model(options: ReleaseOptions, seed: int) -> HDPBit:
    from hdpmf.models.hdp_bit import HDPBit

    return HDPBit(**options.chosen(HDP_BIT.name), rng=seed)


def _terms(name: str | None) -> str:
    from hdpmf.common.data import dataset_info

    if name is None:
        return "not stated"
    page = dataset_info(name).page
    return (
        "none: made here" if page is None else f"those of {page}, which may forbid to pass this on"
    )
