"""Which tasks a server takes part in, and what its database is."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from hdpmf.common.aggregation.two_servers.dap.messages import AggregationJobInitReq
from hdpmf.common.protocol import Opening, encode
from hdpmf.common.protocol.servers import Servers
from hdpmf.errors import ConfigError, ProtocolError, StorageError, TransportError
from hdpmf.untrusted.aggregator import aggregation_job
from hdpmf.untrusted.aggregator.datastore import ServerDatabase
from hdpmf.untrusted.aggregator.report_writer import Upload
from hdpmf.untrusted.aggregator.tasks import AggregatorTask, Rules, ServerKeys, SimulationRules
from tests.unit.aggregator.server_pair import BEGIN, SUMS, Pair, pairs_of
from tests.world import HOUR

REFUSED: dict[str, dict[str, Any]] = {
    "minimum below the server's": {"minimum": 2},
    "over": {"begin": BEGIN - 2 * HOUR, "end": BEGIN - HOUR},
    "begun long ago": {"begin": BEGIN - 25 * HOUR},
    "too many items": {"sums": replace(SUMS, items=51)},
    "too many heads": {"sums": pairs_of(301)},
    "a circuit that there is not": {"sums": replace(SUMS, bits=10, bound=1 << 15)},
}
STRICT = SimulationRules(minimum=3, most_items=50)


@pytest.fixture
def pair() -> Pair:
    return Pair(rules=STRICT)


@pytest.mark.parametrize("name", REFUSED)
def test_both_servers_refuse(pair: Pair, name: str) -> None:
    document = pair.a_task(**({"minimum": 3} | REFUSED[name])).to_bytes()
    for server in (pair.leader, pair.helper):
        with pytest.raises(ProtocolError, match="refused"):
            server.add_task(document)
        assert server.task_ids() == []


def test_documents_and_servers_of_others_are_refused(pair: Pair) -> None:
    others = Pair(rules=STRICT)
    mirrored = Servers(leader=pair.keys[1].own, helper=pair.keys[0].own)
    for document in (
        b"garbage",
        encode(Opening(noise_budget=1.0)),
        others.a_task(minimum=3).to_bytes(),
        pair.a_task(minimum=3, servers=mirrored).to_bytes(),
    ):
        for server in (pair.leader, pair.helper):
            with pytest.raises(ProtocolError):
                server.add_task(document)


def test_keys_are_what_the_card_shows(pair: Pair) -> None:
    keys = pair.keys[0]
    parts = {
        "role": keys.role,
        "party": keys.party,
        "hpke": keys.hpke,
        "own": keys.own,
        "partner": keys.partner,
    }
    assert ServerKeys(**parts) == keys
    assert keys.verify_key(bytes(32), 32) == pair.keys[1].verify_key(bytes(32), 32)
    assert keys.verify_key(bytes(32), 32) != keys.verify_key(bytes(31) + b"1", 32)
    for wrong in (
        {"own": keys.partner},
        {"partner": keys.own},
        {"hpke": pair.keys[1].hpke},
    ):
        with pytest.raises(ConfigError):
            ServerKeys(**(parts | wrong))
    assert keys.party.to_bytes().hex() not in repr(keys)


@pytest.mark.parametrize(
    ("kind", "hidden"),
    [
        (aggregation_job._Bucket, {"total"}),
        (aggregation_job.AggregationJob, {"members"}),
        (Upload, {"report", "token"}),
        (ServerKeys, {"party", "hpke"}),
        (AggregatorTask, {"document", "prio", "key", "collector"}),
    ],
)
def test_what_is_secret_is_in_no_log(kind: type, hidden: set[str]) -> None:
    made = object.__new__(kind)
    for field in fields(kind):
        object.__setattr__(made, field.name, f"the {field.name}")
    assert {field.name for field in fields(kind) if f"the {field.name}" not in repr(made)} == hidden


def test_a_job_is_the_same_bytes_again_however_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper knows a job by its bytes: its reports come by id, and all of them."""
    pair = Pair()
    task = pair.add()
    pair.upload(task, [1, 2, 3, 4, 5])
    bodies: list[bytes] = []

    def away(task_id: bytes, body: bytes) -> bytes:
        bodies.append(body)
        raise TransportError("the helper is away")

    with monkeypatch.context() as patch:
        patch.setattr(pair.helper, "aggregation_job", away)
        for at_once in (16, 2, 5):
            patch.setattr(aggregation_job, "_READ_AT_ONCE", at_once)
            with pytest.raises(TransportError):
                pair.leader.aggregate()
    assert len(set(bodies)) == 1
    shares = AggregationJobInitReq.decode(bodies[0]).verify_inits
    ids = [init.report_share.report_metadata.report_id for init in shares]
    assert ids == sorted(ids)
    assert len(ids) == 5
    assert pair.leader.aggregate() == 5


# The database


def test_what_the_disk_holds_is_committed_and_errors_show_no_values(tmp_path: Path) -> None:
    database = ServerDatabase(f"sqlite:///{tmp_path}/x.sqlite")
    with database.read() as connection:
        assert connection.execute(sa.text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(sa.text("PRAGMA synchronous")).scalar() == 2
    twice = sa.text("INSERT INTO server VALUES (:secret, 1, 1, 1), (:secret, 1, 1, 1)")
    with pytest.raises(StorageError) as caught, database.write() as connection:
        connection.execute(twice, {"secret": "private"})
    assert "private" not in str(caught.value)
    assert caught.value.__cause__ is None
    with database.read() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM server")).scalar() == 0


def test_operators_promise_what_the_rules_are() -> None:
    """The text that docs/deploy.md gives them for their own pages."""
    page = (Path(__file__).parents[3] / "docs" / "deploy.md").read_text("utf-8")
    assert "deleted *30 days* after its end" in page
    assert Rules().keep == 30 * 24 * 3600
