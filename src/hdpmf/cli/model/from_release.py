"""``hdpmf train --from-release``: a model of a released data set, by post-processing alone."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from hdpmf.cli.model.fitting import facts, remarks
from hdpmf.cli.shared.method_options import ModelOptions, known_options
from hdpmf.cli.shared.options import data_option
from hdpmf.cli.shared.output import claim_sentence, print_json, print_lines
from hdpmf.cli.shared.ratings import ChoicesOrRatings
from hdpmf.cli.shared.weights import WeightOptions
from hdpmf.errors import ConfigError
from hdpmf.methods.one_round import HDP_BIT

_CHOSEN_NOW = ("patterns", "prior", "list_model", "on", "n_threads")


@dataclass(frozen=True)
class TrainingData(ChoicesOrRatings):
    """Ratings, or what was released of some."""

    from_release: Annotated[
        Path | None,
        data_option(
            "--from-release",
            metavar="FILE",
            help="Train on a released data set (hdpmf release) instead of ratings. Only: hdp-bit.",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.from_release is None:
            super().__post_init__()
        elif any(getattr(self, field.name) for field in fields(self) if field.name != "from_release"):
            raise ConfigError("--from-release is all the data that there is; drop --train, --data and what is about it")


def train_from_release(
    path: Path,
    method: str | None,
    out: Path,
    options: ModelOptions,
    wishes: WeightOptions,
    seed: int,
    json: bool,
) -> None:
    """Train, save and say what came of it."""
    if method not in (None, HDP_BIT.name):
        raise ConfigError(f"a released data set is of {HDP_BIT.name}, not of {method}; drop METHOD")
    chosen = options.chosen(HDP_BIT.name)
    settled = next((name for name in chosen if name not in _CHOSEN_NOW), None)
    if settled is not None or wishes != WeightOptions():
        flag = "--weights (and what is about them)" if settled is None else known_options()[settled].flag
        now = ", ".join(known_options()[name].flag for name in _CHOSEN_NOW)
        raise ConfigError(f"{flag} was settled when the ratings were released; what can be chosen now: {now}")
    from hdpmf.models.hdp_bit import HDPBit
    from hdpmf.recommender.release import Release

    release = Release.load(path)
    begin = time.perf_counter()
    model = HDPBit.from_release(release, rng=seed, **chosen)
    lists = model.lists_
    seconds = time.perf_counter() - begin
    model.save(out)
    about = {} if lists is None else {"kind": lists.about.get("kind"), "bytes": lists.n_bytes}
    if json:
        print_json(
            {
                "method": HDP_BIT.name,
                "out": str(out),
                "recommender_part": str(out / "recommender"),
                "devices_part": str(out / "devices"),
                "n_bits": len(release.bits.items),
                "n_users": release.presence.n_users,
                "fit_seconds": seconds,
                "lists": about,
                **facts(HDP_BIT.name, model, seed, release.origin),
                "provenance": release.provenance(),
            }
        )
        return
    print_lines(
        f"{HDP_BIT.name} made of {len(release.bits.items):,} released bits of {release.origin} in {seconds:.2f} s; "
        f"lists by {about.get('kind')}, {about.get('bytes', 0):,} bytes on a device",
        *remarks(model),
        f"recommender's part (nothing private): {out / 'recommender'}",
        "No ratings were used, so it knows no user: model.fold_in(ratings) takes some in.",
        f"Terms of the data: {release.terms or 'not stated'}",
        claim_sentence(model.privacy),
    )
