"""Joining a recommender that asks devices directly, on the page: compare the invitation; nothing
before.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable

import msgspec
import pytest

from hdpmf.common.net import polling
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.protocol import Terms
from hdpmf.common.protocol.enrolment import Invitation
from hdpmf.errors import TransportError
from hdpmf.private.device import connection
from hdpmf.private.device.consent import consents, pending, require_consent
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.memberships import joined_recommenders
from hdpmf.private.device.store.schema import Question

from .conftest import PASSPHRASE, Person, complaints

ADDRESS = "https://films.example:9443"
LOOK = "/recommenders/preview"


class Engine:
    """Stands in for the network: whom devices would poll."""

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
    monkeypatch.setattr(polling, "PollingDevice", made)
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


def soon(reached: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not reached() and time.monotonic() < end:
        time.sleep(0.01)
    return reached()


def test_the_invitation_is_compared_and_then_it_is_answered(
    person: Person, invited: Invitation, authority: str, engine: Engine
):
    page = person.get("/recommenders").text
    assert invited.digest in page
    assert "sends it noisy numbers directly" in page
    assert "phone" in page
    with person.owner.store() as store:
        assert joined_recommenders(store) == []  # nothing before the owner's word
    assert engine.served == []
    person.post("/recommenders/answer", {"digest": invited.digest, "answer": "yes"})
    page = person.get("/recommenders").text
    assert "It gets noisy numbers directly from this device" in page
    assert complaints(page) == []
    with person.owner.store() as store:
        (known,) = joined_recommenders(store)
        assert (known.address, store.recommender.authority) == (ADDRESS, authority.encode())
    assert soon(lambda: engine.served == [ADDRESS])  # without a restart of the page
    assert soon(lambda: "it cannot be reached; trying again" in person.get("/recommenders").text)
    person.post("/recommenders/change", {"address": ADDRESS, "change": "pause"})
    assert "Now (" not in person.get("/recommenders").text
    person.post("/recommenders/change", {"address": ADDRESS, "change": "resume"})
    assert soon(lambda: engine.served == [ADDRESS, ADDRESS])


def test_rosters_are_not_for_people(person: Person, invited: Invitation, engine: Engine):
    person.post("/recommenders/answer", {"digest": invited.digest, "answer": "yes"})
    assert "oster" not in person.get("/recommenders").text
    for path in ("/recommenders/roster", "/recommenders/pin"):
        assert person.post(path, {"digest": "x", "answer": "yes"}).status_code in (404, 405)


def test_what_is_joined_is_what_the_tab_shows(person: Person, invited: Invitation, authority: str):
    """Another tab has looked at another invitation since, whose digest nobody has compared."""
    other = Invitation(address="https://other.example:9092", authority=authority)
    person.post(LOOK, {"link": other.to_link()})
    for fields in ({"digest": invited.digest}, {}):
        person.post("/recommenders/answer", fields | {"answer": "yes"})
        assert "Please open the invitation again" in person.get("/recommenders").text
        with person.owner.store() as store:
            assert joined_recommenders(store) == []
    person.post("/recommenders/answer", {"digest": other.digest, "answer": "no"})
    assert other.digest not in person.get("/recommenders").text


def test_hostile_invitations_are_refused_with_a_word(person: Person, authority: str):
    name = "<script>alert(1)</script>"
    for made, word in (
        ({"address": ADDRESS, "authority": "no certificate"}, "authority"),
        ({"address": f"https://{name}:1", "authority": authority}, "host:port"),
        ({"address": f"{name}", "authority": authority}, "host:port"),
        ({"address": "films.example:9443", "authority": authority}, "host:port"),
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
        assert joined_recommenders(store) == []


def test_one_that_cannot_be_reached_is_tried_again_and_shown(person: Person, authority: str):
    """On the real wire, and nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"https://localhost:{closed.getsockname()[1]}"
    made = Invitation(address=address, authority=authority)
    person.post(LOOK, {"link": made.to_link()})
    person.post("/recommenders/answer", {"digest": made.digest, "answer": "yes"})
    assert soon(lambda: "trying again" in person.get("/recommenders").text)
    assert person.owner.background._threads[address][0].is_alive()


class Answering:
    """Stands in for what answers a recommender, looks included."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.lines: list[str] = []
        self.error: Exception | None = None

    def __call__(
        self,
        store: object,
        address: str,
        stop: threading.Event,
        log: Callable[[str], None],
        *,
        soon: threading.Event,
        **_: object,
    ) -> None:
        self.begun += 1
        if self.error is not None:
            raise self.error
        for line in self.lines:
            log(line)
        while not stop.is_set():
            soon.wait(60)  # as the real one between two looks
        self.ended += 1


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Answering:
    made = Answering()
    monkeypatch.setattr(connection, "serve_recommender", made)
    return made


def test_why_a_recommender_is_not_answered_is_shown(
    person: Person, answering: Answering, invited: Invitation
):
    answering.error = TransportError("its authority is another one")
    person.post("/recommenders/answer", {"digest": invited.digest, "answer": "yes"})
    words = "it is not answered: its authority is another one"
    assert soon(lambda: words in person.get("/recommenders").text)
    assert f"{ADDRESS}: {words}" in person.log


def test_a_fault_of_this_program_is_not_hidden(
    person: Person, answering: Answering, invited: Invitation, monkeypatch: pytest.MonkeyPatch
):
    found: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda raised: found.append(raised.exc_type))
    answering.error = ZeroDivisionError()
    person.post("/recommenders/answer", {"digest": invited.digest, "answer": "yes"})
    assert soon(lambda: found == [ZeroDivisionError])


def test_a_pause_is_not_put_off_until_the_next_look(
    person: Person, answering: Answering, invited: Invitation
):
    person.post("/recommenders/answer", {"digest": invited.digest, "answer": "yes"})
    assert soon(lambda: answering.begun == 1)
    person.post("/recommenders/change", {"address": ADDRESS, "change": "pause"})
    assert answering.ended == 1


def test_with_another_passphrase_recommenders_are_answered_from_the_store_opened_anew(
    person: Person, answering: Answering, invited: Invitation
):
    person.post("/recommenders/answer", {"digest": invited.digest, "answer": "yes"})
    assert soon(lambda: answering.begun == 1)
    person.owner.change_passphrase(None, PASSPHRASE)
    assert answering.ended == 1
    assert soon(lambda: answering.begun == 2)


def test_the_last_hundred_lines_are_kept(person: Person, answering: Answering, invited: Invitation):
    answering.lines = ["the same", "the same", *(f"line {number}" for number in range(100))]
    person.post("/recommenders/answer", {"digest": invited.digest, "answer": "yes"})
    assert soon(lambda: len(person.log) == 101)  # what is said twice is one line
    kept = [line for _, line in person.owner.background.log_lines()]
    assert kept == [f"{ADDRESS}: line {number}" for number in reversed(range(100))]


def test_a_run_is_put_before_the_owner(person: Person, invited: Invitation, engine: Engine):
    person.post("/recommenders/answer", {"digest": invited.digest, "answer": "yes"})
    with person.owner.store() as store:
        store.set_policy(msgspec.structs.replace(store.policy, ask=True))
        terms = Terms(
            method="hdp-sum",
            view="sums",
            epsilon=0.5,
            rounds=1,
            catalogue=store.fingerprint or "",
            users=20,
            minimum=18,
            sharing=18,
        )
        asked = Question(recommender=ADDRESS, terms=terms)
        with pytest.raises(DeclinedError, match="not answered yet"):
            require_consent(store, asked)
    page = person.get("/disclosures").text
    assert "New request" in page
    assert ADDRESS in page
    assert "2 of your ratings would take part" in page
    assert "Quiet Days (1999)" in page
    assert "does not wait for you once enough others have agreed" in page
    person.post("/disclosures/answer", {"key": asked.key, "answer": "once"})
    with person.owner.store() as store:
        require_consent(store, asked)
        assert (consents(store), pending(store)) == ([], [])
        with pytest.raises(DeclinedError):
            require_consent(store, asked)
