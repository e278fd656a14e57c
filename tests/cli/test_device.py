"""``hdpmf device``: a device from its first command to its list, against a world in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.model.published_model import publish_model
from hdpmf.common.protocol.catalogue import catalogue_table, known_items, signed_first
from hdpmf.common.protocol.documents import file_digest, to_base64
from hdpmf.common.protocol.published import Index
from hdpmf.common.protocol.task import task_id
from hdpmf.models import HDPPairs
from hdpmf.private.device import carrier, state_file
from hdpmf.private.device.ledger import LEVELS
from hdpmf.private.device.public import Published
from hdpmf.private.device.state_file import StateFile
from tests.unit.participant import publishing
from tests.unit.participant.outside import Outside
from tests.unit.participant.publishing import CATALOGUE_KEY, FILMS, invitation, keys, linear, task

from .conftest import Call

WORLD = synthetic_world(40, 30, 900, rng=2)
TABLE = catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table)
CATALOGUE = signed_first(TABLE, CATALOGUE_KEY.sign, CATALOGUE_KEY.public)
ITEMS = TABLE.ids
NOW = 1_900_800_000


@pytest.fixture(autouse=True)
def no_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "_COST", 1 << 4)
    monkeypatch.delenv("HDPMF_DEVICE_PASSPHRASE", raising=False)


@pytest.fixture(scope="module")
def released() -> tuple[bytes, dict[str, bytes]]:
    """A model of the world's people, as it is published."""
    model = HDPPairs(epsilon=8.0, features=False, rng=1).fit(WORLD)
    facts = publishing.changed(model.facts_, catalogue=known_items(CATALOGUE).fingerprint)
    document, arrays = publish_model(facts, model.lists_, run=publishing.RUN, reports=(40, 40))
    named = {
        name.removeprefix("array-").removesuffix(".bin"): data for name, data in arrays.items()
    }
    return document.to_bytes(), named


@pytest.fixture
def outside(
    monkeypatch: pytest.MonkeyPatch, released: tuple[bytes, dict[str, bytes]]
) -> Iterator[Outside]:
    """A recommender with a model, and the command's way to it."""
    monkeypatch.setattr(publishing, "START", NOW)
    world = Outside(_published(released), now=NOW)
    monkeypatch.setattr(carrier, "WebCarrier", lambda invitations: world)
    shown = invitation().to_json()
    monkeypatch.setattr(
        carrier, "read_invitation", lambda link, authority: link.opened(shown, authority)
    )
    return world


def _published(model: tuple[bytes, dict[str, bytes]] | None, asked: bytes = b"") -> Published:
    items, lists = CATALOGUE.to_bytes(), keys(not_after=1 << 40)
    files = {file_digest(items): items, file_digest(lists): lists}
    index = Index(catalogue=file_digest(items), keys=file_digest(lists))
    if model is not None:
        index = publishing.changed(index, model=file_digest(model[0]))
        files |= {file_digest(model[0]): model[0], **model[1]}
    if asked:
        index = publishing.changed(index, task=to_base64(task_id(asked)))
        files[to_base64(task_id(asked))] = asked
    return Published(index, files, 0)


@pytest.fixture
def invited() -> str:
    return invitation().link("s" * 32)


@pytest.fixture
def store(tmp_path: Path, call: Call, outside: Outside, invited: str) -> Path:
    """A device that has joined."""
    path = tmp_path / "ana"
    assert call("device", "init", path, "--name", "ana").code == 0
    assert call("device", "join", path, invited, "--yes", "--look").code == 0
    return path


def test_init_makes_a_file_and_prints_no_secrets(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "ana"
    printed = call("device", "init", path, "--name", "ana", "--json")
    made = printed.json
    with StateFile.open(path) as file:
        state = file.load().state
    assert state.limits == LEVELS["middle"]
    assert made["identity"] == to_base64(state.signer.public)
    assert state.identity.hex() not in printed.out
    assert made["limits"]["life"]["epsilon"] == pytest.approx(4.0, abs=1e-6)
    assert call("device", "init", path).code == 2
    assert call("device", "init", tmp_path / "bea", "--level", "bold").code == 2


def test_a_sealed_file_wants_its_passphrase(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, secret = tmp_path / "ana", tmp_path / "secret"
    assert call("device", "init", path, "--encrypt").code == 5  # nobody can be asked
    monkeypatch.setenv("HDPMF_DEVICE_PASSPHRASE", "correct horse")
    assert call("device", "init", path, "--encrypt", "--json").json["encrypted"]
    assert call("device", "ledger", path).code == 0
    monkeypatch.setenv("HDPMF_DEVICE_PASSPHRASE", "battery staple")
    assert call("device", "ledger", path).code == 5
    secret.write_text("correct horse\nmore\n")
    monkeypatch.setenv("HDPMF_DEVICE_PASSPHRASE_FILE", os.fspath(secret))
    assert call("device", "ledger", path).code == 0
    secret.write_text("\n")
    assert call("device", "ledger", path).code == 2


def test_joining_shows_the_digest_and_wants_a_yes(
    call: Call,
    tmp_path: Path,
    outside: Outside,
    invited: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "ana"
    call("device", "init", path)
    refused = call("device", "join", path, invited, "--look")
    assert refused.code == 2
    assert invitation().digest in refused.err
    assert outside.requests == []
    assert call("device", "join", path, invited, "--yes", "--look").code == 0
    assert outside.requests
    assert [asked.secret for asked in outside.enrolments] == ["s" * 32]
    with StateFile.open(path) as file:
        assert file.load().state.only().proof == ""  # it is used
    swapped = publishing.changed(
        publishing.SERVERS,
        helper=publishing.changed(publishing.SERVERS.helper, signing="c" * 42 + "A"),
    )
    shown = publishing.changed(invitation(), servers=swapped)
    monkeypatch.setattr(carrier, "read_invitation", lambda link, authority: shown)
    again = call("device", "join", path, invited, "--yes", "--look")
    assert again.code == 2
    assert "pinned" in again.err


def test_a_token_of_a_login_is_shown_once(
    call: Call, tmp_path: Path, outside: Outside, invited: str
) -> None:
    path, login = tmp_path / "ana", tmp_path / "jwt"
    call("device", "init", path)
    login.write_text("head.claims.signature\n")
    given = ("--login", login, "--yes", "--look")
    assert call("device", "join", path, *given).code == 2
    assert call("device", "join", path, invited, *given).code == 0
    assert [asked.login for asked in outside.enrolments] == ["head.claims.signature"]


def test_two_servers_on_one_host_are_not_joined(
    call: Call, tmp_path: Path, invited: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ana"
    call("device", "init", path)
    servers = publishing.SERVERS
    helper = publishing.changed(servers.helper, url="https://north.example:9443")
    one = publishing.changed(invitation(), servers=publishing.changed(servers, helper=helper))
    monkeypatch.setattr(carrier, "read_invitation", lambda link, authority: one)
    refused = call("device", "join", path, invited, "--yes", "--look")
    assert (refused.code, "one host" in refused.err) == (2, True)


def test_rating_one_by_one_and_from_a_file(call: Call, store: Path, tmp_path: Path) -> None:
    assert call("device", "rate", store, ITEMS[0], "5").code == 0
    assert call("device", "rate", store, ITEMS[0], "--weight", "0.25").code == 0
    assert call("device", "rate", store, ITEMS[1], "2", "--weight", "0").code == 0
    (tmp_path / "own.csv").write_text(
        f"item;rating;weight\n{ITEMS[2]};4;0.5\nnothing;3;\n{ITEMS[3]};9;\n{ITEMS[4]};1;\n"
    )
    taken = call("device", "rate", store, "--file", tmp_path / "own.csv", "--json").json
    assert taken.items() >= {"rated": 2, "unknown": 1, "off_scale": 1}.items()
    shown = call("device", "rate", store, "--json").json["ratings"]
    own = {each["item"]: (each["value"], each["weight"]) for each in shown}
    assert own == {
        ITEMS[0]: (5.0, 0.25), ITEMS[1]: (2.0, 0.0), ITEMS[2]: (4.0, 0.5), ITEMS[4]: (1.0, 1.0)
    }  # fmt: skip
    assert call("device", "rate", store, ITEMS[0], "--remove", "--json").json["ratings"] == 3
    word = TABLE.titles[5].split()[-2]
    found = call("device", "rate", store, "--search", word, "--json").json["items"]
    assert ITEMS[5] in [each["item"] for each in found]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((ITEMS[0], "9"), "scale"),
        (("nothing", "3"), "no item"),
        ((ITEMS[0],), "say how"),
        ((ITEMS[0], "--weight", "2"), "not rated"),
        ((ITEMS[0], "3", "--weight", "2"), "from 0"),
        (("--remove",), "go with an ITEM"),
        ((ITEMS[0], "3", "--search", "x"), "choose one"),
    ],
)
def test_ratings_that_cannot_be(
    call: Call, store: Path, options: tuple[str, ...], words: str
) -> None:
    refused = call("device", "rate", store, *options)
    assert refused.code in (2, 3)
    assert words in refused.err
    assert call("device", "rate", store, "--json").json["ratings"] == []


@pytest.mark.parametrize("text", ["rating\n3\n", "item,rating\nx,\n", "\xff"])
def test_files_that_are_none(call: Call, store: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "own.csv").write_bytes(text.encode("latin-1"))
    assert call("device", "rate", store, "--file", tmp_path / "own.csv").code == 3


def test_a_list_is_of_the_published_model_and_the_own_ratings(call: Call, store: Path) -> None:
    for item in ITEMS[:4]:
        call("device", "rate", store, item, "5")
    found = call("device", "recommend", store, "-n", "5", "--json").json
    items = [each["item"] for each in found["items"]]
    assert len(items) == 5
    assert not set(items) & set(ITEMS[:4])
    kept = call("device", "recommend", store, "-n", "30", "--keep-rated", "--json").json
    assert set(ITEMS[:4]) < {each["item"] for each in kept["items"]}
    assert "nothing was sent" in call("device", "recommend", store).err
    stars = np.array([each["score"] for each in kept["items"]])
    assert ((stars >= 1) & (stars <= 5)).all()


def test_without_a_model_there_is_no_list(
    call: Call, tmp_path: Path, outside: Outside, invited: str
) -> None:
    outside.files.clear()
    outside.publish(_published(None))
    path = tmp_path / "ana"
    call("device", "init", path)
    assert call("device", "rate", path, ITEMS[0], "3").code == 2  # nobody was joined
    assert call("device", "join", path, invited, "--yes", "--look").code == 0
    refused = call("device", "recommend", path)
    assert refused.code == 2
    assert "end of a run" in refused.err


def test_the_ledger_says_what_was_sent_and_what_is_left(
    call: Call, store: Path, outside: Outside
) -> None:
    before = call("device", "ledger", store, "--json").json
    assert before["lines"] == []
    assert "Nothing" in call("device", "ledger", store).out
    asked = task(
        sums=linear(items=len(ITEMS), presence=3000, values=0),
        catalogue=known_items(CATALOGUE).fingerprint,
    )
    outside.publish(_published(None, asked))
    _live(store, outside)
    after = call("device", "ledger", store, "--json").json
    (line,) = after["lines"]
    assert not line["zeros"]
    assert line["squared_mu"] == pytest.approx((2**20 - 1) / 3000**2, rel=1e-6)
    assert after["left"] == pytest.approx(before["left"] - line["squared_mu"])
    assert 0.5 < after["person"]["guess_right_at_most"] < 0.6
    words = call("device", "ledger", store).out
    assert "is right at most" in " ".join(words.split())
    spent = call("device", "ledger", store, "--level", "careful", "--json").json
    assert spent["limits"]["life"]["epsilon"] == pytest.approx(2.0, abs=1e-6)
    assert spent["left"] < after["left"]


def _live(store: Path, outside: Outside) -> None:
    from tests.unit.participant.outside import live, participant

    outside.now = float(publishing.START)
    with StateFile.open(store) as file:
        live(participant(file, outside), outside, publishing.PERIOD)
    assert len(outside.reports) == 1


def test_leaving_ends_it(call: Call, store: Path) -> None:
    assert call("device", "join", store, "--leave", FILMS, "--json").json["left"] == FILMS
    assert call("device", "join", store, "--look").code == 2
    assert call("device", "rate", store, ITEMS[0], "3").code == 2


def test_nothing_private_is_in_what_join_prints(call: Call, store: Path, outside: Outside) -> None:
    for item in ITEMS[:3]:
        call("device", "rate", store, item, "4")
    told = call("device", "join", store, "--look")
    everything: Any = told.out + told.err
    assert not [title for title in TABLE.titles[:3] if title in everything]
