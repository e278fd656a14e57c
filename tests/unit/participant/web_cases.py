"""What a device makes of ratings and of what is published: ``spec/vectors/{rows,decide}.json``.

``python -m tests.unit.participant.web_cases`` writes the files anew. The web app's core is tested
against them.
"""

from __future__ import annotations

import json
import random
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from hdpmf.common.aggregation.two_servers.tokens import _SPKI_HEAD, _SPKI_TAIL
from hdpmf.common.data import RatingScale
from hdpmf.common.data.checks import IMPLICIT_SCALE
from hdpmf.common.model.device_fit import to_stars
from hdpmf.common.privacy.pairs import LINEAR_BITS, PAIR_BITS, Histories, limit_of
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.task import Linear, Pairs, task_id
from hdpmf.private.client.pairs import row_of
from hdpmf.private.device.decide import Sending, answered, decide
from hdpmf.private.device.ledger import WHOLE
from hdpmf.private.device.public import Published
from hdpmf.private.device.state import Joined, State
from tests.unit.participant import publishing
from tests.unit.participant.publishing import DAY, FILMS, PERIOD, START

FOLDER = Path(__file__).parents[3] / "spec" / "vectors"
TOKEN = bytes(range(98)) + bytes(256)

# Nobody has its secret half: what is tested here signs nothing.
_MODULUS = int.from_bytes(b"".join(sha256(bytes([place])).digest() for place in range(8)), "big")
KEY = to_base64(_SPKI_HEAD + (_MODULUS | 1 << 2047 | 1).to_bytes(256, "big") + _SPKI_TAIL)


def task(**changes: Any) -> bytes:
    """A task for tokens of this key."""
    return publishing.task(**({"token_key": KEY} | changes))


# Rows

SCALES = ((1, 5, 1), (0.5, 5, 0.5), (0, 10, None), (0, 1, 1), (0, 1, None))


def drawn_row(draw: random.Random) -> dict[str, Any]:
    """A person and a task, the same for the same state of ``draw``."""
    low, high, step = draw.choice(
        ((1, 5, 1), (0.5, 5, 0.5), (0, 10, None), (0, 1, 1), (0, 1, None))
    )
    items = draw.choice((2, 30, 400, 3706))
    some = sorted(draw.sample(range(items), min(items, draw.choice((0, 1, 3, 20, 150, 1500)))))
    levels = np.linspace(low, high, 11).tolist()
    rated = [
        (at, draw.choice(levels), draw.choice((1000, 1000, 1000, 500, 1, draw.randrange(1, 1001))))
        for at in some
    ]
    if draw.random() < 0.5:
        heads = sorted(draw.sample(range(items), min(items, 300)))
        sums: dict[str, Any] = {"type": "pairs", "bits": PAIR_BITS, "bound": limit_of(PAIR_BITS)}
        sums |= {"heads": heads, "weights": [draw.randrange(1, 1025) for _ in heads]}
        sums["deviation"] = 10**7
    else:
        sums = {"type": "linear", "bits": LINEAR_BITS, "bound": limit_of(LINEAR_BITS)}
        sums |= {"items": items, "presence": 4000, "values": draw.choice((0, 2500))}
    sums["cap"] = draw.choice((16, 16, 20, 400))
    wish = draw.choice((WHOLE, WHOLE, draw.randrange(1, WHOLE + 1)))
    scale = {"low": low, "high": high, "step": step}
    return {"sums": sums, "scale": scale, "items": items, "rated": rated, "wish": wish}


def row_in(case: dict[str, Any]) -> list[int]:
    """The row of a case."""
    kinds: dict[str, Any] = {"linear": Linear, "pairs": Pairs}
    sums = msgspec.convert(case["sums"], kinds[case["sums"]["type"]])
    scale = RatingScale(**case["scale"])
    positions, values, weights = zip(*case["rated"], strict=True) if case["rated"] else ((),) * 3
    stars = to_stars(np.array(values, np.float64), scale)
    own = Histories(
        start=np.array([0, len(positions)]),
        items=np.array(positions, np.int64),
        stars=np.full(len(positions), 5.0) if scale == IMPLICIT_SCALE else stars,
        beta=np.array([case["wish"] / WHOLE]),
        gamma=np.array(weights, np.float64) / WHOLE,
    )
    found: list[int] = row_of(sums, own, case["items"]).tolist()
    return found


def sparse(row: list[int]) -> dict[str, int]:
    """The entries that are not 0, by their places."""
    return {str(place): entry for place, entry in enumerate(row) if entry}


def rows() -> list[dict[str, Any]]:
    """All cases of rows."""
    draw, found = random.Random(41), []
    for _ in range(60):
        case = drawn_row(draw)
        found.append(case | {"row": sparse(row_in(case))})
    return found


# Decisions


def plain(state: State) -> dict[str, Any]:
    """What a case says of a state; bytes are in hexadecimal."""
    return {
        "seed": state.seed.hex(),
        "ledger": msgspec.to_builtins(state.ledger),
        "joined": [_joined(each) for each in state.joined],
        "files": sorted(state.files),
    }


def _joined(joined: Joined) -> dict[str, Any]:
    answer = joined.answer and {
        name: value.hex() if isinstance(value, bytes) else value
        for name, value in msgspec.structs.asdict(joined.answer).items()
        if name != "document"
    }
    return {
        "address": joined.address,
        "enrolled": joined.enrolled,
        "enrol_at": joined.enrol_at,
        "catalogue": joined.catalogue,
        "model": joined.model,
        "arrays": list(joined.arrays),
        "keys": [each.hex() for each in joined.keys],
        "keys_digest": joined.keys_digest,
        "answer": answer,
        "seen": [[to_base64(task), taken, end] for task, taken, end in joined.seen],
        "refused": [list(each) for each in joined.refused],
        "read": joined.read,
    }


def _seen(seen: Published) -> dict[str, Any]:
    return {
        "index": seen.index.to_bytes().decode(),
        "files": {name: data.hex() for name, data in seen.files.items()},
        "read": seen.read,
    }


def _sendings(sendings: tuple[Sending, ...]) -> list[dict[str, Any]]:
    return [{**each._asdict(), "task": each.task.hex()} for each in sendings]


class Story:
    """A device's life, written down."""

    def __init__(self, name: str, *, enrolled: bool = True, **options: Any) -> None:
        made = publishing.state(**options)
        self.state = made.with_joined(replace(made.of(FILMS), enrolled=enrolled))
        self.begin = {
            "seed": self.state.seed.hex(),
            "limits": msgspec.to_builtins(self.state.limits),
            "wish": self.state.wish,
            "enrolled": enrolled,
            "invitation": msgspec.to_builtins(self.state.of(FILMS).invitation),
        }
        self.name, self.steps = name, list[dict[str, Any]]()
        self.sending: tuple[Sending, ...] = ()

    def look(self, now: int, seen: Published | None = None) -> Story:
        """Decide, after a look at what is published if there is one."""
        decision = decide(self.state, {FILMS: seen} if seen else {}, now)
        self.state, self.sending = decision.state, decision.sending
        step = {"now": now, "published": _seen(seen) if seen else None}
        self.steps.append(step | {"sending": _sendings(self.sending), "state": plain(self.state)})
        return self

    def answer(self, now: int, status: int | None, token: bytes = b"") -> Story:
        """Take an answer to what was last sent."""
        self.state = answered(self.state, self.sending[0], now, status, token).state
        step = {"now": now, "status": status, "token": token.hex()}
        self.steps.append(step | {"answered": True, "state": plain(self.state)})
        return self

    @property
    def moments(self) -> tuple[int, int, int]:
        """When the token is asked for, and the report made; and the task's end."""
        answer = self.state.of(FILMS).answer
        assert answer is not None
        return answer.token_at, answer.report_at - answer.lead, answer.end

    def written(self) -> dict[str, Any]:
        return {"name": self.name, "begin": self.begin, "steps": self.steps}


def refused_tasks() -> dict[str, bytes]:
    """Tasks that break a rule each, by a name that begins with the rule's number."""
    servers, collector = publishing.SERVERS, publishing.COLLECTOR
    linear, pairs = publishing.linear, publishing.pairs
    other = replace(servers, helper=replace(servers.helper, url="https://west.example"))
    twice = task(sums=pairs()).replace(b"[0,1,2,5,7]", b"[0,1,1,5,7]")
    whole = task()
    return {
        "1 another server": task(servers=other),
        "1 another key of a server": task(
            servers=replace(servers, leader=replace(servers.leader, signing="d" * 42 + "A"))
        ),
        "2 other items": task(catalogue="0" * 64),
        "2 fewer items": task(sums=linear(items=11)),
        "3 a head that is no item": task(sums=pairs(heads=(0, 1, 2, 5, 12))),
        "5 other bits": task(sums=linear(bits=9)),
        "5 a longer row": task(sums=linear(bound=limit_of(LINEAR_BITS) + 1, cap=20)),
        "5 a rating alone": task(sums=pairs(bits=11, cap=15)),
        "6 halved noise": task(sums=linear(presence=500, values=500)),
        "7 a year": task(end=START + 93 * 86_400 // 3600 * 3600),
        "8 no token": task(token_key=""),
        "0 duplicate heads": twice,
        "0 trailing bytes": whole + b"\n",
        "0 another field": whole.replace(b'"asked"', b'"ask":1,"asked"'),
        "0 a field less": whole.replace(b'"minimum":100,', b""),
        "0 another spelling": whole.replace(b'"minimum":100', b'"minimum":100.0'),
        "0 no number": whole.replace(b'"minimum":100', b'"minimum":"100"'),
        "0 another version": whole.replace(b'"version":2', b'"version":3'),
        "0 a text for a list": task(sums=pairs()).replace(b"[0,1,2,5,7]", b'"0"'),
        "0 minimum of 1": whole.replace(b'"minimum":100', b'"minimum":1'),
        "0 off the grid": whole.replace(b'"precision":3600', b'"precision":3601'),
        "0 one organisation twice": whole.replace(b"South", b"north"),
        "0 bytes that are no text": whole[:-1] + b"\xff",
        "collector": task(collector=replace(collector, identity="e" * 42 + "A")),
    }


def stories() -> list[dict[str, Any]]:
    """All cases of decisions."""
    published, model = publishing.published, publishing.model
    arrays = {"v": np.arange(6, dtype=np.float32).reshape(3, 2), "n": np.arange(3, dtype=np.uint16)}
    found = []

    story = Story("a task, a token that comes late, a report, and the next task")
    first = published(task=task(), model=model(**arrays))
    token_at, make_at, _ = story.look(START, first).moments
    story.look(token_at - 1).look(token_at).answer(token_at, None).look(token_at + 1)
    story.look(token_at + 16).answer(token_at + 16, 503).look(token_at + 60)
    story.answer(token_at + 60, 200, TOKEN)
    now = max(make_at, token_at + 60)
    story.look(now).answer(now + 10, 404).look(now + 40).answer(now + 50, 200)
    later = START + PERIOD
    more = published(task=task(sums=publishing.pairs(), begin=later, end=later + PERIOD))
    token_at, make_at, end = story.look(later, more).moments
    story.look(token_at).answer(token_at, 200, TOKEN).look(make_at).answer(make_at, 410)
    found.append(story.look(end).written())

    story = Story(
        "limits that let nothing through, and a task that ends",
        wish=WHOLE // 2,
        limits=publishing.Limits(life=10, month=10),
    )
    token_at, make_at, end = story.look(START, published(task=task())).moments
    story.look(token_at).answer(token_at, 200, TOKEN).look(make_at).look(end)
    found.append(story.written())

    story = Story("an enrolment that is refused, and comes a day later", enrolled=False)
    story.look(START).answer(START, None).look(START + 3599).look(START + 3600)
    story.answer(START + 3600, 429).look(START + 7200)
    story.answer(START + 7200, 403).look(START + DAY).look(START + DAY + 3600)
    found.append(story.look(START + DAY + 7200).answer(START + DAY + 7200, 201).written())

    story = Story("a task that not all are asked for")
    for number in range(6):
        begin = START + 3600 * number
        story.look(begin, published(task=task(asked=20_000, begin=begin, end=begin + 3600)))
        story.look(begin + 3600)
    found.append(story.written())

    story = Story("lists of keys that are older, and forged; a catalogue that is another one")
    story.look(START, published(keys=publishing.keys(5)))
    story.look(START + 1, published(keys=publishing.keys(4)))
    story.look(START + 2, published(keys=publishing.keys(5, not_after=START + 1)))
    forged = publishing.keys(6).replace(b'"serial":6', b'"serial":7')
    story.look(START + 3, published(keys=forged)).look(
        START + 4, published(keys=publishing.keys(6))
    )
    story.look(START + 5, published(catalogue=publishing.catalogue(("a", "b"))))
    signed = publishing.CATALOGUE.to_bytes()
    story.look(START + 6, published(catalogue=signed.replace(b"film 3", b"film x")))
    bad = model(v=np.array([1.0, np.inf], np.float32))
    story.look(START + 7, published(model=bad))
    found.append(story.written())

    for name, document in refused_tasks().items():
        story = Story(name)
        if name == "collector":  # the second one of a recommender
            story.look(START, published(task=task(asked=1, end=START + 3600)))
        found.append(
            story.look(START + 3600 * (name == "collector"), published(task=document)).written()
        )
        if name != "collector":
            assert story.state.of(FILMS).refused[-1][0] == to_base64(task_id(document))

    story = Story("4 values of what was only chosen")
    chosen = publishing.catalogue(scale_low=0.0, scale_high=1.0, scale_step=None)
    document = task(catalogue=known_items(chosen).fingerprint)
    found.append(story.look(START, published(catalogue=chosen, task=document)).written())
    assert story.state.of(FILMS).refused[-1][0] == to_base64(task_id(document))
    return found


def written() -> dict[str, str]:
    """The files, by name."""
    made = {"rows": rows(), "decide": stories()}
    return {
        f"{name}.json": '{"cases":[\n'
        + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        + "\n]}\n"
        for name, cases in made.items()
    }


if __name__ == "__main__":
    for name, text in written().items():
        (FOLDER / name).write_text(text)
