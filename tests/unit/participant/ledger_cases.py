"""Histories of ledgers, and what must come of them: ``spec/vectors/{ledger,person}.json``.

``python -m tests.unit.participant.ledger_cases`` writes the files anew. The web app's ledger is
tested against them.
"""

from __future__ import annotations

import json
import random
from math import isqrt
from pathlib import Path
from typing import Any

from hdpmf.common.methods.registry import at_most
from hdpmf.private.device.ledger import (
    GRAIN_UNIT,
    LEVELS,
    MONTH,
    UNIT,
    WHOLE,
    Cost,
    Limits,
    Line,
    Price,
    matrix_price,
    promise,
    spent_of,
    total,
    vector_price,
)

FILE = Path(__file__).parents[3] / "spec" / "vectors" / "ledger.json"
PERSON = FILE.with_name("person.json")
N_CASES = 240


def price_of(asked: dict[str, Any]) -> Price:
    """The price of what a case asks for."""
    if asked["part"] == "pairs":
        return matrix_price(asked["bound"], asked["deviation"], heads=asked["heads"])
    price = vector_price(asked["bound"], asked["presence"], signed=False, entries=asked["items"])
    if asked["values"]:
        price += vector_price(asked["bound"], asked["values"], signed=True, entries=asked["items"])
    return price


def answered(case: dict[str, Any]) -> list[Line]:
    """The ledger after a case's history."""
    lines: list[Line] = []
    for number, asked in enumerate(case["asked"]):
        line = promise(
            Limits(**case["limits"]),
            lines,
            price_of(asked),
            asked["wish"],
            at=asked["at"],
            recommender="https://films.example",
            task=f"{number:064x}",
            part=asked["part"],
        )
        lines.append(line)
    return lines


def expected(lines: list[Line]) -> dict[str, Any]:
    """What a case says of a ledger."""
    rows = [{"price": line.price, "zeros": line.zeros, **_costs(line.cost)} for line in lines]
    return {"lines": rows, "total": _costs(total(lines))}


def _costs(cost: Any) -> dict[str, int]:
    return {"none": cost.none, "other": cost.other, "grain": cost.grain}


def drawn_case(draw: random.Random) -> dict[str, Any]:
    """A history, the same for the same state of ``draw``."""
    life = draw.randrange(UNIT // 4, 3 * UNIT)
    now, asked = 1_800_000_000, []
    for _ in range(draw.randrange(1, 12)):
        now += draw.choice((0, 1, 3600, MONTH - 1, MONTH, MONTH + 1, -3600))
        one: dict[str, Any] = {
            "at": now,
            "wish": draw.choice((0, 1, draw.randrange(WHOLE + 1), WHOLE, WHOLE)),
            "bound": draw.randrange(1, 1 << 24),
        }
        if draw.random() < 0.5:
            one |= {"part": "pairs", "heads": draw.randrange(2, 301)}
            one["deviation"] = one["bound"] * draw.randrange(1, 9) // 2 + 1
        else:
            one |= {"part": "linear", "items": draw.randrange(1, 20_001)}
            root = isqrt(one["bound"])
            one["presence"] = draw.randrange(root // 2 + 1, 6 * root + 2)
            one["values"] = draw.choice((0, draw.randrange(root // 2 + 1, 6 * root + 2)))
        asked.append(one)
    month = draw.choice((life, draw.randrange(life + 1)))
    return {"limits": {"life": life, "month": month}, "asked": asked}


def drawn_cost(draw: random.Random) -> Cost:
    """What somebody has spent, from next to nothing to far beyond all limits."""
    none = draw.choice((0, 1, int(10 ** draw.uniform(3, 11))))
    grain = draw.choice((0, 1, int(10 ** draw.uniform(2, 13))))
    return Cost(none, none * draw.choice((2, 3, 4)), grain)


def read_by_people(cost: Cost) -> dict[str, Any]:
    """What a case says that a cost tells of a person."""
    return {
        name: {
            "epsilon": each.epsilon(),
            "right": each.right,
            "sure": each.sure,
            "words": at_most(each.right),
        }
        for name, each in zip(("none", "other"), spent_of(cost), strict=True)
    }


def _written(file: Path, head: str, cases: list[dict[str, Any]]) -> None:
    rows = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    file.write_text(f'{{{head}"cases":[\n{rows}\n]}}\n')


def main() -> None:
    """Write the files."""
    draw = random.Random(40)
    cases = [drawn_case(draw) for _ in range(N_CASES)]
    for case in cases:
        case["expected"] = expected(answered(case))
    _written(FILE, f'"unit":{UNIT},"grainUnit":{GRAIN_UNIT},', cases)
    draw = random.Random(41)
    levels = [Cost(limits.life, 2 * limits.life, 100) for limits in LEVELS.values()]
    costs = [*levels, *(drawn_cost(draw) for _ in range(150))]
    _written(PERSON, "", [{"cost": _costs(cost), **read_by_people(cost)} for cost in costs])


if __name__ == "__main__":
    main()
