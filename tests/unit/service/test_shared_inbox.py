"""The inbox of what people show: one message of each device, on the disk before it is confirmed."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

pytest.importorskip("starlette")

import httpx
from starlette.applications import Starlette

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.protocol.task import signed_shared
from hdpmf.errors import StorageError
from hdpmf.untrusted.service import shared_inbox
from hdpmf.untrusted.service.shared_inbox import SharedInbox
from hdpmf.untrusted.service.website import Website

TASK, OTHER_TASK = b"t" * 32, b"o" * 32
DEVICE, STRANGER = DeviceIdentity.generate(), DeviceIdentity.generate()
LONGEST = {DEVICE.public.hex(): 100}


def signed(body: bytes, device: DeviceIdentity = DEVICE, task: bytes = TASK) -> bytes:
    return device.sign(signed_shared(task, sha256(body).digest()))


def put(
    inbox: SharedInbox, body: bytes, device: DeviceIdentity = DEVICE, task: bytes = TASK
) -> int:
    return inbox.take(id_to_text(task), device.public.hex(), signed(body, device, task), body)


@pytest.fixture
def inbox(tmp_path: Path) -> SharedInbox:
    found = SharedInbox()
    found.open(TASK, LONGEST, tmp_path / "shared")
    return found


def test_one_message_of_each_device(inbox: SharedInbox) -> None:
    assert put(inbox, b"mine") == 201
    assert put(inbox, b"mine") == 201
    assert put(inbox, b"another") == 409
    assert inbox.messages() == {DEVICE.public.hex(): b"mine"}


def test_strangers_and_forged_signatures_are_refused(inbox: SharedInbox) -> None:
    assert put(inbox, b"mine", STRANGER) == 401
    task, name = id_to_text(TASK), DEVICE.public.hex()
    assert inbox.take(task, name, signed(b"mine", STRANGER), b"mine") == 401
    assert inbox.take(task, name, signed(b"mine", task=OTHER_TASK), b"mine") == 401
    assert inbox.take(task, name, signed(b"other"), b"mine") == 401
    report = DEVICE.sign(b"hdpmf report " + TASK + sha256(b"mine").digest())
    assert inbox.take(task, name, report, b"mine") == 401
    assert inbox.messages() == {}


def test_only_for_the_task_under_way_and_no_longer_than_it_may_be(inbox: SharedInbox) -> None:
    assert put(inbox, b"mine", task=OTHER_TASK) == 404
    assert put(inbox, b"x" * 101) == 413
    assert put(inbox, b"x" * 100) == 201
    inbox.close()
    assert put(inbox, b"x" * 100) == 410
    assert len(inbox.messages()) == 1


def test_what_was_confirmed_is_there_after_a_kill(inbox: SharedInbox, tmp_path: Path) -> None:
    assert put(inbox, b"mine") == 201
    again = SharedInbox()
    again.open(TASK, LONGEST, tmp_path / "shared")
    assert again.messages() == {DEVICE.public.hex(): b"mine"}
    assert put(again, b"another") == 409
    again.drop()
    assert not (tmp_path / "shared").exists()
    assert again.messages() == {}


def test_a_full_disk_confirms_nothing(inbox: SharedInbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(shared_inbox, "atomic_write", full)
        with pytest.raises(StorageError):
            put(inbox, b"mine")
    assert inbox.messages() == {}
    assert put(inbox, b"another") == 201


class _InProcess:
    """Answers of the web server, without a port."""

    def __init__(self, app: Starlette) -> None:
        self.app = app

    async def put(self, path: str, **request: object) -> int:
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url="https://films") as client:
            return (await client.put(path, **request)).status_code  # type: ignore[arg-type]


def test_by_http(inbox: SharedInbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    web = _InProcess(Website(tmp_path / "public", inbox=inbox).app)
    path, body = f"/shared/{id_to_text(TASK)}", b"mine"
    headers = {"hdpmf-device": DEVICE.public.hex(), "hdpmf-signature": signed(body).hex()}
    stranger = headers | {"hdpmf-device": STRANGER.public.hex()}

    async def chunks() -> Iterator[bytes]:  # type: ignore[misc]
        yield body

    def said(path: str, **request: object) -> int:
        return asyncio.run(web.put(path, **request))

    assert said(path, content=chunks(), headers=headers) == 411
    assert said(path, content=body, headers=stranger) == 401
    assert said(path, content=body, headers=headers | {"hdpmf-signature": "no hex"}) == 401
    assert said("/shared/unknown", content=body, headers=headers) == 404
    assert said(path, content=b"x" * 101, headers=headers) == 413

    def full(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(shared_inbox, "atomic_write", full)
        assert said(path, content=body, headers=headers) == 507
    assert said(path, content=body, headers=headers) == 201
    assert said(path, content=body, headers=headers) == 201
    assert inbox.messages() == {DEVICE.public.hex(): body}
    assert asyncio.run(_InProcess(Website(tmp_path / "public").app).put(path)) in (404, 405)
