"""Options of the one-round methods, ``hdp-sum`` and ``hdp-bit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.models import Model

METHODS = ("hdp-sum", "hdp-bit")
_PANEL = "hdp-sum and hdp-bit"

Items = Annotated[
    Path | None,
    typer.Option(
        "--items",
        metavar="FILE",
        help="Public item features: CSV, TSV or Parquet with item ids and any columns of numbers or words.",
        rich_help_panel=_PANEL,
    ),
]
Features = Annotated[
    bool | None,
    typer.Option(
        "--features/--no-features",
        help="Use public item features: those of --items, or genres and years of the data set.",
        show_default="where there are any",
        rich_help_panel=_PANEL,
    ),
]
Prior = Annotated[
    str | None,
    typer.Option(
        "--prior",
        metavar="NAME|FILE",
        help="A population prior: films (learned from ML-1M), films-100k (from ML-100K), or a file of: hdpmf prior.",
        rich_help_panel=_PANEL,
    ),
]
Coding = Annotated[
    str | None,
    typer.Option(
        "--coding",
        metavar="auto|soft|threshold|linear",
        help="How ratings are coded before they are sent.",
        show_default="by epsilon",
        rich_help_panel=_PANEL,
    ),
]
Design = Annotated[
    str | None,
    typer.Option(
        "--design", metavar="A|S", help="hdp-sum: sharpened or simple.", show_default="A", rich_help_panel=_PANEL
    ),
]
Labels = Annotated[
    bool,
    typer.Option(
        "--labels",
        help="hdp-sum: sum much-rated items per taste label, which each device draws once; needs features and --prior.",
        rich_help_panel=_PANEL,
    ),
]
Patterns = Annotated[
    int | None,
    typer.Option(
        "--patterns",
        metavar="N",
        help="hdp-bit: how many factors of who rates what with whom to use; 0 for none.",
        show_default="8",
        rich_help_panel=_PANEL,
    ),
]


def model_params(
    method: str,
    items: Path | None,
    features: bool | None,
    prior: str | None,
    coding: str | None,
    design: str | None,
    labels: bool,
    patterns: int | None,
) -> dict[str, Any]:
    """For ``make_model``; an option that the method does not have is an error, not something to leave out."""
    given: dict[str, Any] = {}
    if items is not None:
        if features is False:
            raise ConfigError("--no-features leaves nothing to do with --items; drop one of them")
        given["features"] = str(items)
    elif features is not None:
        given["features"] = features
    chosen = {"prior": prior, "coding": coding, "design": design, "labels": labels or None, "patterns": patterns}
    given |= {name: value for name, value in chosen.items() if value is not None}
    if given and method not in METHODS:
        raise ConfigError(f"{method} takes no {_option(next(iter(given)), items)}; it is for {' and '.join(METHODS)}")
    if design is not None and method != "hdp-sum":
        raise ConfigError(f"{method} has one design; --design is for hdp-sum")
    if labels and method != "hdp-sum":
        raise ConfigError(f"{method} has no taste labels; --labels is for hdp-sum")
    if patterns is not None and method != "hdp-bit":
        raise ConfigError(f"{method} does not see who rated what; --patterns is for hdp-bit")
    return given


def record(model: Model) -> dict[str, Any]:
    """What goes into the JSON of a fitted one-round model."""
    from hdpmf.models.one_round import OneRound

    if not isinstance(model, OneRound):
        return {}
    return {
        "n_features": len(model.feature_names_),
        "n_silent": model.n_silent_,
        "prior_origin": model.prior_origin_,
        "coding": model.coding_,
        "n_patterns": model.facts_.patterns.shape[1],
        "labels": bool(getattr(model, "labels", False)),
    }


def remarks(model: Model) -> list[str]:
    """What a user should be told about a fitted one-round model."""
    from hdpmf.models.one_round import OneRound

    if not isinstance(model, OneRound):
        return []
    lines = []
    if model.n_silent_:
        lines.append(f"{model.n_silent_:,} ratings sent nothing, because their privacy weight is below 1/64.")
    if model.prior_origin_ is not None:
        origin = model.prior_origin_
        lines.append(f"Population prior {origin['name']}, learned from {origin.get('dataset', 'unknown data')}.")
    return lines


def _option(name: str, items: Path | None) -> str:
    return "--items" if name == "features" and items is not None else f"--{name}"
