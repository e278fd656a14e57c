"""Joining a recommender that sums by masks, on the page: compare the invitation, then the
roster; nothing before.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable

import msgspec
import pytest

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.net.flower import device as flower
from hdpmf.common.protocol import DeviceCard, Terms
from hdpmf.common.protocol.enrolled import Enrolled
from hdpmf.common.protocol.invitation import Invitation
from hdpmf.private.device.consent import Asked, consents, pending, require_consent
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.joined import joined
from hdpmf.private.device.pinned_servers import pinned_digest

from .conftest import Person, complaints

ADDRESS = "films.example:9443"
LOOK, ROSTER = "/recommenders/look", "/recommenders/roster"


class Engine:
    """Stands in for Flower: whom devices would connect to."""

    served: list[str]

    def __init__(self) -> None:
        self.served = []

    def __call__(
        self, address: str, *_: object, log: Callable[[str], None], **__: object
    ) -> Engine:
        self.address, self.log = address, log
        return self

    def serve(self, answer: object, stop: threading.Event) -> None:
        self.served.append(self.address)
        self.log("it cannot be reached; trying again")
        stop.wait(30)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(flower, "FlowerDevice", made)
    return made


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> str:
    return ensure_certificates(
        tmp_path_factory.mktemp("tls"), ["films.example"]
    ).authority.read_text()


@pytest.fixture
def invited(person: Person, authority: str) -> Invitation:
    """An invitation that is looked at, with its link."""
    made = Invitation(address=ADDRESS, authority=authority)
    assert person.post(LOOK, {"link": made.to_link()}).headers["location"] == "/recommenders"
    return made


def roster_of(person: Person, n: int = 3, own: bool = True) -> Enrolled:
    keys = (DeviceIdentity.generate().public.hex() for _ in range(n))
    others = [DeviceCard(name=key[:8], identity=key, node=f"node {key}") for key in keys]
    card = json.loads(person.post("/recommenders/card", {}).text)
    return Enrolled([DeviceCard(**card), *others] if own else others)


def load(person: Person, data: bytes, address: str = ADDRESS) -> str:
    """Look at a roster; what the page says then."""
    person.upload(ROSTER, data, json.dumps({"address": address, "kind": "json"}))
    return person.get("/recommenders").text


def soon(reached: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not reached() and time.monotonic() < end:
        time.sleep(0.01)
    return reached()


def test_first_the_invitation_is_compared_then_the_roster_and_then_it_is_answered(
    person: Person, invited: Invitation, authority: str, engine: Engine
):
    page = person.get("/recommenders").text
    assert invited.digest in page
    assert "among the devices of a roster" in page
    assert "telephone" in page
    with person.owner.store() as store:
        assert joined(store) == []  # nothing before the owner's word
    person.post("/recommenders/answer", {"digest": invited.digest, "answer": "yes"})
    page = person.get("/recommenders").text
    assert "Waiting for the roster: give the operator this device&#39;s card" in page
    assert complaints(page) == []
    with person.owner.store() as store:
        (known,) = joined(store)
        assert (known.address, store.get("authority")) == (ADDRESS, authority.encode())

    roster = roster_of(person)
    page = load(person, roster.to_json())
    assert roster.digest in page
    assert "4 devices, 4 people" in page
    assert "chooses among whom you are hidden" in page
    with person.owner.store() as store:
        assert store.roster is None  # looked at, not pinned
    assert engine.served == []
    person.post("/recommenders/pin", {"digest": roster.digest, "answer": "no"})
    with person.owner.store() as store:
        assert store.roster is None
    person.post("/recommenders/pin", {"digest": roster.digest, "answer": "yes"})
    assert "Look at a roster first" in person.get("/recommenders").text

    load(person, roster.to_json())
    person.post("/recommenders/pin", {"digest": roster.digest, "answer": "yes"})
    with person.owner.store() as store:
        assert pinned_digest(store) == roster.digest
    assert soon(lambda: engine.served == [ADDRESS])  # without a restart of the page
    assert soon(lambda: "it cannot be reached; trying again" in person.get("/recommenders").text)
    page = person.get("/recommenders").text
    assert "Sums by masks among 4 devices for 4 people" in page
    assert "Waiting for the roster" not in page
    person.post("/recommenders/change", {"address": ADDRESS, "change": "pause"})
    assert "Now (" not in person.get("/recommenders").text
    person.post("/recommenders/change", {"address": ADDRESS, "change": "resume"})
    assert soon(lambda: engine.served == [ADDRESS, ADDRESS])


def test_what_is_joined_is_what_the_tab_shows(person: Person, invited: Invitation, authority: str):
    """Another tab has looked at another invitation since, whose digest nobody has compared."""
    other = Invitation(address="other.example:9092", authority=authority)
    person.post(LOOK, {"link": other.to_link()})
    for fields in ({"digest": invited.digest}, {}):
        person.post("/recommenders/answer", fields | {"answer": "yes"})
        assert "Look at the invitation once more" in person.get("/recommenders").text
        with person.owner.store() as store:
            assert joined(store) == []
    person.post("/recommenders/answer", {"digest": other.digest, "answer": "no"})
    assert other.digest not in person.get("/recommenders").text


def test_another_roster_needs_one_more_yes(person: Person, invited: Invitation, engine: Engine):
    person.post("/recommenders/answer", {"digest": invited.digest, "answer": "yes"})
    first, second = roster_of(person), roster_of(person, 2)
    load(person, first.to_json())
    person.post("/recommenders/pin", {"digest": first.digest, "answer": "yes"})
    page = load(person, second.to_json())
    assert "This is another roster than before" in page
    assert first.digest in page
    assert second.digest in page
    person.post("/recommenders/pin", {"digest": second.digest, "answer": "yes"})
    page = person.get("/recommenders").text
    (said,) = complaints(page)
    assert "Another roster is pinned here" in said
    with person.owner.store() as store:
        assert pinned_digest(store) == first.digest
    # What is pinned is what was looked at, whatever was loaded in another window meanwhile.
    load(person, roster_of(person, 4).to_json())
    person.post("/recommenders/pin", {"digest": second.digest, "answer": "yes", "sure": "yes"})
    with person.owner.store() as store:
        assert pinned_digest(store) == first.digest
    load(person, second.to_json())
    person.post("/recommenders/pin", {"digest": second.digest, "answer": "yes", "sure": "yes"})
    with person.owner.store() as store:
        assert pinned_digest(store) == second.digest
    assert "This is another roster" not in load(person, second.to_json())  # the same one again


def test_hostile_rosters_are_refused_with_a_word(
    person: Person, invited: Invitation, engine: Engine
):
    person.post("/recommenders/answer", {"digest": invited.digest, "answer": "yes"})
    good = json.loads(roster_of(person).to_json())
    twice = {**good, "devices": [*good["devices"], good["devices"][1]]}
    for data, word in (
        (b"", "not a roster"),
        (b"\xff" * 100, "not a roster"),
        (json.dumps(good | {"digest": "0"}).encode(), "changed by hand"),
        (json.dumps(twice).encode(), "same name"),
        (roster_of(person, 4, own=False).to_json(), "not on the roster"),
        (roster_of(person, 1).to_json(), "3 to 65536 devices"),
    ):
        page = load(person, data)
        (said,) = complaints(page)
        assert word in said
        assert "Compare the roster before you agree" not in page
    for address in ("nobody.example:1", ""):
        (said,) = complaints(load(person, roster_of(person).to_json(), address))
        assert "no such recommender" in said
    with person.owner.store() as store:
        assert store.roster is None
    assert engine.served == []


def test_hostile_invitations_are_refused_with_a_word(person: Person, authority: str):
    name = "<script>alert(1)</script>"
    for made, word in (
        ({"address": ADDRESS, "authority": ""}, "authority"),
        ({"address": ADDRESS, "authority": "no certificate"}, "authority"),
        ({"address": f"{name}:1", "authority": authority}, "host:port"),
        ({"address": f"{name}", "authority": authority}, "host:port"),
        ({"address": "https://films.example:9443", "authority": authority}, "host:port"),
        ({"address": [ADDRESS], "authority": authority}, "no invitation"),
        ({"address": ADDRESS, "authority": "x" * 70_000}, "at most"),
    ):
        person.upload(LOOK, json.dumps(made).encode())
        page = person.get("/recommenders").text
        (said,) = complaints(page)
        assert word in said
        assert "Compare before you agree" not in page
        assert name not in page
    with person.owner.store() as store:
        assert joined(store) == []


def test_one_that_cannot_be_reached_is_tried_again_and_shown(person: Person, authority: str):
    """With the real engine, and nobody who listens."""
    pytest.importorskip("flwr")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"localhost:{closed.getsockname()[1]}"
    made = Invitation(address=address, authority=authority)
    person.post(LOOK, {"link": made.to_link()})
    person.post("/recommenders/answer", {"digest": made.digest, "answer": "yes"})
    roster = roster_of(person)
    load(person, roster.to_json(), address)
    person.post("/recommenders/pin", {"digest": roster.digest, "answer": "yes"})
    assert soon(lambda: "trying again" in person.get("/recommenders").text)
    assert person.owner.answering._threads[address][0].is_alive()


def test_a_run_by_masks_is_put_before_the_owner(
    person: Person, invited: Invitation, engine: Engine
):
    person.post("/recommenders/answer", {"digest": invited.digest, "answer": "yes"})
    with person.owner.store() as store:
        store.set_policy(msgspec.structs.replace(store.policy, ask=True))
        terms = Terms(
            method="hdp-sum",
            view="sums",
            epsilon=1.0,
            rounds=1,
            catalogue=store.fingerprint or "",
            users=20,
            minimum=18,
            sharing=18,
        )
        asked = Asked(recommender=ADDRESS, terms=terms)
        with pytest.raises(DeclinedError, match="not answered yet"):
            require_consent(store, asked)
    page = person.get("/leaves").text
    assert "Somebody asks" in page
    assert ADDRESS in page
    assert "2 of your ratings would take part" in page
    assert "Quiet Days (1999)" in page
    assert "does not wait for you once enough others have agreed" in page
    person.post("/leaves/answer", {"key": asked.key, "answer": "once"})
    with person.owner.store() as store:
        require_consent(store, asked)
        assert (consents(store), pending(store)) == ([], [])
        with pytest.raises(DeclinedError):
            require_consent(store, asked)
