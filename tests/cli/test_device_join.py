"""``hdpmf device join``, with a recommender that offers too much and publishes its model."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.net import Answer
from hdpmf.common.net.carrier import FilesHere
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.protocol import Envelope, ItemFacts, Message, Reply, Terms, decode, encode
from hdpmf.common.protocol.enrolment import Enrolled, read_card
from hdpmf.common.protocol.federation import DeviceCard
from hdpmf.errors import ConfigError, SecureSumError
from hdpmf.models import HDPSum
from hdpmf.private.device.pinned_servers import pin_roster
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.publish import public_files

from .conftest import Call
from .device_world import TABLE, WORLD

pytestmark = pytest.mark.slow


def _roster(path: Path, call: Call, *, others: int = 3) -> Path:
    cards = [read_card(Path(f"{path}.card.json").read_bytes())]
    for number in range(others):
        where = path.with_name(f"other-{number}")
        made = call("device", "init", where, "--json").json
        cards.append(read_card(Path(made["card"]).read_bytes()))
    target = path.with_name("roster.json")
    target.write_bytes(Enrolled(cards).to_json())
    return target


def test_join_needs_to_know_where_and_whom(rated: Path, tmp_path: Path, call: Call) -> None:
    def said(*arguments: object) -> str:
        ended = call("device", "join", rated, *arguments, "--json")
        assert ended.code == 2
        return str(ended.json["error"]["message"])

    assert "who the recommender is" in said()
    assert "host:port" in said("http://films.example")
    assert "host:port" in said("films.example:9443")
    (tmp_path / "ca.pem").write_text("no certificate")
    assert "authority" in said("https://films.example:9443", "--ca", tmp_path / "ca.pem").lower()
    assert "cannot read" in said("https://films.example:9443", "--ca", tmp_path / "absent.pem")


def test_a_roster_without_this_device_is_refused(rated: Path, tmp_path: Path, call: Call) -> None:
    roster = _roster(rated, call)
    with DeviceStore.open(rated) as store:
        pin_roster(store, roster.read_bytes())
        pinned = store.roster
        assert pinned is not None
        assert len(pinned) == 4
    digest = Enrolled.from_json(roster.read_bytes()).digest
    assert call("device", "status", rated, "--json").json["roster"] == {
        "devices": 4,
        "users": 4,
        "digest": digest,
    }
    changed = json.loads(roster.read_text())
    changed["devices"][1]["users"] = 500
    roster.write_text(json.dumps(changed))
    with DeviceStore.open(rated) as store:
        with pytest.raises(ConfigError, match="digest"):
            pin_roster(store, roster.read_bytes())
        strangers = Enrolled([msgspec.convert(one, DeviceCard) for one in changed["devices"][1:]])
        with pytest.raises(SecureSumError, match="not on the roster"):
            pin_roster(store, strangers.to_json(), new=True)


class _Carrier(FilesHere):
    """A recommender that offers one run, and then publishes a model."""

    def __init__(self, offer: Message, facts: ItemFacts) -> None:
        super().__init__(public_files(TABLE))
        model = PublicModel.of_run({"run": (b"r" * 16).hex()}, TABLE, facts, None)
        self._offer, self._later = offer, public_files(TABLE, model)
        self.replies: list[Message] = []

    def __call__(self, *given: object, look: Callable[[str], None], **more: object) -> _Carrier:
        self._look = look
        return self

    def serve(self, answer: Answer, stop: threading.Event) -> None:
        self._look("the first")
        if self.replies:
            return
        envelope = Envelope(run=b"r" * 16, number=0, part="job", body=encode(self._offer))
        reply = decode(answer(encode(envelope)))
        assert isinstance(reply, Reply)
        self.replies.append(decode(reply.body))
        assert not stop.is_set()
        self._look("the first")
        assert not stop.is_set()
        self.files = self._later
        self._look("the second")
        assert stop.is_set()


def test_join_answers_and_leaves_when_the_model_is_there(
    path: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = HDPSum(rng=0).fit(WORLD).facts_
    far_too_much = Terms(
        method="hdp-sum",
        view="sums",
        epsilon=9.0,
        rounds=1,
        catalogue=facts.catalogue,
        users=100,
        minimum=50,
        sharing=40,
    )
    carrier = _Carrier(far_too_much, facts)
    monkeypatch.setattr("hdpmf.common.net.polling.PollingDevice", carrier)
    monkeypatch.setattr("hdpmf.common.net.polling.WebClient", lambda *_: carrier)
    authority = ensure_certificates(tmp_path / "tls", ["films.example"]).authority
    roster = _roster(path, call)
    digest = Enrolled.from_json(roster.read_bytes()).digest
    given = ("--ca", authority, "--roster", roster)
    unsaid = call("device", "join", path, "https://films.example:9443", *given, "--once")
    assert unsaid.code != 0
    assert "--roster-digest" in unsaid.err  # nobody is there to be asked
    given = (*given, "--roster-digest", digest.upper())
    joined = call("device", "join", path, "https://films.example:9443", *given, "--once", "--json")
    assert joined.code == 0, joined.err
    assert [type(one).__name__ for one in carrier.replies] == ["Refusal"]
    assert (joined.json["messages"], joined.json["runs"]) == (0, [(b"r" * 16).hex()])
    assert digest in joined.err
    assert "epsilon 9" in joined.err  # its owner is told why, the recommender is not
    assert call("device", "rate", path, TABLE.ids[0], "4").code == 0
    assert len(call("device", "recommend", path, "--json").json["items"]) == 10
    again = call("device", "join", path, "--json")  # everything is pinned
    assert (again.code, again.json["address"], again.json["runs"]) == (
        0,
        "https://films.example:9443",
        [],
    )


def test_join_twice_at_a_time(path: Path, call: Call) -> None:
    with DeviceStore.open(path, serving=True):
        ended = call("device", "join", path, "https://films.example:9443", "--json")
    assert ended.code == 8
    assert "in use" in ended.json["error"]["message"]
