"""Vectors of our circuits in the official format, good and bad: ``spec/vectors/prio3``.

``python -m tests.unit.prio.our_vectors`` writes the files anew. Besides the official entries a file
has the algorithm's number, and the circuit's parameters as they follow the context.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.common.aggregation.two_servers.prio import (
    FIELD64,
    Prio3,
    ReportShares,
    prio3_bounded_vector,
    prio3_rank_one,
)
from hdpmf.errors import PrioError
from tests.unit.prio import test_bounded_vector, test_rank_one
from tests.unit.prio.prio_servers import KEY, NONCE

FOLDER = Path(__file__).parents[3] / "spec" / "vectors" / "prio3"
CONTEXT = b"some application"
Document = dict[str, Any]

RANK, VECTOR = "Prio3RankOne", "Prio3BoundedVector"
ROWS = {"heads": 6, "largest": 100, "bound": 20_000}
COUNTS = {"entries": 8, "largest": 24, "bound": 2000, "signed": False}
WRONG = {
    "bit": test_rank_one.LIES["bits"]["an entry of another bit"],
    "row_one_too_long": test_rank_one.LIES["bits"]["a row that is one too long"],
    "product": test_rank_one.LIES["products"]["a product"],
    "products_that_cancel": test_rank_one.LIES["products"]["products that cancel"],
    "slack": test_rank_one.LIES["trace"]["too much slack"],
}
WRONG_VECTORS = {
    "lower_digit": "digits of an entry above the largest",
    "upper_digit": "digits of upper places alone",
    "further_entry": "digits of a further entry",
    "subtotal": "squares that cancel",
    "bound": "bound and a row that is too long",
}


def vdaf_of(kind: str, given: Document, context: bytes = CONTEXT) -> Prio3:
    """The VDAF of a file."""
    if kind == "Prio3RankOne":
        return prio3_rank_one(given["heads"], given["largest"], given["bound"], context)
    return prio3_bounded_vector(
        given["entries"], given["largest"], given["bound"], given["signed"], context
    )


def document(kind: str, parameters: Document, vdaf: Prio3) -> Document:
    """What is in every file."""
    prefix, context = vdaf._context
    return {
        **parameters,
        "agg_param": "",
        "agg_result": None,
        "agg_shares": [],
        "algorithm_id": prefix[2:].hex(),
        "ctx": CONTEXT.hex(),
        "operations": [],
        "parameters": context[len(CONTEXT) :].hex(),
        "reports": [],
        "shares": vdaf.servers,
        "verify_key": KEY.hex(),
    }


def written(
    vdaf: Prio3,
    report: ReportShares,
    measurement: list[int] | None,
    number: int,
    message: bytes | None = None,
) -> tuple[Document, list[Document], list[np.ndarray]]:
    """A report as a file has it, what servers do with it, and their shares of the sum."""
    outputs: list[np.ndarray] = []
    found: Document = {
        "input_shares": [share.hex() for share in report.input_shares],
        "measurement": measurement,
        "nonce": NONCE.hex(),
        "out_shares": [],
        "public_share": report.public_share.hex(),
        "rand": random_of(vdaf).hex(),
        "verifier_messages": [],
        "verifier_shares": [],
    }
    steps: list[Document] = []

    def do(name: str, what: Callable[[], Any], **further: int) -> Any:
        steps.append({"operation": name, "report_index": number, "success": True, **further})
        try:
            return what()
        except PrioError:
            steps[-1]["success"] = False
            raise

    try:
        kept = [
            do(
                "verify_init",
                lambda server=server, share=share: vdaf.prepare(
                    KEY, server, NONCE, report.public_share, share
                ),
                aggregator_id=server,
            )
            for server, share in enumerate(report.input_shares)
        ]
        parts = [part for _, part in kept]
        found["verifier_shares"] = [[part.hex() for part in parts]]
        said = message
        if said is None:
            said = do("verifier_shares_to_message", lambda: vdaf.verify(parts), round=0)
        found["verifier_messages"] = [said.hex()]
        for server, (state, _) in enumerate(kept):
            finish = lambda state=state: vdaf.finish(state, said)  # noqa: E731
            outputs.append(do("verify_next", finish, aggregator_id=server, round=1))
        found["out_shares"] = [FIELD64.encode(output).hex() for output in outputs]
    except PrioError:
        outputs = []
    return found, steps, outputs


def random_of(vdaf: Prio3) -> bytes:
    return bytes(place % 256 for place in range(vdaf.random_size))


def good(kind: str, parameters: Document, measurements: Sequence[list[int]]) -> Document:
    """A file of reports that are counted."""
    vdaf = vdaf_of(kind, parameters)
    made = document(kind, parameters, vdaf)
    sums = [np.zeros(vdaf.circuit.output_length, np.uint64) for _ in range(vdaf.servers)]
    for number, measurement in enumerate(measurements):
        encoded = vdaf.circuit.encode(np.array(measurement))  # type: ignore[attr-defined]
        report = vdaf.shard(encoded, NONCE, random_of(vdaf))
        found, steps, outputs = written(vdaf, report, measurement, number)
        made["reports"].append(found)
        shard = {"operation": "shard", "report_index": number, "success": True}
        made["operations"] += [shard, *steps]
        sums = [FIELD64.add(*pair) for pair in zip(sums, outputs, strict=True)]
    made["agg_shares"] = [FIELD64.encode(total).hex() for total in sums]
    made["agg_result"] = vdaf.unshard([FIELD64.encode(total) for total in sums])
    for server in range(vdaf.servers):
        made["operations"].append(
            {"aggregator_id": server, "operation": "aggregate", "success": True}
        )
    made["operations"].append({"operation": "unshard", "success": True})
    return made


def bad(
    kind: str, parameters: Document, report: ReportShares, message: bytes | None = None
) -> Document:
    """A file of a report that is refused."""
    vdaf = vdaf_of(kind, parameters)
    made = document(kind, parameters, vdaf)
    found, made["operations"], _ = written(vdaf, report, None, 0, message)
    made["reports"] = [found]
    return made


def reports(kind: str, parameters: Document, numbers: list[int]) -> Iterator[tuple[str, Document]]:
    """Files of a valid vector whose report somebody has changed."""
    vdaf = vdaf_of(kind, parameters)

    def shard(by: Prio3) -> ReportShares:
        return by.shard(FIELD64.vector(numbers), NONCE, random_of(vdaf))

    report = shard(vdaf)
    leader, helper = report.input_shares
    proof = vdaf.circuit.length * 8

    def share(server: int, changed: bytes) -> Document:
        shares = [*report.input_shares]
        shares[server] = changed
        return bad(kind, parameters, replace(report, input_shares=shares))

    yield "wire_seed", share(0, flipped(leader, proof))
    yield "gadget_poly", share(0, flipped(leader, proof + 8 * vdaf.circuit.arity))
    yield "meas_share", share(0, flipped(leader, 0))
    yield "leader_jr_blind", share(0, flipped(leader, len(leader) - 32))
    yield "helper_seed", share(1, flipped(helper, 0))
    yield "helper_jr_blind", share(1, flipped(helper, 32))
    yield "trailing_byte", share(0, leader + b"\0")
    yield "element_above_the_modulus", share(0, b"\xff" * 8 + leader[8:])
    yield (
        "public_share",
        bad(kind, parameters, replace(report, public_share=flipped(report.public_share, 0))),
    )
    yield "verifier_message", bad(kind, parameters, report, bytes(32))
    other = vdaf_of(kind, parameters | {"bound": parameters["bound"] - 1})
    yield "parameters", bad(kind, parameters, shard(other))
    yield "context", bad(kind, parameters, shard(vdaf_of(kind, parameters, b"another one")))


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def files() -> Iterator[tuple[str, Document]]:
    """Every file's name and content."""
    yield f"{RANK}_0", good(RANK, ROWS, [test_rank_one.ROW, [0] * 6, [100, 100, 0, 0, 0, 0]])
    large = {"heads": 3, "largest": 1023, "bound": 2**24 - 1}
    yield f"{RANK}_1", good(RANK, large, [[1023, 0, 512]])
    yield f"{VECTOR}_0", good(VECTOR, COUNTS, [test_bounded_vector.ROW, [0] * 8])
    signed = {"entries": 8, "largest": 40, "bound": 25_600, "signed": True}
    yield f"{VECTOR}_1", good(VECTOR, signed, [[40, -40, 0, 7, -1, 39, 0, 0]])
    for name, file in reports(RANK, ROWS, test_rank_one.TRUTH):
        yield f"{RANK}_bad_{name}", file
    lies = test_bounded_vector.lies_about(vdaf_of(VECTOR, COUNTS).circuit)  # type: ignore[arg-type]
    for kind, parameters, wrong in (
        (RANK, ROWS, WRONG),
        (VECTOR, COUNTS, {name: lies[lie] for name, lie in WRONG_VECTORS.items()}),
    ):
        vdaf = vdaf_of(kind, parameters)
        for name, numbers in wrong.items():
            report = vdaf.shard(FIELD64.vector(numbers), NONCE, random_of(vdaf))
            yield f"{kind}_bad_{name}", bad(kind, parameters, report)


def text(file: Document) -> str:
    return json.dumps(file, indent=4, sort_keys=True) + "\n"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.json"):
        path.unlink()
    for name, file in files():
        (FOLDER / f"{name}.json").write_text(text(file))


if __name__ == "__main__":
    main()
