"""The issuer of tokens: one for each enrolled device, whatever is killed or restored."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from hdpmf.common.aggregation.two_servers import tokens
from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.aggregation.two_servers.tokens import (
    REQUEST_MEDIA_TYPE,
    BlindedToken,
    blind_token,
    challenge_digest,
)
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import Identity
from hdpmf.common.protocol.task import DEVICE_HEADER, SIGNATURE_HEADER, signed_token_request
from hdpmf.errors import StorageError
from hdpmf.untrusted.service.participants import Participants
from hdpmf.untrusted.service.token_issuer import TokenIssuer
from hdpmf.untrusted.service.website import Website
from tests.world import issuer

TASK, OTHER = b"t" * 32, b"o" * 32
DEVICE, NEIGHBOUR, STRANGER = (Identity.generate() for _ in range(3))
ENROLLED = Participants.of(DEVICE.public, NEIGHBOUR.public)
CHALLENGE = challenge_digest("films", TASK)


def a_request() -> BlindedToken:
    return blind_token(issuer().public, CHALLENGE, sha256(b"nonce").digest())


def ask(
    desk: TokenIssuer, request: bytes, device: Identity = DEVICE, task: bytes = TASK
) -> tuple[int, bytes]:
    signature = device.sign(signed_token_request(task, sha256(request).digest()))
    return desk.take(id_to_text(task), to_base64(device.public), signature, request)


@pytest.fixture
def desk(tmp_path: Path) -> TokenIssuer:
    made = TokenIssuer(ENROLLED)
    made.create(TASK, issuer(), tmp_path)
    assert made.open(TASK, tmp_path)
    return made


def test_one_token_for_each_device_and_the_same_for_the_same_request(desk: TokenIssuer) -> None:
    first, second = a_request(), a_request()
    status, answer = ask(desk, first.request)
    assert status == 200
    assert issuer().public.holds(first.finish(issuer().public, CHALLENGE, answer))
    assert ask(desk, second.request) == (409, b"")
    assert ask(desk, first.request) == (200, answer)
    assert [ask(desk, it.request, NEIGHBOUR)[0] for it in (second, first)] == [200, 409]


def test_strangers_and_malformed_requests_get_nothing_and_take_no_place(desk: TokenIssuer) -> None:
    request = a_request().request
    assert ask(desk, request, STRANGER) == (401, b"")
    assert ask(desk, request, task=OTHER) == (404, b"")
    stolen = STRANGER.sign(signed_token_request(TASK, sha256(request).digest()))
    assert desk.take(id_to_text(TASK), to_base64(DEVICE.public), stolen, request) == (401, b"")
    signed = DEVICE.sign(signed_token_request(OTHER, sha256(request).digest()))
    assert desk.take(id_to_text(TASK), to_base64(DEVICE.public), signed, request) == (401, b"")
    assert ask(desk, request + b"x") == (413, b"")
    assert ask(desk, request[:-1]) == (422, b"")
    assert ask(desk, bytes(len(request))) == (422, b"")
    assert ask(desk, request)[0] == 200
    desk.close()
    assert ask(desk, request) == (410, b"")


def test_a_killed_issuer_goes_on_with_what_it_knew(desk: TokenIssuer, tmp_path: Path) -> None:
    first = a_request()
    answer = ask(desk, first.request)
    again = TokenIssuer(ENROLLED)  # the other one was killed
    assert again.open(TASK, tmp_path)
    assert ask(again, a_request().request) == (409, b"")
    assert ask(again, first.request) == answer


def test_nothing_is_handed_out_that_is_not_written_down(desk: TokenIssuer) -> None:
    assert desk._file is not None
    (synchronous,) = desk._file._connection.execute("PRAGMA synchronous").fetchone()
    assert synchronous == 2  # also when the power fails
    desk._file._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StorageError, match="devices ask again"):
        ask(desk, a_request().request)
    desk._file._connection.execute("PRAGMA query_only = OFF")
    assert ask(desk, a_request().request)[0] == 200


def test_of_two_requests_of_one_device_at_once_one_is_answered(desk: TokenIssuer) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ask(desk, a_request().request)[0], range(8)))
    assert sorted(found) == [200, *[409] * 7]


def test_a_request_under_way_outlasts_a_run_that_is_tried_again(
    desk: TokenIssuer, tmp_path: Path
) -> None:
    file = desk._file
    assert desk.open(TASK, tmp_path)
    assert desk._file is file


def test_a_device_may_ask_again_where_the_machine_miscomputed(
    desk: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = a_request().request
    with monkeypatch.context() as patch:
        patch.setattr(tokens, "_arithmetic", lambda: (int, lambda *given: 2))
        assert ask(desk, request) == (500, b"")
    assert ask(desk, a_request().request) == (409, b"")
    assert ask(desk, request)[0] == 200


def test_a_device_has_one_name(desk: TokenIssuer) -> None:
    request = a_request().request
    signature = DEVICE.sign(signed_token_request(TASK, sha256(request).digest()))
    for name in (DEVICE.public.hex(), f" {to_base64(DEVICE.public)}", "no key!", ""):
        assert desk.take(id_to_text(TASK), name, signature, request) == (401, b"")


def test_a_restored_folder_issues_no_tokens_for_the_task_under_way(
    desk: TokenIssuer, tmp_path: Path
) -> None:
    """It has forgotten who has one: a device would get a second one, and count twice."""
    ask(desk, a_request().request)
    (path,) = tmp_path.glob(".tokens-*.sqlite")
    assert path.stat().st_mode & 0o777 == 0o600
    restored = TokenIssuer(ENROLLED)
    assert not restored.open(TASK, tmp_path / "from a backup, without files of that name")
    assert ask(restored, a_request().request) == (410, b"")


def test_the_key_and_who_has_a_token_go_with_the_period(desk: TokenIssuer, tmp_path: Path) -> None:
    ask(desk, a_request().request)
    desk.drop(tmp_path)
    assert not list(tmp_path.glob(".tokens-*"))
    assert ask(desk, a_request().request) == (410, b"")
    assert not desk.open(TASK, tmp_path)


def test_no_rating_and_no_unblinded_value_is_in_the_file(desk: TokenIssuer, tmp_path: Path) -> None:
    blinded = a_request()
    _, answer = ask(desk, blinded.request)
    token = blinded.finish(issuer().public, CHALLENGE, answer)
    connection = sqlite3.connect(next(tmp_path.glob(".tokens-*.sqlite")))
    rows = connection.execute("SELECT participant, request FROM asked").fetchall()
    connection.close()
    assert rows == [(1, sha256(blinded.request).digest())]
    kept = b"".join(path.read_bytes() for path in tmp_path.glob(".tokens-*"))
    for value in (token.nonce[:16], token.nonce[16:], token.authenticator[:16]):
        assert value not in kept


def test_by_http(desk: TokenIssuer, tmp_path: Path) -> None:
    app = Website(tmp_path, issuer=desk).app
    request = a_request().request
    path = f"/tokens/{id_to_text(TASK)}"
    digest = signed_token_request(TASK, sha256(request).digest())
    signed, foreign = (
        {
            "content-type": REQUEST_MEDIA_TYPE,
            DEVICE_HEADER: to_base64(who.public),
            SIGNATURE_HEADER: to_base64(who.sign(digest)),
        }
        for who in (DEVICE, STRANGER)
    )

    async def answers() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="https://films") as client:
            return [
                await client.post(path, content=body, headers=headers)
                for body, headers in (
                    (request, signed),
                    (request, signed),
                    (request, foreign),
                    (request, signed | {"hdpmf-signature": "no hex"}),
                    (request + b"x", signed),
                )
            ]

    found = asyncio.run(answers())
    assert [answer.status_code for answer in found] == [200, 200, 401, 401, 413]
    assert found[0].headers["content-type"] == "application/private-token-response"
    assert found[0].content == found[1].content
    assert len(found[0].content) == 256
    assert all(answer.headers["connection"] == "close" for answer in found[2:])
