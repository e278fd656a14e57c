"""No screen promises less than another one, or less than the accountant, whatever has happened.

Histories are random: ratings, levels, marks, what is shown, runs that leave, wait or end, policies.
After each step every screen is read as its owner reads it, and every "at most" on it is compared
with the ledger, with the other screens, and with what was promised before.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.cli.device import disclosures as cli_disclosures
from hdpmf.cli.device import ratings as cli_ratings
from hdpmf.cli.device import status as cli_status
from hdpmf.common.methods.registry import at_least, at_most, guess_at
from hdpmf.common.privacy.accounting import DELTA, cost, epsilon_at, guess
from hdpmf.common.privacy.accounting.accountants import Composed
from hdpmf.common.privacy.accounting.costs import rounded_up
from hdpmf.common.web.local_server import BrowserSession
from hdpmf.common.web.templates import PageTemplates
from hdpmf.private.device.budget import charge, choose
from hdpmf.private.device.choices.privacy_level import (
    GROUPS,
    privacy_weight,
    set_privacy_weight,
    set_sensitive,
)
from hdpmf.private.device.consent import ask_owner
from hdpmf.private.device.disclosures.history import disclosures, past_runs
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import Question
from hdpmf.private.page import disclosures as page_disclosures
from hdpmf.private.page import items as page_items
from hdpmf.private.page import settings as page_settings
from hdpmf.private.page.owner import Owner
from hdpmf.private.page.request import PageRequest
from tests.world import table, terms

N = 6
ITEMS = [f"item {place:02d}" for place in range(N)]
GENRES = ("Drama", "War")
TABLE = table(
    N,
    titles=tuple(f"Film {place}" for place in range(N)),
    genres=tuple((GENRES[place % 2],) for place in range(N)),
)
FILMS, BOOKS = "https://films.example:9443", "https://books.example:9443"
TEMPLATES = PageTemplates("hdpmf.private.page", {"/privacy": "privacy"})

ONE = r"loved or hated a title, they are right at most ([\d.]+) %"
YOU = (
    r"right at most ([\d.]+) % of the time with what has been sent so far, and at most "
    r"([\d.]+) % once"
)
FRESH = r"nothing has been sent yet, it is at most ([\d.]+) %"
RUN = r"is right at most ([\d.]+) % of the time after looking at this run alone"
NOW = r"at most ([\d.]+) % (?:of the time )?now,? and at most ([\d.]+) % afterwards"
LIFE = r"reveals at most this much: someone who guesses it is right at most ([\d.]+) %"
SO_FAR = (
    r"so far, a guess about one of your ratings is right at most ([\d.]+) % of the time, "
    r"and one about you as a person at most ([\d.]+) %"
)
MARKED = r"before anything about it was sent, someone who guesses it is right at most ([\d.]+) %"
MARKED_BEFORE = r"someone who guesses one of these is right at most ([\d.]+) %"
STATUS = (
    r"about one rating at most ([\d.]+) %, about you at most ([\d.]+) % \(at most ([\d.]+) % so "
    "far"
)
CARD = r"loved or hated one title is right at most ([\d.]+) %"
GAUGE = r"at most ([\d.]+) % now, ([\d.]+) % after"
BUDGET = r"([\d.]+) % left now, ([\d.]+) % after"
STRIP = r"(Film \d) (Used up|[\d.]+ % left), at most ([\d.]+) %"
SAME = r"At least ([\d.]+) % of what they may see looks the same either way"


class Screens:
    """All that somebody can read about their privacy, as text."""

    def __init__(self, store: DeviceStore) -> None:
        self._store = store
        owner = Owner(Path("nowhere.sqlite"), lambda line: None)
        owner._store = store
        self._request = lambda fields: PageRequest(
            owner, BrowserSession("", 0.0), TEMPLATES.t, fields
        )

    def page(self, name: str, view: Callable[[PageRequest], dict[str, Any]]) -> str:
        """A page as it is read."""
        shown = TEMPLATES.show(
            name, {"csrf": "", "notes": [], "seconds": 900} | view(self._request({})), inside=True
        )
        text = re.sub(r"<[^>]*>", "", bytes(shown.body).decode())
        return " ".join(html.unescape(text).split())

    def privacy(self) -> str:
        return self.page("privacy", page_settings.privacy_page)

    def leaves(self) -> str:
        return self.page("disclosures", page_disclosures.disclosures_page)

    def start(self) -> str:
        return self.page("start", page_items.start_page)

    def meter(self) -> str:
        """What every page has in its header."""
        return str(page_disclosures.header_fields(self._request({}))["meter"])

    def preview(self, weight: float) -> str:
        """What the dial says before it is turned."""
        return " ".join(
            page_settings.preview_privacy_level(self._request({"weight": str(weight)}))["sentences"]
        )

    def mark(self, item: str, private: bool) -> str:
        fields = {"item": item, "private": "yes" if private else "no"}
        return str(page_items.set_private(self._request(fields))["told"])

    def weight_command(self) -> str:
        return " ".join(cli_ratings._weight_meaning(self._store)["words"])

    def consent_command(self) -> str:
        questions = [
            cli_disclosures._question_fields(self._store, each, word)
            for _, each, word in cli_disclosures._questions(self._store)
        ]
        return _words(cli_disclosures._questions_text(questions, ()))

    def ledger_command(self) -> str:
        return _words(cli_disclosures._ledger_text(self._store, None))

    def status_command(self) -> str:
        fields = cli_status._status_fields(self._store) | {"store": "me.sqlite"}
        return " ".join(cli_status._status_lines(fields))


def _words(blocks: Iterator[Any]) -> str:
    """The sentences of a command, without its tables."""
    found = (block if isinstance(block, str) else getattr(block, "text", "") for block in blocks)
    return " ".join(" ".join(found).split())


def numbers(pattern: str, text: str) -> list[tuple[float, ...]]:
    """The percentages of a sentence, wherever it is."""
    return [
        tuple(map(float, found if isinstance(found, tuple) else (found,)))
        for found in re.findall(pattern, text)
    ]


def no_other_promise(text: str, *patterns: str) -> None:
    """Every "at most" with a percentage belongs to a sentence that is compared."""
    for pattern in patterns:
        text = re.sub(pattern, "", text)
    assert not re.findall(r"at most [\d.]+ %", text), text


class Accountant:
    """The truth, by the ledger and the accountant alone."""

    def __init__(self, store: DeviceStore) -> None:
        paid: dict[bytes, float] = {}
        events = []
        for run in store.ledger.charged():
            entry = run.entry
            for pair, epsilon in zip(run.pairs, run.paid.tolist(), strict=True):
                paid[pair] = paid.get(pair, 0.0) + epsilon
            weights = [
                min(epsilon / entry.epsilon * (1 + 1e-9), 1.0)
                for epsilon in run.paid.tolist()
                if epsilon > 0
            ]
            if weights:
                found = cost(
                    entry.method, entry.view, unit="user", weight=weights, epsilon=entry.epsilon
                )
                assert found.status == "proved"
                events.append(found.event)
        self.paid = paid
        self.rating = 100 * guess_at(max(paid.values(), default=0.0))
        whole = Composed(tuple(events))
        at_delta = guess_at(epsilon_at(whole, DELTA))
        self.person = 100 * min(guess(whole), at_delta + DELTA * (1 - at_delta))
        # Whoever sees the sum of one item is right so often, however good the accountant is: noise
        # of Laplace's form, with the part of epsilon that goes there.
        heaviest = max((run.paid.max(initial=0.0) for run in store.ledger.charged()), default=0.0)
        floored = math.floor(64 * heaviest) / 64 * 0.98
        self.reached = 100 * (1 - math.exp(-0.95 * floored / 2) / 2)


def check(store: DeviceStore) -> tuple[float, float]:
    """Compare all screens, and return what they promise for ever, of a rating and the person."""
    truth, screens, set_at = Accountant(store), Screens(store), privacy_weight(store)
    privacy, leaves = screens.privacy(), screens.leaves()
    ledger, status, weight = (
        screens.ledger_command(),
        screens.status_command(),
        screens.weight_command(),
    )
    no_other_promise(privacy, ONE, YOU, FRESH, MARKED, MARKED_BEFORE)
    no_other_promise(leaves, LIFE, SO_FAR, RUN, GAUGE, STRIP)
    check_strips(store, truth, leaves)
    for text in (ledger, weight):
        no_other_promise(text, ONE, YOU, FRESH, RUN)
    no_other_promise(status, STATUS)
    ((rating_ever, person_ever, person),) = numbers(STATUS, status)
    ((rating, same_person),) = numbers(SO_FAR, leaves)
    cards = screens.start()
    no_other_promise(cards, CARD)
    levels = [each for (each,) in numbers(CARD, cards)]
    assert len(levels) == len(GROUPS)
    assert min(levels) >= truth.rating
    own = [most for low, most in zip(GROUPS.values(), levels, strict=True) if low == set_at]
    assert own in ([rating_ever], [])
    # One truth on all screens.
    assert same_person == person
    assert screens.meter() == f"{person:g} %"
    assert numbers(LIFE, leaves) == [(rating_ever,)]
    for text in (privacy, weight, *([ledger] if store.ledger.entries() else [])):
        assert numbers(ONE, text) == [(rating_ever,)]
        assert numbers(YOU, text) in ([(person, person_ever)], [])
    assert numbers(YOU, weight) == [(person, person_ever)]
    assert numbers(YOU, privacy) or not (store.n_ratings or truth.paid)
    document = disclosures(store)["guess_at_most"]
    assert [at_most(document[name]) for name in ("rating", "person", "person_so_far")] == [
        f"{each:g} %" for each in (rating_ever, person_ever, person)
    ]
    # No screen says less than the accountant.
    assert rating >= truth.rating
    assert person >= truth.person
    assert person >= truth.reached
    assert rating_ever >= rating
    assert person_ever >= person
    allowed = [store.policy.own_epsilon * (each.weight or 0.0) for each in store.records()]
    assert rating_ever >= 100 * guess_at(max(allowed, default=0.0))
    # Pictures: what looks the same either way, by what has left and by what may still leave.
    ever = numbers(SAME, privacy)
    so_far = numbers(SAME, leaves)
    assert len(ever) == 2
    assert len(so_far) == (2 if any(truth.paid.values()) or store.ledger.spent_total() else 0)
    for same in (ever, so_far):
        for (part,), guesses in zip(
            same, ((truth.rating,), (truth.person, truth.reached)), strict=False
        ):
            assert part <= 2 * (100 - max(guesses)) + 1e-9
    # The same number as the sentences beside them, which are rounded up by less than 1 %.
    for same, told in ((ever, (rating_ever, person_ever)), (so_far, (rating, person))):
        for (part,), most in zip(same, told, strict=False):
            assert 2 * (100 - most) - 1 <= part <= 2 * (101 - most)
    for (now,), (later,) in zip(so_far, ever, strict=False):
        assert later <= now
    runs = numbers(RUN, leaves)
    told = [run.cost.guess for run in past_runs(store) if run.cost]
    assert all(each >= 100 * most for (each,), most in zip(runs[::-1], told, strict=False))
    return rating_ever, person_ever


def check_strips(store: DeviceStore, truth: Accountant, leaves: str) -> None:
    """Every rating that has spent has its strip, which says no less than the ledger."""
    told = {title: (state, float(most)) for title, state, most in re.findall(STRIP, leaves)}
    for record in store.records():
        paid = truth.paid.get(store.ledger.tag_of(record.item), 0.0)
        if not paid:
            continue
        state, most = told[f"Film {ITEMS.index(record.item)}"]
        allowed = store.policy.own_epsilon * (record.weight or 0.0)
        left = max(1 - paid / allowed, 0.0)
        assert most >= 100 * guess_at(paid)
        assert (float(state.split()[0]) if state != "Used up" else 0.0) <= 100 * left + 1e-6
        assert (state == "Used up") or left * allowed >= store.policy.own_epsilon / 64 - 1e-9


def leave(store: DeviceStore) -> None:
    """Let what was held leave, whatever its owner has chosen since, as far as promises know."""
    before = check(store)
    waiting: dict[str, Entry] = {}
    for entry in store.ledger.entries():
        if entry.action == "agreed":
            waiting[entry.run] = entry
        else:
            waiting.pop(entry.run, None)
    for entry in waiting.values():
        store.ledger.note(msgspec.structs.replace(entry, action="sent"), first=True)
    now = Accountant(store)
    assert before[0] >= now.rating
    assert before[1] >= now.person


def run_with(
    store: DeviceStore, number: int, recommender: str, method: str, epsilon: float, end: str
) -> None:
    """Go through a run as a device does; the owner reads what it would give away before."""
    asked = terms(TABLE, epsilon=epsilon)
    if epsilon > store.policy.epsilon_per_run:
        return
    before, was = check(store), Accountant(store)
    ask_owner(store, Question(recommender=recommender, terms=asked))
    screens = Screens(store)
    shown = screens.leaves()
    question, command = numbers(GAUGE, shown), numbers(NOW, screens.consent_command())
    budget = numbers(BUDGET, shown)
    no_other_promise(screens.consent_command(), NOW, RUN)
    for each in store.tables.questions.rows():
        store.tables.questions.delete(each.key)
    assert len(question) == 2
    (rating_was, rating_told), (person_was, person_told) = question
    (command_rating_was, command_rating), (command_person_was, command_person) = command
    assert (rating_was, rating_told) == (command_rating_was, command_rating)
    assert (person_was, person_told) == (command_person_was, command_person)
    assert rating_was >= was.rating
    assert person_was >= was.person
    taken = choose(store, asked, recommender)
    table = store.ratings().take(taken.positions)
    paying = dict(zip(map(str, table.item_ids), taken.pays, strict=True))
    check_budget(store, was, paying, budget)
    if len(taken.positions):
        entry = Entry(
            recommender=recommender,
            run=f"{number:032x}",
            number=0,
            method=method,
            view="two-servers",
            epsilon=epsilon,
            status="proved",
            action="agreed",
            words="agreed",
        )
        charge(store, entry, taken)
        if end == "sent":
            store.ledger.note(msgspec.structs.replace(entry, action="sent"), first=True)
        elif end == "returned":
            store.ledger.give_back(entry, 1.0)
    now = Accountant(store)
    # What was told before the owner agreed, and what was promised for ever, holds.
    assert rating_told >= now.rating
    assert person_told >= now.person
    assert before[0] >= now.rating
    assert before[1] >= now.person
    after = check(store)
    assert after[0] <= before[0]  # a run makes no promise worse
    if end == "sent":
        ((rating, person),) = numbers(SO_FAR, Screens(store).leaves())
        assert (rating, person) <= (rating_told, person_told)


def check_budget(
    store: DeviceStore,
    was: Accountant,
    paying: dict[str, float],
    budget: list[tuple[float, ...]],
) -> None:
    """A question does not say that more is left of a budget, before or after, than there is."""
    if not budget:
        assert not paying
        return
    ((before, after),) = budget
    allowed = left = rest = 0.0
    for record in store.rated.weighed():
        if record.item in paying:
            most = store.policy.own_epsilon * (record.weight or 0.0)
            spent = was.paid.get(store.ledger.tag_of(record.item), 0.0)
            allowed += most
            left += max(most - spent, 0.0)
            rest += max(most - spent, 0.0) - paying[record.item]
    assert before <= 100 * (left / allowed if allowed else 1.0) + 1e-6
    assert after <= 100 * (max(rest, 0.0) / allowed if allowed else 1.0) + 1e-6


items = st.sampled_from(ITEMS)
weights = st.sampled_from((0.05, 0.1, 0.35, 0.5, 0.8, 1.0))
steps = st.one_of(
    st.tuples(st.just("rate"), items),
    st.tuples(st.just("rate"), items),
    st.tuples(st.just("remove"), items),
    st.tuples(st.just("dial"), weights),
    st.tuples(st.just("leave")),
    st.tuples(st.just("mark"), items),
    st.tuples(st.just("unmark"), items),
    st.tuples(
        st.just("policy"), st.sampled_from((0.5, 1.0, 2.0)), st.sampled_from((0.8, 50.0, None))
    ),
    *(
        st.tuples(
            st.just("run"),
            st.sampled_from((FILMS, BOOKS)),
            st.just("hdp-sum"),
            st.sampled_from((0.1, 0.25, 0.5)),
            st.sampled_from(("sent", "sent", "held", "returned")),
        )
        for _ in range(4)
    ),
)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(steps, min_size=1, max_size=10))
def test_no_screen_claims_less_than_another_or_than_the_accountant(history):
    store = DeviceStore.create(":memory:", policy=Policy(ask=True))
    store.pin_catalogue(TABLE)
    for item in ITEMS[:3]:
        store.rate(item, 4.0)
    for number, (what, *about) in enumerate(history):
        if what == "rate":
            store.rate(about[0], 2.0)
        elif what == "remove":
            if about[0] in store.rated.names():
                store.remove(about[0])
        elif what == "dial":
            told = Screens(store).preview(about[0])
            no_other_promise(told, ONE, YOU, FRESH)
            set_privacy_weight(store, about[0])
            privacy = Screens(store).privacy()
            assert numbers(ONE, told) == numbers(ONE, privacy)
            assert numbers(YOU, told) == numbers(YOU, privacy)
        elif what == "mark":
            paid = Accountant(store).paid.get(store.ledger.tag_of(about[0]), 0.0)
            told = Screens(store).mark(about[0], private=True)
            if about[0] in store.rated.names() and paid:
                ((most,),) = numbers(r"this rating is right at most ([\d.]+) %", told)
                assert most >= 100 * guess_at(paid)
        elif what == "unmark":
            set_sensitive(store, about[0], False)
        elif what == "policy":
            epsilon, total = about
            policy = msgspec.structs.replace(store.policy, epsilon=epsilon, max_total=total)
            store.set_policy(policy)
        elif what == "leave":
            leave(store)
        else:
            run_with(store, number, *about)
        check(store)


@given(st.floats(0.5, 1.0))
def test_percentages_are_rounded_to_the_safe_side(part):
    most, least = (float(words.removesuffix(" %")) for words in (at_most(part), at_least(part)))
    assert least - 1e-9 <= 100 * part <= most + 1e-9
    assert most - least <= 1


@pytest.mark.parametrize(
    ("part", "most", "least"),
    [
        (0.5, "50 %", "50 %"),
        (0.5025, "50.3 %", "50.2 %"),
        (0.731, "74 %", "73 %"),
        (0.9991, "100 %", "99.9 %"),
        (1.0, "100 %", "100 %"),
    ],
)
def test_what_is_a_little_more_is_not_said_to_be_less(part: float, most: str, least: str):
    assert (at_most(part), at_least(part)) == (most, least)


@given(st.floats(1e-6, 1e6))
def test_epsilon_is_rounded_up(epsilon):
    shown = float(rounded_up(epsilon))
    assert epsilon * (1 - 1e-9) <= shown <= epsilon * 1.0101


def test_after_a_liberal_run_no_level_promises_less_than_what_has_left():
    """The history in which "My privacy" promised 52 % for ratings that had given away 73 %."""
    policy = Policy(ask=True, max_epsilon_per_run=None)
    store = DeviceStore.create(":memory:", policy=policy)
    store.pin_catalogue(TABLE)
    for item in ITEMS:
        store.rate(item, 5.0)
    run_with(store, 0, FILMS, "hdp-sum", 1.0, "sent")
    set_privacy_weight(store, 0.1)
    rating, person = check(store)
    assert rating == 74.0
    assert person >= 90.0
    privacy = Screens(store).privacy()
    assert numbers(FRESH, privacy) == [(52.5,)]
    told = Screens(store).mark(ITEMS[0], private=True)
    assert "It was released on" in told
    assert "right at most 74 % of the time" in told
    assert "someone who guesses one of these is right at most 74 %" in Screens(store).privacy()


def test_what_is_held_counts_also_for_somebody_who_became_more_private_since():
    store = DeviceStore.create(":memory:", policy=Policy(ask=True))
    store.pin_catalogue(TABLE)
    for item in ITEMS:
        store.rate(item, 5.0)
    run_with(store, 0, FILMS, "hdp-sum", 0.5, "held")
    set_privacy_weight(store, 0.05)
    store.remove(ITEMS[0])
    leave(store)


def test_what_was_removed_after_it_was_sent_counts():
    store = DeviceStore.create(":memory:", policy=Policy(ask=True))
    store.pin_catalogue(TABLE)
    store.rate(ITEMS[0], 5.0)
    run_with(store, 0, FILMS, "hdp-sum", 0.5, "sent")
    set_privacy_weight(store, 0.05)
    store.remove(ITEMS[0])
    rating, _ = check(store)
    assert rating == 63.0
