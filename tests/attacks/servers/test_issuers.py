"""Several issuers beside a recommender: no device gets a second token from another one of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest

from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.aggregation.two_servers.tokens import (
    BlindedToken,
    blind_token,
    challenge_digest,
)
from hdpmf.common.protocol.identity import Identity
from hdpmf.common.protocol.task import signed_token_request
from hdpmf.errors import StorageError
from hdpmf.untrusted.service.token_issuer import TokenIssuer, _TokenFile
from tests.world import issuer

TASK, NEXT = b"t" * 32, b"n" * 32
CHALLENGE = challenge_digest("films", TASK)
DEVICES = [Identity.generate() for _ in range(8)]
USERS = {device.public.hex(): 1 for device in DEVICES}


def a_request() -> BlindedToken:
    return blind_token(issuer().public, CHALLENGE, sha256(b"nonce").digest())


def ask(
    desk: TokenIssuer, request: bytes, device: Identity = DEVICES[0], task: bytes = TASK
) -> tuple[int, bytes]:
    signature = device.sign(signed_token_request(task, sha256(request).digest()))
    return desk.take(id_to_text(task), device.public.hex(), signature, request)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """The runs of a recommender that issues tokens for a task."""
    run = tmp_path / "runs" / "ab"
    run.mkdir(parents=True)
    recommender = TokenIssuer()
    recommender.create(TASK, issuer(), USERS, run)
    assert recommender.open(TASK, run)
    yield run.parent
    recommender.close()


def test_a_device_that_asks_two_issuers_at_once_gets_one_token(runs: Path) -> None:
    desks = [TokenIssuer(runs), TokenIssuer(runs)]
    with ThreadPoolExecutor(2) as pool:
        for device in DEVICES:
            both = Barrier(2)

            def at_once(desk: TokenIssuer, device: Identity = device, both: Barrier = both) -> int:
                request = a_request().request
                both.wait(60)
                return ask(desk, request, device)[0]

            assert sorted(pool.map(at_once, desks)) == [200, 409]


def test_no_issuer_counts_while_another_one_writes(runs: Path) -> None:
    """Both would find that the device has no token yet."""
    desks, both = [TokenIssuer(runs), TokenIssuer(runs)], Barrier(2)

    def before(statement: str) -> None:
        if statement.startswith("UPDATE"):
            with suppress(BrokenBarrierError):
                both.wait(0.5)

    for desk in desks:
        file = desk._find(id_to_text(TASK))
        assert file is not None
        file._connection.set_trace_callback(before)
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda desk: ask(desk, a_request().request)[0], desks)
        assert sorted(found) == [200, 409]
    assert both.broken


def test_an_issuer_beside_makes_no_file_and_ends_with_the_task(runs: Path) -> None:
    beside, request = TokenIssuer(runs), a_request().request
    assert ask(beside, request, task=NEXT) == (404, b"")
    for task in ("", "*", "../" * 14, id_to_text(TASK) + "="):
        assert beside.take(task, DEVICES[0].public.hex(), b"", request) == (404, b"")
    assert ask(beside, request)[0] == 200
    assert ask(beside, request, Identity.generate()) == (401, b"")
    recommender = TokenIssuer()
    assert recommender.open(TASK, runs / "ab")
    recommender.drop(runs / "ab")
    assert ask(beside, request) == (410, b"")
    with pytest.raises(StorageError):  # it was deleted just after it was found
        _TokenFile(runs / "ab" / ".tokens-gone.sqlite", check=False)
    assert not list(runs.glob("*/.tokens-*"))
    recommender.create(NEXT, issuer(), USERS, runs / "ab")
    assert ask(beside, request, task=NEXT)[0] == 200
    assert ask(beside, request) == (410, b"")


def test_an_issuer_beside_does_not_go_on_with_an_old_copy(runs: Path) -> None:
    (path,) = runs.glob("*/.tokens-*.sqlite")
    copy = shutil.copy(path, runs / "copy")
    beside = TokenIssuer(runs)
    assert ask(beside, a_request().request)[0] == 200
    os.replace(copy, path)
    assert ask(beside, a_request().request) == (410, b"")


AFTER_WRITING = "IssuerKey.sign = killed"
BEFORE_WRITING = "token_issuer._TokenFile._insert = killed"
DIES = """
import os, signal, sys
from pathlib import Path
from hdpmf.common.aggregation.two_servers.tokens import IssuerKey
from hdpmf.untrusted.service import token_issuer

insert = token_issuer._TokenFile._insert

def killed(first, second):
    if not isinstance(first, IssuerKey):
        insert(first, second)
    os.kill(os.getpid(), signal.SIGKILL)

{fault}
given = sys.argv[1:]
token_issuer.TokenIssuer(Path(given[0])).take(given[1], given[2], *map(bytes.fromhex, given[3:]))
"""


@pytest.mark.parametrize("fault", [AFTER_WRITING, BEFORE_WRITING])
def test_an_issuer_that_is_killed_before_its_answer(runs: Path, fault: str) -> None:
    """The device gets its token by the same bytes, from any issuer, and none by others."""
    blinded, (device, *_) = a_request(), DEVICES
    signature = device.sign(signed_token_request(TASK, sha256(blinded.request).digest()))
    died = subprocess.run(
        [
            *(sys.executable, "-c", DIES.format(fault=fault), str(runs), id_to_text(TASK)),
            *(device.public.hex(), signature.hex(), blinded.request.hex()),
        ],
        check=False,
        timeout=120,
    )
    assert died.returncode == -signal.SIGKILL
    beside = TokenIssuer(runs)
    if fault == AFTER_WRITING:
        assert ask(beside, a_request().request) == (409, b"")
    status, answer = ask(beside, blinded.request)
    assert status == 200
    assert blinded.finish(issuer().public, CHALLENGE, answer)
    assert ask(TokenIssuer(runs), a_request().request) == (409, b"")
