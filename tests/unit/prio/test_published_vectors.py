"""The official vectors of draft-irtf-cfrg-vdaf-20, good and bad, and ours, byte by byte.

The official ones are in ../shared/vectors/vdaf-20. Nothing of ours uses XofFixedKeyAes128, which
Poplar1 is for: its file is left out. Ours are in spec/vectors/prio3.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdpmf.common.aggregation.two_servers.prio import Prio3
from hdpmf.common.aggregation.two_servers.prio.field import derive_seed
from hdpmf.errors import PrioError
from tests.unit.prio import our_vectors
from tests.unit.prio.circuits import FIELD128, vdaf_of

FOLDER = Path(__file__).parents[4] / "shared" / "vectors" / "vdaf-20"
GOOD = ["Count_0", "Count_1", "Count_2", "Sum_0", "Sum_1", "Sum_2", "SumVec_0", "SumVec_1"]
GOOD += ["SumVecWithMultiproof_0", "SumVecWithMultiproof_1", "HigherDegree_0", "Histogram_0"]
GOOD += ["Histogram_1", "Histogram_2", "MultihotCountVec_0", "MultihotCountVec_1"]
GOOD += ["MultihotCountVec_2"]
BAD = ["Count_bad_gadget_poly", "Count_bad_helper_seed", "Count_bad_meas_share"]
BAD += ["Count_bad_wire_seed", "Histogram_bad_helper_jr_blind", "Histogram_bad_leader_jr_blind"]
BAD += ["Histogram_bad_public_share", "Histogram_bad_verifier_message"]


@pytest.fixture(scope="module")
def folder() -> Path:
    """Without the folder tests are skipped, but on CI they fail instead."""
    if not FOLDER.is_dir():
        reason = "needs the draft's vectors in ../shared/vectors/vdaf-20"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return FOLDER


@pytest.mark.parametrize("name", [*GOOD, *BAD])
def test_every_step_has_the_bytes_of_the_draft(folder: Path, name: str) -> None:
    given = json.loads((folder / f"Prio3{name}.json").read_text())
    follow(given, vdaf_of("Prio3" + name.split("_")[0], given))
    assert refused(given) == (name in BAD)


def test_all_files_are_tried(folder: Path) -> None:
    others = {"XofTurboShake128", "XofFixedKeyAes128"}
    assert {path.stem for path in folder.iterdir()} == {
        f"Prio3{name}" for name in (*GOOD, *BAD)
    } | others


def test_the_expandable_hash(folder: Path) -> None:
    given = json.loads((folder / "XofTurboShake128.json").read_text())
    tag, seed, binder = (bytes.fromhex(given[name]) for name in ("dst", "seed", "binder"))
    assert derive_seed(tag, seed, (binder,), 32).hex() == given["derived_seed"]
    found = FIELD128.expand(tag, seed, binder, given["length"])
    assert FIELD128.encode(found).hex() == given["expanded_vec_field128"]


@pytest.mark.parametrize("path", sorted(our_vectors.FOLDER.glob("*.json")), ids=lambda p: p.stem)
def test_every_step_of_our_circuits_has_these_bytes(path: Path) -> None:
    given = json.loads(path.read_text())
    vdaf = our_vectors.vdaf_of(path.stem.split("_")[0], given)
    follow(given, vdaf)
    assert refused(given) == ("_bad_" in path.stem)


def test_our_files_are_those_that_are_written() -> None:
    kept = {path.stem: path.read_text() for path in our_vectors.FOLDER.iterdir()}
    assert kept == {name: our_vectors.text(file) for name, file in our_vectors.files()}


def refused(given: dict[str, Any]) -> bool:
    """Return True if a file's last step is refused, and no other one."""
    *before, last = (step["success"] for step in given["operations"])
    assert all(before)
    return not last


def follow(given: dict[str, Any], vdaf: Prio3) -> None:
    """Do the operations of a file and compare all bytes; a step without success is refused."""
    reports = given["reports"]
    key = bytes.fromhex(given["verify_key"])
    kept: dict[tuple[int, int], Any] = {}
    sums: dict[int, np.ndarray] = {}
    for step in given["operations"]:
        server, number = step.get("aggregator_id"), step.get("report_index")
        report = None if number is None else reports[number]

        def do(step=step, server=server, number=number, report=report) -> None:
            match step["operation"]:
                case "shard":
                    encoded = vdaf.circuit.encode(report["measurement"])
                    nonce, random = (bytes.fromhex(report[name]) for name in ("nonce", "rand"))
                    made = vdaf.shard(encoded, nonce, random)
                    assert made.public_share.hex() == report["public_share"]
                    assert [share.hex() for share in made.input_shares] == report["input_shares"]
                case "verify_init":
                    share = bytes.fromhex(report["input_shares"][server])
                    nonce, public = (
                        bytes.fromhex(report[name]) for name in ("nonce", "public_share")
                    )
                    kept[server, number], sent = vdaf.prepare(key, server, nonce, public, share)
                    assert sent.hex() == report["verifier_shares"][0][server]
                case "verifier_shares_to_message":
                    parts = [bytes.fromhex(part) for part in report["verifier_shares"][0]]
                    assert vdaf.verify(parts).hex() == report["verifier_messages"][0]
                case "verify_next":
                    message = bytes.fromhex(report["verifier_messages"][0])
                    output = vdaf.finish(kept[server, number], message)
                    assert vdaf.field.encode(output).hex() == report["out_shares"][server]
                    sums[server] = (
                        vdaf.field.add(sums[server], output) if server in sums else output
                    )
                case "aggregate":
                    assert vdaf.field.encode(sums[server]).hex() == given["agg_shares"][server]
                case "unshard":
                    found = vdaf.unshard([bytes.fromhex(share) for share in given["agg_shares"]])
                    result = given["agg_result"]
                    assert found == (result if isinstance(result, list) else [result])
                case other:
                    raise NotImplementedError(other)

        if step["success"]:
            do()
        else:
            with pytest.raises(PrioError):
                do()
