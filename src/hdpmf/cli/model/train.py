"""``hdpmf train``: fit a model on ratings, or on a released data set, and save it."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.options.common import (
    Json,
    MethodOrNone,
    Seed,
    data_option,
    model_option,
    with_option_groups,
)
from hdpmf.cli.options.methods import ModelOptions, known_options, parameter_fields
from hdpmf.cli.options.ratings import FeedbackOptions
from hdpmf.cli.options.weights import WeightOptions
from hdpmf.cli.output import (
    claim_fields,
    claim_sentence,
    epochs_progress,
    note,
    print_json,
    print_lines,
)
from hdpmf.common.methods import METHODS, method_named
from hdpmf.common.methods.builtin import HDP_BIT
from hdpmf.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.common.privacy import PrivacyWeights
    from hdpmf.common.privacy.accounting import PersonCosts
    from hdpmf.models import Estimator


def make(method: str, options: ModelOptions, seed: int) -> Estimator:
    """The model that the options describe."""
    from hdpmf.models import make_model

    seeded = {"rng": seed} if "rng" in method_named(method).options else {}
    return make_model(method, **options.chosen(method), **seeded)


def fit(
    method: str,
    model: Estimator,
    ratings: Ratings,
    weights: PrivacyWeights,
    validation: Ratings | None = None,
) -> float:
    """Fit it, with a bar; the seconds that it took."""
    with epochs_progress(
        f"training {method_named(method).label}", getattr(model, "epochs", 1)
    ) as after_epoch:
        begin = time.perf_counter()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            model.fit(ratings, weights, validation=validation, callbacks=[after_epoch])
        seconds = time.perf_counter() - begin
    for warning in warned:
        note(f"warning: {warning.message}")
    return seconds


def facts(method: str, model: Estimator, seed: int, data: str) -> dict[str, Any]:
    """What JSON says about a fitted model, so that the run can be repeated: what it was really
    trained with.
    """
    from hdpmf.models.one_round import OneRound

    document = {
        **parameter_fields(method, model.get_params()),
        **claim_fields(model.privacy),
        "seed": seed,
        "data": data,
    }
    if isinstance(model, OneRound):
        document |= {
            "n_features": len(model.feature_names_),
            "n_silent": model.n_silent_,
            "prior_origin": model.prior_origin_,
            "coding": model.coding_,
            "n_patterns": getattr(model, "patterns", model.facts_.patterns.shape[1]),
            "labels": bool(getattr(model, "labels", False)),
        }
    return document


def persons(
    method: str, model: Estimator, ratings: Ratings, weights: PrivacyWeights
) -> PersonCosts | None:
    """What all ratings of one person cost together, where that is proved; else `hdpmf privacy
    explain` says more.
    """
    from dataclasses import replace

    from hdpmf.common.privacy.accounting import Setting, person_costs

    if model.privacy.status != "proved" or not model.privacy.epsilon:
        return None
    setting = replace(Setting.from_params(method, model.get_params()), scale=ratings.scale)
    return person_costs(setting, method_named(method).headline, ratings, weights)


def remarks(model: Estimator, whole: PersonCosts | None = None) -> list[str]:
    """What a user should be told about a fitted one-round model, and about whole persons."""
    from hdpmf.models.one_round import OneRound

    lines = [] if whole is None else [f"Epsilon is of one rating; {whole}."]
    if not isinstance(model, OneRound):
        return lines
    if model.n_silent_:
        lines.append(
            f"{model.n_silent_:,} ratings sent nothing, because their privacy weight is below 1/64."
        )
    if model.prior_origin_ is not None:
        origin = model.prior_origin_
        lines.append(
            f"Population prior {origin['name']}, learned from "
            f"{origin.get('dataset', 'unknown data')}."
        )
    return lines


_CHOSEN_NOW = ("patterns", "prior", "list_model", "on", "n_threads")


@dataclass(frozen=True)
class TrainingOptions(FeedbackOptions):
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
        elif any(
            getattr(self, field.name) for field in fields(self) if field.name != "from_release"
        ):
            raise ConfigError(
                "--from-release is all the data that there is; drop --train, --data and what "
                "is about it"
            )


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
        flag = (
            "--weights (and what is about them)"
            if settled is None
            else known_options()[settled].flag
        )
        now = ", ".join(known_options()[name].flag for name in _CHOSEN_NOW)
        raise ConfigError(
            f"{flag} was settled when the ratings were released; what can be chosen now: {now}"
        )
    from hdpmf.models.hdp_bit import HDPBit
    from hdpmf.untrusted.recommender.release import Release

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
        f"{HDP_BIT.name} made of {len(release.bits.items):,} released bits of "
        f"{release.origin} in {seconds:.2f} s; "
        f"lists by {about.get('kind')}, {about.get('bytes', 0):,} bytes on a device",
        *remarks(model),
        f"recommender's part (nothing private): {out / 'recommender'}",
        "No ratings were used, so it knows no user: model.fold_in(ratings) takes some in.",
        f"Terms of the data: {release.terms or 'not stated'}",
        claim_sentence(model.privacy),
    )


@with_option_groups
def train(
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Where to save; an earlier model is replaced."
        ),
    ],
    source: TrainingOptions,
    options: ModelOptions,
    wishes: WeightOptions,
    method: MethodOrNone = None,
    catalogue: Annotated[
        Path | None,
        data_option(
            "--catalogue",
            metavar="FILE",
            help="The model's items, a public list (CSV, TSV or Parquet): then it does not tell "
            "which ones were rated.",
        ),
    ] = None,
    validation_fraction: Annotated[
        float | None,
        model_option(
            "--validation-fraction",
            metavar="F",
            help="Keep this part of the ratings out of training and measure on it.",
        ),
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train METHOD on all ratings and save the model, what is private apart from what is not."""
    if source.from_release is not None:
        if catalogue is not None or validation_fraction is not None:
            raise ConfigError(
                "--catalogue and --validation-fraction are about ratings; a released data set "
                "has none"
            )
        _check_place(out)
        train_from_release(source.from_release, method, out, options, wishes, seed, json)
        return
    if method is None:
        raise ConfigError(
            "say what to train: METHOD, or --from-release FILE (hdpmf methods lists the methods)"
        )
    model = make(method, options, seed)
    if "early_stopping" in options.given and validation_fraction is None:
        raise ConfigError(
            "--patience needs ratings to validate on; give --validation-fraction as well"
        )
    _check_place(out)
    ratings = source.load()
    if catalogue is not None:
        ratings = _over(ratings, catalogue)
    if options.items is not None and ratings.item_table is None:
        ratings = _with_titles(ratings, options.items)
    learning, validation = _set_aside(ratings, validation_fraction, seed)
    weights = wishes.draw(learning, seed, source)
    seconds = fit(method, model, learning, weights, validation)
    whole = persons(method, model, learning, weights)
    validation_mse = (
        None if validation is None or validation.implicit else model.score(validation)["mse"]
    )
    model.save(out)

    epochs_run = len(getattr(model, "history_", ()))
    recommender_part, devices_part = out / "recommender", out / "devices"
    if json:
        print_json(
            {
                "method": method,
                "out": str(out),
                "recommender_part": str(recommender_part),
                "devices_part": str(devices_part),
                "n_train": len(learning),
                "n_validation": 0 if validation is None else len(validation),
                "validation_mse": validation_mse,
                "epochs_run": epochs_run,
                "fit_seconds": seconds,
                **wishes.record(seed, source),
                **facts(method, model, seed, ratings.name),
                "epsilon_per_person": None if whole is None else whole.fields(),
            }
        )
        return
    print_lines(
        f"{METHODS[method].label} trained on {len(learning):,} "
        f"{'choices' if ratings.implicit else 'ratings'} of "
        f"{ratings.name} in {seconds:.2f} s ({epochs_run} epochs)"
    )
    if validation is not None and validation_mse is not None:
        print_lines(f"validation MSE {validation_mse:.4f} on {len(validation):,} ratings")
    print_lines(
        *([wishes.sentence(seed, source)] if "epsilon" in METHODS[method].options else []),
        *remarks(model, whole),
        f"recommender's part (nothing private): {recommender_part}",
        f"devices' part (PRIVATE, readable by you only): {devices_part}",
        claim_sentence(model.privacy),
    )


def _with_titles(ratings: Ratings, items: Path) -> Ratings:
    """The ratings with what the file of features says for people: titles, genres, years."""
    from hdpmf.common.data.item_features import read_item_table

    table = read_item_table(items)
    return ratings.describe(table if ratings.items.is_integer else table.with_text_ids())


def _set_aside(
    ratings: Ratings, fraction: float | None, seed: int
) -> tuple[Ratings, Ratings | None]:
    if fraction is None:
        return ratings, None
    if not 0.0 < fraction < 1.0:
        raise ConfigError(f"--validation-fraction must be above 0 and below 1, not {fraction:g}")
    import numpy as np

    aside = np.random.default_rng(seed).random(len(ratings)) < fraction
    if aside.all() or not aside.any():
        raise ConfigError(
            f"--validation-fraction {fraction:g} of {len(ratings):,} ratings leaves nothing "
            "on one side"
        )
    return ratings.take(~aside), ratings.take(aside)


def _check_place(out: Path) -> None:
    """Refuse before training, not after it."""
    if (
        out.exists()
        and not (out / "recommender").is_dir()
        and (not out.is_dir() or any(out.iterdir()))
    ):
        raise StorageError(f"{out} exists and is not a saved model; choose a new folder")
    nearest = next(folder for folder in out.absolute().parents if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise StorageError(
            f"cannot write to {out}: no permission in {nearest}; choose another folder"
        )


def _over(ratings: Ratings, catalogue: Path) -> Ratings:
    from hdpmf.common.data.item_features import over_file

    listed = over_file(ratings, catalogue)
    if len(listed) < len(ratings):
        note(
            f"{len(ratings) - len(listed):,} ratings of items that are not in {catalogue} "
            "are left out."
        )
    return listed
