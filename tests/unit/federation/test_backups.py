"""The drill: a recommender's folder is lost, a backup comes back, and devices pay for nothing
twice.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.net import DeviceReply, InProcessNetwork
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import DeviceCard
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.errors import ConfigError, FederationError, SecureSumError, StorageError
from hdpmf.lab.simulate.population import deal
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.backup import back_up, restore
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import Pace, RunSettings

pytestmark = pytest.mark.slow

WORLD = synthetic_world(8, 60, 160, rng=3)
POLICY = Policy(
    methods=("hdp-sum", "hdp-bit", "hdpmf"), require_sums=False, min_participants=2, min_devices=2,
    min_neighbours=1, threshold_fraction="1/2", max_rounds=5, min_fraction="0", max_colluding="0",
    allow_nominal=True, min_epsilon_per_run=1e-9,
)  # fmt: skip
SUM = RunSettings(method="hdp-sum", view="sums", minimum=5, rounds=1)
BIT = RunSettings(method="hdp-bit", view="messages", minimum=5, rounds=1)
ROUNDS = RunSettings(method="hdpmf", view="messages", minimum=5, rounds=4, factors=3)


class Watched(InProcessNetwork):
    """Does something before the n-th exchange."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__(answers)
        self.exchanges = 0
        self.before: Callable[[int], None] = lambda _: None

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        self.exchanges += 1
        self.before(self.exchanges)
        return super().exchange(messages, deadline)


class Village:
    """Eight devices and a service, all in this process."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.stores, cards, answers = [], [], {}
        for number, home in enumerate(deal(WORLD, PrivacyWeights.uniform(WORLD), 8, 0)):
            store = stack.enter_context(DeviceStore.create(":memory:", policy=POLICY))
            store.add(home.ratings)
            name = store.identity.public.hex()
            agent = Participant(store, noise=SeededNoise(number), simulation=True, seed=0)
            answers[name] = agent.answer
            self.stores.append(store)
            cards.append(DeviceCard(name=f"d{number}", identity=name))
        for store in self.stores:
            store.pin_roster([bytes.fromhex(card.identity) for card in cards], [1] * 8)
        table = catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table)
        pace = Pace(gather=0.0, deadline=5.0, attempts=2, pause=0.0)
        self.path = folder / "rec"
        ServiceFolder.create(self.path, Config(name="village", pace=pace), table).enroll(cards)
        self.network = Watched(answers)

    @property
    def service(self) -> Service:
        return Service(ServiceFolder(self.path), self.network, sleep=lambda _: None)

    def paid(self) -> list[Any]:
        return [
            [
                (entry.run, entry.action, entry.number, entry.paid)
                for entry in store.ledger.entries()
                if entry.paid
            ]
            for store in self.stores
        ]


@pytest.fixture
def village(tmp_path: Path) -> Iterator[Village]:
    with ExitStack() as stack:
        yield Village(tmp_path, stack)


def lose_and_restore(village: Village, file: Path) -> None:
    shutil.rmtree(village.path)
    restore(file, village.path)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SUM, BIT, ROUNDS], ids=lambda settings: settings.method)
def test_the_drill(village: Village, tmp_path: Path, settings: RunSettings) -> None:
    """Back up before each exchange of a run, let the run end, lose the folder, restore each of
    the backups, go on.
    """
    run = village.service.begin(settings)
    backups: list[Path] = []

    def save(number: int) -> None:
        backups.append(tmp_path / f"backup {number}")
        back_up(village.path, backups[-1])

    village.network.before = save
    whole = village.service.conduct(run)
    village.network.before = lambda _: None
    before, ended, stopped = village.paid(), 0, 0
    assert all(before)
    assert len(backups) > 3
    for backup in backups:
        lose_and_restore(village, backup)
        service = village.service
        assert service.folder.unfinished() == run
        try:
            outcome = service.conduct(run)
            assert outcome.summary["users"] == whole.summary["users"]
            ended += 1
        except (FederationError, SecureSumError):
            stopped += 1
            service.give_up(run)
        assert village.paid() == before  # nothing was paid again, nothing was drawn again
    assert ended > 0  # from a backup of the last steps a run ends as it did
    assert stopped > 0 or settings is BIT  # bits are repeated as they were; a sum is made once
    with suppress(FederationError, SecureSumError):  # and a new run finds nothing left to spend
        village.service.conduct(village.service.begin(settings))
    assert village.paid() == before


def test_bits_are_the_same_bits(village: Village, tmp_path: Path) -> None:
    run = village.service.begin(BIT)
    back_up(village.path, tmp_path / "backup")
    village.service.conduct(run)
    released = (village.path / "runs" / run.hex() / "ratings.release").read_bytes()
    lose_and_restore(village, tmp_path / "backup")
    with pytest.raises(FederationError):  # terms are agreed on once
        village.service.conduct(run)
    release = village.path / "runs" / run.hex() / "ratings.release"
    assert not release.exists() or release.read_bytes() == released


def test_a_backup_has_everything_and_is_private(village: Village, tmp_path: Path) -> None:
    ensure_certificates(village.path / "tls", ["localhost"])
    for name in ("state.json", ".serving", "runs/.half"):
        (village.path / name).write_text("made anew")
    village.service.conduct(village.service.begin(BIT))
    file = tmp_path / "backup"
    made = back_up(village.path, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert made.name == "village"
    assert {"tls/authority.key", "roster.json", "config.toml", "catalogue.msgpack", "model"} <= set(
        made.files
    )
    assert not {"state.json", ".serving", "runs/.half"} & set(made.files)
    restore(file, tmp_path / "new")
    for name in made.files:
        assert (tmp_path / "new" / name).is_symlink() == (village.path / name).is_symlink()
        if not (village.path / name).is_symlink():
            assert (tmp_path / "new" / name).read_bytes() == (village.path / name).read_bytes()
    assert (tmp_path / "new" / "tls" / "authority.key").stat().st_mode & 0o077 == 0
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
    there = ServiceFolder(tmp_path / "new")
    assert there.model() is not None
    assert there.runs() == village.service.folder.runs()
    assert there.enrolled.digest == village.service.folder.enrolled.digest
    with pytest.raises(ConfigError, match="not empty"):
        restore(file, tmp_path / "new")
    with pytest.raises(ConfigError, match="exists already"):
        back_up(village.path, file)


def test_all_files_are_of_one_instant(
    village: Village, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The roster changes while it is copied: it is copied again."""
    real, left = tarfile.TarFile.addfile, 2
    folder = ServiceFolder(village.path)

    def slow(self: tarfile.TarFile, info: tarfile.TarInfo, *rest: Any) -> None:
        nonlocal left
        if left and info.name == "config.toml":
            left -= 1
            folder.expel(f"d{left}")
        real(self, info, *rest)

    monkeypatch.setattr(tarfile.TarFile, "addfile", slow)
    pauses: list[float] = []
    back_up(village.path, tmp_path / "backup", sleep=pauses.append)
    assert len(pauses) == 2
    restore(tmp_path / "backup", tmp_path / "new")
    assert ServiceFolder(tmp_path / "new").enrolled.digest == folder.enrolled.digest
    assert len(folder.enrolled) == 6


def test_a_folder_that_never_rests_is_said(
    village: Village, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tarfile.TarFile.addfile

    def restless(self: tarfile.TarFile, *given: Any) -> None:
        (village.path / "roster.json").touch()
        real(self, *given)

    monkeypatch.setattr(tarfile.TarFile, "addfile", restless)
    with pytest.raises(StorageError, match="changed all the time"):
        back_up(village.path, tmp_path / "backup", sleep=lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["rec"]


def test_damage_is_noticed(village: Village, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    back_up(village.path, file)
    data = file.read_bytes()
    place = data.index(b'name = "village"')
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
