"""The device's file: what is committed is on disk, and nobody else reads or forgets it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hdpmf.errors import ConfigError, HdpmfError, PrivacyError, StorageError
from hdpmf.private.device import state_file
from hdpmf.private.device.ledger import UNIT, Limits
from hdpmf.private.device.state import Rated, State, changed, new_state
from hdpmf.private.device.state_file import ChangedError, StateFile, counter_of

FILMS = "https://films.example"
SECRET = "The Unbearable Lightness"


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passphrases that are quickly tried."""
    monkeypatch.setattr(state_file, "_COST", 1 << 4)


@pytest.fixture
def state() -> State:
    made = new_state(Limits(life=UNIT, month=UNIT), name="ana")
    made = made.with_rating(FILMS, SECRET, Rated(4.5, 500, 1_800_000_000))
    return made.with_file(b"public bytes")[0]


def test_what_is_committed_is_there_again(tmp_path: Path, state: State) -> None:
    path = tmp_path / "ana"
    with StateFile.create(path, state) as file:
        version = file.commit(changed(state, wish=700), file.load().version).version
    with StateFile.open(path) as file:
        assert file.load().state == changed(state, wish=700)
        assert file.load().version == version == 2


def test_a_commit_on_an_old_version_changes_nothing(tmp_path: Path, state: State) -> None:
    path = tmp_path / "ana"
    with StateFile.create(path, state) as one, StateFile.open(path) as other:
        held = one.load()
        other.change(lambda old: changed(old, wish=1))
        with pytest.raises(ChangedError):
            one.commit(changed(held.state, wish=2), held.version)
        assert one.load().state.wish == other.load().state.wish == 1


def test_a_change_is_made_on_what_another_process_has_written(tmp_path: Path, state: State) -> None:
    path = tmp_path / "ana"
    with StateFile.create(path, state) as one, StateFile.open(path) as other:
        one.load()
        other.change(lambda old: old.with_rating(FILMS, "other", Rated(1.0)))
        one.change(lambda old: old.with_rating(FILMS, "one", Rated(2.0)))
        assert set(other.load().state.ratings_of(FILMS)) == {SECRET, "one", "other"}


@pytest.mark.parametrize("passphrase", [None, "correct horse"])
def test_nothing_is_written_half(
    tmp_path: Path, state: State, passphrase: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ana"
    with StateFile.create(path, state, passphrase) as file:
        held = file.load()
        sealed = StateFile._sealed
        count = []

        def fails(self: StateFile, data: bytes, tag: bytes) -> bytes:
            count.append(tag)
            if len(count) == 2:
                raise OSError("the disk is gone")
            return sealed(self, data, tag)

        monkeypatch.setattr(StateFile, "_sealed", fails)
        with pytest.raises(OSError, match="gone"):
            file.commit(changed(state, name="bea", wish=1, seed=bytes(32)), held.version)
        monkeypatch.undo()
        monkeypatch.setattr(state_file, "_COST", 1 << 4)
        assert file.load() == held
    with StateFile.open(path, passphrase) as file:
        assert file.load().state == state


def test_a_thief_of_a_sealed_file_reads_neither_rows_nor_their_names(
    tmp_path: Path, state: State
) -> None:
    path = tmp_path / "ana"
    with StateFile.create(path, state, "correct horse") as file:
        assert file.load().state == state
    data = path.read_bytes() + counter_of(path).read_bytes()
    for word in (SECRET, FILMS, "ratings", "ledger", "public bytes", state.identity, state.seed):
        assert (word if isinstance(word, bytes) else word.encode()) not in data
    with pytest.raises(PrivacyError, match="wrong"):
        StateFile.open(path, "battery staple")
    with pytest.raises(PrivacyError, match="give its passphrase"):
        StateFile.open(path)
    assert StateFile.needs_passphrase(path)


def test_without_a_passphrase_the_file_is_as_it_is(tmp_path: Path, state: State) -> None:
    """Otherwise the test before could not fail."""
    path = tmp_path / "ana"
    with StateFile.create(path, state):
        pass
    assert SECRET.encode() in path.read_bytes()
    assert not StateFile.needs_passphrase(path)
    with pytest.raises(ConfigError, match="no passphrase"):
        StateFile.open(path, "correct horse")


def test_lengths_of_sealed_rows_say_little(tmp_path: Path, state: State) -> None:
    sizes = []
    for count in (1, 40):
        path = tmp_path / str(count)
        made = state
        for number in range(count):
            made = made.with_rating(FILMS, f"film {number}", Rated(3.0))
        with StateFile.create(path, made, "correct horse"):
            pass
        with sqlite3.connect(path) as database:
            rows = database.execute("SELECT length(data) FROM rows ORDER BY 1").fetchall()
        sizes.append(rows)
    assert sizes[0] == sizes[1]


def test_a_changed_row_does_not_open(tmp_path: Path, state: State) -> None:
    path = tmp_path / "ana"
    with StateFile.create(path, state, "correct horse"):
        pass
    with sqlite3.connect(path) as database:
        tags = [tag for (tag,) in database.execute("SELECT tag FROM rows ORDER BY length(data)")]
        # One row in the place of another.
        database.execute(
            "UPDATE rows SET data = (SELECT data FROM rows WHERE tag = ?) WHERE tag = ?", tags[:2]
        )
    with pytest.raises(StorageError, match="damaged"):
        StateFile.open(path, "correct horse")


def test_what_was_removed_is_not_in_the_file(tmp_path: Path, state: State) -> None:
    path = tmp_path / "ana"
    with StateFile.create(path, state) as file:
        file.change(lambda old: old.with_rating(FILMS, SECRET, None))
    left = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert SECRET.encode() not in left


def test_an_old_copy_is_refused(tmp_path: Path, state: State) -> None:
    path, copy = tmp_path / "ana", tmp_path / "copy"
    with StateFile.create(path, state) as file:
        file.change(lambda old: changed(old, wish=1))
        shutil.copy(path, copy)
        file.change(lambda old: changed(old, wish=2))
    shutil.copy(copy, path)
    with pytest.raises(StorageError, match="old copy"):
        StateFile.open(path)
    with StateFile.open(path, old_copy=True) as file:
        assert file.load().state.wish == 1
    with StateFile.open(path):  # it counts from here on
        pass


def test_a_file_without_its_counter_or_with_anothers_is_refused(
    tmp_path: Path, state: State
) -> None:
    path, other = tmp_path / "ana", tmp_path / "bea"
    for each in (path, other):
        with StateFile.create(each, state) as file:
            file.change(lambda old: changed(old, wish=1))
    shutil.copy(counter_of(other), counter_of(path))
    with pytest.raises(StorageError, match="old copy"):
        StateFile.open(path)
    counter_of(path).unlink()
    with pytest.raises(StorageError, match="old copy"):
        StateFile.open(path)


def test_a_file_that_was_only_just_made_needs_no_counter(tmp_path: Path, state: State) -> None:
    path = tmp_path / "ana"
    with StateFile.create(path, state):
        pass
    counter_of(path).unlink()
    with StateFile.open(path) as file:
        assert file.load().state == state


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_only_its_owner_reads_it(tmp_path: Path, state: State) -> None:
    path = tmp_path / "ana"
    with StateFile.create(path, state):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with StateFile.open(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_one_process_takes_part(tmp_path: Path, state: State) -> None:
    path = tmp_path / "ana"
    with StateFile.create(path, state) as one, StateFile.open(path) as other:
        one.take_part()
        with pytest.raises(StorageError, match="in use"):
            other.take_part()
        other.change(lambda old: changed(old, wish=1))  # commands go on


KILLED = """
import os, sys
from hdpmf.private.device.state import changed
from hdpmf.private.device.state_file import StateFile
with StateFile.open(sys.argv[1]) as file:
    for wish in range(1, 20):
        file.change(lambda old: changed(old, wish=wish))
        print(wish, flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_a_commit_outlives_its_process(tmp_path: Path, state: State) -> None:
    path = tmp_path / "ana"
    with StateFile.create(path, state):
        pass
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split()[-1] == "19", done.stderr
    with StateFile.open(path) as file:
        assert file.load().state.wish == 19


@pytest.mark.parametrize(
    "content", [b"", b"no database at all" * 100, b"SQLite format 3\0" + bytes(200)]
)
def test_another_file_is_refused_in_words(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ana"
    path.write_bytes(content)
    with pytest.raises(HdpmfError, match="ana"):
        StateFile.open(path)
    assert path.read_bytes() == content


def test_a_file_is_made_once(tmp_path: Path, state: State) -> None:
    path = tmp_path / "ana"
    with StateFile.create(path, state), pytest.raises(ConfigError, match="exists"):
        StateFile.create(path, state)
    with pytest.raises(ConfigError, match="hdpmf device init"):
        StateFile.open(tmp_path / "bea")
    with pytest.raises(ConfigError, match="empty"):
        StateFile.create(tmp_path / "bea", state, "")
    assert not (tmp_path / "bea").exists()


def test_nothing_private_is_in_a_repr(state: State) -> None:
    for shown in (repr(state), str(state), repr(Rated(4.5)), f"{state.ratings}"):
        assert SECRET not in repr(state)
        assert "4.5" not in shown
