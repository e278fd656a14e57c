"""The stock client of npm's @divviup/dap 0.9.1 reports to us: we open, check and count what it
sends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair, input_share_info
from hdpmf.common.aggregation.two_servers.dap.messages import (
    HPKE_CONFIG_PATH,
    MEDIA_TYPES,
    REPORTS_PATH,
    HpkeCiphertext,
    HpkeConfig,
    HpkeConfigList,
    InputShareAad,
    PlaintextInputShare,
    Report,
    Role,
    id_to_text,
)
from hdpmf.common.aggregation.two_servers.prio import Prio3, prio3_sum_vec
from hdpmf.errors import DapError
from tests.unit.prio import npm_packages

PACKAGE = "@divviup/dap@0.9.1"
LEADER, HELPER = "https://leader.example", "https://helper.example"
TASK = bytes(range(32))
KEYS = {Role.LEADER: KeyPair(5, bytes(range(1, 33))), Role.HELPER: KeyPair(6, bytes(range(2, 34)))}
UNKNOWN = HpkeConfig(9, 0x9999, 1, 1, b"of some later draft")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our script, with the package beside it."""
    return npm_packages.install(
        PACKAGE, Path(__file__).with_name("npm_client.mjs"), tmp_path_factory.mktemp("npm")
    )


def test_its_reports_count(client: Path):
    vdaf = prio3_sum_vec(10, 8, 9)
    rows = np.random.default_rng(0).integers(0, 2**8, (3, 10))
    requests = ask(client, vdaf, rows)

    # It asks both servers for their keys, and takes the first that it understands.
    for request, server in zip(requests[:2], (LEADER, HELPER), strict=True):
        assert request["url"] == f"{server}{HPKE_CONFIG_PATH}?task_id={id_to_text(TASK)}"
        assert request["headers"]["Accept"] == MEDIA_TYPES[HpkeConfigList]
    for request in requests[2:]:
        assert request["method"] == "PUT"
        assert request["url"] == LEADER + REPORTS_PATH.format(task_id=id_to_text(TASK))
        assert request["headers"]["Content-Type"] == MEDIA_TYPES[Report]

    bodies = [bytes.fromhex(request["body"]) for request in requests[2:]]
    reports = [Report.decode(body) for body in bodies]
    assert [report.encode() for report in reports] == bodies
    assert {report.report_metadata.time for report in reports} == {1_700_000_000 // 3600 * 3600}
    assert len({report.report_metadata.report_id for report in reports}) == len(rows)

    # Both servers open their shares, check them together and add up.
    totals = [vdaf.field.vector([0] * 10)] * 2
    for report in reports:
        totals = [vdaf.field.add(*pair) for pair in zip(totals, outputs(vdaf, report), strict=True)]
    assert vdaf.unshard([vdaf.field.encode(total) for total in totals]) == rows.sum(axis=0).tolist()

    # A share is for one server, in one task.
    sealed = reports[0].leader_encrypted_input_share
    with pytest.raises(DapError):
        opened(reports[0], sealed, Role.LEADER, task=bytes(32))
    with pytest.raises(DapError):
        opened(reports[1], sealed, Role.LEADER)
    with pytest.raises(DapError):
        opened(reports[0], sealed, Role.HELPER)


def outputs(vdaf: Prio3, report: Report) -> list[np.ndarray]:
    """What each server adds to its sum."""
    key, nonce = b"k" * vdaf.seed_size, report.report_metadata.report_id
    sealed = report.leader_encrypted_input_share, report.helper_encrypted_input_share
    prepared = [
        vdaf.prepare(key, server, nonce, report.public_share, opened(report, share, role).payload)
        for server, (share, role) in enumerate(zip(sealed, (Role.LEADER, Role.HELPER), strict=True))
    ]
    message = vdaf.verify([part for _, part in prepared])
    return [vdaf.finish(kept, message) for kept, _ in prepared]


def opened(
    report: Report, sealed: HpkeCiphertext, role: Role, task: bytes = TASK
) -> PlaintextInputShare:
    """A server's share of a report."""
    aad = InputShareAad(task, report.report_metadata, report.public_share)
    share = PlaintextInputShare.decode(
        KEYS[role].open(sealed, input_share_info(role), aad.encode())
    )
    assert share.extensions == ()
    return share


def ask(client: Path, vdaf: Prio3, rows: np.ndarray) -> list[dict[str, Any]]:
    """All requests of the client that reports these measurements."""
    configs = {LEADER: KEYS[Role.LEADER].config, HELPER: KEYS[Role.HELPER].config}
    question = {
        "task": {
            "type": "sumVec",
            "length": vdaf.circuit.output_length,
            "bits": vdaf.circuit.bits,
            "chunkLength": vdaf.circuit.chunk,
            "id": id_to_text(TASK),
            "leader": LEADER,
            "helper": HELPER,
            "timePrecisionSeconds": 3600,
        },
        "configs": {
            server: HpkeConfigList((UNKNOWN, config)).encode().hex()
            for server, config in configs.items()
        },
        "measurements": rows.tolist(),
        "time": 1_700_000_000,
    }
    answer: list[dict[str, Any]] = npm_packages.ask(client, question)
    return answer
