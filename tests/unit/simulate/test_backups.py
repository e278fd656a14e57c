"""The drill: a recommender's folder is lost, a backup comes back, and devices pay for nothing
twice.
"""

from __future__ import annotations

import shutil
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.errors import ConfigError, FederationError, SecureSumError, StorageError
from hdpmf.untrusted.service.backup import back_up, restore
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import RunSettings
from tests.world import FEW, Federation

pytestmark = pytest.mark.slow

SUM = RunSettings(method="hdp-sum", view="sums", minimum=5, rounds=1)
BIT = RunSettings(method="hdp-bit", view="messages", minimum=5, rounds=1)
ROUNDS = RunSettings(  # spends a rating's whole life
    method="hdpmf", view="messages", minimum=5, rounds=4, factors=3, epsilon=1.0
)


def paid(town: Federation) -> list[Any]:
    return [
        [
            (entry.run, entry.action, entry.number, entry.paid)
            for entry in store.ledger.entries()
            if entry.paid
        ]
        for store in town.stores
    ]


@pytest.fixture
def town(tmp_path: Path) -> Federation:
    return Federation(synthetic_world(8, 60, 160, rng=3), folder=tmp_path, policy=FEW)


def lose_and_restore(town: Federation, file: Path) -> Service:
    """The service after its folder was lost and a backup restored."""
    shutil.rmtree(town.folder.path)
    restore(file, town.folder.path)
    return town.restart_service()


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SUM, BIT, ROUNDS], ids=lambda settings: settings.method)
def test_the_drill(town: Federation, tmp_path: Path, settings: RunSettings) -> None:
    """Back up before each exchange of a run, let the run end, lose the folder, restore each of
    the backups, go on.
    """
    run = town.service.begin(settings)
    backups: list[Path] = []

    def save(number: int, asked: object) -> None:
        backups.append(tmp_path / f"backup {number}")
        back_up(town.folder.path, backups[-1])

    town.network.before = save
    whole = town.service.conduct(run)
    town.network.before = lambda number, asked: None
    before, ended, stopped = paid(town), 0, 0
    assert all(before)
    assert len(backups) >= 2
    for backup in backups:
        service = lose_and_restore(town, backup)
        assert service.folder.unfinished() == run
        try:
            outcome = service.conduct(run)
            assert outcome.summary["users"] == whole.summary["users"]
            ended += 1
        except (FederationError, SecureSumError):
            stopped += 1
            service.give_up(run)
        assert paid(town) == before  # nothing was paid again, nothing was drawn again
    assert ended > 0  # from a backup of the last steps a run ends as it did
    assert stopped > 0 or settings is BIT  # bits are repeated as they were; a sum is made once
    with suppress(FederationError, SecureSumError):  # and a new run finds nothing left to spend
        town.run(settings)
    assert paid(town) == before


def test_bits_are_the_same_bits(town: Federation, tmp_path: Path) -> None:
    run = town.service.begin(BIT)
    back_up(town.folder.path, tmp_path / "backup")
    town.service.conduct(run)
    town.look()
    released = (town.folder.path / "runs" / run.hex() / "ratings.release").read_bytes()
    service = lose_and_restore(town, tmp_path / "backup")
    with pytest.raises(FederationError):  # terms are agreed on once
        service.conduct(run)
    release = town.folder.path / "runs" / run.hex() / "ratings.release"
    assert not release.exists() or release.read_bytes() == released


def test_a_backup_has_everything_and_is_private(town: Federation, tmp_path: Path) -> None:
    ensure_certificates(town.folder.path / "tls", ["localhost"])
    for name in ("state.json", ".serving", "runs/.half"):
        (town.folder.path / name).write_text("made anew")
    town.run(BIT)
    file = tmp_path / "backup"
    made = back_up(town.folder.path, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert made.name == "town"
    assert {"tls/authority.key", "roster.json", "config.toml", "catalogue.msgpack", "model"} <= set(
        made.files
    )
    assert not {"state.json", ".serving", "runs/.half"} & set(made.files)
    restore(file, tmp_path / "new")
    for name in made.files:
        assert (tmp_path / "new" / name).is_symlink() == (town.folder.path / name).is_symlink()
        if not (town.folder.path / name).is_symlink():
            assert (tmp_path / "new" / name).read_bytes() == (town.folder.path / name).read_bytes()
    assert (tmp_path / "new" / "tls" / "authority.key").stat().st_mode & 0o077 == 0
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
    there = ServiceFolder(tmp_path / "new")
    assert there.model() is not None
    assert there.runs() == town.service.folder.runs()
    assert there.enrolled.digest == town.service.folder.enrolled.digest
    with pytest.raises(ConfigError, match="not empty"):
        restore(file, tmp_path / "new")
    with pytest.raises(ConfigError, match="exists already"):
        back_up(town.folder.path, file)


def test_all_files_are_of_one_instant(
    town: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The roster changes while it is copied: it is copied again."""
    real, left = tarfile.TarFile.addfile, 2
    folder = ServiceFolder(town.folder.path)

    def slow(self: tarfile.TarFile, info: tarfile.TarInfo, *rest: Any) -> None:
        nonlocal left
        if left and info.name == "config.toml":
            left -= 1
            folder.expel(f"d{left}")
        real(self, info, *rest)

    monkeypatch.setattr(tarfile.TarFile, "addfile", slow)
    pauses: list[float] = []
    back_up(town.folder.path, tmp_path / "backup", sleep=pauses.append)
    assert len(pauses) == 2
    restore(tmp_path / "backup", tmp_path / "new")
    assert ServiceFolder(tmp_path / "new").enrolled.digest == folder.enrolled.digest
    assert len(folder.enrolled) == 6


def test_a_folder_that_never_rests_is_said(
    town: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tarfile.TarFile.addfile

    def restless(self: tarfile.TarFile, *given: Any) -> None:
        (town.folder.path / "roster.json").touch()
        real(self, *given)

    monkeypatch.setattr(tarfile.TarFile, "addfile", restless)
    with pytest.raises(StorageError, match="changed all the time"):
        back_up(town.folder.path, tmp_path / "backup", sleep=lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_damage_is_noticed(town: Federation, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    back_up(town.folder.path, file)
    data = file.read_bytes()
    place = data.index(b'name = "town"')
    spoiled = {
        "cut": data[: len(data) // 2],
        "flipped": data[:place] + b"N" + data[place + 1 :],
        "something else": b"no archive at all" * 100,
        "empty": b"",
    }
    for wrong in spoiled.values():
        file.write_bytes(wrong)
        with pytest.raises(StorageError):
            restore(file, tmp_path / "new")
        assert not (tmp_path / "new").exists()
    with pytest.raises(ConfigError, match="no backup"):
        restore(tmp_path / "nowhere", tmp_path / "new")


def test_an_archive_that_reaches_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    with tarfile.open(tmp_path / "bad", "w") as archive:
        archive.add(tmp_path / "x", "../outside")
    with pytest.raises(StorageError):
        restore(tmp_path / "bad", tmp_path / "deep" / "new")
    assert not (tmp_path / "deep" / "outside").exists()
