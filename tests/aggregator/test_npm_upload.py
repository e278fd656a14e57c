"""The stock client of npm's @divviup/dap 0.9.1 uploads reports over TLS to our servers, and they
count.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.protocol.task import SumOfVectors
from tests.aggregator.server_processes import HELPER, LEADER, Pair, make_task, near
from tests.unit.prio import npm_packages

PACKAGE = "@divviup/dap@0.9.1"
CIRCUIT = SumOfVectors(entries=10, bits=8, chunk=9)
ROWS = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [255] * 10, [0] * 10, [100, 0] * 5]


def test_its_uploads_count(tmp_path: Path) -> None:
    script = npm_packages.install(PACKAGE, Path(__file__).with_name("npm_upload.mjs"), tmp_path)
    with Pair(tmp_path) as pair:
        pair.start(HELPER, LEADER)
        authorities = tmp_path / "authorities.pem"
        authorities.write_text("".join(card.authority for card in pair.cards.values()))
        asked = make_task(pair.servers, pair.collector.card, CIRCUIT, seconds=20)
        pair.give(asked)
        question = {
            "task": {
                "type": "sumVec",
                "bits": CIRCUIT.bits,
                "length": CIRCUIT.entries,
                "chunkLength": CIRCUIT.chunk,
                "id": id_to_text(asked.id),
                "leader": pair.cards[LEADER].url,
                "helper": pair.cards[HELPER].url,
                "timePrecisionSeconds": asked.task.precision,
            },
            "measurements": ROWS,
        }
        done = subprocess.run(
            ["node", script.name],
            cwd=script.parent,
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=180,
            env={**os.environ, "NODE_EXTRA_CA_CERTS": str(authorities)},
        )
        assert done.returncode == 0, done.stderr
        found, count = pair.collect(asked)
        assert count == len(ROWS)
        assert near(found, [sum(column) for column in zip(*ROWS, strict=True)])
