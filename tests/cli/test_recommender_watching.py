"""An operator's look at the recommender: certificates, alerts, and a status that is drawn again
and again.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.world import growing_federation

from .conftest import Call

pytest.importorskip("cryptography")

from hdpmf.cli.output import note
from hdpmf.cli.recommender import service as status_command
from hdpmf.cli.recommender.run import MonitoringOptions
from hdpmf.common.protocol import Envelope, decode
from hdpmf.errors import ConfigError
from hdpmf.untrusted.service import health
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.settings import RunSettings

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(call: Call, tmp_path: Path) -> Path:
    items = tmp_path / "items.csv"
    items.write_text("item,title\n7,Seven\n3,Three\n")
    assert (
        call(
            "recommender", "init", tmp_path / "rec", "--items", items, "--reach", "shop.example"
        ).code
        == 0
    )
    return tmp_path / "rec"


def test_certificates_are_shown_and_the_servers_is_renewed(call: Call, folder: Path) -> None:
    shown = call("recommender", "certificates", folder)
    assert shown.code == 0
    assert "authority: ends on " in shown.out
    assert "server: ends on " in shown.out
    assert "shop.example" in shown.out
    tls = folder / "tls"
    authority, server = (tls / "authority.pem").read_bytes(), (tls / "server.pem").read_bytes()
    renewed = call("recommender", "certificates", folder, "--renew", "--json")
    assert "within an hour" in renewed.err
    rows = {row["name"]: row for row in renewed.json["certificates"]}
    assert (
        396 * 86_400
        < rows["server"]["seconds_left"]
        <= 397 * 86_400
        < rows["authority"]["seconds_left"]
    )
    assert (tls / "authority.pem").read_bytes() == authority
    assert (tls / "server.pem").read_bytes() != server


def test_an_authority_is_announced_and_then_takes_over(call: Call, folder: Path) -> None:
    tls = folder / "tls"
    before = (tls / "authority.pem").read_bytes()
    assert call("recommender", "certificates", folder, "--change-over").code == 2
    both = call("recommender", "certificates", folder, "--new-authority", "--change-over")
    assert both.code == 2
    assert "one at a time" in both.err
    announced = call("recommender", "certificates", folder, "--new-authority", "--json")
    assert [row["name"] for row in announced.json["certificates"]] == [
        "authority",
        "successor",
        "server",
    ]
    assert "restarted" in announced.err
    assert (tls / "authority.pem").read_bytes() == before
    assert "successor: ends on " in call("recommender", "certificates", folder).out
    changed = call("recommender", "certificates", folder, "--change-over", "--json")
    assert changed.json["changed_over"] is True
    assert (tls / "authority.pem").read_bytes() != before
    assert [row["name"] for row in changed.json["certificates"]] == ["authority", "server"]


def test_status_warns_of_a_certificate_and_still_ends_well(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "LITTLE", 0)
    monkeypatch.setattr(health, "FEW_PERCENT", 0.0)
    assert call("recommender", "status", folder, "--json").json["alerts"] == []
    (folder / "tls" / "server.pem").write_text("spoilt")
    shown = call("recommender", "status", folder)
    assert shown.code == 0
    assert "ALERT (certificate): the server's certificate cannot be read" in shown.out
    (alert,) = call("recommender", "status", folder, "--json").json["alerts"]
    assert alert["name"] == "certificate"


@pytest.mark.slow
def test_status_counts_the_rounds_that_were_lost(call: Call, tmp_path: Path) -> None:
    settings = RunSettings(method="mf", view="sums", minimum=6, rounds=3, factors=2)
    town = growing_federation(tmp_path)
    for name, answer in town.answers.items():
        town.network.attach(name, _leaving_in_round_two(answer))
    town.run(settings)
    town.service.write_state()
    (run,) = call("recommender", "status", tmp_path / "r", "--json").json["runs"]
    assert (run["stage"], run["rounds"], run["rounds_done"], run["rounds_lost"]) == (
        "done",
        3,
        2,
        1,
    )


def _leaving_in_round_two(honest: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """A device that is gone once it has sent its vector, and is back for the next round."""
    steps = 0

    def answer(data: bytes) -> bytes:
        nonlocal steps
        envelope = decode(data)
        if isinstance(envelope, Envelope) and envelope.part == "sum" and envelope.number == 2:
            steps += 1
            if steps > 3:
                return b""
        return honest(data)

    return answer


def test_watching_looks_until_interrupted(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) % 3 == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(status_command.time, "sleep", sleep)
    began = time.time()
    seen = call("recommender", "status", folder, "--watch", "--every", "7", "--json")
    looks = [json.loads(line) for line in seen.out.splitlines()]
    assert seen.code == 0
    assert len(looks) == 3
    assert all(look["name"] == "recommender" and look["time"] >= began for look in looks)
    plain = call("recommender", "status", folder, "--watch")
    assert plain.out.count("0 devices, 0 users") == 3
    assert waits == [7.0] * 3 + [2.0] * 3


@pytest.mark.parametrize(
    "options", [["--every", "3"], ["--watch", "--every", "0"], ["--watch", "--every", "nan"]]
)
def test_a_time_between_looks_that_means_nothing_is_refused(
    call: Call, folder: Path, options: list[str]
) -> None:
    refused = call("recommender", "status", folder, *options)
    assert refused.code == 2
    assert "--every" in refused.err


def test_with_json_every_line_of_the_log_is_json_notes_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with MonitoringOptions(log_format="json").log(Metrics()) as say:
        say("run 0123456789ab begins")
        note("listening")
    note("for people again")
    *lines, last = capsys.readouterr().err.splitlines()
    assert [json.loads(line)["said"] for line in lines] == ["run 0123456789ab begins", "listening"]
    assert last == "for people again"
    with (
        pytest.raises(ConfigError, match="text or json"),
        MonitoringOptions(log_format="xml").log(Metrics()),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--trusted-header", "X-User"], "go together"),
        (["--behind-proxy", "192.0.2.7"], "go together"),
        (["--address", "https://ops.example"], "go together"),
        (["--trusted-header", "X-User", "--behind-proxy", "192.0.2.7"], "go together"),
        (["--listen", "0.0.0.0"], "--listen is for a proxy"),
        (
            ["--trusted-header", "Host", "--behind-proxy", "192.0.2.7", "--address", "https://a"],
            "only the proxy sets",
        ),
        (
            ["--trusted-header", "X-User", "--behind-proxy", "proxy", "--address", "https://a"],
            "the proxy's IP address",
        ),
        (
            ["--trusted-header", "X-User", "--behind-proxy", "::1", "--address", "ops.example"],
            "https://ops.example",
        ),
        (
            ["--trusted-header", "X-User", "--behind-proxy", "::1", "--address", "https://a/b"],
            "https://ops.example",
        ),
        (
            ["--trusted-header", "X-User", "--behind-proxy", "::1", "--address", "https://a:x"],
            "https://ops.example",
        ),
        (["--idle", "0"], "--idle takes"),
    ],
)
def test_a_page_for_everybody_is_refused(
    call: Call, folder: Path, options: list[str], words: str
) -> None:
    ended = call("recommender", "page", folder, "--no-browser", *options)
    assert ended.code == 2
    assert words in " ".join(ended.err.split())


def test_the_page_says_where_it_is_in_one_line(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hdpmf.common.web import local_server

    addresses: list[str] = []

    class Once:
        def __init__(self, app: object, ready: Callable[[], None]) -> None:
            self._ready = ready

        def run(self, sockets: list[socket.socket]) -> None:
            addresses.extend(each.getsockname()[0] for each in sockets)
            self._ready()

    monkeypatch.setattr(local_server, "local_server", Once)
    told = call("recommender", "page", folder, "--no-browser", "--json")
    assert told.out.count("\n") == 1
    assert "/enter#" in told.json["link"]
    assert set(addresses) <= {"127.0.0.1", "::1"}
    proxy = [
        "--trusted-header",
        "X-User",
        "--behind-proxy",
        "192.0.2.7",
        "--address",
        "https://Ops.Example",
    ]
    told = call("recommender", "page", folder, "--json", *proxy)
    assert told.json["link"] == "https://ops.example/"
    assert set(addresses) <= {"127.0.0.1", "::1"}
    assert call("recommender", "page", folder, "--listen", "0.0.0.0", *proxy).code == 0
    assert addresses[-1] == "0.0.0.0"
    taken = call("recommender", "page", folder, "--listen", "192.0.2.99", *proxy)
    assert "no address of this machine" in taken.err
    assert call("recommender", "page", folder.parent / "nothing").code == 2
