"""What a recommender may try on a device, and how the device refuses. A refusal ends the
device's session.
"""

import contextlib
from fractions import Fraction

import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf.common.aggregation.masks import (
    DeviceIdentity,
    Roster,
    SecureSumClient,
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
    Unmasking,
)
from hdpmf.common.aggregation.masks.plan import keys_text, survivors_text
from hdpmf.common.aggregation.masks.primitives import Agreement, new_secret
from hdpmf.common.aggregation.masks.roster import bitmap
from hdpmf.errors import SecureSumError


def flipped(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def refuses(client, message, why):
    """The device refuses, says why, and is of no use to anybody any more."""
    with pytest.raises(SecureSumError, match=why):
        client.answer(message)
    assert client.over
    assert not client._held
    assert not client._seed
    assert not client._mask_secret
    assert client._vector is None
    with pytest.raises(SecureSumError, match="session is over"):
        client.answer(message)


class TestPlan:
    STRICT = SumPolicy(
        min_survivors=10, min_neighbours=6, threshold_fraction=Fraction(2, 3), max_length=100
    )

    def offer(self, identities, why, n=20, length=5, roster=None, policy=STRICT, **options):
        pinned = Roster(identity.public for identity in identities[:n])
        client = SecureSumClient(identities[0], pinned, np.zeros(5, np.uint32), policy)
        refuses(client, propose(roster or pinned, length, **options), why)

    def test_a_smaller_threshold(self, identities):
        self.offer(
            identities,
            "threshold is 6 of 10 neighbours; this device insists on 7",
            neighbours=10,
            threshold=6,
        )

    def test_fewer_neighbours(self, identities):
        self.offer(identities, "4 neighbours; this device insists on 6", neighbours=4)

    def test_a_sum_over_fewer_devices(self, identities):
        self.offer(
            identities, "sum over 9 devices; this device insists on 10", neighbours=8, minimum=9
        )

    def test_fewer_participants(self, identities):
        self.offer(identities, "insists on 10", participants=range(5))

    def test_another_length(self, identities):
        self.offer(identities, "another length", length=6)

    def test_words_of_another_width(self, identities):
        self.offer(identities, "another width", wide=True)

    def test_a_huge_vector(self, identities):
        self.offer(identities, "at most 100", length=101)

    def test_another_roster_with_sybils(self, identities):
        sybils = Roster(
            [identities[0].public] + [DeviceIdentity.generate().public for _ in range(19)]
        )
        self.offer(identities, "another roster", roster=sybils)

    def test_a_sum_without_this_device(self, identities):
        self.offer(identities, "does not ask this device", participants=range(1, 20))

    def test_participants_beyond_the_roster(self, identities):
        pinned = Roster(identity.public for identity in identities[:20])
        plan = replace(propose(pinned, 5), participants=b"\xff" * 3)
        client = SecureSumClient(identities[0], pinned, np.zeros(5, np.uint32), self.STRICT)
        refuses(client, plan, "not on the roster")

    def test_a_cohort_that_is_a_small_part_of_the_roster(self, identities):
        policy = SumPolicy(min_survivors=3, min_neighbours=2, min_fraction=Fraction(3, 4))
        self.offer(identities, "sum over 14 devices; this device insists on 15", policy=policy)

    def test_a_cohort_that_does_not_withstand_the_colluding_devices_of_the_roster(self, identities):
        policy = SumPolicy(
            min_survivors=3,
            min_neighbours=2,
            max_colluding=Fraction(1, 4),
            min_fraction=Fraction(0),
        )
        self.offer(
            identities,
            "5 of the 20 devices on the roster may work",
            participants=range(12),
            policy=policy,
        )
        pinned = Roster(identity.public for identity in identities[:20])
        client = SecureSumClient(identities[0], pinned, np.zeros(5, np.uint32), policy)
        client.answer(propose(pinned, 5))  # all twenty together do

    def test_the_default_policy_refuses_small_sums(self, identities):
        self.offer(identities, "insists on 16", n=10, policy=None)

    def test_a_plan_twice(self, make_session):
        session = make_session().start()
        session.clients[0].answer(session.plan)
        refuses(session.clients[0], session.plan, "out of turn")


class TestKeys:
    def open(self, make_session, n=7, **options):
        session = make_session(n=n, **options).until(PartnerKeys)
        return session, session.clients[0], session.outgoing[0]

    def test_a_forged_signature(self, make_session):
        _, client, message = self.open(make_session)
        forged = replace(message.keys[3], signature=flipped(message.keys[3].signature))
        refuses(
            client, replace(message, keys={**message.keys, 3: forged}), "device 3 are not signed"
        )

    @pytest.mark.parametrize("field", ["channel", "mask", "commitment"])
    def test_a_key_put_in_by_the_recommender(self, make_session, field):
        _, client, message = self.open(make_session)
        forged = replace(message.keys[3], **{field: Agreement(new_secret()).public})
        refuses(
            client, replace(message, keys={**message.keys, 3: forged}), "device 3 are not signed"
        )

    def test_sybil_keys_signed_by_nobody_on_the_roster(self, make_session):
        session, client, message = self.open(make_session)
        sybil = DeviceIdentity.generate()
        fields = (Agreement(new_secret()).public, Agreement(new_secret()).public, bytes(32))
        signature = sybil.sign(keys_text(session.plan.digest, 3, *fields))
        keys = DeviceKeys(
            channel=fields[0], mask=fields[1], commitment=fields[2], signature=signature
        )
        refuses(client, replace(message, keys={**message.keys, 3: keys}), "device 3 are not signed")

    def test_a_device_beyond_the_roster(self, make_session):
        _, client, message = self.open(make_session)
        forged = replace(
            message.keys[3],
            channel=Agreement(new_secret()).public,
            mask=Agreement(new_secret()).public,
        )
        refuses(
            client, replace(message, keys={**message.keys, 7: forged}), "device 7 are not signed"
        )

    def test_its_own_keys_sent_back(self, make_session):
        session, client, message = self.open(make_session)
        refuses(
            client, replace(message, keys={**message.keys, 0: session.server._keys[0]}), "own keys"
        )

    def test_one_devices_keys_for_another(self, make_session):
        _, client, message = self.open(make_session)
        refuses(client, replace(message, keys={**message.keys, 3: message.keys[4]}), "sent twice")

    def test_keys_of_an_earlier_session(self, make_session):
        earlier = make_session().until(PartnerKeys).outgoing[0]
        session, client, message = self.open(make_session)
        refuses(
            client,
            replace(message, keys={**message.keys, 3: earlier.keys[3]}),
            "device 3 are not signed",
        )
        refuses(session.clients[1], earlier, "another session")

    def test_too_few_neighbours(self, make_session):
        session, client, message = self.open(make_session)
        few = dict(list(message.keys.items())[: session.plan.threshold - 1])
        refuses(client, replace(message, keys=few), "the threshold is 5")

    def test_different_plans_for_different_devices(self, make_session):
        """Signatures cover the plan: whoever was told another one looks like a forger."""
        session = make_session().start()
        other = replace(session.plan, minimum=session.plan.minimum + 1)
        replies = {
            n: session.clients[n].answer(other if n == 3 else session.plan) for n in range(7)
        }
        message = PartnerKeys(
            session=session.plan.session, keys={n: replies[n].keys for n in range(1, 7)}
        )
        refuses(session.clients[0], message, "device 3 are not signed")

    def test_a_key_of_low_order(self, make_session):
        """Device 3 itself is hostile and signs a key that gives everyone the same secret."""
        session, client, message = self.open(make_session)
        hostile = session.clients[3]._identity
        fields = (bytes(32), message.keys[3].mask, bytes(32))
        signature = hostile.sign(keys_text(session.plan.digest, 3, *fields))
        keys = DeviceKeys(
            channel=fields[0], mask=fields[1], commitment=fields[2], signature=signature
        )
        refuses(client, replace(message, keys={**message.keys, 3: keys}), "low order")


class TestShares:
    def open(self, make_session):
        session = make_session().until(Inbox)
        return session, session.clients[0], session.outgoing[0]

    def keeps_none(self, client, message, *dealers):
        """Whoever is to blame, the device goes on, without shares that are not what was dealt."""
        client.answer(message)
        assert not client.over
        assert not client._held.keys() & set(dealers)

    def test_changed_shares(self, make_session):
        _, client, message = self.open(make_session)
        self.keeps_none(
            client, replace(message, sealed={**message.sealed, 3: flipped(message.sealed[3])}), 3
        )

    def test_shares_other_than_the_dealer_spoke_of(self, make_session):
        _, client, message = self.open(make_session)
        self.keeps_none(
            client, replace(message, checks={**message.checks, 3: flipped(message.checks[3])}), 3
        )

    def test_shares_of_one_device_for_those_of_another(self, make_session):
        _, client, message = self.open(make_session)
        swapped = {**message.sealed, 3: message.sealed[4], 4: message.sealed[3]}
        self.keeps_none(client, replace(message, sealed=swapped), 3, 4)

    def test_its_own_shares_sent_back(self, make_session):
        session = make_session().until(PartnerKeys)
        own = session.clients[0].answer(session.outgoing[0])
        partners = tuple(range(1, 7))
        message = Inbox(
            session=session.plan.session, partners=partners, sealed=own.sealed, checks=own.checks
        )
        self.keeps_none(session.clients[0], message, *partners)

    def test_too_few_holders(self, make_session):
        _, client, message = self.open(make_session)
        few = replace(message, partners=(1, 2, 3, 4), sealed={}, checks={})
        refuses(client, few, "the threshold is 5")

    def test_a_partner_without_keys(self, make_session):
        session = make_session().until(PartnerKeys)
        full = session.outgoing[0]
        client = session.clients[0]
        client.answer(replace(full, keys={n: full.keys[n] for n in range(1, 6)}))
        message = Inbox(
            session=session.plan.session, partners=tuple(range(1, 7)), sealed={}, checks={}
        )
        refuses(client, message, "whose keys came")

    def test_shares_of_a_device_that_is_no_partner(self, make_session):
        _, client, message = self.open(make_session)
        refuses(client, replace(message, partners=(1, 2, 3, 4, 5)), "whose keys came")

    def test_a_replayed_message(self, make_session):
        _, client, message = self.open(make_session)
        client.answer(message)
        refuses(client, message, "out of turn")


class TestSurvivors:
    def open(self, make_session, **options):
        session = make_session(**options).until(Survivors)
        return session, session.clients[0]

    def tell(self, session, devices, n=7):
        return Survivors(session=session.plan.session, survivors=bitmap(sorted(devices), n))

    def test_a_list_without_this_device(self, make_session):
        session, client = self.open(make_session)
        refuses(client, self.tell(session, range(1, 7)), "not on the survivor list")

    def test_a_list_that_is_too_short(self, make_session):
        session, client = self.open(make_session, n=20, neighbours=6)
        alive = {0, *session.holders(0)}
        refuses(
            client,
            self.tell(session, alive, 20),
            "7 devices survived; the sum must be over at least 14",
        )

    def test_a_list_with_too_few_neighbours(self, make_session):
        session, client = self.open(make_session, n=20, neighbours=6)
        lost = session.holders(0)[:3]
        refuses(client, self.tell(session, set(range(20)) - set(lost), 20), "the threshold is 5")

    def test_a_list_with_strangers(self, make_session):
        session, client = self.open(make_session)
        refuses(
            client, Survivors(session=session.plan.session, survivors=b"\xff"), "were not asked"
        )

    def test_a_list_of_another_size(self, make_session):
        session, client = self.open(make_session)
        refuses(
            client, Survivors(session=session.plan.session, survivors=b"\x7f\x00"), "were not asked"
        )

    def test_a_holder_that_never_dealt(self, make_session):
        session = make_session().start()
        session.step()
        session.step(silent=[3])
        session.step()
        refuses(session.clients[0], self.tell(session, range(7)), "had dealt no shares")

    def test_a_second_list(self, make_session):
        session, client = self.open(make_session)
        client.answer(self.tell(session, range(7)))
        refuses(client, self.tell(session, range(6)), "out of turn")

    def test_different_lists_for_different_devices(self, make_session):
        """Told that device 6 survived, half of the devices would give its seed; the others, its
        mask key.
        """
        session, _ = self.open(make_session)
        lists = {n: self.tell(session, range(7) if n % 2 else range(6)) for n in range(6)}
        signatures = {n: session.clients[n].answer(lists[n]).signature for n in range(6)}
        for n in range(6):
            others = {peer: signature for peer, signature in signatures.items() if peer != n}
            message = Confirmations(session=session.plan.session, signatures=others)
            refuses(
                session.clients[n],
                message,
                "did not sign the survivor list that this device was told",
            )

    def test_different_lists_with_only_the_agreeing_signatures_passed_on(self, make_session):
        session, client = self.open(make_session)
        lists = {n: self.tell(session, range(7) if n < 4 else range(6)) for n in range(6)}
        signatures = {n: session.clients[n].answer(lists[n]).signature for n in range(6)}
        agreeing = {n: signatures[n] for n in range(1, 4)}
        message = Confirmations(session=session.plan.session, signatures=agreeing)
        refuses(client, message, "3 holders confirmed the survivor list; the threshold is 5")


class TestConfirmations:
    def open(self, make_session, silent=()):
        session = make_session().until(Inbox)
        session.step(silent=silent)
        session.step()
        return session, session.clients[0], session.outgoing[0]

    def test_a_forged_signature(self, make_session):
        _, client, message = self.open(make_session)
        forged = {**message.signatures, 1: flipped(message.signatures[1])}
        refuses(client, replace(message, signatures=forged), "device 1 did not sign")

    def test_a_device_that_is_no_holder(self, make_session):
        session = make_session(n=20, neighbours=6).until(Confirmations)
        client, message = session.clients[0], session.outgoing[0]
        stranger = next(n for n in range(1, 20) if n not in session.holders(0))
        signatures = {**message.signatures, stranger: session.server._signatures[stranger]}
        refuses(client, replace(message, signatures=signatures), "holds no share")

    def test_a_sybils_signature(self, make_session):
        session, client, message = self.open(make_session)
        text = survivors_text(session.plan.digest, 1, session.server._listed)
        forged = {**message.signatures, 1: DeviceIdentity.generate().sign(text)}
        refuses(client, replace(message, signatures=forged), "device 1 did not sign")

    def test_one_signature_for_many_devices(self, make_session):
        _, client, message = self.open(make_session)
        refuses(
            client,
            replace(message, signatures=dict.fromkeys(range(1, 7), message.signatures[1])),
            "did not sign",
        )

    def test_a_signature_of_a_lost_device(self, make_session):
        _, client, message = self.open(make_session, silent=[6])
        refuses(
            client,
            replace(message, signatures={**message.signatures, 6: bytes(64)}),
            "that is not on it",
        )

    def test_its_own_signature_does_not_count(self, make_session):
        _, client, message = self.open(make_session)
        refuses(
            client,
            replace(message, signatures={**message.signatures, 0: bytes(64)}),
            "holds no share",
        )

    def test_signatures_of_an_earlier_session(self, make_session):
        earlier = self.open(make_session)[2]
        session, client, message = self.open(make_session)
        refuses(client, replace(message, signatures=earlier.signatures), "did not sign")
        refuses(session.clients[1], earlier, "another session")


@pytest.mark.slow
@pytest.mark.usefixtures("fixed_secrets")
def test_a_list_for_each_half_gets_no_sum(make_session):
    """Each half is told that one device was lost, in its own half; 118 of 120 would be left
    where 119 must be.
    """
    n, threshold = 120, 24
    session = make_session(n=n, neighbours=32, threshold=threshold, minimum=119).until(Survivors)
    halves = {device: device // 60 for device in range(n)}
    lost = {0: {30}, 1: {90}}
    told, signatures = {}, {}
    for device in set(range(n)) - lost[0] - lost[1]:
        listed = bitmap(sorted(set(range(n)) - lost[halves[device]]), n)
        told[device] = Survivors(session=session.plan.session, survivors=listed)
        signatures[device] = session.clients[device].answer(told[device]).signature
    given = {}
    for device in told:
        agreeing = {
            peer: signatures[peer]
            for peer in session.holders(device)
            if peer in told and halves[peer] == halves[device]
        }
        with contextlib.suppress(SecureSumError):
            message = Confirmations(session=session.plan.session, signatures=agreeing)
            given[device] = session.clients[device].answer(message)
    shares = {
        x: sum(x in reply.seeds or x in reply.keys for reply in given.values()) for x in range(n)
    }
    assert max(shares.values()) < threshold  # not one secret can be put together


def test_a_device_never_gives_both_kinds_of_share_of_another(make_session):
    """There is no message that asks for a kind: the list decides, once. A second request finds
    the session over.
    """
    session = make_session(n=20, neighbours=10).until(Inbox)
    session.step(silent=[4, 11])
    session.step()
    for device, message in session.outgoing.items():
        client = session.clients[device]
        reply = client.answer(message)
        assert isinstance(reply, Unmasking)
        assert not reply.seeds.keys() & reply.keys.keys()
        held_for = {peer for peer in range(20) if device in session.holders(peer)}
        assert reply.keys.keys() == {4, 11} & held_for
        assert reply.seeds.keys() == held_for - {4, 11}
        refuses(client, message, "session is over")


def test_claiming_a_live_device_lost_does_not_unmask_it(make_session):
    """Device 6 sent its vector; the recommender says that it did not, and learns its mask key:
    its seed it does not.
    """
    session = make_session().until(Survivors)
    listed = bitmap(range(6), 7)
    told = Survivors(session=session.plan.session, survivors=listed)
    signatures = {n: session.clients[n].answer(told).signature for n in range(6)}
    seeds = 0
    for n in range(6):
        others = {peer: signature for peer, signature in signatures.items() if peer != n}
        reply = session.clients[n].answer(
            Confirmations(session=session.plan.session, signatures=others)
        )
        seeds += 6 in reply.seeds
        assert 6 in reply.keys
    assert seeds == 0


def test_a_session_cannot_be_used_again(make_session):
    session = make_session().start()
    session.finish()
    for client in session.clients:
        assert client.over
        with pytest.raises(SecureSumError, match="new SecureSumClient"):
            client.answer(propose(session.roster, 5))


def test_two_sessions_of_one_device_share_no_key(make_session):
    first, second = (make_session().until(PartnerKeys).server._keys[0] for _ in range(2))
    assert not {first.channel, first.mask, first.commitment} & {
        second.channel,
        second.mask,
        second.commitment,
    }


@pytest.mark.parametrize("kind", [SumPlan, PartnerKeys, Inbox, Survivors, Confirmations])
def test_any_message_out_of_turn_ends_the_session(make_session, kind):
    messages = {}
    session = make_session().start()
    while session.outgoing:
        message = session.outgoing[0]
        messages[type(message)] = message
        session.step()
    for due in messages:
        if due is not kind:
            other = make_session().until(due)
            refuses(other.clients[0], messages[kind], "out of turn")


def test_nothing_private_is_shown(make_session):
    session = make_session().until(Survivors)
    client = session.clients[0]
    shown = repr(client) + repr(client._identity) + repr(client._mask_key) + repr(session.roster)
    for secret in (client._seed, client._mask_secret, client._identity.secret_bytes()):
        assert secret.hex() not in shown
        assert repr(secret) not in shown


def test_vectors_and_identities_that_cannot_be(identities):
    roster = Roster(identity.public for identity in identities[:5])
    for vector in (np.zeros(5), np.zeros(5, np.int64), np.zeros((5, 1), np.uint32)):
        with pytest.raises(SecureSumError, match="words"):
            SecureSumClient(identities[0], roster, vector)
    with pytest.raises(SecureSumError, match="not on the roster"):
        SecureSumClient(identities[9], roster, np.zeros(5, np.uint32))
    with pytest.raises(SecureSumError, match="32 bytes"):
        DeviceIdentity(b"short")
    with pytest.raises(SecureSumError, match="twice"):
        Roster([identities[0].public] * 3)
    with pytest.raises(SecureSumError, match="3 to"):
        Roster([identities[0].public])
    with pytest.raises(SecureSumError, match="32 bytes"):
        Roster([b"1", b"2", b"3"])
    with pytest.raises(SecureSumError, match="from 0 to 4"):
        propose(roster, 5, participants=[0, 1, 7])
    for options in ({"threshold_fraction": Fraction(1, 3)}, {"min_survivors": 1}):
        with pytest.raises(SecureSumError):
            SumPolicy(**options)
