"""What two servers are to sum: the document, its id, and that it says what the survey asks for."""

from __future__ import annotations

import contextlib

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.data import RatingScale
from hdpmf.common.privacy.coding import make_coding, sum_channels
from hdpmf.common.protocol import (
    SumContribution,
    Survey,
    Task,
    decode,
    encode,
)
from hdpmf.common.protocol.servers import Collector, Server, Servers
from hdpmf.common.protocol.survey_task import answer_of, check_survey_task, survey_circuit
from hdpmf.common.protocol.task import Noise, SumOfVectors, prio_of, task_id
from hdpmf.errors import ConfigError, HdpmfError, ProtocolError

SURVEY = Survey(
    design="A", coding="soft", epsilon=0.5, n_items=7, catalogue="c", contributors=1,
    scale_low=1.0, scale_high=5.0, scale_step=1.0,
)  # fmt: skip


def server(name: str, digit: str) -> Server:
    return Server(
        organisation=name,
        url=f"https://{name}.example:443",
        identity=digit * 64,
        signing=digit * 64,
    )


PAIR = Servers(leader=server("library", "a"), helper=server("university", "b"))


def a_task(survey: Survey | None = SURVEY, **changed: object) -> Task:
    fields = {
        "servers": PAIR,
        "collector": Collector(organisation="shop", hpke="c" * 82, identity="d" * 64),
        "begin": 86400,
        "end": 2 * 86400,
        "precision": 86400,
        "minimum": 16,
    }
    if survey is not None:
        circuit, noise = survey_circuit(survey)
        fields |= {"circuit": circuit, "noise": noise, "survey": survey}
    return Task(**(fields | changed))  # type: ignore[arg-type]


def test_its_id_is_of_every_byte_and_it_survives_the_wire() -> None:
    document = encode(a_task())
    assert decode(document) == a_task()
    others = [a_task(minimum=17), a_task(precision=43_200), a_task(end=3 * 86400)]
    assert len({task_id(encode(task)) for task in (a_task(), *others)}) == 4


def test_noise_is_what_the_survey_costs() -> None:
    task = a_task()
    channels = sum_channels(make_coding("soft", RatingScale(1, 5, 1), 0.5), 0.5)
    assert [part.fraction for part in task.noise] == [
        channels.score.scale,
        channels.weight.scale,
        channels.total.scale if channels.total else None,
    ]
    assert check_survey_task(task) == SURVEY


@pytest.mark.parametrize("entry", [0, 1, 2])
def test_less_noise_than_the_survey_asks_for_is_refused(entry: int) -> None:
    noise = list(a_task().noise)
    noise[entry] = Noise(entries=noise[entry].entries, scale=str(noise[entry].fraction / 2))
    with pytest.raises(ProtocolError, match="not what its survey asks for"):
        check_survey_task(a_task(noise=tuple(noise)))


def test_another_code_than_the_survey_has_is_refused() -> None:
    circuit = a_task().circuit
    louder = msgspec.structs.replace(circuit, codes=(-50, *circuit.codes[1:]))
    with pytest.raises(ProtocolError, match="not what its survey asks for"):
        check_survey_task(a_task(circuit=louder))
    with pytest.raises(ProtocolError, match="no survey"):
        check_survey_task(a_task(survey=None, circuit=circuit, noise=a_task().noise))


def test_the_answer_is_in_the_sums() -> None:
    numbers = list(range(-7, 8))
    answer = answer_of(a_task(), numbers)
    assert isinstance(answer, SumContribution)
    assert answer.scores.tolist() == numbers[:7]
    assert answer.weights.tolist() == numbers[7:14]
    assert answer.total == 7
    assert (
        answer_of(a_task(), [1 << 63, *numbers[1:]]).scores[0] == 1 << 62
    )  # beyond anything honest, and no overflow
    with pytest.raises(ProtocolError, match="15 numbers"):
        answer_of(a_task(), numbers[1:])


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"begin": 86401}, "multiples"),
        ({"end": 86400}, "before it ends"),
        ({"end": 86400 * 500}, "400 days"),
        ({"minimum": 1}, "minimum"),
        ({"precision": 0}, "precision"),
        ({"noise": ()}, "every entry"),
        ({"noise": (Noise(entries=15, scale="1/0"),)}, "fraction"),
        ({"noise": (Noise(entries=15, scale="-1/2"),)}, "0 or more"),
        ({"noise": (Noise(entries=15, scale="1" * 201),)}, "short"),
        ({"circuit": SumOfVectors(entries=15, bits=65, chunk=3)}, "bits"),
        ({"circuit": SumOfVectors(entries=1 << 23, bits=1, chunk=3)}, "entries"),
    ],
)
def test_what_cannot_be_right_is_refused(changed: dict[str, object], why: str) -> None:
    task = a_task()
    fields = {name: getattr(task, name) for name in task.__struct_fields__ if name != "version"}
    with pytest.raises(ProtocolError, match=why):
        Task(**(fields | changed))  # type: ignore[arg-type]


def test_a_scale_with_too_many_levels_is_refused_in_words() -> None:
    fine = msgspec.structs.replace(SURVEY, scale_step=0.1)
    with pytest.raises(ConfigError, match="coarser step"):
        survey_circuit(fine)


def test_the_circuit_is_bound_to_the_task() -> None:
    task = a_task()
    prio = prio_of(task, task_id(encode(task)))
    nonce = bytes(16)
    report = prio.shard(prio.circuit.encode(np.full(7, 64), np.full(7, 4)), nonce)
    other = prio_of(task, bytes(32))
    key = bytes(32)
    parts = [
        other.prepare(key, i, nonce, report.public_share, share)[1]
        for i, share in enumerate(report.input_shares)
    ]
    with pytest.raises(HdpmfError):
        other.verify(parts)


def test_one_organisation_is_not_two() -> None:
    with pytest.raises(ConfigError, match="two organisations"):
        Servers(
            leader=PAIR.leader, helper=msgspec.structs.replace(PAIR.helper, organisation="Library")
        )
    with pytest.raises(ConfigError, match="same key"):
        Servers(
            leader=PAIR.leader,
            helper=msgspec.structs.replace(PAIR.leader, organisation="university"),
        )


def test_a_pair_is_a_file_with_a_digest() -> None:
    assert Servers.from_json(PAIR.to_json()) == PAIR
    moved = Servers(
        leader=PAIR.leader, helper=msgspec.structs.replace(PAIR.helper, url="https://elsewhere")
    )
    assert moved.digest != PAIR.digest
    with pytest.raises(ConfigError, match="https://"):
        msgspec.structs.replace(PAIR.leader, url="http://library.example")


@given(st.binary(max_size=400))
def test_any_bytes_are_a_pair_or_an_error(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        Servers.from_json(data)
