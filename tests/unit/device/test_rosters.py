"""Joining a recommender that sums by masks: what the owner pins, and what no file changes
without the owner's word.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.data import RatingScale
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.protocol import DeviceCard
from hdpmf.common.protocol.enrolment import Enrolled, Invitation
from hdpmf.errors import ConfigError, SecureSumError
from hdpmf.private.device.device_identity import card_of, new_device
from hdpmf.private.device.memberships import join, joined_recommenders, leave
from hdpmf.private.device.pinned_servers import (
    pin_roster,
    pinned_digest,
    pinned_servers,
    preview_roster,
)
from hdpmf.private.device.store.device_store import DeviceStore

from .reporting_world import SERVERS


@pytest.fixture
def store(tmp_path: Path) -> DeviceStore:
    return new_device(tmp_path / "me.sqlite", scale=RatingScale(1.0, 5.0, 1.0))


def others(n: int) -> list[DeviceCard]:
    keys = (DeviceIdentity.generate().public.hex() for _ in range(n))
    return [DeviceCard(name=key[:8], identity=key) for key in keys]


def test_a_roster_is_pinned_and_another_one_only_by_the_owners_word(store: DeviceStore):
    first = Enrolled([card_of(store), *others(3)])
    second = Enrolled([card_of(store), *others(2)])
    assert preview_roster(store, first.to_json()).digest == first.digest
    assert (store.roster, pinned_digest(store)) == (None, "")  # looking pins nothing
    assert pin_roster(store, first.to_json()) == ""
    assert pin_roster(store, first.to_json()) == first.digest  # the same one may come again
    with pytest.raises(
        ConfigError, match=rf"another roster is pinned here \(digest {first.digest}.*you are hidden"
    ):
        pin_roster(store, second.to_json())
    pinned = store.roster
    assert pinned is not None
    assert (pinned_digest(store), len(pinned), pinned.n_users) == (first.digest, 4, 4)
    assert pin_roster(store, second.to_json(), new=True) == first.digest
    assert pinned_digest(store) == second.digest


def test_what_cannot_be_summed_over_is_refused_before_it_is_shown(store: DeviceStore):
    own = card_of(store)
    wrong = {
        "not on the roster": Enrolled(others(4)),
        "3 to 65536 devices, not 2": Enrolled([own, *others(1)]),
        "counts 7 users for this device, which has 1": Enrolled(
            [DeviceCard(name=own.name, identity=own.identity, users=7), *others(2)]
        ),
    }
    for word, roster in wrong.items():
        for take in (preview_roster, pin_roster):
            with pytest.raises((ConfigError, SecureSumError), match=word):
                take(store, roster.to_json())
    assert (store.roster, pinned_digest(store)) == (None, "")


def test_joining_by_an_invitation_pins_address_and_authority_beside_others(
    store: DeviceStore, tmp_path: Path
):
    first, second = (
        ensure_certificates(tmp_path / name, ["films.example"]).authority.read_text()
        for name in ("own", "hostile")
    )
    join(store, Invitation(address="https://books.example:9443", servers=SERVERS))
    invitation = Invitation(address="https://films.example:9443", authority=first)
    known = join(store, invitation)
    here = store.at(known.id)
    assert [pinned_servers(store.at(each.id)) for each in joined_recommenders(store)] == [
        SERVERS,
        None,
    ]
    assert (here.recommender.authority, here.recommender.servers, here.roster) == (
        first.encode(),
        b"",
        None,
    )
    assert store.policy.servers == (SERVERS.digest,)
    pin_roster(here, Enrolled([card_of(store), *others(3)]).to_json())
    assert store.roster is None  # at its own place only
    with pytest.raises(ConfigError, match="another authority"):
        join(store, Invitation(address="https://films.example:9443", authority=second))
    assert join(store, invitation) == here.recommender  # the same one again changes nothing
    assert here.recommender.authority == first.encode()
    leave(store, invitation.address)
    assert [each.address for each in joined_recommenders(store)] == ["https://books.example:9443"]
    assert store.policy.servers == (SERVERS.digest,)
    join(store, Invitation(address="https://films.example:9443", authority=second))
    assert here.recommender.authority == second.encode()
    assert pinned_digest(here)  # coming back brings no other roster
