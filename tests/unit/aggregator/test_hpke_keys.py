"""A server's HPKE keys: made in time, erased when nothing needs them, whole after any kill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hdpmf.common.aggregation.two_servers.dap.hpke import input_share_info, seal
from hdpmf.common.aggregation.two_servers.dap.messages import Role
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import Identity
from hdpmf.common.protocol.key_list import VALID_SECONDS, KeyList, follow_key_list, read_signed_list
from hdpmf.common.protocol.servers import Server
from hdpmf.errors import ConfigError, DapError
from hdpmf.untrusted.aggregator import hpke_keys, sealing
from hdpmf.untrusted.aggregator.hpke_keys import (
    HpkeKeyRing,
)
from hdpmf.untrusted.aggregator.sealing import KeyFile

HPKE_KEYS_FILE = "hpke-keys"
LIST_FILE = "hpke-list"
SIGNING = Identity(bytes(range(32)))
DAY = 86_400
NOW = 20_000 * DAY
INFO, AAD = input_share_info(Role.HELPER), b"about"
AFTER = VALID_SECONDS + DAY  # a retired key is used for so long at most


class KilledError(BaseException):
    """Nothing of ours catches it."""


def ring(folder: Path, period: float = 7 * DAY) -> HpkeKeyRing:
    return HpkeKeyRing(folder, SIGNING, period)


def shown(keys: HpkeKeyRing, now: float) -> KeyList:
    return read_signed_list(keys.signed_list(now), to_base64(SIGNING.public), "it")


def ids(keys: HpkeKeyRing, now: float) -> list[int]:
    return [config.id for config in shown(keys, now).keys]


def nothing(begun: int) -> bool:
    return False


def test_a_key_is_made_when_it_is_time_and_is_the_first_of_the_list(tmp_path: Path) -> None:
    keys = ring(tmp_path)
    keys.rotate(NOW)
    assert ids(keys, NOW) == [0]
    keys.maintain(NOW + 7 * DAY - 1, nothing)
    assert ids(keys, NOW) == [0]
    keys.maintain(NOW + 7 * DAY, nothing)
    assert ids(keys, NOW + 7 * DAY) == [1, 0]
    assert [keys.knows(config_id) for config_id in (0, 1, 2)] == [True, True, False]


def test_a_retired_key_opens_until_no_list_and_no_open_task_has_it(tmp_path: Path) -> None:
    keys = ring(tmp_path, period=1e9)
    keys.rotate(NOW)
    sealed = seal(keys.config, INFO, AAD, b"a share")
    (secret,) = KeyFile(tmp_path / HPKE_KEYS_FILE).keys().values()
    keys.rotate(NOW + DAY)
    asked: list[int] = []

    def open_task(begun: int) -> bool:
        asked.append(begun)
        return True

    keys.maintain(NOW + DAY + AFTER, open_task)
    assert asked == []  # somebody may still encrypt to it
    keys.maintain(NOW + DAY + AFTER + 1, open_task)
    assert asked == [NOW + DAY + AFTER]
    assert keys.open(sealed, INFO, AAD) == b"a share"
    keys.maintain(NOW + DAY + AFTER + 2, nothing)
    with pytest.raises(DapError, match="not in use") as refused:
        keys.open(sealed, INFO, AAD)
    assert refused.value.kind == "hpke_unknown_config_id"
    assert ids(keys, NOW + DAY + AFTER + 2) == [1]
    assert secret not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_a_list_is_signed_anew_before_its_time_is_over(tmp_path: Path) -> None:
    keys = ring(tmp_path, period=1e12)
    keys.rotate(NOW)
    first = shown(keys, NOW)
    assert shown(keys, NOW + VALID_SECONDS // 2) == first
    second = shown(keys, NOW + VALID_SECONDS // 2 + 1)
    assert (second.configs, second.serial > first.serial) == (first.configs, True)
    assert second.not_after == NOW + VALID_SECONDS // 2 + 1 + VALID_SECONDS


def test_workers_share_keys_and_forget_what_another_has_erased(tmp_path: Path) -> None:
    first, second = ring(tmp_path), ring(tmp_path)
    first.rotate(NOW)
    sealed = seal(second.config, INFO, AAD, b"a share")
    assert second.open(sealed, INFO, AAD) == b"a share"
    first.rotate(NOW + 1, erase=True)
    assert second.signed_list(NOW + 1) == first.signed_list(NOW + 1)
    with pytest.raises(DapError):
        second.open(sealed, INFO, AAD)
    second.maintain(NOW + 1, nothing)  # it is not time for another one
    assert ids(first, NOW + 1) == [1]


class Death:
    """Kills before or after the so manieth write."""

    def __init__(self, place: int) -> None:
        self.left = place

    def around(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def writes(*given: Any, **options: Any) -> Any:
            for act in (lambda: None, lambda: real(*given, **options)):
                act()
                self.left -= 1
                if self.left == 0:
                    raise KilledError
            return None

        return writes


def killed_at(place: int, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> bool:
    death = Death(place)
    with monkeypatch.context() as patched:
        patched.setattr(hpke_keys, "atomic_write", death.around(hpke_keys.atomic_write))
        patched.setattr(sealing, "_write", death.around(sealing._write))
        try:
            act()
        except KilledError:
            return True
    return False


@pytest.mark.parametrize("erase", [False, True])
def test_killed_anywhere_in_a_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, erase: bool
) -> None:
    """The list on the disk never begins with a key that is not there; the next start goes on."""
    card = Server(
        organisation="x",
        url="https://x.example",
        identity="a" * 42 + "A",
        signing=to_base64(SIGNING.public),
    )
    for place in range(1, 40):
        folder = tmp_path / str(place)
        folder.mkdir()
        keys = ring(folder)
        keys.rotate(NOW)
        sealed = seal(keys.config, INFO, AAD, b"old")
        known = keys.signed_list(NOW)
        died = killed_at(place, monkeypatch, lambda: keys.rotate(NOW + DAY, erase=erase))  # noqa: B023
        again = ring(folder)
        on_disk = read_signed_list(
            (folder / LIST_FILE).read_bytes(), to_base64(SIGNING.public), "it"
        )
        first = on_disk.keys[0]
        assert again.open(seal(first, INFO, AAD, b"x"), INFO, AAD) == b"x"
        follow_key_list(again.signed_list(NOW + DAY), known, card)
        assert ids(again, NOW + DAY)[0] == again.config.id
        if not erase:
            assert again.open(sealed, INFO, AAD) == b"old"
        again.rotate(NOW + 2 * DAY, erase=erase)
        assert again.config.id == ids(again, NOW + 2 * DAY)[0]
        if erase:
            with pytest.raises(DapError):
                again.open(sealed, INFO, AAD)
        if not died:
            assert place > 5
            return
    raise AssertionError("there is an end to what is written")


def test_killed_anywhere_while_a_key_is_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = NOW + DAY + AFTER + 1
    for place in range(1, 40):
        folder = tmp_path / str(place)
        folder.mkdir()
        keys = ring(folder, period=1e9)
        keys.rotate(NOW)
        (secret,) = KeyFile(folder / HPKE_KEYS_FILE).keys().values()
        keys.rotate(NOW + DAY)
        died = killed_at(place, monkeypatch, lambda: keys.maintain(later, nothing))  # noqa: B023
        again = ring(folder, period=1e9)
        again.maintain(later, nothing)
        assert ids(again, later) == [1]
        assert secret not in b"".join(path.read_bytes() for path in folder.iterdir())
        if not died:
            assert place > 4
            return
    raise AssertionError("there is an end to what is written")


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    assert SIGNING.secret_bytes().hex() not in repr(SIGNING)
    assert SIGNING.secret_bytes().hex() not in repr(ring(tmp_path))
    with pytest.raises(ConfigError, match="32 bytes"):
        Identity(b"short")
