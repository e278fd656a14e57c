"""``hdpmf recommender servers``, and runs with them."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import segno

from .conftest import Call

pytest.importorskip("pyhpke")

from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import InvitationLink, PartyKey
from hdpmf.common.protocol.servers import Server, Servers, read_collector
from hdpmf.common.protocol.task import EVERYBODY, Linear, Task
from hdpmf.errors import ConfigError
from hdpmf.untrusted.service import website
from hdpmf.untrusted.service.daemon import Daemon, request_in
from hdpmf.untrusted.service.folder import RunRecord, ServiceFolder
from hdpmf.untrusted.service.keys import load_keys, pin_servers
from hdpmf.untrusted.service.participants import KEY, Admission, Invitations
from hdpmf.untrusted.service.settings import Checkpoint, Part, RunSettings, seconds

pytestmark = pytest.mark.slow


def a_pair() -> Servers:
    cards = [
        Server(
            organisation=name,
            url=f"https://{name}:1",
            identity=PartyKey.generate().public,
            signing=PartyKey.generate().public,
        )
        for name in ("library", "university")
    ]
    return Servers(leader=cards[0], helper=cards[1])


@pytest.fixture
def shop(call: Call, tmp_path: Path) -> Path:
    items = tmp_path / "items.csv"
    items.write_text("item,title\n7,Seven\n3,Three\n")
    assert (
        call("recommender", "init", tmp_path / "shop", "--items", items, "--name", "shop").code == 0
    )
    with ServiceFolder(tmp_path / "shop").participants() as participants:
        participants.add([Admission(bytes([each]) * 32) for each in range(3)])
    return tmp_path / "shop"


def test_a_pair_is_pinned_and_shown(call: Call, tmp_path: Path, shop: Path) -> None:
    none = call("recommender", "servers", shop, "--json")
    assert (none.code, "no pair of servers is pinned yet" in none.json["error"]["message"]) == (
        2,
        True,
    )
    pair, file = a_pair(), tmp_path / "servers.json"
    file.write_bytes(pair.to_json())
    shown = call("recommender", "servers", shop, file)
    assert shown.code == 0
    assert pair.digest in shown.out
    assert "university" in shown.out
    found = call("recommender", "servers", shop, "--json").json
    assert (found["digest"], found["helper"]["organisation"]) == (pair.digest, "university")
    card = read_collector(Path(found["card"]).read_bytes())
    keys = load_keys(shop, "shop")
    assert (card, card.organisation) == (keys.card, "shop")
    for name in ("party.key", "hpke.key"):
        assert os.stat(shop / "collector" / name).st_mode & 0o777 == 0o600
    # The same again keeps the keys; another pair has to be meant.
    assert call("recommender", "servers", shop, file).code == 0
    assert load_keys(shop, "shop").card == card
    other = a_pair()
    file.write_bytes(other.to_json())
    refused = call("recommender", "servers", shop, file, "--json")
    assert "another pair of servers is pinned" in refused.json["error"]["message"]
    assert (
        call("recommender", "servers", shop, file, "--new-servers", "--json").json["digest"]
        == other.digest
    )
    assert load_keys(shop, "shop").card == card
    assert call("recommender", "servers", shop, "--new-servers", "--json").code == 2


def test_times_for_people() -> None:
    assert [seconds(text) for text in ("90s", "30m", "12h", "7d")] == [90, 1800, 43_200, 604_800]
    for wrong in ("", "1", "1w", "-1d", "1.5h", "1d1h"):
        with pytest.raises(ConfigError, match="is no time"):
            seconds(wrong)


def test_options_that_cannot_be_are_refused(call: Call, shop: Path) -> None:
    for options, words in (
        ((), "no pair of servers is pinned"),
        (("--period", "1x"), "no time"),
        (("--period", "1h", "--precision", "7m"), "no multiple"),
    ):
        said = call("recommender", "run", shop, *options, "--json")
        assert said.code == 2
        assert words in said.json["error"]["message"]


def test_status_shows_the_task(call: Call, shop: Path) -> None:
    pair, place = a_pair(), ServiceFolder(shop)
    keys = pin_servers(shop, "shop", pair)
    settings = RunSettings(minimum=2, period=3600, precision=60)
    files = place.begin_run(b"\7" * 16, RunRecord(settings=settings, people=place.people))
    begin = int(time.time()) - 600
    task = Task(
        servers=pair,
        collector=keys.card,
        sums=Linear(items=40, bits=8, bound=(1 << 20) - 1, cap=16, presence=50, values=50),
        catalogue=place.known.fingerprint,
        run=to_base64(b"\7" * 16),
        asked=EVERYBODY,
        begin=begin,
        end=begin + 3600,
        precision=1,
        minimum=settings.minimum,
    )
    stages = []
    for more in ({}, {"placed": True}, {"placed": True, "collection": b"1"}):
        files.save(Checkpoint(linear=Part(document=task.to_bytes(), **more)))
        (found,) = call("recommender", "status", shop, "--json").json["runs"]
        stages.append(found["stage"])
    assert stages == ["not at both servers yet", "takes reports", "collected"]
    assert (found["task"]["begin"], found["task"]["end"]) == (task.begin, task.begin + 3600)
    page = call("recommender", "status", shop)
    assert found["task"]["id"][:12] in page.out
    refused = call("recommender", "servers", shop, _file(shop, a_pair()), "--new-servers", "--json")
    assert "a run is under way" in refused.json["error"]["message"]


def _file(shop: Path, pair: Servers) -> Path:
    path = shop.parent / "other.json"
    path.write_bytes(msgspec.json.encode(pair))
    return path


def test_a_run_gives_out_tokens_by_the_issuer_that_the_web_server_asks(
    call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    @contextmanager
    def not_on_network(folder: ServiceFolder, issuer: object, *more: object) -> Iterator[str]:
        asked.append(issuer)
        yield "https://localhost:1"

    monkeypatch.setattr(website, "serve_website", not_on_network)
    monkeypatch.setattr(Daemon, "live", lambda self: asked.append(self._service._issuer))
    pin_servers(shop, "shop", a_pair())
    assert call("recommender", "run", shop, "--minimum", "3").code == 0  # waits for who serves
    assert call("recommender", "serve", shop).code == 0
    assert len(asked) == 2
    assert asked[0] is asked[1]
    waiting = request_in(ServiceFolder(shop))
    assert waiting is not None
    assert waiting.settings is not None
    assert waiting.settings.minimum == 3


def test_links_are_short_and_each_lets_one_person_in(
    call: Call, tmp_path: Path, shop: Path
) -> None:
    assert call("recommender", "invite", shop).code == 2  # no servers yet
    pair = a_pair()
    pin_servers(shop, "shop", pair)
    file = tmp_path / "links"
    found = call("recommender", "invite", shop, "--number", 40, "--out", file, "--json").json
    links = found["links"]
    assert file.read_text().split() == links
    assert file.stat().st_mode & 0o777 == 0o600
    assert max(map(len, links)) <= 300
    secrets = {InvitationLink.read(link).secret for link in links}
    assert len(secrets) == 40
    known = Invitations(shop / KEY)
    assert len({known.subject(secret) for secret in secrets}) == 40
    shown = (shop / "public" / "invitation.json").read_bytes()
    assert InvitationLink.read(links[0]).opened(shown).servers == pair
    (shared,) = call("recommender", "invite", shop, "--without-secret", "--json").json["links"]
    assert InvitationLink.read(shared).secret == ""
    assert call("recommender", "invite", shop, "--without-secret", "--number", 2).code == 2


def test_a_link_has_a_code_for_the_camera(call: Call, tmp_path: Path, shop: Path) -> None:
    pin_servers(shop, "shop", a_pair())
    out = call("recommender", "invite", shop).out
    assert "\N{FULL BLOCK}" in out
    picture = tmp_path / "code.svg"
    link = call("recommender", "invite", shop, "--out", picture, "--json").json["links"][0]
    drawn = io.BytesIO()
    segno.make(link).save(drawn, kind="svg", scale=8)
    assert picture.read_bytes() == drawn.getvalue()
    assert picture.read_bytes() != b""
