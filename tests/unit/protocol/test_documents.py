"""Documents of the wire: one spelling, one digest, and what participants refuse."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair
from hdpmf.common.protocol.documents import (
    Array,
    canonical,
    from_base64,
    labelled_digest,
    to_base64,
)
from hdpmf.common.protocol.published import Index, Model, file_name, is_public
from hdpmf.common.protocol.refusal import RULES, Known, Limits, why_refused
from hdpmf.common.protocol.servers import Collector, Server, Servers
from hdpmf.common.protocol.task import (
    EVERYBODY,
    Linear,
    Pairs,
    Task,
    is_asked,
    read_task,
    task_id,
)
from hdpmf.errors import ProtocolError

replace = msgspec.structs.replace


def server(name: str, digit: str) -> Server:
    return Server(
        organisation=name,
        url=f"https://{name}.example",
        identity=digit * 42 + "A",
        signing=chr(ord(digit) + 2) * 42 + "A",
    )


SERVERS = Servers(leader=server("north", "a"), helper=server("south", "b"))
COLLECTOR = Collector(
    organisation="films",
    hpke=to_base64(KeyPair(1, bytes(range(32))).config.encode()),
    identity="e" * 42 + "A",
)
LINEAR = Linear(items=50, bits=8, bound=(1 << 20) - 1, cap=16, presence=3000, values=2000)
PAIRS = Pairs(
    heads=(1, 3, 40),
    weights=(64, 80, 1024),
    bits=10,
    bound=(1 << 24) - 1,
    cap=16,
    deviation=9_000_000,
)


def task(sums: Linear | Pairs = PAIRS, **changes: Any) -> Task:
    fields: dict[str, Any] = {
        "servers": SERVERS,
        "collector": COLLECTOR,
        "sums": sums,
        "catalogue": "items",
        "run": to_base64(bytes(16)),
        "asked": EVERYBODY,
        "begin": 1000,
        "end": 2000,
        "precision": 500,
        "minimum": 10,
    }
    return Task(**fields | changes)


@pytest.mark.parametrize("sums", [LINEAR, PAIRS], ids=["linear", "pairs"])
def test_a_task_comes_back_and_has_one_spelling(sums: Linear | Pairs) -> None:
    data = task(sums).to_bytes()
    assert read_task(data) == task(sums)
    plain = msgspec.json.decode(data)
    for other in (
        msgspec.json.encode(plain)[:-1] + b" }",
        data.replace(b'"asked":65536', b'"asked":65536.0'),
        data.replace(b'"asked":65536', b'"asked":65536,"asked":65536'),
        canonical(plain | {"more": 1}),
        canonical({name: value for name, value in plain.items() if name != "version"}),
        canonical(plain | {"version": 1}),
        data + b"\n",
        b"\xff" + data,
        b"",
    ):
        with pytest.raises(ProtocolError):
            read_task(other)


@pytest.mark.parametrize(
    "changes",
    [
        {"sums": replace(PAIRS, heads=(3, 1, 40))},
        {"sums": replace(PAIRS, heads=(1, 1, 40))},
        {"sums": replace(PAIRS, weights=(1, 2))},
        {"sums": replace(PAIRS, cap=15)},
        {"sums": replace(LINEAR, cap=15)},
        {"end": 1000},
        {"begin": 1001},
        {"run": "short"},
        {"run": to_base64(bytes(16))[:-1] + "B"},
        {"catalogue": ""},
        {"token_key": "AAAA"},
    ],
)
def test_what_cannot_be_a_task(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        task(**changes)


def test_every_number_of_a_task_is_in_its_id() -> None:
    """What both servers have confirmed is this document, so that nobody can be shown another."""
    plain = msgspec.json.decode(task().to_bytes())
    ids = {task_id(canonical(plain))}
    sums = plain["sums"]
    for name in ("bits", "bound", "cap", "deviation"):
        ids.add(task_id(canonical(plain | {"sums": sums | {name: sums[name] + 1}})))
    ids.add(task_id(canonical(plain | {"sums": sums | {"heads": [1, 3, 41]}})))
    ids.add(task_id(canonical(plain | {"sums": sums | {"weights": [64, 81, 1024]}})))
    ids.add(task_id(canonical(plain | {"asked": EVERYBODY - 1})))
    assert len(ids) == 8
    assert task_id(b"{}") != labelled_digest("key list", b"{}")


def test_what_a_task_costs() -> None:
    assert LINEAR.rho == Fraction((1 << 20) - 1, 2 * 3000**2) + Fraction((1 << 20) - 1, 2 * 2000**2)
    assert PAIRS.rho == Fraction(((1 << 24) - 1) ** 2, 4 * 9_000_000**2)
    assert PAIRS.diagonal**2 >= 2 * PAIRS.deviation**2 > (PAIRS.diagonal - 1) ** 2
    assert PAIRS.noise.tolist() == [
        PAIRS.diagonal if place in (0, 3, 5) else PAIRS.deviation for place in range(6)
    ]
    assert np.bincount(LINEAR.noise)[[2000, 3000]].tolist() == [51, 50]
    assert replace(LINEAR, values=0).entries == 50


def test_numbers_are_written_as_browsers_write_them() -> None:
    """Of 39,985 random doubles Node wrote all alike."""
    spelt = [1.0, 0.5, -0.0, 1e-7, 1.5e-6, 123456.789, 1e20, 1e21, -1e-300]
    wanted = b"[1,0.5,0,1e-7,0.0000015,123456.789,100000000000000000000,1e+21,-1e-300]"
    assert canonical(spelt) == wanted
    assert canonical({"b": "\u20ac\n\x1f", "a": [None, True]}) == (
        '{"a":[null,true],"b":"\u20ac\\n\\u001f"}'.encode()
    )
    for wrong in (float("nan"), float("inf"), 1 << 53):
        with pytest.raises(ProtocolError):
            canonical(wrong)


def test_arrays_are_files_beside_a_document() -> None:
    for kind in ("f2", "f4", "u2", "u4", "i1", "i8"):
        array = np.arange(6).astype(kind).reshape(2, 3)
        named, data = Array.of(array)
        assert len(data) == named.size
        assert np.array_equal(named.read(data), array)
        assert named.read(data).dtype == array.dtype
        for wrong in (data[:-1], data + b"\0", bytes(len(data))):
            with pytest.raises(ProtocolError):
                named.read(wrong)
    named, data = Array.of(np.array([np.nan], np.float32))
    with pytest.raises(ProtocolError, match="not finite"):
        named.read(data)
    model = Model(
        catalogue="items",
        run=to_base64(bytes(16)),
        reports=(5, 6),
        mean=3.5,
        arrays={"heads": named},
    )
    assert msgspec.json.decode(model.to_bytes(), type=Model) == model


def test_names_of_files() -> None:
    digest = to_base64(bytes(32))
    index = Index(catalogue=digest)
    assert is_public(file_name("catalogue", index.catalogue))
    assert is_public("index.json")
    for name in ("../index.json", "catalogue-x.json", f"array-{digest}.json", f"task-{digest}.bin"):
        assert not is_public(name)
    with pytest.raises(ProtocolError):
        Index(catalogue="hex")
    with pytest.raises(ProtocolError):
        from_base64("AB", 1)  # another spelling of what AA is


KNOWN = Known(servers=SERVERS, collector=COLLECTOR, catalogue="items", items=50, stars=True)
BROKEN: list[tuple[int, Task, dict[str, Any], dict[str, Any]]] = [
    (1, task(), {"servers": Servers(leader=SERVERS.helper, helper=SERVERS.leader)}, {}),
    (1, task(), {"collector": replace(COLLECTOR, identity="9" * 42 + "A")}, {}),
    (2, task(), {"catalogue": "others"}, {}),
    (2, task(replace(LINEAR, items=49)), {}, {}),
    (3, task(), {}, {"heads": 2}),
    (3, task(), {"items": 40}, {}),
    (4, task(LINEAR), {"stars": False}, {}),
    (5, task(replace(PAIRS, bits=11)), {}, {}),
    (5, task(replace(PAIRS, bound=1 << 23)), {}, {}),
    (5, task(replace(LINEAR, bound=1 << 21, cap=64)), {}, {}),
    (5, task(), {}, {"cap": 17}),
    (6, task(replace(PAIRS, deviation=4_000_000)), {}, {}),
    (7, task(begin=1500), {}, {}),
    (7, task(end=9_000_000), {}, {}),
    (8, task(), {}, {}),
]


@pytest.mark.parametrize(("rule", "asked", "known", "limits"), BROKEN)
def test_each_rule_is_why_something_is_refused(
    rule: int, asked: Task, known: dict[str, Any], limits: dict[str, Any]
) -> None:
    limit = Limits(rho=Fraction(1))
    own, most = dataclasses.replace(KNOWN, **known), dataclasses.replace(limit, **limits)
    found = why_refused(asked, own, most, 1200.0)
    assert found is not None
    assert (found.rule, found.why) == (rule, f"refused, since not: {RULES[rule]}")


def test_who_is_asked_is_not_chosen_by_the_recommender() -> None:
    """The share is right to within five deviations, and secrets, not tasks, choose the people."""
    half = task(asked=EVERYBODY // 4)
    secrets = [number.to_bytes(32, "big") for number in range(4000)]
    first, second = (
        [is_asked(half, name, secret) for secret in secrets] for name in (b"1" * 32, b"2" * 32)
    )
    for drawn in (first, second):
        assert abs(sum(drawn) - 1000) < 5 * (4000 * 0.25 * 0.75) ** 0.5
    both = sum(one and other for one, other in zip(first, second, strict=True))
    assert abs(both - 250) < 5 * (4000 / 16 * 15 / 16) ** 0.5
    assert all(is_asked(task(), b"1" * 32, secret) for secret in secrets)
