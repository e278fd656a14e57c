"""Options that several commands share, so that one name means one thing everywhere.

Nothing heavy is imported here: every ``hdpmf`` call, ``--help`` and tab completion included, loads this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any

import typer

from hdpmf.methods import METHODS

DATASET_NAMES = ("synthetic", "ml-100k", "ml-1m", "douban", "yelp", "yelp-sample")
"""What ``hdpmf.ratings.dataset_names()`` returns (a test keeps them equal)."""


def completing(words: Iterable[str]) -> Callable[[str], list[str]]:
    """Tab completion from some words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


complete_dataset = completing(DATASET_NAMES)

DATA_PANEL, MODEL_PANEL, PRIVACY_PANEL, RUN_PANEL = "Data", "Model", "Privacy", "Run"

data_option: Any = partial(typer.Option, rich_help_panel=DATA_PANEL)
model_option: Any = partial(typer.Option, rich_help_panel=MODEL_PANEL)
privacy_option: Any = partial(typer.Option, rich_help_panel=PRIVACY_PANEL)
run_option: Any = partial(typer.Option, rich_help_panel=RUN_PANEL)

_method: Any = partial(typer.Argument, help=f"One of: {', '.join(METHODS)}.", autocompletion=completing(METHODS))
Method = Annotated[str, _method(metavar="METHOD")]
MethodOrNone = Annotated[str | None, _method(metavar="[METHOD]")]
DatasetName = Annotated[
    str | None,
    data_option(
        "--data", metavar="NAME", help=f"A data set: {', '.join(DATASET_NAMES)}.", autocompletion=complete_dataset
    ),
]
Scale = Annotated[
    tuple[float, float] | None,
    data_option("--scale", metavar="LOW HIGH", help="The public rating scale of the files.", show_default="1 5"),
]
Columns = Annotated[
    list[str] | None,
    data_option("--column", metavar="OURS=THEIRS", help="What the files call a column, as user=customer; repeatable."),
]
Duplicates = Annotated[
    str | None,
    data_option(
        "--duplicates",
        metavar="error|last|first|mean|max",
        help="Several ratings of one item by one user: which counts (last and first by time, else by row).",
        show_default="error",
        autocompletion=completing(("error", "last", "first", "mean", "max")),
    ),
]
Seed = Annotated[int, run_option("--seed", metavar="SEED", min=0, help="Drives split, weights and training.")]
Threads = Annotated[
    int | None,
    run_option("--threads", metavar="N", help="Threads; the result does not depend on it.", show_default="all cores"),
]
Json = Annotated[bool, run_option("--json", help="Print one JSON document and nothing else.")]
