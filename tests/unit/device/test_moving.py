"""A store moves to another machine: one of the two can be used, whenever somebody pulls the
plug.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hdpmf.errors import ConfigError, PrivacyError, StorageError
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.transfer import export_store, import_store, take_back

from .conftest import PASSPHRASE
from .full_store import facts, full_store, kill_points, killed_at

TRAVEL = "only for the journey"


@pytest.fixture(params=[None, PASSPHRASE], ids=["plain", "encrypted"])
def passphrase(request: pytest.FixtureRequest) -> str | None:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def here(tmp_path: Path, passphrase: str | None) -> Path:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    return full_store(tmp_path / "here" / "me", passphrase)


@pytest.fixture
def stick(tmp_path: Path) -> Path:
    (tmp_path / "stick").mkdir()
    return tmp_path / "stick" / "me.export"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there" / "me"


def usable(path: Path, passphrase: str | None) -> bool:
    """Whether a recommender could be answered from it."""
    try:
        DeviceStore.open(path, passphrase=passphrase, serving=True).close()
    except (ConfigError, StorageError):
        return False
    return True


def test_everything_moves_and_one_store_can_be_used(
    here: Path, stick: Path, there: Path, passphrase: str | None
) -> None:
    before = facts(here, passphrase)
    export_store(here, stick, TRAVEL, passphrase=passphrase)
    assert [found.name for found in stick.parent.iterdir()] == ["me.export"]
    assert stick.stat().st_mode & 0o077 == 0
    assert b"films.example" not in stick.read_bytes()
    with pytest.raises(ConfigError, match="was moved away"):
        DeviceStore.open(here, passphrase=passphrase)
    with DeviceStore.open(here, passphrase=passphrase, moved=True) as store:
        assert len(store.ledger.entries()) == 1  # it can be looked at
    with pytest.raises(ConfigError, match="is an export"):  # and no store
        DeviceStore.open(stick, passphrase=TRAVEL, old_copy=True)
    assert [found.name for found in stick.parent.iterdir()] == ["me.export"]
    with pytest.raises(PrivacyError, match="wrong"):
        import_store(stick, there, "something else")
    assert list(there.parent.iterdir()) == []
    import_store(stick, there, TRAVEL)
    assert facts(there, TRAVEL) == before
    assert not stick.exists()
    assert sorted(found.name for found in there.parent.iterdir()) == ["me", "me.counter", "me.lock"]
    assert not usable(here, passphrase)


def test_an_export_is_imported_once_on_a_machine(
    here: Path, stick: Path, there: Path, passphrase: str | None
) -> None:
    export_store(here, stick, TRAVEL, passphrase=passphrase)
    copied = stick.with_name("copied")
    shutil.copy(stick, copied)
    import_store(stick, there, TRAVEL)
    with pytest.raises(ConfigError, match="exists already"):
        import_store(copied, there, TRAVEL)
    there.unlink()
    with pytest.raises(ConfigError, match="was here before"):
        import_store(copied, there, TRAVEL)
    with pytest.raises(ConfigError, match="no export"):
        import_store(stick, there, TRAVEL)


def test_only_an_export_is_imported(tmp_path: Path, there: Path, here: Path) -> None:
    full_store(tmp_path / "store", TRAVEL)
    for wrong in (tmp_path / "store", here):
        with pytest.raises((ConfigError, PrivacyError)):
            import_store(wrong, there, TRAVEL)
        assert wrong.exists()
    assert list(there.parent.iterdir()) == []


def test_a_store_comes_back_with_its_export_as_proof(
    here: Path, stick: Path, passphrase: str | None
) -> None:
    before = facts(here, passphrase)
    with pytest.raises(ConfigError, match="nothing to take back"):
        take_back(here, lost=True, passphrase=passphrase)
    export_store(here, stick, TRAVEL, passphrase=passphrase)
    with pytest.raises(ConfigError, match="exists already"):
        export_store(here, stick, TRAVEL, passphrase=passphrase)
    with pytest.raises(ConfigError, match="was moved away"):
        export_store(here, stick.with_name("again"), TRAVEL, passphrase=passphrase)
    with pytest.raises(ConfigError, match="--lost"):
        take_back(here, passphrase=passphrase)
    other = stick.with_name("other")
    other.write_bytes(b"something else")
    with pytest.raises(ConfigError, match="not the export"):
        take_back(here, other, passphrase=passphrase)
    assert not usable(here, passphrase)
    take_back(here, stick, passphrase=passphrase)
    assert not stick.exists()
    assert other.exists()
    assert facts(here, passphrase) == before
    export_store(here, stick, TRAVEL, passphrase=passphrase)
    stick.unlink()
    take_back(here, lost=True, passphrase=passphrase)
    assert usable(here, passphrase)


def test_a_store_that_is_answering_does_not_move(
    here: Path, stick: Path, passphrase: str | None
) -> None:
    with (
        DeviceStore.open(here, passphrase=passphrase, serving=True),
        pytest.raises(StorageError, match="in use"),
    ):
        export_store(here, stick, TRAVEL, passphrase=passphrase)
    assert list(stick.parent.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("passphrase", [None], ids=["plain"])
def test_a_kill_leaves_one_of_them_and_the_same_command_ends_it(
    here: Path, stick: Path, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = facts(here, None)
    start = _saved(tmp_path, "start")
    exported = 0

    def export() -> None:
        export_store(here, stick, TRAVEL)

    def bring_in() -> None:
        import_store(stick, there, TRAVEL)

    def back() -> None:
        take_back(here, stick)

    count = killed_at(-1, export, monkeypatch)
    assert count is not None
    for number in kill_points(count, 7):
        _restore(tmp_path, start)
        assert killed_at(number, export, monkeypatch) is None
        assert stick.exists() + usable(here, None) <= 1
        if not stick.exists():
            export()
            exported += 1
        assert stick.exists()
        assert not usable(here, None)
    assert exported > 5
    at_rest = _saved(tmp_path, "at rest")
    for act, target, phrase in ((bring_in, there, TRAVEL), (back, here, None)):
        _restore(tmp_path, at_rest)
        count = killed_at(-1, act, monkeypatch)
        assert count is not None
        for number in kill_points(count, 7):
            _restore(tmp_path, at_rest)
            assert killed_at(number, act, monkeypatch) is None
            assert stick.exists() + (target.exists() and usable(target, phrase)) <= 1
            if not (target.exists() and usable(target, phrase)):
                act()
            assert facts(target, phrase) == before
            assert not stick.exists()


def _saved(folder: Path, name: str) -> Path:
    for place in ("here", "stick", "there"):
        shutil.copytree(folder / place, folder / name / place)
    return folder / name


def _restore(folder: Path, saved: Path) -> None:
    for place in ("here", "stick", "there"):
        shutil.rmtree(folder / place)
        shutil.copytree(saved / place, folder / place)
