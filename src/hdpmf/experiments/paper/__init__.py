"""The paper's experiments, and what belongs beside them, as data; and their reduced version."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec

from hdpmf.errors import ConfigError
from hdpmf.experiments.expand import available
from hdpmf.experiments.spec import DataOptions, Experiment, Grid, parse_experiment

NAMES = (
    *("table1", "table2", "table3"),
    *("figure_epsilon_uc", "figure_f_uc", "figure_sparsity", "figure_ablation", "figure_epsilon", "table_no_features"),
)

_QUICK_GRIDS: dict[str, Grid] = {
    "default": {"learning_rate": (0.01, 0.005), "reg": (0.01,)},
    "dpmf": {"learning_rate": (0.005, 0.001), "reg": (0.01,)},
}
# Half the epochs of the paper: the schedule of the learning rate goes by share, so that this is the same descent.
_QUICK_EPOCHS = 50
_QUICK_WORLD = DataOptions(world={"n_users": 900, "n_items": 500, "n_ratings": 80_000})


@cache
def experiment(name: str) -> Experiment:
    """One of the paper's experiments, as written."""
    if name not in NAMES:
        raise ConfigError(f"the paper's experiments are {', '.join(NAMES)}; there is no {name!r}")
    text = files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return parse_experiment(text, f"{name}.toml")


def quick(full: Experiment) -> Experiment:
    """The reduced version: ML-100K (or the synthetic world), two seeds, half the epochs, a small grid, two folds."""
    dataset = "ml-100k" if available("ml-100k") else "synthetic"
    return msgspec.structs.replace(
        full,
        datasets=(dataset,),
        data={"synthetic": _QUICK_WORLD} if dataset == "synthetic" else {},
        seeds=full.seeds[:2],
        epochs=_QUICK_EPOCHS,
        tuning=msgspec.structs.replace(full.tuning, folds=2, grids=_QUICK_GRIDS),
        quick=True,
    )
