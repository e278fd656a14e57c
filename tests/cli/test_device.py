"""``hdpmf device`` without a network: a store is made, filled, looked at and forgotten."""

from __future__ import annotations

import json
import math
import stat
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest

from hdpmf.cli.device.join import _pin_roster
from hdpmf.device import vault
from hdpmf.device.ledger import Entry
from hdpmf.device.local_model import LocalModel, keep_model, recommend
from hdpmf.device.policy import Policy
from hdpmf.device.store import DeviceStore
from hdpmf.errors import ConfigError, SecureSumError
from hdpmf.models import HDPSum
from hdpmf.protocol import Call as AreYouThere
from hdpmf.protocol import Envelope, ItemFacts, Message, Reply, Terms, decode, encode
from hdpmf.protocol.catalogue import catalogue_table
from hdpmf.protocol.federation import DeviceCard
from hdpmf.ratings import synthetic_world
from hdpmf.service.enrolment import Enrolled, read_card
from hdpmf.transport import Answer
from hdpmf.transport.certificates import ensure_certificates

from .conftest import Call

WORLD = synthetic_world(25, 40, 500, rng=2)
TABLE = catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table)
PASSPHRASE = "correct horse battery staple"


@pytest.fixture(autouse=True)
def _cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "SCRYPT_COST", 16)
    monkeypatch.delenv("HDPMF_DEVICE_PASSPHRASE", raising=False)


@pytest.fixture
def path(tmp_path: Path, call: Call) -> Path:
    """A store that init made."""
    where = tmp_path / "me.hdpmf"
    assert call("device", "init", where).code == 0
    return where


@pytest.fixture
def rated(path: Path, call: Call) -> Path:
    """The same with three ratings and a catalogue."""
    with DeviceStore.open(path) as store:
        store.pin_catalogue(TABLE)
    for item, value in zip(TABLE.ids[:3], ("1", "5", "3"), strict=True):
        assert call("device", "rate", path, item, value).code == 0
    return path


def _pay(path: Path, *, method: str = "hdp-sum", view: str = "sums", status: str = "proved", run: str = "ab") -> None:
    with DeviceStore.open(path) as store:
        ratings = store.ratings()
        epsilon = math.inf if status == "none" else 0.5
        common = {"recommender": "films.example:9443", "run": run * 16, "number": 0, "method": method, "view": view,
                  "epsilon": epsilon, "status": status}  # fmt: skip
        store.ledger.note(Entry(**common, action="agreed", words="agreed to the terms"))
        paid = np.full(len(ratings), epsilon)
        store.ledger.charge(Entry(**common, action="sent", words="a sum"), ratings, np.arange(len(ratings)), paid)


def test_init_makes_a_private_store_and_a_public_card(tmp_path: Path, call: Call) -> None:
    where = tmp_path / "silo.hdpmf"
    made = call("device", "init", where, "--users", "3", "--name", "clinic", "--json").json
    assert (made["users"], made["encrypted"], made["name"]) == (3, False, "clinic")
    assert stat.S_IMODE(where.stat().st_mode) == 0o600
    card = read_card(Path(made["card"]).read_bytes())
    assert (card.identity, card.users, card.name) == (made["identity"], 3, "clinic")
    with DeviceStore.open(where) as store:
        assert store.identity.public.hex() == card.identity
        key = store.get("node-key")
        assert key is not None
        assert key not in Path(made["card"]).read_bytes()
        assert store.identity.secret_bytes().hex() not in Path(made["card"]).read_text()
    again = tmp_path / "card again"
    assert call("device", "status", where, "--card", again).code == 0
    assert again.read_bytes() == Path(made["card"]).read_bytes()


def test_init_refuses_what_is_there(path: Path, tmp_path: Path, call: Call) -> None:
    before = path.read_bytes()
    ended = call("device", "init", path, "--card", tmp_path / "other-card", "--json")
    assert ended.code == 2
    assert "exists" in ended.json["error"]["message"]
    assert not (tmp_path / "other-card").exists()
    ended = call("device", "init", tmp_path / "other", "--card", f"{path}.card.json")
    assert ended.code == 2
    assert not (tmp_path / "other").exists()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--users", "0"), 2),
        (("--name", "a\nb"), 2),
        (("--policy", "absent.toml"), 2),
        (("--passphrase-file", "x"), 2),
        (("--encrypt",), 5),  # nowhere to ask for a passphrase
    ],
)
def test_init_with_options_that_make_no_sense(
    tmp_path: Path, call: Call, arguments: tuple[str, ...], code: int
) -> None:
    assert call("device", "init", tmp_path / "store", *arguments).code == code
    assert list(tmp_path.iterdir()) == []


def test_init_with_a_policy(tmp_path: Path, call: Call) -> None:
    (tmp_path / "mine.toml").write_text("epsilon = 0.25\nrequire_sums = true\n")
    assert call("device", "init", tmp_path / "store", "--policy", tmp_path / "mine.toml").code == 0
    shown = call("device", "policy", tmp_path / "store")
    assert Policy.from_toml(shown.out) == Policy(epsilon=0.25, require_sums=True)
    (tmp_path / "other.toml").write_text("epsilon = 0.5\n")
    changed = call("device", "policy", tmp_path / "store", "--set", tmp_path / "other.toml", "--json")
    assert changed.json["policy"]["epsilon"] == 0.5
    (tmp_path / "other.toml").write_text("epsilon = -1\n")
    assert call("device", "policy", tmp_path / "store", "--set", tmp_path / "other.toml").code == 2
    assert call("device", "policy", tmp_path / "store", "--json").json["policy"]["epsilon"] == 0.5


def test_the_passphrase_comes_from_a_file_or_the_environment(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, secret = tmp_path / "store", tmp_path / "passphrase"
    secret.write_text(PASSPHRASE + "\n")
    assert call("device", "init", where, "--encrypt", "--passphrase-file", secret, "--json").json["encrypted"]
    ended = call("device", "status", where)
    assert ended.code == 5
    assert "HDPMF_DEVICE_PASSPHRASE" in ended.err
    assert call("device", "status", where, "--passphrase-file", secret).code == 0
    secret.write_text("wrong\n")
    ended = call("device", "status", where, "--passphrase-file", secret)
    assert ended.code == 5
    assert "wrong; nothing" in ended.err
    monkeypatch.setenv("HDPMF_DEVICE_PASSPHRASE", PASSPHRASE)
    for command in (("rate", where, "7", "3"), ("status", where), ("ledger", where), ("policy", where)):
        ended = call("device", *command)
        assert ended.code == 0
        assert PASSPHRASE not in ended.out + ended.err


def test_rating_listing_and_removing(rated: Path, call: Call) -> None:
    items = TABLE.ids[:3]
    assert call("device", "rate", rated, items[0], "2", "--json").json["ratings"] == 3
    assert call("device", "rate", rated, items[1], "--remove").code == 0
    assert call("device", "rate", rated, items[1], "--remove").code == 3
    assert call("device", "rate", rated, items[2], "--weight", "0.5").code == 0
    assert call("device", "rate", rated, "--weight", "0.5").code == 0
    listed = call("device", "rate", rated, "--list", "--json").json["ratings"]
    assert [(one["item"], one["value"], one["weight"]) for one in listed] == [
        (items[0], 2.0, 0.5),
        (items[2], 3.0, 0.25),
    ]
    assert listed[0]["title"] == TABLE.titles[0]
    table = call("device", "rate", rated, "--list").out
    assert TABLE.titles[0] in table


def test_ratings_off_the_scale(rated: Path, call: Call) -> None:
    ended = call("device", "rate", rated, TABLE.ids[5], "6.28125")
    assert ended.code == 3
    assert "scale" in ended.err
    assert "6.28125" not in ended.err
    assert call("device", "rate", rated, "not-in-it", "3").err.startswith("The catalogue does not have this item")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("7",),
        ("7", "3", "--remove"),
        ("7", "3", "--list"),
        ("--list", "--search", "x"),
        ("--list", "--scale", 1, 5),
    ],
)
def test_one_thing_at_a_time(rated: Path, call: Call, arguments: tuple[object, ...]) -> None:
    assert call("device", "rate", rated, *arguments).code == 2


def test_weights_outside_their_range(rated: Path, call: Call) -> None:
    assert call("device", "rate", rated, "--weight", "1.5").code == 5
    assert call("device", "rate", rated, TABLE.ids[0], "3", "--weight", "0").code == 5
    listed = call("device", "rate", rated, "--list", "--json").json["ratings"]
    assert listed[0]["value"] == 1.0  # the rating of the refused command was not taken either


def test_searching_titles(rated: Path, path: Path, tmp_path: Path, call: Call) -> None:
    part = TABLE.titles[3][:5].upper()
    found = call("device", "rate", rated, "--search", part, "--json").json["items"]
    assert {"item": TABLE.ids[3], "title": TABLE.titles[3]} in found
    assert all(part.lower() in one["title"].lower() for one in found)
    assert call("device", "init", tmp_path / "new").code == 0
    assert call("device", "rate", tmp_path / "new", "--search", "x").code == 2


def test_a_silo_reads_a_file(tmp_path: Path, files: tuple[Path, Path], call: Call) -> None:
    where = tmp_path / "silo"
    assert call("device", "init", where, "--users", "60").code == 0
    added = call("device", "rate", where, "--from", files[0], "--json").json
    assert added["ratings"] == len(files[0].read_text().splitlines()) - 1
    small = tmp_path / "small"
    assert call("device", "init", small, "--users", "2").code == 0
    ended = call("device", "rate", small, "--from", files[0])
    assert ended.code == 3
    assert "2 users" in ended.err
    assert call("device", "status", small, "--json").json["ratings"] == 0


def test_status(rated: Path, call: Call) -> None:
    before = call("device", "status", rated, "--json").json
    assert before["ratings"] == 3
    assert before["catalogue"]["items"] == 40
    assert before["budget"] == {"epsilon": 1.0, "untouched": 3, "partly_spent": 0, "spent": 0}
    assert (before["roster"], before["runs_under_way"], before["model"], before["address"]) == (None, [], None, None)
    _pay(rated)
    half = call("device", "status", rated, "--json").json
    assert (half["budget"]["partly_spent"], half["spent_total"], half["ledger_entries"]) == (3, 1.5, 2)
    assert "3 partly spent" in call("device", "status", rated).out


def test_ledger_says_what_was_sent_and_what_it_reveals(rated: Path, call: Call) -> None:
    assert "Nothing was ever sent" in call("device", "ledger", rated).out
    _pay(rated)
    said = " ".join(call("device", "ledger", rated).out.split())
    for words in ("films.example:9443", "for 3 ratings", "secure sum", "sees one sum over devices", "PROVED", "62 %"):
        assert words in said, words
    document = call("device", "ledger", rated, "--json").json
    (run,) = document["runs"]
    assert run["cost"]["pure_epsilon"] == pytest.approx(0.5)
    assert (run["cost"]["status"], run["ratings"], run["sent"]) == ("proved", 3, 1)
    assert document["spent_total"] == 1.5
    together = document["spent_together"]
    assert (together["proved"], together["delta"]) == (True, 1e-5)
    assert together["pure_epsilon"] == pytest.approx(1.5)
    assert together["epsilon_at_delta"] == pytest.approx(1.5, rel=1e-3)
    assert "the ratings of one user have spent epsilon 1.5 together" in said
    assert [one["action"] for one in document["entries"]] == ["agreed", "sent"]


def test_ledger_is_honest_about_what_protects_nothing(rated: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "all.toml").write_text('methods = ["mf"]\nallow_unprotected = true\n')
    assert call("device", "policy", rated, "--set", tmp_path / "all.toml").code == 0
    _pay(rated, method="mf", view="messages", status="none")
    said = " ".join(call("device", "ledger", rated).out.split())
    assert "NO GUARANTEE" in said
    assert "infinitely much" in said
    document = call("device", "ledger", rated, "--json").json
    assert (document["spent_total"], document["unprotected"]) == (None, True)
    assert document["entries"][1]["epsilon"] is None
    assert "without any protection" in call("device", "status", rated).out


def test_changing_or_removing_what_was_released_is_told_honestly(rated: Path, call: Call) -> None:
    fresh = call("device", "rate", rated, TABLE.ids[0], "2", "--json").json
    assert fresh["released"] == []
    _pay(rated)
    said = " ".join(call("device", "ledger", rated).out.split())
    assert "afterwards" not in said
    changed = call("device", "rate", rated, TABLE.ids[0], "4")
    words = " ".join(changed.out.split())
    assert "released on 20" in words
    assert "to films.example:9443 (hdp-sum, run abababab)" in words
    assert "cannot be recalled. The new value is not sent to this recommender: a rating answers it once." in words
    removed = call("device", "rate", rated, TABLE.ids[1], "--remove", "--json").json
    (release,) = removed["released"]
    assert (release["run"], release["method"], release["recommender"]) == ("ab" * 16, "hdp-sum", "films.example:9443")
    assert "stays sent and cannot be recalled." in release["words"]
    assert "new value" not in release["words"]
    said = " ".join(call("device", "ledger", rated).out.split())
    assert "Of these ratings you changed 1 and removed 1 on this device afterwards. What was sent stays sent" in said
    (run,) = call("device", "ledger", rated, "--json").json["runs"]
    assert (run["ratings"], run["changed_afterwards"], run["removed_afterwards"]) == (3, 1, 1)
    listed = {
        rating["item"]: rating["released"]
        for rating in call("device", "rate", rated, "--list", "--json").json["ratings"]
    }
    assert [release["changed_afterwards"] for release in listed[TABLE.ids[0]]] == [True]
    assert [release["changed_afterwards"] for release in listed[TABLE.ids[2]]] == [False]
    table = call("device", "rate", rated, "--list").out
    assert table.count("changed since") == 1


def test_a_training_run_may_use_a_new_value(rated: Path, tmp_path: Path, call: Call) -> None:
    _pay(rated, method="hdpmf-paid")
    words = " ".join(call("device", "rate", rated, TABLE.ids[0], "4").out.split())
    assert "A later run may use the new value, as far as the rating's budget reaches." in words


def test_ledger_shows_the_last_entries_unless_asked_for_all(rated: Path, call: Call) -> None:
    for number in range(13):
        with DeviceStore.open(rated) as store:
            store.ledger.note(
                Entry(recommender="r", run="cd" * 16, number=number, method="hdpmf", view="sums", epsilon=1.0,
                      status="nominal", action="refused", words=f"refusal {number}.")
            )  # fmt: skip
    _pay(rated)
    for _ in range(10):
        with DeviceStore.open(rated) as store:
            store.ledger.note(
                Entry(recommender="r", run="cd" * 16, number=99, method="hdpmf", view="sums", epsilon=1.0,
                      status="nominal", action="refused", words="later")
            )  # fmt: skip
    short = call("device", "ledger", rated).out
    assert "refusal 0." not in short
    assert "refusal 12." in short
    assert "Refused: 23" in short
    assert "refusal 0." in call("device", "ledger", rated, "--all").out


def test_recommend_is_local(rated: Path, call: Call) -> None:
    assert call("device", "recommend", rated).code == 2
    model = HDPSum(rng=0).fit(WORLD)
    with DeviceStore.open(rated) as store:
        keep_model(
            store,
            LocalModel(recommender="r", run="ab" * 16, method="hdp-sum", view="sums", plan=None,
                       numbers=encode(model.facts_)),
        )  # fmt: skip
    found = call("device", "recommend", rated, "-n", "4", "--json").json
    assert len(found["items"]) == 4
    assert not {one["item"] for one in found["items"]} & set(TABLE.ids[:3])
    with DeviceStore.open(rated) as store:  # by what is chosen and liked, so that predicted ratings need not fall
        expected = [(one.item, one.score) for one in recommend(store, 4)]
    assert [(one["item"], one["score"]) for one in found["items"]] == expected
    shown = call("device", "recommend", rated, "-n", "4")
    assert found["items"][0]["title"] in shown.out
    assert "nothing was sent" in shown.err
    assert call("device", "recommend", rated, "--user", "nobody").code == 3
    assert found["items"][0]["reason"] in shown.out
    everyone = call("device", "recommend", rated, "-n", "4", "--all-users", "--json").json
    assert everyone["lists"] == [{"user": "me", "items": found["items"]}]
    assert everyone["method"] == "hdp-sum"
    comedies = call("device", "recommend", rated, "--genre", "Comedy", "--keep-rated", "--json").json["items"]
    assert comedies
    assert all("Comedy" in one["genres"] for one in comedies)
    chosen = call("device", "recommend", rated, "--item", found["items"][2]["item"], "--csv").out
    assert chosen.splitlines()[1].startswith(f"me,1,{found['items'][2]['item']},")
    assert "there are Action, " in call("device", "recommend", rated, "--genre", "Comdy").err
    assert call("device", "recommend", rated, "--user", "me", "--all-users").code == 2


def test_forgetting(rated: Path, call: Call) -> None:
    _pay(rated)
    assert call("device", "forget", rated).code == 2
    ended = call("device", "forget", rated, "--ratings")
    assert ended.code == 2
    assert "--yes" in ended.err
    done = call("device", "forget", rated, "--ratings", "--yes", "--json")
    assert done.json["ledger_kept"]
    assert "The ledger stays" in done.err
    after = call("device", "status", rated, "--json").json
    assert (after["ratings"], after["ledger_entries"], after["catalogue"]["items"]) == (0, 2, 40)
    assert call("device", "forget", rated, "--model", "--yes").code == 0
    assert call("device", "status", rated, "--json").json["catalogue"] is None


def test_no_is_an_answer(rated: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda question, err: False)
    ended = call("device", "forget", rated, "--ratings")
    assert ended.code == 14
    assert "not confirmed; nothing was done" in ended.err
    assert "interrupted" not in ended.err
    assert call("device", "status", rated, "--json").json["ratings"] > 0


def test_forgetting_everything_warns_and_deletes(rated: Path, call: Call) -> None:
    ended = call("device", "forget", rated, "--everything", "--yes", "--json")
    assert "spent a second time" in ended.err
    assert ended.json == {
        "store": str(rated), "forgotten": "everything", "ledger_kept": False,
        "hdpmf_version": ended.json["hdpmf_version"],
    }  # fmt: skip
    assert [one.name for one in rated.parent.iterdir()] == ["me.hdpmf.card.json"]


@pytest.mark.parametrize("command", ["status", "rate", "recommend", "ledger", "policy", "forget", "join"])
def test_no_store_is_said_by_every_command(tmp_path: Path, call: Call, command: str) -> None:
    extra = {"rate": ("7", "3"), "forget": ("--ratings", "--yes")}.get(command, ())
    ended = call("device", command, tmp_path / "absent", *extra, "--json")
    assert ended.code == 2
    assert "hdpmf device init" in ended.json["error"]["message"]


def test_a_damaged_store(path: Path, call: Call) -> None:
    path.write_bytes(path.read_bytes()[:3000])
    ended = call("device", "status", path, "--json")
    assert ended.code == 8
    assert "damaged" in ended.json["error"]["message"]


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

    assert "where the recommender is" in said()
    assert "host:port" in said("http://films.example")
    assert "--ca" in said("films.example:9443")
    (tmp_path / "ca.pem").write_text("no certificate")
    assert "authority" in said("films.example:9443", "--ca", tmp_path / "ca.pem").lower()
    assert "cannot read" in said("films.example:9443", "--ca", tmp_path / "absent.pem")


def test_a_roster_without_this_device_is_refused(rated: Path, tmp_path: Path, call: Call) -> None:
    roster = _roster(rated, call)
    with DeviceStore.open(rated) as store:
        _pin_roster(store, roster.read_bytes(), new=False)
        pinned = store.roster
        assert pinned is not None
        assert len(pinned) == 4
    digest = Enrolled.from_json(roster.read_bytes()).digest
    assert call("device", "status", rated, "--json").json["roster"] == {"devices": 4, "users": 4, "digest": digest}
    changed = json.loads(roster.read_text())
    changed["devices"][1]["users"] = 500
    roster.write_text(json.dumps(changed))
    with DeviceStore.open(rated) as store:
        with pytest.raises(ConfigError, match="digest"):
            _pin_roster(store, roster.read_bytes(), new=False)
        strangers = Enrolled([msgspec.convert(one, DeviceCard) for one in changed["devices"][1:]])
        with pytest.raises(SecureSumError, match="not on the roster"):
            _pin_roster(store, strangers.to_json(), new=True)


class _Carrier:
    """Carries the messages of a recommender that only hands out its model."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self.replies: list[Message] = []

    def serve(self, answer: Answer, stop: threading.Event) -> None:
        for message in self._messages:
            if stop.is_set():
                return
            number = 1 if isinstance(message, ItemFacts) else 0
            envelope = Envelope(run=b"r" * 16, number=number, part="job", body=encode(message))
            reply = decode(answer(encode(envelope)))
            assert isinstance(reply, Reply)
            self.replies.append(decode(reply.body))


def test_join_answers_and_leaves_when_the_model_is_there(
    path: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = HDPSum(rng=0).fit(WORLD).facts_
    far_too_much = Terms(method="hdp-sum", view="sums", epsilon=9.0, rounds=1, catalogue=facts.catalogue, users=100,
                         minimum=50, sharing=40)  # fmt: skip
    carrier = _Carrier([AreYouThere(), TABLE, far_too_much, facts, AreYouThere()])
    monkeypatch.setattr("hdpmf.cli.device.join._transport", lambda store, where: carrier)
    authority = ensure_certificates(tmp_path / "tls", ["films.example"]).authority
    roster = _roster(path, call)
    given = ("--ca", authority, "--roster", roster)
    joined = call("device", "join", path, "films.example:9443", *given, "--once", "--json")
    assert joined.code == 0, joined.err
    assert [type(one).__name__ for one in carrier.replies] == ["Here", "Accepted", "Refusal", "Accepted"]
    assert (joined.json["messages"], joined.json["runs"]) == (4, [(b"r" * 16).hex()])
    assert Enrolled.from_json(roster.read_bytes()).digest in joined.err
    assert "epsilon 9" in joined.err  # its owner is told why, the recommender is not
    assert call("device", "rate", path, TABLE.ids[0], "4").code == 0
    assert len(call("device", "recommend", path, "--json").json["items"]) == 10
    again = call("device", "join", path, "--json")  # everything is pinned
    assert (again.code, again.json["address"], again.json["runs"]) == (0, "films.example:9443", [])


def test_join_twice_at_a_time(path: Path, call: Call) -> None:
    with DeviceStore.open(path, serving=True):
        ended = call("device", "join", path, "films.example:9443", "--json")
    assert ended.code == 8
    assert "in use" in ended.json["error"]["message"]


def test_without_the_federation_extra_it_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import sys\nsys.modules['cryptography'] = None\n"
        "from hdpmf.cli.main import run\nrun(['device', 'init', sys.argv[1], '--json'])"
    )
    ended = subprocess.run([sys.executable, "-c", script, tmp_path / "store"], capture_output=True, text=True)
    assert ended.returncode == 9, ended.stderr
    assert "hdpmf[federation]" in json.loads(ended.stdout)["error"]["message"]
    assert list(tmp_path.iterdir()) == []


def test_help_stays_light() -> None:
    script = (
        "import sys\nimport hdpmf.cli.main\n"
        "print([name for name in ('numpy', 'cryptography', 'flwr', 'sqlite3', 'msgspec') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
