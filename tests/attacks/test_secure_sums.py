"""Attacks on secure sums: a recommender that picks its cohort and tells two lists; devices that
cheat with shares.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf.common.aggregation.masks import (
    DeviceIdentity,
    Roster,
    SecureSumClient,
    SecureSumServer,
    SumPolicy,
    propose,
)
from hdpmf.common.aggregation.masks.messages import (
    Confirmations,
    DeviceKeys,
    Inbox,
    PartnerKeys,
    SumPlan,
    Survivors,
)
from hdpmf.common.aggregation.masks.plan import (
    keys_text,
    pair_check,
    pair_info,
    self_mask_key,
    survivors_text,
)
from hdpmf.common.aggregation.masks.primitives import Agreement, add_mask, seal
from hdpmf.common.aggregation.masks.roster import bitmap
from hdpmf.common.aggregation.masks.server import WrongSharesError
from hdpmf.common.aggregation.masks.shamir import SHARE_BYTES, join, split
from hdpmf.errors import SecureSumError

LENGTH = 6
TRUSTING = SumPolicy(max_colluding=Fraction(0), min_fraction=Fraction(0))
"""A device that believes that nobody works for the recommender."""


class Sum:
    """Devices and a recommender, one step at a time."""

    def __init__(self, n: int, policy: SumPolicy | None = None, **options) -> None:
        self.identities = [DeviceIdentity.generate() for _ in range(n)]
        self.roster = Roster(identity.public for identity in self.identities)
        self.vectors = np.random.default_rng(7).integers(0, 2**32, (n, LENGTH), np.uint32)
        self.policy = policy or SumPolicy(min_survivors=3)
        self.clients = [
            SecureSumClient(identity, self.roster, vector, self.policy)
            for identity, vector in zip(self.identities, self.vectors, strict=True)
        ]
        self.server = SecureSumServer(propose(self.roster, LENGTH, **options), self.roster)
        self.outgoing = self.server.advance()

    def step(self, cheat=lambda device, reply: reply, silent=()) -> None:
        for device, message in self.outgoing.items():
            if device not in silent:
                self.server.receive(device, cheat(device, self.clients[device].answer(message)))
        self.outgoing = self.server.advance()

    def until(self, kind: type) -> Sum:
        while not isinstance(next(iter(self.outgoing.values())), kind):
            self.step()
        return self

    def finish(self):
        while self.outgoing:
            self.step()
        result = self.server.result
        assert np.array_equal(
            result.total, self.vectors[list(result.survivors)].sum(axis=0, dtype=np.uint32)
        )
        return result


def wrong(share: bytes) -> bytes:
    return share[:15] + bytes([share[15] ^ 1]) + share[16:]


# 14. A recommender that picks its cohort, and tells one part of it another survivor list than the
#     other.


def vector_by_two_lists(
    n_roster: int, cohort: list[int], colluding: int, policy: SumPolicy
) -> bool:
    """Whether a recommender gets the vector of the cohort's last device. The first ones of the
    cohort are its own.
    """
    identities = {place: DeviceIdentity.generate() for place in cohort}
    keys = [bytes([n % 256, n // 256]) * 16 for n in range(n_roster)]
    for place, identity in identities.items():
        keys[place] = identity.public
    roster = Roster(keys)
    vectors = {place: np.arange(LENGTH, dtype=np.uint32) + np.uint32(place) for place in cohort}
    clients = {
        place: SecureSumClient(identities[place], roster, vectors[place], policy)
        for place in cohort
    }
    plan = propose(roster, LENGTH, participants=cohort, minimum=len(cohort) - 1)
    own, victim = cohort[:colluding], cohort[-1]
    honest = cohort[colluding:-1]
    server = SecureSumServer(plan, roster)
    seen = {}
    outgoing = server.advance()
    while not isinstance(outgoing[victim], Survivors):
        for place, message in outgoing.items():
            reply = clients[place].answer(message)
            seen[place] = reply
            server.receive(place, reply)
        outgoing = server.advance()
    masked = np.frombuffer(seen[victim].words, "<u4").copy()
    # The first half is told that the victim was lost and gives its mask key, the other that it is
    # there: its seed.
    parts = (honest[: len(honest) // 2 + 1], [*honest[len(honest) // 2 + 1 :], victim])
    lists = (bitmap(cohort[:-1], n_roster), bitmap(cohort, n_roster))
    held = {place: clients[place]._held[victim] for place in own}
    shares = [
        {place: held[place][:SHARE_BYTES] for place in own},
        {place: held[place][SHARE_BYTES:] for place in own},
    ]
    for lost, (part, listed) in enumerate(zip(reversed(parts), reversed(lists), strict=True)):
        message = Survivors(session=plan.session, survivors=listed)
        signatures = {place: clients[place].answer(message).signature for place in part}
        # The colluding devices sign whatever they are asked to.
        signatures |= {
            place: identities[place].sign(survivors_text(plan.digest, place, listed))
            for place in own
        }
        for place in part:
            if place == victim:
                continue
            others = {peer: signature for peer, signature in signatures.items() if peer != place}
            reply = clients[place].answer(Confirmations(session=plan.session, signatures=others))
            given = reply.keys if lost else reply.seeds
            shares[lost][place] = given[victim]
    points = {peer: point for point, peer in enumerate(server._holders[victim], start=1)}
    seed, mask_key = (
        join({points[peer]: share for peer, share in part.items()}, len(points)) for part in shares
    )
    add_mask(masked, self_mask_key(plan.digest, seed), subtract=True)
    agreement = Agreement(mask_key)
    for peer in cohort[:-1]:
        key = agreement.key(
            server._keys[peer].mask, plan.digest, pair_info(b"pair mask", victim, peer)
        )
        add_mask(masked, key, subtract=victim < peer)
    return np.array_equal(masked, vectors[victim])


def test_seven_of_6040_devices_do_not_make_a_cohort():
    with pytest.raises(SecureSumError, match="insists on 604"):
        vector_by_two_lists(6040, list(range(0, 6040, 360)), 7, SumPolicy())
    with pytest.raises(
        SecureSumError, match="302 of the 6040 devices on the roster may work for the recommender"
    ):
        vector_by_two_lists(6040, list(range(0, 6040, 360)), 7, SumPolicy(min_fraction=Fraction(0)))


def test_the_attack_is_real_where_a_device_believes_that_nobody_colludes():
    assert vector_by_two_lists(6040, list(range(0, 6040, 360)), 7, TRUSTING)


@pytest.mark.parametrize("n", [17, 33, 61, 200])
def test_the_largest_number_that_a_device_reckons_with_is_too_small_for_two_lists(n):
    """Whatever cohort of a full roster is picked, the plan holds with every colluding device in
    it, or is refused.
    """
    policy = SumPolicy(min_fraction=Fraction(0))
    roster = Roster(DeviceIdentity(bytes([1 + i]) * 32).public for i in range(200))
    plan = propose(roster, LENGTH, participants=range(n), minimum=n - 1)
    colluding = policy.colluding(200)
    try:
        policy.check(plan, 200)
    except SecureSumError:
        assert n == 17
    else:
        assert plan.degree == n - 1 or n == 200
        assert colluding < 2 * plan.threshold - plan.degree


def test_nothing_that_the_recommender_says_decides_who_holds_shares():
    """The same plan twice, and a device's own draw decides; the plan has no field that could."""
    sum_ = Sum(80, policy=TRUSTING, neighbours=64)
    plan = sum_.server.plan
    draws = set()
    for _ in range(5):
        client = SecureSumClient(sum_.identities[0], sum_.roster, sum_.vectors[0], TRUSTING)
        client.answer(plan)
        draws.add(client._holders)
    assert len(draws) == 5


# 15. Devices that cheat with shares.


@pytest.mark.parametrize("hostile", [1, 3, 7])
@pytest.mark.parametrize("kind", ["seeds", "keys"])
def test_holders_that_return_wrong_shares_are_named_and_the_sum_is_right(kind, hostile):
    sum_ = Sum(20).until(Inbox)
    sum_.step(silent=[19])

    def cheat(device, reply):
        if device >= hostile:
            return reply
        return replace(
            reply, **{kind: {peer: wrong(share) for peer, share in getattr(reply, kind).items()}}
        )

    sum_.until(Confirmations)
    if hostile == 7:  # 13 of 18 or 19 holders are needed
        with pytest.raises(WrongSharesError, match="right shares") as broken:
            sum_.step(cheat)
        assert set() < broken.value.liars <= set(range(7))
        assert sum_.server.liars == broken.value.liars
        return
    sum_.step(cheat)
    assert sum_.finish().liars == set(range(hostile))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "fooled"), [(20, 2), (66, 9)])
def test_a_dealer_of_some_wrong_shares_is_named_and_the_sum_is_right(n, fooled):
    sum_ = Sum(n, neighbours=64).until(PartnerKeys)
    sum_.step(dealing_wrongly(sum_, 5, fooled))
    assert sum_.finish().liars == {5}


def test_a_dealer_of_nothing_but_wrong_shares_is_named():
    sum_ = Sum(20).until(PartnerKeys)
    sum_.step(dealing_wrongly(sum_, 5, 19))
    with pytest.raises(WrongSharesError, match="device 5 dealt wrong shares") as broken:
        sum_.finish()
    assert broken.value.liars == {5}


def dealing_wrongly(sum_, dealer, count):
    """Device ``dealer`` deals shares of other secrets to the first of its holders, and vouches
    for them.
    """

    def cheat(device, reply):
        if device != dealer:
            return reply
        client, plan = sum_.clients[dealer], sum_.server.plan
        sealed, checks = dict(reply.sealed), dict(reply.checks)
        for peer in sorted(reply.sealed)[:count]:
            shares = b"".join(split(bytes(32), plan.threshold, plan.degree)[0] for _ in range(2))
            outgoing, _ = client._channel_keys(peer, sum_.server._keys[peer].channel)
            sealed[peer] = seal(outgoing, shares)
            checks[peer] = pair_check(plan.digest, dealer, peer, shares)
        return replace(reply, sealed=sealed, checks=checks)

    return cheat


@pytest.mark.parametrize("field", ["sealed", "checks"])
def test_shares_that_do_not_open_cost_no_honest_device_its_place(field):
    sum_ = Sum(20).until(PartnerKeys)

    def cheat(device, reply):
        parts = getattr(reply, field)
        few = sorted(parts)[:6]
        changed = {peer: wrong(part) if peer in few else part for peer, part in parts.items()}
        return replace(reply, **{field: changed}) if device == 5 else reply

    sum_.step(cheat)
    assert sum_.finish().survivors == tuple(range(20))


def test_shares_that_do_not_open_for_anybody_are_blamed_on_their_dealer():
    sum_ = Sum(20).until(PartnerKeys)
    sum_.step(
        lambda device, reply: (
            reply
            if device != 5
            else replace(reply, sealed={peer: wrong(part) for peer, part in reply.sealed.items()})
        )
    )
    with pytest.raises(WrongSharesError) as broken:
        sum_.finish()
    assert broken.value.liars == {5}


@pytest.mark.parametrize("copied", [False, True])
def test_keys_that_honest_devices_would_refuse_stop_at_the_recommender(copied):
    sum_ = Sum(20)
    plan = sum_.server.plan
    replies = {device: client.answer(plan) for device, client in enumerate(sum_.clients)}
    for device in range(19):
        sum_.server.receive(device, replies[device])
    fields = (replies[0].keys.channel if copied else bytes(32), replies[19].keys.mask, bytes(32))
    signature = sum_.identities[19].sign(keys_text(plan.digest, 19, *fields))
    keys = DeviceKeys(channel=fields[0], mask=fields[1], commitment=fields[2], signature=signature)
    with pytest.raises(SecureSumError, match="low order"):
        sum_.server.receive(19, replace(replies[19], keys=keys))
    sum_.outgoing = sum_.server.advance()
    assert sum_.finish().survivors == tuple(range(19))


# Two faults that were planted in the client and that no test noticed: each opens every vector.


def test_what_survivors_reveal_takes_off_one_mask_only():
    """Survivors' seeds become known. If a seed were the mask key too, every vector of an honest
    sum would open.
    """
    sum_ = Sum(8)
    masked = {}

    def note(device, reply):
        masked[device] = reply
        return reply

    sum_.until(Inbox)
    sum_.step(note)
    sum_.until(Confirmations)
    plan, keys = sum_.server.plan, sum_.server._keys
    answers = {
        device: client.answer(sum_.outgoing[device]) for device, client in enumerate(sum_.clients)
    }
    for victim in range(8):
        holders = sum_.server._holders[victim]
        seed = join(
            {point: answers[peer].seeds[victim] for point, peer in enumerate(holders, 1)},
            len(holders),
        )
        left = np.frombuffer(masked[victim].words, "<u4").copy()
        add_mask(left, self_mask_key(plan.digest, seed), subtract=True)
        for peer in holders:
            key = Agreement(seed).key(
                keys[peer].mask, plan.digest, pair_info(b"pair mask", victim, peer)
            )
            add_mask(left, key, subtract=victim < peer)
        assert not np.array_equal(left, sum_.vectors[victim])
        assert Agreement(seed).public not in (keys[victim].mask, keys[victim].channel)


@pytest.mark.parametrize("kind", [0, 1])
def test_one_share_less_than_the_threshold_opens_neither_secret(kind):
    sum_ = Sum(7).until(Survivors)
    threshold, keys = sum_.server.plan.threshold, sum_.server._keys
    for dealer in range(7):
        holders = sum_.server._holders[dealer]
        part = slice(kind * SHARE_BYTES, (kind + 1) * SHARE_BYTES)
        shares = {
            point: sum_.clients[peer]._held[dealer][part] for point, peer in enumerate(holders, 1)
        }
        client = sum_.clients[dealer]
        secret = (client._seed, client._mask_secret)[kind]
        for points in itertools.combinations(shares, threshold - 1):
            assert join({point: shares[point] for point in points}, len(holders)) != secret
        assert join(dict(itertools.islice(shares.items(), threshold)), len(holders)) == secret
        assert Agreement(client._mask_secret).public == keys[dealer].mask


def test_a_plan_is_for_nobody_but_the_roster_that_was_pinned():
    """A relative of 14: the fraction is of the pinned roster, and a plan for a smaller roster is
    refused.
    """
    sum_ = Sum(40, policy=SumPolicy())
    smaller = Roster(identity.public for identity in sum_.identities[:20])
    with pytest.raises(SecureSumError, match="another roster"):
        sum_.clients[0].answer(propose(smaller, LENGTH))
    assert isinstance(sum_.server.plan, SumPlan)
