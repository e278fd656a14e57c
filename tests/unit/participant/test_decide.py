"""What a device decides: by what is public and its own limits, never by ratings."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf.common.protocol.documents import file_digest, to_base64
from hdpmf.common.protocol.task import EVERYBODY, task_id
from hdpmf.private.device.decide import (
    LONGEST_WAIT,
    Sending,
    answered,
    decide,
    is_zeros,
    next_moment,
    price_of,
)
from hdpmf.private.device.ledger import MONTH, UNIT, Limits, cost_of, total
from hdpmf.private.device.public import BYTES_PER_DAY, MOST_TASKS, Published, wanted
from hdpmf.private.device.state import Rated, State, changed
from tests.unit.participant.publishing import (
    DAY,
    FILMS,
    ITEMS,
    N_ITEMS,
    PERIOD,
    SERVERS,
    START,
    catalogue,
    keys,
    linear,
    model,
    pairs,
    published,
    state,
    task,
)

TOKEN = b"a token"


def told(state: State, seen: Published, now: int = START, address: str = FILMS) -> State:
    """The state after a look."""
    return decide(state, {address: seen}, now).state


def live(made: State, now: int, until: int, every: int = 1) -> tuple[State, list[Sending]]:
    """Answer honestly until a time; the state then, and what was sent."""
    sent: list[Sending] = []
    while now < until:
        decision = decide(made, {}, now)
        made = decision.state
        for sending in decision.sending:
            now = max(now, sending.at)
            sent.append(replace_at(sending, now))
            token = TOKEN if sending.what == "token" else b""
            made = answered(made, sending, now, 200, token).state
        now += every
    return made, sent


def replace_at(sending: Sending, now: int) -> Sending:
    return sending._replace(at=now)


def test_a_task_is_answered_by_one_token_and_one_report_within_its_time() -> None:
    made, sent = live(told(state(), published(task=task())), START, START + PERIOD + 10)
    assert [each.what for each in sent] == ["token", "report"]
    assert START <= sent[0].at <= sent[1].at < START + PERIOD
    answer = made.of(FILMS).answer
    assert answer is not None
    assert answer.done
    assert len(made.ledger) == 1
    assert not made.ledger[0].zeros


def test_the_ledger_has_a_report_when_it_is_to_be_made() -> None:
    made = told(state(), published(task=task()))
    seen = 0
    for now in range(START, START + PERIOD):
        decision = decide(made, {}, now)
        made = decision.state
        for sending in decision.sending:
            if sending.what == "token":
                assert not made.ledger
                made = answered(made, sending, now, 200, TOKEN).state
            else:
                assert made.ledger[-1].task == sending.task.hex()
                seen += 1
    assert seen > 1  # it was never taken, and so tried again
    assert len(made.ledger) == 1


def test_ratings_change_nothing_that_is_decided() -> None:
    """Whether, when, in which order and after which answers: the same for every history."""
    draw = random.Random(3)
    for _ in range(25):
        rated = {
            item: float(draw.randint(1, 5)) for item in draw.sample(ITEMS, draw.randint(1, N_ITEMS))
        }
        limits = Limits(life=draw.randrange(2 * UNIT), month=0)
        limits = replace(limits, month=limits.life)
        pair = [state(None, limits=limits, wish=700), state(rated, limits=limits, wish=700)]
        pair = [replace(each, identity=bytes(32)) for each in pair]
        now = START
        tasks = [
            task(sums=draw.choice((linear(), pairs())), begin=begin, end=begin + PERIOD)
            for begin in range(START, START + 4 * PERIOD, PERIOD)
        ]
        for step in range(120):
            seen = {FILMS: published(task=tasks[step // 30])} if step % 10 == 0 else {}
            decisions = [decide(each, seen, now) for each in pair]
            assert decisions[0].sending == decisions[1].sending
            assert decisions[0].said == decisions[1].said
            pair = [each.state for each in decisions]
            for sending in decisions[0].sending:
                status = draw.choice((200, 200, 404, 500, None))
                token = TOKEN if status == 200 and sending.what == "token" else b""
                pair = [answered(each, sending, now, status, token).state for each in pair]
            empty, full = (replace(each, ratings={}) for each in pair)
            assert empty == full
            assert next_moment(empty) == next_moment(full)
            now += PERIOD // 30
        assert pair[0].ledger


def test_moments_differ_between_devices_and_fill_the_period() -> None:
    moments = []
    for number in range(200):
        made = told(state(seed=number.to_bytes(32, "big")), published(task=task()))
        answer = made.of(FILMS).answer
        assert answer is not None
        assert START <= answer.token_at <= answer.report_at <= START + PERIOD * 9 // 10 + 10
        moments.append((answer.report_at - START) / PERIOD)
    # Uniform on [0, .9]: mean .45 with a deviation of .26 / sqrt(200); false alarms 1 in 10^5.
    assert abs(float(np.mean(moments)) - 0.45) < 4.5 * 0.26 / np.sqrt(200)
    assert min(moments) < 0.1
    assert max(moments) > 0.8


def test_used_up_limits_make_zeros_and_nothing_else() -> None:
    price = cost_of(price_of(_read(task())), 1000).none
    rich = told(state(limits=Limits(life=price, month=price)), published(task=task()))
    poor = told(state(limits=Limits(life=price - 1, month=price - 1)), published(task=task()))
    (rich, sent), (poor, also) = (live(each, START, START + PERIOD) for each in (rich, poor))
    assert sent == also
    name = task_id(task())
    assert not is_zeros(rich, name)
    assert is_zeros(poor, name)
    assert total(rich.ledger).none == price
    assert total(poor.ledger).none == 0


def test_a_second_report_of_a_task_is_of_zeros() -> None:
    made, _ = live(told(state(), published(task=task())), START, START + PERIOD)
    (line,) = made.ledger
    assert not line.zeros
    forgotten = changed(made, joined=tuple(changed(j, seen=(), answer=None) for j in made.joined))
    again, sent = live(told(forgotten, published(task=task())), START, START + PERIOD)
    assert len(sent) == 2
    assert [line.zeros for line in again.ledger] == [False, True]


def test_a_wish_for_nothing_makes_zeros() -> None:
    made, sent = live(told(state(wish=0), published(task=task())), START, START + PERIOD)
    assert len(sent) == 2
    assert is_zeros(made, task_id(task()))


def test_all_recommenders_spend_of_one_ledger() -> None:
    price = cost_of(price_of(_read(task())), 1000).none
    other = "https://books.example"
    made = state(None, FILMS, other, limits=Limits(life=2 * price - 1, month=2 * price - 1))
    seen = published(task=task())
    made = decide(made, {FILMS: seen, other: seen}, START).state
    made, sent = live(made, START, START + PERIOD)
    assert sorted(each.what for each in sent) == ["report", "report", "token", "token"]
    assert sorted(line.zeros for line in made.ledger) == [False, True]


def test_a_task_is_taken_once() -> None:
    seen = published(task=task())
    made, sent = live(told(state(), seen), START, START + PERIOD // 2 * 2 - 60)
    for now in range(START + PERIOD - 50, START + PERIOD - 10, 10):
        made = told(made, seen, now)
        assert not decide(made, {}, now).sending
    assert len(sent) == 2
    # Nor is it read again.
    assert wanted(made, made.of(FILMS), Published(seen.index), START + PERIOD - 10) == []


def test_one_task_at_a_time() -> None:
    first, second = task(), task(minimum=101)
    made = told(told(state(), published(task=first)), published(task=second), START + 1)
    answer = made.of(FILMS).answer
    assert answer is not None
    assert answer.task == task_id(first)
    made = told(made, published(task=second), START + PERIOD - 1)
    assert made.of(FILMS).answer == answer


def test_a_recommender_has_so_many_tasks_a_day() -> None:
    made = state()
    for number in range(MOST_TASKS + 3):
        now = START + 200 * number
        end = START + 200 * (number + 1)
        asked = task(begin=now, end=end, precision=200, minimum=100 + number)
        made, _ = live(told(made, published(task=asked), now), now, end)
    assert len(made.ledger) == MOST_TASKS
    later = START + DAY + 1000
    asked = task(begin=later - later % 200, end=later - later % 200 + 400, precision=200)
    assert told(made, published(task=asked), later).of(FILMS).answer != made.of(FILMS).answer


def test_who_is_not_asked_does_nothing() -> None:
    taken = 0
    for number in range(400):
        made = state(seed=number.to_bytes(32, "big"))
        made = told(made, published(task=task(asked=EVERYBODY // 4)))
        taken += made.of(FILMS).answer is not None
        assert len(made.of(FILMS).seen) == 1
    # Binomial(400, 1/4): deviation 8.7; false alarms 1 in 10^5.
    assert abs(taken - 100) < 4.5 * 8.7


@pytest.mark.parametrize(
    "changes",
    [
        {"servers": replace(SERVERS, leader=replace(SERVERS.leader, organisation="West"))},
        {"catalogue": "another"},
        {"token_key": ""},
        {"sums": linear(cap=8, bits=9)},
        {"sums": linear(presence=500)},
        {"sums": linear(bound=1000, presence=30, values=0)},
        {"sums": pairs(deviation=2_000_000)},
        {"sums": pairs(heads=(0, N_ITEMS), weights=(1, 1))},
        {"sums": linear(items=N_ITEMS + 1)},
        {"end": START + 100 * DAY, "precision": 100},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_public_parameters_out_of_bounds_are_refused_by_everybody(changes: dict[str, Any]) -> None:
    """Whatever they rated, allow or wish: nobody answers."""
    asked = task(**changes)
    for made in (
        state(),
        state({ITEMS[0]: 5.0}),
        state(wish=0),
        state(limits=Limits(life=0, month=0)),
    ):
        decision = decide(made, {FILMS: published(task=asked)}, START)
        assert decision.state.of(FILMS).answer is None
        assert any("refused" in line for line in decision.said), decision.said
        assert to_base64(task_id(asked)) in dict(decision.state.of(FILMS).refused)


def test_the_sums_go_to_who_got_the_first_ones() -> None:
    made, _ = live(told(state(), published(task=task())), START, START + PERIOD)
    first = made.of(FILMS).collector
    assert first is not None
    other = task(
        collector=replace(first, identity="d" * 42 + "A"),
        begin=START + PERIOD,
        end=START + 2 * PERIOD,
    )
    made = told(made, published(task=other), START + PERIOD)
    assert made.of(FILMS).answer.done  # type: ignore[union-attr]
    assert to_base64(task_id(other)) in dict(made.of(FILMS).refused)


def test_a_task_before_its_time_waits() -> None:
    asked = task(begin=START + 3600, end=START + 2 * PERIOD)
    made = told(state(), published(task=asked))
    assert made.of(FILMS).answer is None
    assert made.of(FILMS).refused == ()
    assert told(made, published(task=asked), START + 3600).of(FILMS).answer is not None


def test_another_catalogue_for_one_person_is_refused() -> None:
    made = told(state(), published())
    other = catalogue((*ITEMS[:-1], "another film"))
    decision = decide(made, {FILMS: published(catalogue=other)}, START)
    assert decision.state.of(FILMS).catalogue == made.of(FILMS).catalogue
    assert any("pinned" in line for line in decision.said)
    unsigned = replace(other, links=(replace(other.links[0], signature=to_base64(bytes(64))),))
    assert told(state(), published(catalogue=unsigned)).of(FILMS).catalogue == ""


def test_older_lists_of_keys_are_refused_also_from_another_recommender() -> None:
    other = "https://books.example"
    made = state(None, FILMS, other)
    made = told(made, published(keys=keys(5)))
    before = made.of(FILMS).keys
    assert before[0]
    for address in (FILMS, other):
        made = told(made, published(keys=keys(4)), START, address)
        made = told(made, published(keys=keys(5, not_after=START + 1)), START, address)
    assert made.of(FILMS).keys == before
    assert made.of(other).keys == (b"", b"")
    made = told(made, published(keys=keys(6)), START, other)
    assert made.of(other).keys != before


def test_a_file_that_is_not_what_its_name_says_is_refused() -> None:
    seen = published(task=task())
    for digest in seen.files:
        files = {**seen.files, digest: b"{}"}
        made = told(state(), Published(seen.index, files, 10))
        assert digest in dict(made.of(FILMS).refused)


def test_a_refused_file_is_not_read_again_for_a_week() -> None:
    seen = published(task=task(catalogue="another"))
    made = told(state(), seen)
    joined = made.of(FILMS)
    assert wanted(made, joined, Published(seen.index), START + 6 * DAY) == []
    assert len(wanted(made, joined, Published(seen.index), START + 8 * DAY)) == 1


def test_files_have_a_budget_of_bytes_a_day() -> None:
    seen = published(task=task())
    made = decide(state(), {FILMS: Published(seen.index, {}, BYTES_PER_DAY - 100)}, START).state
    (one,) = wanted(made, made.of(FILMS), Published(seen.index), START)
    assert one.most == 100
    assert wanted(made, made.of(FILMS), Published(seen.index, {}, 100), START) == []
    (one,) = wanted(made, made.of(FILMS), Published(seen.index), START + DAY)
    assert one.most > 100


def test_what_is_read_follows_from_what_is_public() -> None:
    seen = published(task=task(), model=model(heads=np.arange(3, dtype=np.float32)))
    for rated in (None, {ITEMS[0]: 5.0}):
        made, files = state(rated), {}
        names = []
        while True:
            partly = Published(seen.index, dict(files), 0)
            more = [
                each
                for each in wanted(made, made.of(FILMS), partly, START)
                if each.digest not in files
            ]
            if not more:
                break
            for each in more:
                assert len(seen.files[each.digest]) <= each.most
                files[each.digest] = seen.files[each.digest]
                names.append(each.name)
        kinds = [name.partition("-")[0] for name in names]
        assert kinds == ["catalogue", "keys", "task", "model", "array"]
        assert files == seen.files


def test_a_model_comes_whole_and_the_one_before_goes() -> None:
    first, second = (
        model(heads=np.arange(3, dtype=np.float32)),
        model(heads=np.arange(4, dtype=np.float32)),
    )
    made = told(state(), published(model=first))
    kept = set(made.files)
    assert made.of(FILMS).model == file_digest(first[0])
    assert set(first[1]) < kept
    partly = published(model=second)
    partly = replace(
        partly, files={name: data for name, data in partly.files.items() if name not in second[1]}
    )
    assert told(made, partly).of(FILMS).model == file_digest(first[0])  # an array is missing
    made = told(made, published(model=second))
    assert made.of(FILMS).model == file_digest(second[0])
    assert not set(first[1]) & set(made.files)


def test_answers_are_tried_again_later_and_later_and_given_up_for_good_reasons() -> None:
    made = told(state(), published(task=task()))
    token = _until_sending(made, START)
    assert token.what == "token"
    waits = []
    now = token.at
    for _ in range(12):
        made = answered(made, token, now, None).state
        again = made.of(FILMS).answer.again  # type: ignore[union-attr]
        waits.append(again - now)
    assert all(wait >= 7 for wait in waits)
    assert waits[-1] >= LONGEST_WAIT // 2
    assert max(waits) <= LONGEST_WAIT
    gone = answered(made, token, now, 410).state.of(FILMS).answer
    assert gone is not None
    assert gone.done
    assert not made.ledger  # who is refused a token pays nothing


def test_an_answer_of_another_task_changes_nothing() -> None:
    made = told(state(), published(task=task()))
    other = Sending("report", FILMS, bytes(32), START)
    assert answered(made, other, START, 200).state == made


def test_who_has_left_reads_and_sends_nothing() -> None:
    made = told(state(), published(task=task()))
    made = made.with_joined(replace(made.of(FILMS), left=True))
    _, sent = live(made, START, START + PERIOD)
    assert sent == []
    assert next_moment(made) is None


def test_a_clock_that_was_put_back_does_not_stop_answers() -> None:
    made = told(state(), published(task=task()))
    token = _until_sending(made, START)
    made = answered(made, token, START + 50 * DAY, None).state  # the clock was far ahead
    _, sent = live(made, token.at, START + PERIOD)
    assert [each.what for each in sent] == ["token", "report"]


def test_a_month_later_there_is_room_again() -> None:
    price = cost_of(price_of(_read(task())), 1000).none
    made = state(limits=Limits(life=10 * price, month=price))
    zeros = []
    for begin in (START, START + 2 * PERIOD, START + MONTH + 2 * PERIOD):
        whole = begin - begin % 3600
        asked = task(begin=whole, end=whole + PERIOD)
        made, _ = live(told(made, published(task=asked), whole), whole, whole + PERIOD)
        zeros.append(made.ledger[-1].zeros)
    assert zeros == [False, True, False]


def test_ratings_are_of_one_recommender() -> None:
    made = state({ITEMS[0]: 3.0}, FILMS, "https://books.example")
    made = made.with_rating("https://books.example", ITEMS[0], Rated(1.0))
    assert made.ratings_of(FILMS)[ITEMS[0]].value == 3.0


def _until_sending(made: State, now: int) -> Sending:
    while True:
        decision = decide(made, {}, now)
        if decision.sending:
            return decision.sending[0]
        now += 1


def _read(document: bytes) -> Any:
    from hdpmf.common.protocol.task import read_task

    return read_task(document)
