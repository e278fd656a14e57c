from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.lab.experiments import (
    parse_experiment,
    read_experiment,
)
from hdpmf.lab.experiments.spec import default_grids

HEAD = 'name = "mine"\ntitle = "Mine"\ndatasets = ["synthetic"]\n'


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("epoch = 3", "epoch"),
        ("epochs = 0", r"\$\.epochs"),
        ("epochs = 'many'", r"\$\.epochs"),
        ("solver = 'magic'", "solver is one of sequential, batch, not 'magic'"),
        ("methods = 'most'", "methods is a list, not 'most'"),
        ("tuning.split.kind = 'x'", "tuning.split.kind is one of hold-out, leave-one-out, "),
        ("data.mine.missing = 'x'", r"data\[...\].missing is one of error, drop"),
        ("data.mine.scale = [1]", "length >= 2"),
        ("seeds = []", r"\$\.seeds"),
        ("seeds = [-1]", r"\$\.seeds"),
        ("epsilon = 0", r"\$\.epsilon"),
        ("methods = ['svd']", "unknown method 'svd'"),
        ("methods = ['hdp-sums']", "did you mean 'hdp-sum'."),
        ("epoch = 3", "unknown field 'epoch'; did you mean 'epochs'. there are name, title, "),
        ("split.per_users = 3", "unknown field 'per_users' in .split.; did you mean 'per_user'."),
        ("data.mine.fiel = 'x'", "unknown field 'fiel' in .data.; did you mean 'file'."),
        ("tuning.split.kindd = 'x'", "unknown field 'kindd' in .split."),
        ("methods = ['mf']\nwithout = ['mf']", "no methods are left"),
        ("[vary]\nparameter = 'epsilon'\nvalues = [1, 1]", "twice"),
        (
            "[vary]\nparameter = 'beta'\nvalues = [1]",
            "no method here has an option 'beta'",
        ),
        ("[vary]\nparameter = 'fraction'\nvalues = [0]", "fractions"),
        ("[privacy]\nf_xx = 1", "privacy.f_xx is unknown"),
        ("[params]\nmomentum = 1", "no method here has an option 'momentum'"),
        (
            "methods = ['user-mean']\n[params]\nthreshold = 1",
            "user-mean has no option 'threshold'; there are",
        ),
        (
            "methods = ['hdpmf-w']\n[params]\nmechanism = 'paid'",
            "hdpmf-w has no option 'mechanism'",
        ),
        (
            "[tuning]\ngrids.mf = { learning_rat = [0.1] }",
            "tuning.grids.mf: mf has no option 'learning_rat'",
        ),
        ("[tuning]\nfolds = 1", r"\$\.tuning\.folds"),
        ("[split]\nkind = 'whole'", r"split\.kind is one of hold-out"),
        ("split = {kind = 'ratio', per_user = 3}", "split.per_user has no effect on the kind"),
        ("split = {fraction = 0.3}", "split.fraction has no effect on the kind 'hold-out'"),
        ("split = {ready_made = true}", "none of these data sets comes with a split"),
        ("tuning = {seed = 3}", "tuning.seed belongs to tuning.split"),
        (
            "tuning.split = {kind = 'leave-one-out', per_user = 3}",
            "tuning.split.per_user has no effect",
        ),
        (
            "split = {ready_made = true, per_user = 5}",
            "split.ready_made takes the split that a data set comes with, whatever split.per_user",
        ),
        ("= 3", "is not TOML"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(more: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_experiment(HEAD + more, "mine.toml")
    assert "mine" in str(caught.value)


def test_impossible_wishes_are_refused() -> None:
    with pytest.raises(PrivacyError):
        parse_experiment(HEAD + "[privacy]\nf_uc = 0.9", "mine.toml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_experiment(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_experiment(tmp_path / "binary.toml")


def test_defaults_are_the_papers() -> None:
    plain = parse_experiment(HEAD, "mine.toml")
    assert (plain.epochs, plain.epsilon, plain.solver, len(plain.seeds)) == (
        100,
        1.0,
        "sequential",
        5,
    )
    assert plain.tuning.folds == 5
    assert plain.tuning.grids == default_grids()
    assert plain.split.per_user == 10
