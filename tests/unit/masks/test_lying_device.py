"""What a device may try on the recommender: it is refused, the others go on; or the sum ends,
and is never wrong.
"""

import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf.common.aggregation.masks import DeviceIdentity, SecureSumServer, propose
from hdpmf.common.aggregation.masks.messages import (
    Confirmations,
    Inbox,
    PartnerKeys,
    SumPlan,
    Survivors,
)
from hdpmf.errors import SecureSumError


def flipped(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def honest_reply(session, kind, device=0):
    session.until(kind)
    return session.clients[device].answer(session.outgoing[device])


def goes_on_without(session, device):
    """A refused message changes nothing: the device counts as lost, the others finish."""
    session.outgoing.pop(device)
    result = session.finish()
    assert np.array_equal(result.total, session.plain_sum(result.survivors))
    return result.survivors


def test_forged_keys(make_session):
    session = make_session()
    reply = honest_reply(session, SumPlan)
    for forged in (
        replace(reply.keys, signature=flipped(reply.keys.signature)),
        replace(reply.keys, mask=flipped(reply.keys.mask)),
    ):
        with pytest.raises(SecureSumError, match="not signed"):
            session.server.receive(0, replace(reply, keys=forged))
    assert goes_on_without(session, 0) == (1, 2, 3, 4, 5, 6)


def test_keys_of_one_device_sent_by_another(make_session):
    session = make_session()
    reply = honest_reply(session, SumPlan)
    with pytest.raises(SecureSumError, match="device 1 are not signed"):
        session.server.receive(1, reply)


@pytest.mark.parametrize("stranger", [7, 100, -1])
def test_a_device_that_is_not_on_the_roster(make_session, stranger):
    session = make_session()
    reply = honest_reply(session, SumPlan)
    with pytest.raises(SecureSumError, match="not on the roster"):
        session.server.receive(stranger, reply)


@pytest.mark.parametrize("kind", [SumPlan, PartnerKeys, Inbox, Survivors, Confirmations])
def test_replays_are_refused_at_each_step(make_session, kind):
    earlier = honest_reply(make_session(), kind)
    session = make_session()
    reply = honest_reply(session, kind)
    with pytest.raises(SecureSumError, match="another session"):
        session.server.receive(0, earlier)
    session.server.receive(0, reply)
    with pytest.raises(SecureSumError, match="answered already"):
        session.server.receive(0, reply)
    session.outgoing.pop(0)
    session.step()
    if session.outgoing:
        with pytest.raises(SecureSumError, match="out of turn"):
            session.server.receive(0, reply)
    result = session.finish()
    assert len(result.survivors) == 7
    assert np.array_equal(result.total, session.plain_sum(range(7)))


def test_shares_for_other_devices_than_its_holders(make_session):
    session = make_session()
    reply = honest_reply(session, PartnerKeys)
    for peers in ([1, 2, 4, 5, 6], [*reply.sealed, 0], []):
        sealed, checks = (
            {peer: parts.get(peer, parts[3]) for peer in peers}
            for parts in (reply.sealed, reply.checks)
        )
        with pytest.raises(SecureSumError, match="did not deal"):
            session.server.receive(0, replace(reply, sealed=sealed, checks=checks))
    assert goes_on_without(session, 0) == (1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("words", [b"1234", bytes(24), bytes(4000)])
def test_a_vector_of_another_length(make_session, words):
    session = make_session()
    reply = honest_reply(session, Inbox)
    with pytest.raises(SecureSumError, match="the plan says 20"):
        session.server.receive(0, replace(reply, words=words))
    assert goes_on_without(session, 0) == (1, 2, 3, 4, 5, 6)


def test_a_forged_confirmation(make_session):
    session = make_session()
    reply = honest_reply(session, Survivors)
    with pytest.raises(SecureSumError, match="did not sign"):
        session.server.receive(
            0, replace(reply, signature=DeviceIdentity.generate().sign(b"anything"))
        )
    assert goes_on_without(session, 0) == (0, 1, 2, 3, 4, 5, 6)


def test_shares_that_nobody_asked_for(make_session):
    session = make_session(n=9).until(Inbox)
    session.step(silent=[8])
    session.until(Confirmations)
    reply = session.clients[0].answer(session.outgoing[0])
    for changed in (
        replace(reply, seeds={**reply.seeds, 0: reply.seeds[1]}),
        replace(reply, seeds={**reply.seeds, **reply.keys}, keys={}),
        replace(reply, keys={**reply.keys, 1: reply.seeds[1]}, seeds={}),
    ):
        with pytest.raises(SecureSumError, match="not asked for"):
            session.server.receive(0, changed)
    assert goes_on_without(session, 0) == (0, 1, 2, 3, 4, 5, 6, 7)


def test_nothing_before_the_beginning_and_nothing_after_the_end(make_session):
    session = make_session()
    with pytest.raises(SecureSumError, match="has not begun"):
        session.server.receive(0, session.plan)
    session.start().finish()
    with pytest.raises(SecureSumError, match="takes no messages"):
        session.server.receive(0, session.plan)
    with pytest.raises(SecureSumError, match="is over"):
        session.server.advance()


def test_a_plan_for_another_roster(make_session):
    seven, eight = make_session(n=7), make_session(n=8)
    with pytest.raises(SecureSumError, match="another roster"):
        SecureSumServer(propose(seven.roster, 5), eight.roster)
