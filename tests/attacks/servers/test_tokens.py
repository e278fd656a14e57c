"""Who reported, and how often: attacks on the tokens by which enrolled devices are let in."""

from __future__ import annotations

import secrets
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa

from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.aggregation.two_servers.tokens import NONCE_SIZE, Token, TokenKey, blind_token
from hdpmf.common.protocol.documents import from_base64, to_base64
from hdpmf.common.protocol.identity import Identity
from hdpmf.common.protocol.task import Task, signed_token_request, task_id, token_challenge
from hdpmf.errors import DapError
from hdpmf.untrusted.aggregator import datastore
from hdpmf.untrusted.service.participants import Participants
from hdpmf.untrusted.service.token_issuer import TokenIssuer
from tests.unit.aggregator.server_pair import Pair, plain_sum
from tests.world import issuer, make_token


def by_issuer(
    desk: TokenIssuer, task: Task, number: bytes, device: Identity
) -> tuple[bytes, bytes, Token | None]:
    """What a device asks, is answered, and has then."""
    key, challenge = TokenKey(from_base64(task.token_key)), token_challenge(task, number)
    blinded = blind_token(key, challenge, secrets.token_bytes(NONCE_SIZE))
    said = signed_token_request(number, sha256(blinded.request).digest())
    _, answer = desk.take(
        id_to_text(number), to_base64(device.public), device.sign(said), blinded.request
    )
    if not answer:
        return blinded.request, answer, None
    return blinded.request, answer, blinded.finish(key, challenge, answer)


def test_the_issuers_transcript_and_the_leaders_table_link_nobody(tmp_path: Path) -> None:
    """All that both have together: no value of one is at the other, and all pairs fit."""
    pair = Pair(tmp_path)
    number = pair.add(pair.a_task_with_tokens())
    task = pair.leader.task(number).document
    people = [Identity.generate() for _ in range(4)]
    desk = TokenIssuer(Participants.of(*(person.public for person in people)))
    desk.create(number, issuer(), tmp_path)
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
                    assert not [who for who in people if to_base64(who.public) in text]
    n = issuer().public.modulus
    for request, answer, _ in transcript:
        for _, _, token in transcript:
            assert token is not None
            signed, final = (int.from_bytes(it, "big") for it in (answer, token.authenticator))
            factor = signed * pow(final, -1, n) % n  # the one that explains this pair
            blinded = pow(final * factor % n, 65_537, n)
            assert blinded == int.from_bytes(request[3:], "big")


def test_no_device_gets_two_tokens_and_no_token_counts_twice() -> None:
    pair, person = Pair(), Identity.generate()
    desk = TokenIssuer(Participants.of(person.public))
    number = pair.add(pair.a_task_with_tokens())
    task = pair.leader.task(number).document
    desk.create(number, issuer())
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


def test_a_key_of_ones_own_is_another_task_to_the_leader() -> None:
    """Tagging: a recommender that shows each device another key can tell their tokens apart.

    The key is in the document whose digest is the task's id. A device that was shown another key
    asks, and reports, under another id, which an honest leader does not know.
    """
    pair = Pair()
    everybody = pair.a_task_with_tokens()
    number = pair.add(everybody)
    tagged = pair.a_task(token_key=to_base64(issuer(1).public.encoded))
    own = task_id(tagged.to_bytes())
    assert own != number
    token = make_token(tagged, own, key=issuer(1))
    report, _ = pair.admitted(number, 0, token)
    with pytest.raises(DapError, match="does not take part"):
        pair.leader.upload(own, report, token)
    with pytest.raises(DapError, match="a token of the recommender's"):
        pair.leader.upload(number, report, token)
