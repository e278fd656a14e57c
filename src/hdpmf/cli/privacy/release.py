"""``hdpmf privacy release``: what a released data set shows of the people in it, and what it hides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import claim_fields, claim_sentence, print_json, print_lines, print_paragraph
from hdpmf.methods.one_round import HDP_BIT
from hdpmf.methods.words import percent

if TYPE_CHECKING:
    from hdpmf.recommender.release import Release


def release(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A released data set, as hdpmf release writes it.")],
    json: Json = False,
) -> None:
    """Say what is in a released data set: what anybody who has FILE sees, what stays hidden, where it is from."""
    from hdpmf.recommender.release import Release

    found = Release.load(file)
    numbers = _numbers(found)
    if json:
        print_json({"file": str(file), **numbers, **claim_fields(found.claim), "provenance": found.provenance()})
        return
    source = found.provenance()
    print_lines(
        f"{file}: {numbers['bits']:,} bits of {numbers['people']:,} people about {numbers['items']:,} items",
        f"From: {source['origin'] or 'unknown'}, by {source['made_by']}; noise {source['noise']}",
        f"Terms: {source['terms'] or 'not stated'}",
        f"SHA-256 of the content: {source['sha256']}",
        "",
    )
    print_paragraph(
        f"In plain sight. Which items each person rated: {numbers['bits_per_person_median']:,} of the median person, "
        f"{numbers['bits_per_person_most']:,} of the one with most. Which privacy weight each rating has. People have "
        "numbers here and no names, but whoever knows a few items that somebody rated can find that person's others."
    )
    print_lines("")
    print_paragraph(
        "Hidden. How each item was rated: a bit says it, but a coin has decided how often it lies. Whoever guesses "
        "between the lowest and the highest rating is right at most so often (a coin: 50 %):"
    )
    print_lines(
        *(
            f"  weight {row['weight']:.2f}, epsilon {row['epsilon']:.3g}: {percent(row['guess'])}"
            for row in numbers["ratings"]
        ),
        "",
    )
    whole = numbers["epsilon_per_person"]
    print_paragraph(
        f"Of one person. All ratings together have epsilon {whole['median']:.3g} for the median person and "
        f"{whole['most']:.3g} for the one with most."
    )
    print_lines("", claim_sentence(found.claim), "Whatever is trained on it reveals no more: it is post-processing.")


def _numbers(release: Release) -> dict[str, Any]:
    import numpy as np

    from hdpmf.privacy.accounting import Setting, cost
    from hdpmf.privacy.coding import WEIGHT_UNITS

    units, presence, survey = release.bits.units, release.presence, release.survey
    counts = np.bincount(presence.users, minlength=presence.n_users)
    totals = np.bincount(presence.users, units, presence.n_users) * survey.epsilon / WEIGHT_UNITS
    setting = Setting(HDP_BIT.name, epsilon=survey.epsilon, coding=survey.coding, scale=release.scale)
    rows, some = [], presence.n_users > 0
    for unit in np.unique(np.quantile(units, (0.0, 0.5, 1.0), method="nearest")).tolist() if some else ():
        weight = unit / WEIGHT_UNITS
        paid = cost(setting, "messages", weight=weight)
        rows.append({"weight": weight, "epsilon": paid.pure, "guess": paid.guess})
    return {
        "bits": len(units),
        "people": presence.n_users,
        "items": len(release.items),
        "bits_per_person_median": int(np.median(counts)) if some else 0,
        "bits_per_person_most": int(counts.max(initial=0)),
        "ratings": rows,
        "epsilon_per_person": {
            "median": float(np.median(totals)) if some else 0.0,
            "most": float(totals.max(initial=0.0)),
        },
        "max_ratings": release.max_ratings,
    }
