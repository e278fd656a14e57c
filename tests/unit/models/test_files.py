import json
import os
import stat
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hdpmf.common.data import Ratings
from hdpmf.common.methods import METHODS
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.privacy import PrivacySpec
from hdpmf.errors import ConfigError, HdpmfError, ModelFileError, StorageError
from hdpmf.models import HDPMF, MF, load_model, make_model

QUICK = {"n_factors": 4, "epochs": 3, "rng": 12345}


@pytest.fixture
def model(split, weights):
    return HDPMF(**QUICK).fit(split[0], weights)


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", METHODS)
def test_a_model_comes_back_as_it_was(name, split, weights, tmp_path):
    train, test = split
    model = make_model(name, **METHODS[name].own(**QUICK)).fit(train, weights)
    model.save(tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert type(back) is type(model)
    assert back.get_params() == model.get_params()
    assert back.privacy == model.privacy
    measure = "score" if model.predicts_ratings else "rank"
    for again in (back, type(model).load(tmp_path / "m")):
        assert getattr(again, measure)(test) == getattr(model, measure)(test)
    if name in ("mf", "hdpmf"):
        user = train.users.ids[0]
        assert back.recommend(user) == model.recommend(user)


@pytest.mark.parametrize("name", METHODS)
def test_what_is_claimed_is_in_the_file_word_for_word(name, split, weights, tmp_path):
    """A loaded model works its claim out again, so that only the file shows what a reader of it
    is told.
    """
    model = make_model(name, **METHODS[name].own(**QUICK)).fit(split[0], weights)
    model.save(tmp_path / "m")
    claim, said = model.privacy, PublicModel.load(tmp_path / "m" / "recommender").about["privacy"]
    assert said == asdict(claim)
    assert bool(said["honest"]) == (claim.status == "nominal")


def test_string_ids_and_other_scales_come_back(tmp_path):
    ratings = Ratings.from_arrays(
        ["ä", "b", "b"], ["x::1", "x::1", "y z"], [0.5, 3, 4.5], scale=(0.5, 5)
    )
    MF(**QUICK).fit(ratings).save(tmp_path / "m")
    back = MF.load(tmp_path / "m")
    assert back.devices_.users.ids.tolist() == ["b", "ä"]
    assert back.catalogue_.scale == ratings.scale
    with pytest.raises(ConfigError, match="holds a MF"):
        HDPMF.load(tmp_path / "m")


def numbers_in(folder):
    """Every float, at every offset, that a curious reader could find in the files of a folder."""
    found = set()
    for path in folder.iterdir():
        data = path.read_bytes()
        for offset in range(8):
            for dtype, width in ((np.float32, 4), (np.float64, 8)):
                usable = (len(data) - offset) // width * width
                found.update(np.frombuffer(data[offset : offset + usable], dtype).tolist())
    return found


def test_the_recommenders_part_has_nothing_private(model, saved, split, weights):
    train, _ = split
    public = numbers_in(saved / "recommender")
    for private in (
        model.devices_.vectors[train.user_counts() > 0].ravel(), weights.beta[weights.beta < 1],
        weights.gamma[weights.gamma < 1], model.devices_.means,
    ):  # fmt: skip
        exact = {float(x) for x in private} | {float(np.float32(x)) for x in private}
        # A user's mean can be a round number that a header holds by chance; none of the others can.
        assert len(exact & public) <= (3 if private is model.devices_.means else 0)
    # The same search does find what is there.
    assert set(model.catalogue_.factors.ravel().tolist()) <= public
    assert {float(x) for x in weights.beta} <= numbers_in(saved / "devices")
    text = (saved / "recommender" / "model.json").read_text()
    facts = json.loads(text)
    assert "12345" not in text
    assert set(facts["about"]) == {"model", "parameters", "privacy", "implicit"}
    assert facts["about"]["privacy"]["status"] == "nominal"


def test_string_user_ids_are_not_in_the_recommenders_part(tmp_path):
    ratings = Ratings.from_arrays(["alice-in-chains", "bob"], [1, 2], [5, 1])
    HDPMF(**QUICK).fit(ratings, PrivacySpec().draw(ratings, rng=0)).save(tmp_path / "m")
    for path in (tmp_path / "m" / "recommender").iterdir():
        assert b"alice" not in path.read_bytes()
    assert b"alice" in (tmp_path / "m" / "devices" / "devices.json").read_bytes()


def test_the_devices_part_is_for_its_owner_only(saved):
    assert stat.S_IMODE((saved / "devices").stat().st_mode) == 0o700
    for path in (saved / "devices").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


FILES = [
    "recommender/model.json",
    "recommender/numbers.safetensors",
    "devices/devices.json",
    "devices/devices.safetensors",
]


@pytest.mark.parametrize("name", FILES)
def test_missing_and_damaged_files_are_named(name, saved):
    path = saved / name
    whole = path.read_bytes()
    for damaged in (
        b"",
        whole[: len(whole) // 2],
        whole[:-1],
        b"\x00" + whole[1:],
        b"[]",
        b"{}",
        b'"x"',
    ):
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError):
            load_model(saved)
    path.unlink()
    with pytest.raises(ModelFileError, match=path.name):
        load_model(saved)
    with pytest.raises(ModelFileError):
        load_model(saved / "nowhere")


def test_a_newer_format_asks_for_an_upgrade(saved):
    path = saved / "recommender" / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(ModelFileError, match="upgrade"):
        load_model(saved)


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(name=st.sampled_from(FILES), data=st.data())
def test_any_damage_gives_a_model_or_our_error(saved, name, data):
    path = saved / name
    whole = path.read_bytes()
    raw = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, min(len(raw) - 1, 2000)))] = data.draw(st.integers(0, 255))
    try:
        path.write_bytes(bytes(raw))
        load_model(saved)
    except HdpmfError:
        pass
    finally:
        path.write_bytes(whole)


def test_saving_replaces_a_model_if_told_and_nothing_else(model, saved, split, weights, tmp_path):
    other = HDPMF(**(QUICK | {"rng": 5})).fit(split[0], weights)
    with pytest.raises(StorageError, match=r"a model in .* already; .*replace=True"):
        other.save(saved)
    assert load_model(saved).score(split[1]) == model.score(split[1])
    other.save(saved, replace=True)
    assert load_model(saved).score(split[1]) == other.score(split[1])
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("three years")
    with pytest.raises(StorageError, match="not a saved model"):
        model.save(precious, replace=True)
    assert (precious / "thesis.txt").read_text() == "three years"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "precious"]


def test_a_full_disk_leaves_the_earlier_model(model, saved, split, monkeypatch):
    before = load_model(saved).score(split[1])
    real = os.fsync
    calls = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        model.save(saved, replace=True)
    assert load_model(saved).score(split[1]) == before
    assert [p.name for p in saved.parent.iterdir()] == ["model"]


def test_a_real_file_size_limit_leaves_nothing_behind(saved, tmp_path):
    """A process that may only write tiny files fails cleanly, for real."""
    code = f"""
import resource, signal
from hdpmf import load_model
from hdpmf.errors import StorageError
model = load_model({str(saved)!r})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
try:
    model.save({str(tmp_path / "new")!r})
except StorageError as error:
    print("refused:", error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("refused:"), done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]


def test_a_folder_that_cannot_be_written(model, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError):
        model.save(tmp_path / "file" / "model")
    with pytest.raises(StorageError, match="not a saved model"):
        model.save(tmp_path / "file")
