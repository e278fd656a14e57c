"""A small experiment on a small world."""

from __future__ import annotations

import pytest

from hdpmf.lab.experiments import Experiment, parse_experiment

SMALL = """
name = "small"
title = "A small experiment"
datasets = ["synthetic"]
methods = ["hdpmf", "hdpmf-r", "pdpmf", "user-mean"]
paper_methods = ["hdpmf", "pdpmf"]
factors = [4]
seeds = [0, 1]
epochs = 4

[tuning]
folds = 2
grids.default = { learning_rate = [0.01, 0.005], reg = [0.01] }

[split]
per_user = 3

[data.synthetic]
world = { n_users = 40, n_items = 30, n_ratings = 700 }
"""


@pytest.fixture
def small() -> Experiment:
    """Two methods to tune over two cells in two folds for two seeds (16 runs), then eight runs."""
    return parse_experiment(SMALL, "small.toml")
