"""``hdpmf device consent`` and ``ledger``: what runs ask for, and what was sent."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.options import argument, command, option
from hdpmf.cli.output import Block, Paragraph, Result, Table
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.private.device.disclosures.bounds import PrivacyBounds, RunBounds
    from hdpmf.private.device.store.device_store import DeviceStore
    from hdpmf.private.device.store.schema import Question

_LAST = 20
_ANSWERS = ("once", "always", "never", "later", "again")
_TOO_LATE = "A report of the run under way has left already; that one cannot be taken back."


@command
def consent(
    target: StoreOptions,
    which: Annotated[
        str | None, argument("A question's number, as listed; or a recommender's address.", "[N]")
    ] = None,
    answer: Annotated[
        str | None, argument("once, always, never, later, or again.", "[ANSWER]")
    ] = None,
) -> Result:
    """List what runs ask for, or answer: once, always (under these terms), never; ask me again.

    later asks the same again after a day. never holds for the recommender: it is not asked about
    again at a similar price. With an address it holds for whatever that recommender asks for, and
    can be said before it does; again lifts it.
    """
    from hdpmf.private.device.consent import has_left, refused_recommenders
    from hdpmf.private.device.memberships import known_as

    if (which is None) != (answer is None):
        raise ConfigError("give both, the number of a question and an answer, or neither")
    if answer is not None and answer not in _ANSWERS:
        raise ConfigError("answer once, always, never, later or again")
    with target.open() as store:
        if which is None or answer is None:
            found = [_question_fields(store, each, word) for _, each, word in _questions(store)]
            never = refused_recommenders(store)
            fields = {"questions": found, "never": never}
            return Result(fields, _questions_text(found, never))
        if which.isdecimal():
            key, recommender = _answer_question(store, int(which), answer)
            told, fields = f"Question {which}: {answer}.", {"question": key}
        else:
            recommender = known_as(store, which)
            _answer_recommender(store, recommender, answer)
            told, fields = f"{recommender}: {answer}.", {"recommender": recommender}
        late = answer in ("never", "again") and has_left(store, recommender)
    fields |= {"answer": None if answer in ("again", "later") else answer, "has_left": late}
    return Result(fields, [told, *([_TOO_LATE] if late else [])])


def _questions(store: DeviceStore) -> list[tuple[str, Question, str | None]]:
    """Return the key, the question and the answer of all that was asked, open questions first."""
    from hdpmf.private.device.consent import consents, pending, postponed

    now = time.time()
    open_ones = (*pending(store, now), *postponed(store, now))
    waiting = [(each.key, each, None) for each in open_ones]
    return [*waiting, *((known.key, known.asked, known.answer) for known in consents(store))]


def _answer_question(store: DeviceStore, number: int, answer: str) -> tuple[str, str]:
    from hdpmf.private.device.consent import give_answer, postpone, take_back

    questions = _questions(store)
    if not 1 <= number <= len(questions):
        raise ConfigError(f"there is no question {number}; there are {len(questions)}")
    key, question, _ = questions[number - 1]
    if answer == "again":
        take_back(store, key)
    elif answer == "later":
        postpone(store, key, time.time())
    else:
        give_answer(store, key, answer)  # type: ignore[arg-type]  # checked by the caller
    return question.key, question.recommender


def _answer_recommender(store: DeviceStore, recommender: str, answer: str) -> None:
    from hdpmf.private.device.consent import lift_refusal, refuse_recommender

    if answer == "never":
        refuse_recommender(store, recommender)
    elif answer == "again":
        lift_refusal(store, recommender)
    else:
        raise ConfigError(
            "answer a recommender's address with never or again: only terms can be agreed to"
        )


def _questions_text(questions: Sequence[dict[str, Any]], never: Sequence[str]) -> Iterator[Block]:
    from hdpmf.common.privacy.accounting.costs import rounded_up

    for recommender in never:
        yield f"Never, whatever it asks for: {recommender} (again takes that back)"
    if not questions:
        yield "Nobody asks for anything. Questions come where the policy has ask = true."
    for number, each in enumerate(questions, start=1):
        yield (
            f"{number}. {each['recommender']}: {each['method']} with epsilon {each['epsilon']:g}"
        )
        yield Paragraph(
            f"{each['ratings']} of your ratings would take part and spend epsilon "
            f"{rounded_up(each['pays'])} together. {each['leaves_the_device']} "
            f"{each['gives_away']} In exact words: {each['reveals']} What was sent cannot be "
            "taken back.",
            indent="  ",
        )
        yield f"  Your answer: {each['answer'] or 'none yet'}"


def _given_away(found: RunBounds | None) -> str:
    """Say what a run gives away of one rating and of the person, together with what has left."""
    if found is None:
        return (
            "Nothing is proved for this method, or for something that was sent before: nobody can "
            "say what it gives away."
        )
    (rating, rating_after), (person, person_after) = found.rating, found.person
    used = f"It uses up the lifetime budget of {found.used_up} of these ratings."
    return (
        "Somebody who has seen all that ever left this device and guesses about one rating is "
        f"right at most {rating.percent} of the time now, and at most {rating_after.percent} "
        f"afterwards; about you as a person, at most {person.percent} now and at most "
        f"{person_after.percent} afterwards.{f' {used}' if found.used_up else ''}"
    )


def _question_fields(store: DeviceStore, question: Question, answer: str | None) -> dict[str, Any]:
    from hdpmf.private.device.choices.preview import preview_of
    from hdpmf.private.device.disclosures.history import reveals
    from hdpmf.private.device.store.catalogues import id_of

    found = preview_of(store, question)
    return {
        "recommender": question.recommender,
        "servers": question.names,
        "digest": question.servers,
        "method": question.terms.method,
        "view": question.terms.view,
        "epsilon": question.terms.epsilon,
        "minimum": question.terms.minimum,
        "asked": question.at,
        "answer": answer,
        "ratings": len(found.numbers),
        "left_out": found.left_out,
        "pays": found.pays,
        "leaves_the_device": found.sends,
        "reveals": reveals(found.cost),
        "gives_away": _given_away(found.bounds),
        "guess_at_most": None if found.bounds is None else found.bounds.fields(),
        "refused": found.refused or None,
        "numbers": [
            {"item": id_of(number.item), "plain": number.plain} for number in found.numbers
        ],
    }


def bounds_words(now: PrivacyBounds) -> Iterator[str]:
    """Say what was given away and can still be, of one rating and of the person."""
    if not now.proved:
        yield (
            "There is no limit on what someone can guess about you: your policy allows methods "
            "without a proof, or something was sent with one."
        )
        return
    yield (
        "Take someone who has seen everything this device ever sent, and everything it may still "
        "send at this level. When they guess whether you loved or hated a title, they are right "
        f"at most {now.rating.percent} of the time instead of 50 %."
    )
    if now.rating.epsilon > now.fresh.epsilon:
        yield (
            "This is because of what was sent before. For ratings of which nothing has been sent "
            f"yet, it is at most {now.fresh.percent}."
        )
    yield (
        "Telling all your ratings together from completely different ones, they are right at most "
        f"{now.person_so_far.percent} of the time with what has been sent so far, and at most "
        f"{now.person.percent} once everything that may still be sent has been sent (epsilon "
        f"{now.person.up_to} at delta {now.spent.delta:g})."
    )


@command
def ledger(
    target: StoreOptions,
    everything: Annotated[
        bool, option(f"All entries, not only the last {_LAST}.", None, "--all")
    ] = False,
) -> Result:
    """Print what this device has sent, when, to whom, and what that reveals."""
    from hdpmf.private.device.disclosures.history import disclosures

    with target.open() as store:
        text = list(_ledger_text(store, None if everything else _LAST))
        return Result(disclosures(store), text)


def _ledger_text(store: DeviceStore, last: int | None) -> Iterator[Block]:
    from hdpmf.private.device.disclosures.bounds import privacy_bounds
    from hdpmf.private.device.disclosures.history import past_runs

    entries = store.ledger.entries()
    if not entries:
        yield "None of your ratings have ever been sent."
        return
    for run in past_runs(store):
        first = run.entries[0]
        yield f"Run {run.run[:8]} with {first.recommender} ({first.method}), {run.when}"
        yield from (Paragraph(words, "  ") for words in run.words())
        if run.paid is not None:
            yield ""
    recent = entries if last is None else entries[-last:]
    rows = [
        (entry.at, entry.action, entry.recommender, entry.run[:8], str(entry.number), entry.words)
        for entry in recent
    ]
    yield Table(
        ("when", "what", "with", "run", "round", "in words"),
        rows,
        numeric=("round",),
        title=f"Entries, oldest first{_more(recent, entries)}",
    )
    bounds = privacy_bounds(store)
    together = bounds.spent
    limit = store.policy.own_total
    proof = "" if together.proved else "No guarantee: some of it counts one channel of several. "
    total = "" if math.isinf(limit) else f", and all ratings together {limit:g}"
    yield Paragraph(
        f"Together, your ratings have used {together}. This is about you: all of "
        f"your ratings against completely different ones. {proof}{' '.join(bounds_words(bounds))} "
        f"From now on, a single rating of weight 1 may use epsilon {store.policy.own_epsilon:g} "
        f"over its lifetime, whoever asks{total}. Once that is used up, this device sends nothing "
        "about it again. Each of your devices has its own ledger, and what the others have used "
        "adds to this, unless each policy says how many devices there are (devices = 2).",
        "  ",
    )


def _more(recent: Sequence[object], every: Sequence[object]) -> str:
    return "" if len(recent) == len(every) else f" (the last {len(recent)}; --all for all)"
