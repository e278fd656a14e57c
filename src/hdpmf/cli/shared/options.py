"""Options that several commands share, so that one name means one thing everywhere.

Nothing heavy is imported here: every ``hdpmf`` call, ``--help`` and tab completion included, loads this module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.methods import METHODS

DATASET_NAMES = ("synthetic", "ml-100k", "ml-1m", "douban", "yelp", "yelp-sample")
"""What ``hdpmf.ratings.dataset_names()`` returns (a test keeps them equal)."""


def complete_method(incomplete: str) -> list[str]:
    """Methods that begin like what was typed."""
    return [name for name in METHODS if name.startswith(incomplete)]


def complete_dataset(incomplete: str) -> list[str]:
    """Data sets that begin like what was typed."""
    return [name for name in DATASET_NAMES if name.startswith(incomplete)]


def _complete_from(*words: str) -> object:
    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


DATA_PANEL, MODEL_PANEL, PRIVACY_PANEL, RUN_PANEL = "Data", "Model", "Privacy", "Run"

Method = Annotated[
    str,
    typer.Argument(metavar="METHOD", help=f"One of: {', '.join(METHODS)}.", autocompletion=complete_method),
]

TrainFile = Annotated[
    Path | None,
    typer.Option(
        "--train",
        metavar="FILE",
        help="Training ratings: CSV, TSV, '::' or Parquet, also .gz.",
        rich_help_panel=DATA_PANEL,
    ),
]
TestFile = Annotated[
    Path | None,
    typer.Option("--test", metavar="FILE", help="Test ratings, in the same form.", rich_help_panel=DATA_PANEL),
]
DatasetName = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="NAME",
        help=f"A data set: {', '.join(DATASET_NAMES)}.",
        autocompletion=complete_dataset,
        rich_help_panel=DATA_PANEL,
    ),
]
HoldOut = Annotated[
    int | None,
    typer.Option(
        "--hold-out",
        metavar="N",
        help="Test on N ratings of each user, chosen by the seed.",
        show_default="10",
        rich_help_panel=DATA_PANEL,
    ),
]
ReadySplit = Annotated[
    bool,
    typer.Option(
        "--ready-split",
        help="Use the split that the data set comes with (ml-100k: ua.base, ua.test).",
        rich_help_panel=DATA_PANEL,
    ),
]
Scale = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--scale",
        metavar="LOW HIGH",
        help="The public rating scale of the files.",
        show_default="1 5",
        rich_help_panel=DATA_PANEL,
    ),
]
Step = Annotated[
    float | None,
    typer.Option(
        "--step",
        metavar="STEP",
        help="Distance between neighbouring ratings of that scale (0.5 for half stars).",
        show_default="any number will do",
        rich_help_panel=DATA_PANEL,
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="OURS=THEIRS",
        help="What the files call a column, as user=customer; repeatable.",
        rich_help_panel=DATA_PANEL,
    ),
]

Factors = Annotated[
    int, typer.Option("--factors", "-k", metavar="K", help="Length of the vectors.", rich_help_panel=MODEL_PANEL)
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        "--lr",
        metavar="RATE",
        help="Initial learning rate.",
        show_default="by method and solver",
        rich_help_panel=MODEL_PANEL,
    ),
]
Reg = Annotated[float, typer.Option("--reg", metavar="R", help="Regularisation.", rich_help_panel=MODEL_PANEL)]
Epochs = Annotated[
    int, typer.Option("--epochs", metavar="N", help="Passes over the ratings.", rich_help_panel=MODEL_PANEL)
]
Solver = Annotated[
    str,
    typer.Option(
        "--solver",
        metavar="batch|sequential",
        help="batch: Algorithm 1, what a federation can run; sequential: the published numbers' procedure.",
        autocompletion=_complete_from("batch", "sequential"),
        rich_help_panel=MODEL_PANEL,
    ),
]

Epsilon = Annotated[
    float,
    typer.Option(
        "--epsilon",
        metavar="E",
        help="The largest budget of a rating; its own is its weight times this.",
        rich_help_panel=PRIVACY_PANEL,
    ),
]
NoiseShare = Annotated[
    str,
    typer.Option(
        "--h",
        metavar="auto|item|shared",
        help="The recommender's draws: per item, or shared by all.",
        autocompletion=_complete_from("auto", "item", "shared"),
        rich_help_panel=PRIVACY_PANEL,
    ),
]
Noise = Annotated[
    str,
    typer.Option(
        "--noise",
        metavar="epoch|once",
        help="Noise drawn anew in every epoch, or once.",
        autocompletion=_complete_from("epoch", "once"),
        rich_help_panel=PRIVACY_PANEL,
    ),
]
Threshold = Annotated[
    str,
    typer.Option(
        "--threshold",
        metavar="mean|min|max|NUMBER",
        help="pdpmf: the budget below which ratings are sampled.",
        autocompletion=_complete_from("mean", "min", "max"),
        rich_help_panel=PRIVACY_PANEL,
    ),
]
Spec = Annotated[
    list[str] | None,
    typer.Option(
        "--spec",
        metavar="KEY=VALUE",
        help="The paper's Table II by its names (f_uc, f_um, f_ic, f_im, epsilon_uc, ...); repeatable.",
        rich_help_panel=PRIVACY_PANEL,
    ),
]
UniformWeights = Annotated[
    bool,
    typer.Option(
        "--uniform-weights",
        help="Every privacy weight is 1: everybody allows all of epsilon.",
        rich_help_panel=PRIVACY_PANEL,
    ),
]
WeightsSeed = Annotated[
    int | None,
    typer.Option(
        "--weights-seed",
        metavar="SEED",
        help="Draw the weights by another seed.",
        show_default="--seed",
        rich_help_panel=PRIVACY_PANEL,
    ),
]

Seed = Annotated[
    int,
    typer.Option("--seed", metavar="SEED", help="Drives split, weights and training.", rich_help_panel=RUN_PANEL),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="Threads; the result does not depend on it.",
        show_default="all cores",
        rich_help_panel=RUN_PANEL,
    ),
]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="cpu|gpu|auto",
        help="Where factors are trained; auto: on a GPU, if one can be used. There a seed gives other numbers.",
        autocompletion=_complete_from("cpu", "gpu", "auto"),
        rich_help_panel=RUN_PANEL,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document and nothing else.", rich_help_panel=RUN_PANEL)
]
