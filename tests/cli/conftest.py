"""Running the command in this process, on small data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hdpmf.cli import main
from hdpmf.common.data import synthetic_world
from hdpmf.private.device.store import encryption
from hdpmf.private.device.store.device_store import DeviceStore

from .device_world import TABLE


@dataclass(frozen=True)
class Result:
    """How a call ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Result]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    """Call ``hdpmf`` with arguments."""

    def run(*arguments: object) -> Result:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main.run([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        code = end.value.code
        return Result(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run


@pytest.fixture
def cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys from passphrases in no time, and no passphrase from outside."""
    monkeypatch.setattr(encryption, "SCRYPT_COST", 16)
    monkeypatch.delenv("HDPMF_DEVICE_PASSPHRASE", raising=False)


@pytest.fixture
def path(tmp_path: Path, call: Call) -> Path:
    """A device's store that init made."""
    where = tmp_path / "me.hdpmf"
    assert call("device", "init", where).code == 0
    return where


@pytest.fixture
def rated(path: Path, call: Call) -> Path:
    """The same with three ratings and a catalogue."""
    with DeviceStore.open(path) as store:
        store.pin_catalogue(TABLE)
    for item, value in zip(TABLE.ids[:3], ("1", "5", "3"), strict=True):
        assert call("device", "rate", path, item, value).code == 0
    return path


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A training and a test file."""
    folder = tmp_path_factory.mktemp("ratings")
    train, test = synthetic_world(60, 40, 1_200, rng=3).hold_out(3, rng=0)
    train.write(folder / "train.csv")
    test.write(folder / "test.csv")
    return folder / "train.csv", folder / "test.csv"


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, files: tuple[Path, Path]) -> Path:
    """A saved model."""
    folder = tmp_path_factory.mktemp("models") / "one"
    with pytest.raises(SystemExit) as end:
        main.run(
            ["train", "hdpmf", "--train", str(files[0]), "--out", str(folder), "--epochs", "5"]
        )
    assert end.value.code == 0
    return folder
