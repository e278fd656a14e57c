"""Who reported, and how often: attacks on the tokens by which enrolled devices are let in."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa

from hdpmf.common.aggregation.two_servers.dap.messages import Report, id_to_text
from hdpmf.common.aggregation.two_servers.tokens import Token, TokenKey
from hdpmf.common.protocol import Task, decode, encode
from hdpmf.common.protocol.identity import Identity
from hdpmf.common.protocol.task import signed_token_request, task_id, token_challenge
from hdpmf.errors import DapError
from hdpmf.private.client.outgoing import token_request
from hdpmf.private.device.recommender_state import RecommenderStates
from hdpmf.untrusted.aggregator import datastore
from hdpmf.untrusted.service.token_issuer import TokenIssuer
from tests.unit.aggregator.server_pair import Pair, plain_sum
from tests.unit.device.reporting_world import (
    PERIOD,
    STARS,
    START,
    World,
    actions,
    make_store,
    make_task,
    plain_sums,
    reporter,
)
from tests.world import Device, issuer, live, make_token

FILMS = "https://films.example"


def until(world: World, device: Device, happened: Callable[[], bool]) -> None:
    """Let time pass until something has happened."""
    for _ in range(1000):
        wait = device.step()
        if happened():
            return
        world.now += wait
    raise AssertionError("it never happened")


def by_issuer(
    desk: TokenIssuer, task: Task, number: bytes, device: Identity
) -> tuple[bytes, bytes, Token | None]:
    """What a device asks, is answered, and has then."""
    blinded = token_request(task, number)
    said = signed_token_request(number, sha256(blinded.request).digest())
    _, answer = desk.take(
        id_to_text(number), device.public.hex(), device.sign(said), blinded.request
    )
    if not answer:
        return blinded.request, answer, None
    challenge = token_challenge(task, number)
    return blinded.request, answer, blinded.finish(TokenKey(task.token_key), challenge, answer)


def test_the_issuers_transcript_and_the_leaders_table_link_nobody(tmp_path: Path) -> None:
    """All that both have together: no value of one is at the other, and all pairs fit."""
    pair = Pair(tmp_path)
    number = pair.add(pair.a_task_with_tokens())
    task = pair.leader.task(number).document
    people = [Identity.generate() for _ in range(4)]
    desk = TokenIssuer()
    desk.create(number, issuer(), {person.public.hex(): 1 for person in people}, tmp_path)
    desk.open(number, tmp_path)
    transcript = [by_issuer(desk, task, number, person) for person in people]
    for seed, (_, _, token) in enumerate(transcript):
        assert token is not None
        report, _ = pair.admitted(number, seed, token)
        pair.leader.upload(number, report, token)
    seen = b"".join(path.read_bytes() for path in tmp_path.glob(".tokens-*") if path.is_file())
    seen += b"".join(request + answer for request, answer, _ in transcript)
    with pair.databases[0].read() as connection:
        tables = (each for each in vars(datastore).values() if isinstance(each, sa.TableClause))
        for table in tables:
            for row in connection.execute(sa.select(table)):
                for value in row:
                    if isinstance(value, bytes) and len(value) >= 16 and table.name != "tasks":
                        assert value not in seen, table.name
                    text = str(value)
                    assert not [who for who in people if who.public.hex() in text]
    n = issuer().public.modulus
    for request, answer, _ in transcript:
        for _, _, token in transcript:
            assert token is not None
            signed, final = (int.from_bytes(it, "big") for it in (answer, token.authenticator))
            factor = signed * pow(final, -1, n) % n  # the one that explains this pair
            blinded = pow(final * factor % n, 65_537, n)
            assert blinded == int.from_bytes(request[3:], "big")


def test_no_device_gets_two_tokens_and_no_token_counts_twice() -> None:
    pair, desk, person = Pair(), TokenIssuer(), Identity.generate()
    number = pair.add(pair.a_task_with_tokens())
    task = pair.leader.task(number).document
    desk.create(number, issuer(), {person.public.hex(): 1})
    desk.open(number)
    _, _, token = by_issuer(desk, task, number, person)
    assert token is not None
    assert by_issuer(desk, task, number, person)[2] is None
    for seed in range(3):
        report, _ = pair.admitted(number, seed, token)
        if seed == 0:
            pair.leader.upload(number, report, token)
            continue
        with pytest.raises(DapError, match="same id"):
            pair.leader.upload(number, report, token)
        with pytest.raises(DapError, match="for another report"):
            pair.leader.upload(number, pair.report(number, seed), token)
    assert pair.aggregate_all() == 1


def test_a_token_of_another_task_or_of_nobody_is_refused() -> None:
    pair = Pair()
    number = pair.add(pair.a_task_with_tokens())
    other = pair.add(pair.a_task_with_tokens(minimum=3))
    for wrong in (
        make_token(pair.leader.task(other).document, other),
        make_token(pair.leader.task(number).document, number, key=issuer(1)),
        Token(secrets.token_bytes(32), bytes(32), issuer().public.id, secrets.token_bytes(256)),
    ):
        report, _ = pair.admitted(number, 0, wrong)
        with pytest.raises(DapError, match="a token of the recommender's for it"):
            pair.leader.upload(number, report, wrong)
    for seed in (1, 2):
        pair.leader.upload(number, *pair.admitted(number, seed))
    assert pair.aggregate_all() == 2
    assert pair.numbers(number, pair.collect(number)) == plain_sum([1, 2])


def test_a_key_of_ones_own_is_another_task_to_the_leader_and_refused_here() -> None:
    """Tagging: a recommender that shows each device another key can tell their tokens apart.

    The key is in the document whose digest is the task's id. A device that was shown another key
    asks, and reports, under another id, which an honest leader does not know.
    """
    pair = Pair()
    everybody = pair.a_task_with_tokens()
    number = pair.add(everybody)
    tagged = pair.a_task(token_key=issuer(1).public.encoded)
    own = task_id(encode(tagged))
    assert own != number
    token = make_token(tagged, own, key=issuer(1))
    report, _ = pair.admitted(number, 0, token)
    with pytest.raises(DapError, match="does not take part"):
        pair.leader.upload(own, report, token)
    with pytest.raises(DapError, match="a token of the recommender's"):
        pair.leader.upload(number, report, token)
    # The same document with an index that names another id is refused by the device.
    world, store = World(), make_store()
    task = make_task()
    world.publish(task=task)
    read = decode(task)
    assert isinstance(read, Task)
    other = encode(
        Task(**{f: getattr(read, f) for f in read.__struct_fields__} | {
            "token_key": issuer(1).public.encoded
        })
    )  # fmt: skip
    world.files[f"task-{task_id(task).hex()}.msgpack"] = other
    live(reporter(store, world, 0.0), world, 600)
    assert (world.tokens, world.uploads) == ([], [])
    assert any("its id differs" in line for line in world.logged)


def test_an_issuer_that_signs_with_another_key_gets_no_report() -> None:
    """A signature by a key of this device's own would mark its token."""
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.issues = [b"\x01" * 256]
    live(reporter(store, world, 0.3), world, PERIOD)
    assert (len(world.tokens), world.uploads) == (1, [])
    assert actions(store) == ["agreed", "returned"]


@pytest.mark.parametrize("answer", [401, 409, 410, 422])
def test_who_is_refused_a_token_pays_nothing(answer: int) -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.issues = [answer]
    live(reporter(store, world, 0.3), world, PERIOD)
    assert (len(world.tokens), world.uploads) == (1, [])
    assert actions(store) == ["agreed", "returned"]
    assert store.ledger.spent_total() == 0


def test_a_device_that_is_killed_asks_by_the_same_bytes_and_reports_once() -> None:
    """Before the answer, after it, and before the report: one place, and one report."""
    world, store, task = World(), make_store(), make_task()
    world.publish(task=task)
    world.issues = ["unreachable", 503, 404]
    device, asked = reporter(store, world, 0.3), 0
    while world.now < START + PERIOD:
        world.now += device.step()
        if len(world.tokens) + len(world.issues) != asked:  # a new process after each request
            asked, device = len(world.tokens) + len(world.issues), reporter(store, world, 0.3)
    requests = {request for _, _, request in world.tokens}
    assert (len(world.tokens), len(requests)) == (3, 1)  # two answers, then a token
    assert len(world.uploads) == 1
    assert world.sums(task) == plain_sums(task, STARS)
    (_, nonce, body) = world.uploads[0]
    assert bytes.fromhex(nonce)[:16] == Report.decode(body).report_metadata.report_id
    assert actions(store) == ["agreed", "sent"]


def test_a_token_is_asked_for_at_its_own_moment_whatever_is_rated() -> None:
    """Neither when nor how: the same for nobody's, few and all ratings, and before the report."""
    seen = []
    for ratings in ({}, {"item 00": 5.0}, STARS):
        world, store = World(), make_store(ratings)
        world.publish(task=make_task())
        device, asked = reporter(store, world, 0.5), list[tuple[float, str, int]]()
        while world.now < START + PERIOD:
            before = len(world.requests)
            wait = device.step()
            asked += [(world.now, *request) for request in world.requests[before:]]
            world.now += wait
        seen.append([it for it in asked if "tokens" in it[1] or "reports" in it[1]])
    assert seen[0] == seen[1] == seen[2]
    (token_at, _, _), (report_at, _, _) = seen[0]
    assert START + 10 <= token_at < report_at - 600


def test_a_late_token_does_not_let_the_report_leave_at_once() -> None:
    """The recommender and the leader would compare times."""
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.issues = ["unreachable"] * 6
    device = reporter(store, world, 0.05)
    until(world, device, lambda: bool(world.tokens))
    got = world.now
    assert got > START + 10 + 0.05 * PERIOD  # the moment that was drawn has passed
    until(world, device, lambda: bool(world.uploads))
    assert world.now - got > 60


def test_nothing_of_the_blinding_outlives_the_task() -> None:
    world, store, task = World(), make_store(), make_task()
    world.publish(task=task)
    live(reporter(store, world, 0.3), world, PERIOD + 100)
    assert len(world.uploads) == 1
    assert RecommenderStates(store, FILMS).blinded(task_id(task)) is None
