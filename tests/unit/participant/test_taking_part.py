"""A participant takes part: one report per task, of its row, paid before it exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair
from hdpmf.common.aggregation.two_servers.dap.messages import Report, ReportError
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.task import Pairs, read_task, task_id
from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.private.device import joining
from hdpmf.private.device.decide import Sending
from hdpmf.private.device.ledger import Limits
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.seal import Sealed, own_row, seal
from hdpmf.private.device.state import Rated, State, changed
from hdpmf.private.device.state_file import Committed, StateFile
from tests.unit.participant import publishing
from tests.unit.participant.outside import Outside, is_report, live, participant, published_in
from tests.unit.participant.publishing import (
    FILMS,
    HPKE,
    ITEMS,
    N_ITEMS,
    PERIOD,
    START,
    keys,
    linear,
    pairs,
    published,
    state,
    task,
)

RATED = {ITEMS[0]: 5.0, ITEMS[2]: 1.0, ITEMS[3]: 4.0, ITEMS[7]: 3.0}
Make = Callable[[State], StateFile]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make files of devices."""
    with ExitStack() as stack:
        made: list[StateFile] = []

        def create(state: State) -> StateFile:
            made.append(StateFile.create(tmp_path / f"{len(made)}", state))
            return stack.enter_context(made[-1])

        yield create


def row_of(file: StateFile, document: bytes) -> np.ndarray:
    held = file.load().state
    return own_row(held, held.of(FILMS), read_task(document))


@pytest.mark.parametrize(
    "sums", [linear(), linear(values=0), pairs()], ids=["stars", "clicks", "pairs"]
)
def test_the_servers_sum_what_devices_send(make: Make, sums: Any) -> None:
    asked = task(sums=sums)
    outside, rows = published_in(task=asked), []
    for number, rated in enumerate((RATED, {ITEMS[1]: 2.0, ITEMS[0]: 4.0}, {})):
        outside.now = START
        file = make(state(rated, seed=bytes([number]) * 32))
        live(participant(file, outside), outside, PERIOD)
        rows.append(row_of(file, asked))
    assert len(outside.reports) == 3
    if isinstance(sums, Pairs):
        first, second = np.triu_indices(len(sums.heads))
        expected = sum(row[first] * row[second] for row in rows)
    else:
        expected = sum(rows)
    assert outside.sums(asked, task_id(asked)) == np.asarray(expected).tolist()
    assert np.abs(rows[0]).sum() > 0
    assert not rows[2].any()


def test_what_was_read_is_kept_when_the_owner_changes_something_meanwhile(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, file = published_in(task=task()), make(state())
    commit = file.commit

    def late(state: State, expected: int) -> Committed:
        monkeypatch.undo()
        file.change(lambda held: held.with_rating(FILMS, ITEMS[0], Rated(5.0)))
        return commit(state, expected)

    monkeypatch.setattr(file, "commit", late)
    participant(file, outside).step()
    held = file.load().state
    assert held.only().answer is not None
    assert held.ratings_of(FILMS)[ITEMS[0]].value == 5.0


def test_a_used_up_budget_sends_zeros(make: Make) -> None:
    asked = task()
    outside = published_in(task=asked)
    file = make(state(RATED, limits=Limits(life=0, month=0)))
    live(participant(file, outside), outside, PERIOD)
    assert outside.sums(asked, task_id(asked)) == [0] * linear().entries
    assert file.load().state.ledger[-1].zeros


def test_rows_keep_their_bound_whatever_was_rated() -> None:
    draw = np.random.default_rng(4)
    for sums in (linear(), pairs()):
        asked = task(sums=sums)
        for _ in range(50):
            chosen = draw.choice(N_ITEMS, draw.integers(1, N_ITEMS + 1), replace=False)
            made = state(wish=int(draw.integers(1, 1001)))
            made = publishing.changed(made, files={})
            for place in chosen.tolist():
                rated = Rated(float(draw.integers(1, 6)), int(draw.integers(0, 1001)))
                made = made.with_rating(FILMS, ITEMS[place], rated)
            made = _with_catalogue(made)
            row = own_row(made, made.of(FILMS), read_task(asked))
            share = (made.wish / 1000) ** (1 if isinstance(sums, Pairs) else 2)
            cap = sums.bound // sums.cap
            if isinstance(sums, Pairs):
                assert (row**2).sum() <= sums.bound * share
                assert (row**2).max(initial=0) <= cap * share
            else:
                for part in (row[: sums.items], row[sums.items :]):
                    assert (part**2).sum() <= sums.bound * share
                assert (row[: sums.items] ** 2).max() <= cap * share


def test_an_item_of_weight_nothing_is_in_no_row() -> None:
    made = _with_catalogue(state(RATED).with_rating(FILMS, ITEMS[0], Rated(5.0, 0)))
    without = _with_catalogue(state(RATED).with_rating(FILMS, ITEMS[0], None))
    for sums in (linear(), pairs()):
        rows = [
            own_row(each, each.of(FILMS), read_task(task(sums=sums))) for each in (made, without)
        ]
        assert rows[0].tolist() == rows[1].tolist()


def _with_catalogue(made: State) -> State:
    from hdpmf.private.device.decide import decide

    return decide(made, {FILMS: published()}, START).state


def test_the_ledger_is_on_disk_before_a_report_leaves(make: Make) -> None:
    outside = published_in(task=task())
    file = make(state(RATED))
    seen = []

    def look(sealed: Sealed) -> None:
        if is_report(sealed):
            with StateFile.open(file.path) as other:
                seen.append(len(other.load().state.ledger))

    outside.before_sending = look
    live(participant(file, outside), outside, PERIOD)
    assert seen == [1]


def test_nothing_is_sealed_that_was_not_promised(make: Make) -> None:
    outside = published_in(task=task())
    file = make(state(RATED))
    device = participant(file, outside)
    device.step()
    held = file.load()
    assert held.state.of(FILMS).answer is not None
    sending = Sending("report", FILMS, task_id(task()), START)
    with pytest.raises(PrivacyError, match="ledger"):
        seal(held, sending, START)
    with pytest.raises(PrivacyError, match="promised"):
        seal(held, sending._replace(task=bytes(32)), START)
    with pytest.raises(PrivacyError, match="ledger's commit"):
        Sealed(object(), "PUT", "https://north.example", {}, b"")


@pytest.mark.parametrize("killed_after", [2, 3, 4, 5, 7, 11])
def test_a_device_that_is_killed_at_any_step_pays_once_and_counts_once(
    make: Make, killed_after: int
) -> None:
    asked = task(end=START + 200, precision=200)
    outside = published_in(task=asked)
    outside.answers = [500, "unreachable"]
    file = make(state(RATED))
    device, steps = participant(file, outside), 0
    while outside.now < START + 200:
        outside.now += device.step()
        steps += 1
        if steps % killed_after == 0:
            device = participant(file, outside)  # what was in memory is gone
    assert len(file.load().state.ledger) == 1
    assert len({token.nonce for _, token, _ in outside.reports}) == 1
    row = row_of(file, asked)
    assert outside.sums(asked, task_id(asked)) == row.tolist()


def test_a_report_is_sent_until_it_is_there_and_then_no_more(make: Make) -> None:
    outside = published_in(task=task())
    outside.answers = [503, "unreachable", 404]
    file = make(state(RATED))
    live(participant(file, outside), outside, PERIOD)
    puts = [what for _, what, _ in outside.requests if "/reports " in what]
    assert len(puts) == 4
    assert any("the report is there" in line for line in outside.logged)


@pytest.mark.parametrize("answer", [401, 403, 409, 410, 422])
def test_who_is_refused_a_token_pays_nothing(make: Make, answer: int) -> None:
    outside = published_in(task=task())
    outside.issues = [answer]
    file = make(state(RATED))
    live(participant(file, outside), outside, PERIOD)
    assert outside.reports == []
    assert file.load().state.ledger == ()
    assert len([what for _, what, _ in outside.requests if what.startswith("POST")]) == 1


def test_an_answer_that_is_no_signature_is_no_token(make: Make) -> None:
    outside = published_in(task=task())
    outside.issues = [bytes(256), b"short"]
    file = make(state(RATED))
    live(participant(file, outside), outside, PERIOD)
    assert len(outside.reports) == 1
    assert any("signed" in line for line in outside.logged)


def test_the_same_token_is_asked_for_again(make: Make) -> None:
    """The issuer gives a device one token: to another request of it it says no."""
    outside = published_in(task=task())
    outside.issues = [500, 500]
    bodies = []
    outside.before_sending = lambda sealed: bodies.append(sealed.body)
    file = make(state(RATED))
    while len(bodies) < 3:
        device = participant(file, outside)
        outside.now += device.step()
        outside.now += device.step()
    assert len(set(bodies)) == 1


def test_without_the_servers_keys_nothing_is_sealed(make: Make) -> None:
    outside = published_in(task=task(), keys=keys(not_after=START - 1))
    file = make(state(RATED))
    device = participant(file, outside)
    _until(device, outside, lambda: any("old list" in line for line in outside.logged))
    assert outside.reports == []
    outside.publish(published(task=task(), keys=keys(2)))
    live(device, outside, START + PERIOD - outside.now)
    assert len(outside.reports) == len(file.load().state.ledger) == 1


def test_a_report_for_an_erased_key_is_encrypted_anew_and_paid_once(make: Make) -> None:
    asked = task()
    outside = published_in(task=asked)
    file = make(state(RATED))
    device = participant(file, outside)
    new = KeyPair(9, bytes(range(50, 82)))

    def erase(sealed: Sealed) -> None:
        if is_report(sealed):
            used = Report.decode(sealed.body).helper_encrypted_input_share.config_id
            outside.answers = [200 if used == 9 else ReportError.OUTDATED_CONFIG]
            # The helper has a newer key from the first report on.
            outside.publish(published(task=asked, keys=_keys_with(new)))

    outside.before_sending = erase
    live(device, outside, PERIOD)
    first, last = outside.reports[0], outside.reports[-1]
    assert len(file.load().state.ledger) == 1
    assert first[1] == last[1]
    configs = [
        Report.decode(body).helper_encrypted_input_share.config_id for _, _, body in outside.reports
    ]
    assert (configs[0], configs[-1]) == (HPKE[1].config.id, 9)
    outside.keys = (HPKE[0], new)
    outside.reports = [last]
    assert outside.sums(asked, task_id(asked)) == row_of(file, asked).tolist()


def _keys_with(helper: KeyPair) -> bytes:
    before = publishing.HPKE
    publishing.HPKE = (before[0], helper, before[2])
    try:
        return keys(7)
    finally:
        publishing.HPKE = before


def test_the_report_is_of_the_ratings_as_they_are_when_it_leaves(make: Make) -> None:
    asked = task()
    outside = published_in(task=asked)
    file = make(state(RATED))
    device = participant(file, outside)
    _until(device, outside, lambda: bool(file.load().state.ledger))
    file.change(lambda old: old.with_rating(FILMS, ITEMS[5], Rated(5.0)))
    live(device, outside, PERIOD)
    assert len(outside.reports) == 1
    assert outside.sums(asked, task_id(asked)) == row_of(file, asked).tolist()


def test_who_leaves_sends_nothing_more(make: Make) -> None:
    outside = published_in(task=task())
    file = make(state(RATED))
    device = participant(file, outside)
    _until(device, outside, lambda: bool(file.load().state.ledger))
    file.change(lambda old: joining.leave(old, FILMS))
    before = len(outside.requests)
    live(device, outside, PERIOD)
    assert outside.reports == []
    assert len(outside.requests) == before
    assert len(file.load().state.ledger) == 1  # what was promised stays written


def test_a_participant_answers_tasks_as_they_come(make: Make) -> None:
    outside = Outside(published())
    file = make(state(RATED))
    device = participant(file, outside)
    asked = []
    for number, sums in enumerate((linear(), pairs(), linear())):
        begin = START + number * PERIOD
        asked.append(task(sums=sums, begin=begin, end=begin + PERIOD))
        outside.publish(published(task=asked[-1]))
        live(device, outside, PERIOD)
    assert [name for name, _, _ in outside.reports] == [task_id(each) for each in asked]
    assert [line.part for line in file.load().state.ledger] == ["linear", "pairs", "linear"]


def test_two_commands_at_once_do_not_undo_each_other(make: Make) -> None:
    outside = published_in(task=task())
    file = make(state(RATED))
    device = participant(file, outside)
    with StateFile.open(file.path) as other:
        for number in range(60):
            outside.now += min(device.step(), PERIOD / 60)
            other.change(lambda old, n=number: changed(old, wish=500 + n))  # type: ignore[misc]
    assert file.load().state.wish == 559


def _until(device: Participant, outside: Outside, reached: Callable[[], bool]) -> None:
    while not reached():
        outside.now += device.step()


def test_a_committed_state_hides_what_is_in_it(make: Make) -> None:
    held = make(state(RATED)).load()
    assert isinstance(held, Committed)
    assert "film" not in repr(held)


def test_other_servers_are_joined_only_by_who_has_left(make: Make) -> None:
    file = make(state(RATED))
    servers = publishing.SERVERS
    west = changed(servers.helper, organisation="West")
    other = changed(publishing.invitation(), servers=changed(servers, helper=west))
    with pytest.raises(ConfigError, match="pinned"):
        joining.join(file.load().state, other)
    left = joining.leave(file.load().state, FILMS)
    again = joining.join(left, other)
    assert again.of(FILMS).invitation == other
    assert not again.of(FILMS).left


@pytest.mark.parametrize("answers", [[200], [201], [403, 201], ["unreachable", 429, 200]])
def test_a_device_asks_for_enrolment_until_it_is_enrolled(make: Make, answers: list[Any]) -> None:
    outside = published_in()
    outside.issues = list(answers)
    made = state(RATED)
    file = make(made.with_joined(changed(made.of(FILMS), enrolled=False)))
    live(participant(file, outside, every=3600.0), outside, 3 * publishing.DAY)
    assert file.load().state.of(FILMS).enrolled
    assert sum("/participants" in what for _, what, _ in outside.requests) == len(answers)
    for asks in outside.enrolments:
        assert (asks.address, asks.secret, asks.login) == (FILMS, "", "")
        assert asks.identity == to_base64(made.signer.public)


def test_what_was_made_before_the_owner_said_no_does_not_leave(make: Make) -> None:
    outside = published_in(task=task())
    file = make(state(RATED))
    device = participant(file, outside)
    pause = 0.0
    while not any(sending.what == "report" for sending, _ in device._ready):
        outside.now += int(pause)
        pause = device.step()
    mine = [each for each in device._ready if each[0].what == "report"]
    first = Sending("enrolment", FILMS, b"", int(outside.now))
    file.change(lambda held: changed(held, wish=0))
    device._take(first, 200)
    device.step()
    assert not any(each in device._ready for each in mine)


def test_a_wish_that_grows_after_the_promise_makes_no_larger_row(make: Make) -> None:
    asked = task()
    outside = published_in(task=asked)
    file = make(changed(state(RATED), wish=500))
    device = participant(file, outside)
    while not any(sending.what == "report" for sending, _ in device._ready):
        outside.now += int(device.step())
    row = row_of(file, asked)
    file.change(lambda held: changed(held, wish=1000))
    live(device, outside, PERIOD)
    assert row_of(file, asked).tolist() != row.tolist()
    assert outside.sums(asked, task_id(asked)) == row.tolist()
