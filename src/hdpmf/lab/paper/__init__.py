"""The paper's evaluation: its experiments, its published numbers and its report.

`hdpmf.lab.experiments` and `hdpmf.lab.report` know nothing of this package.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError
from hdpmf.lab.experiments.expansion import available, method_names
from hdpmf.lab.experiments.spec import (
    DataOptions,
    Experiment,
    Grid,
    default_grids,
    parse_experiment,
)

NAMES = (
    *("table3", "lists"),
    *(
        "figure_epsilon_uc",
        "figure_f_uc",
        "figure_sparsity",
        "figure_ablation",
        "figure_epsilon",
        "table_no_features",
    ),
)
"""The paper's experiments, and what belongs beside them, in the order of the report."""

GRIDS: dict[str, Grid] = {
    "default": {"learning_rate": (0.05, 0.01, 0.005, 0.001), "reg": (0.01, 0.001)},
    "dpmf": {"learning_rate": (0.005, 0.001, 0.0005, 0.0001), "reg": (0.01, 0.001)},
    # The strongest yardstick without privacy, as good as it gets: not held to the paper's K.
    "biased-mf": {
        "learning_rate": (0.005, 0.01),
        "reg": (0.05, 0.1, 0.2),
        "n_factors": (50,),
        "epochs": (40,),
    },
}
"""The grids of the paper's cross-validation; other methods have their own."""

_QUICK_GRIDS: dict[str, Grid] = {
    "default": {"learning_rate": (0.01, 0.005), "reg": (0.01,)},
    "dpmf": {"learning_rate": (0.005, 0.001), "reg": (0.01,)},
    "biased-mf": {"learning_rate": (0.01,), "reg": (0.1,), "n_factors": (50,), "epochs": (40,)},
}
# Half the epochs of the paper. The learning rate depends on the share of epochs done, so the
# descent is the same.
_QUICK_EPOCHS = 50
_QUICK_WITHOUT = ("bpr", "ials")  # they take longer than all else together
_QUICK_WORLD = DataOptions(world={"n_users": 900, "n_items": 500, "n_ratings": 80_000})


@cache
def experiment(name: str) -> Experiment:
    """Return one of the paper's experiments."""
    return _with_grids(parse_experiment(source(name), f"{name}.toml"), default_grids() | GRIDS)


def source(name: str) -> str:
    """Return the TOML file of one of the paper's experiments."""
    if name not in NAMES:
        raise ConfigError(f"the paper's experiments are {', '.join(NAMES)}; there is no {name!r}")
    return files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")


def only(experiments: Iterable[Experiment], methods: Sequence[str]) -> Iterator[Experiment]:
    """Yield the experiments that have some of these methods, with no others.

    Raises:
        ConfigError: A method is unknown, or in none of them.
    """
    found: list[str] = []
    for full in experiments:
        kept = tuple(name for name in method_names(full) if name in methods)
        found += kept
        if kept:
            yield msgspec.structs.replace(full, methods=kept, without=())
    for name in methods:
        if METHODS.named(name).name not in found:
            raise ConfigError(f"{name} is in none of these experiments; choose others with -e")


def quick(full: Experiment) -> Experiment:
    """Reduce an experiment: a small data set, two seeds, half the epochs, a small grid.

    The data set is ML-100K or, where that is not available, the synthetic world. Experiments with
    lists leave out ``_QUICK_WITHOUT``.
    """
    dataset = "ml-100k" if available("ml-100k") else "synthetic"
    reduced = msgspec.structs.replace(
        full,
        datasets=(dataset,),
        data={"synthetic": _QUICK_WORLD} if dataset == "synthetic" else {},
        seeds=full.seeds[:2],
        epochs=_QUICK_EPOCHS,
        without=(*full.without, *(_QUICK_WITHOUT if full.measure == "lists" else ())),
        quick=True,
    )
    return _with_grids(reduced, _QUICK_GRIDS, folds=2)


def _with_grids(experiment: Experiment, grids: dict[str, Grid], **changes: int) -> Experiment:
    return msgspec.structs.replace(
        experiment, tuning=msgspec.structs.replace(experiment.tuning, grids=grids, **changes)
    )
