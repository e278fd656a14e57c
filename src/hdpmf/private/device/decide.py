"""What a device does next: a pure function of its state, of what is published, and of the time.

Nothing here reads a clock, a file or a rating, and nothing is drawn: moments follow from a secret
of the state, by which each answer gets its own. Whether a device answers a task depends on
documents and on limits that are the same for everybody; when, on the secret; how long it takes, on
nothing. The owner's limits decide between their row and zeros, which nobody can tell apart.
"""

from collections.abc import Mapping
from fractions import Fraction
from hashlib import sha256
from http import HTTPStatus
from typing import Literal, NamedTuple

from hdpmf.common.protocol.published import Kind
from hdpmf.common.protocol.refusal import Limits as EverybodysLimits
from hdpmf.common.protocol.task import Linear, Pairs, Task, is_asked, read_task
from hdpmf.errors import ProtocolError
from hdpmf.private.device.ledger import Price, matrix_price, promise, vector_price
from hdpmf.private.device.public import (
    NotNowError,
    Published,
    check_digest,
    read_asked,
    take_catalogue,
    take_keys,
    take_model,
)
from hdpmf.private.device.state import DAY, Answer, Joined, State, changed

REFUSED = frozenset({401, 403, 409, 410, 413, 415, 422})
"""Answers after which nothing is tried again. Others may pass: the task is not known yet (404), a
clock is wrong (400), the server is busy or broken."""

LEAD = 10
"""Seconds before its moment at which a report is begun to be made, or a twentieth of the task."""

FIRST_WAIT, LONGEST_WAIT = 15, 3600
"""Seconds between two tries."""

EVERYBODY = EverybodysLimits(rho=Fraction(3, 2))
"""What no device goes beyond. An epsilon of 8 at 1e-5 for a person is a rho of 1.39."""

_LATEST = 9  # tenths of what is left of a task, in which moments lie: the rest is for trying again


class Sending(NamedTuple):
    """What is to be sealed and sent, once the decision is committed.

    Attributes:
        task: Empty for an enrolment.
        at: Not before this moment (Unix).
    """

    what: Literal["enrolment", "token", "report"]
    address: str
    task: bytes
    at: int


class Decision(NamedTuple):
    """A decision: the state to commit, what to send then, and words for the owner."""

    state: State
    sending: tuple[Sending, ...] = ()
    said: tuple[str, ...] = ()


def decide(
    state: State,
    published: Mapping[str, Published],
    now: int,
    everybody: EverybodysLimits = EVERYBODY,
) -> Decision:
    """Take what is published, and bring answers forward.

    Args:
        published: What was read, by recommenders' addresses; none where nobody was asked.
        now: Unix time.
        everybody: What all devices of a release have in common.
    """
    sending: list[Sending] = []
    said: list[str] = []
    for address in [joined.address for joined in state.joined if not joined.left]:
        if address in published:
            state = _learn(state, address, published[address], now, everybody, said)
        if _is_enrolling(state.of(address), now):
            sending.append(Sending("enrolment", address, b"", now))
        state, send = _bring_forward(state, address, now, said)
        sending += send
    return Decision(state, tuple(sending), tuple(said))


def next_moment(state: State) -> int | None:
    """Return when there is something to do, besides looking at files; None if there is nothing."""
    moments = []
    for joined in state.joined:
        if not (joined.left or joined.enrolled):
            moments.append(joined.enrol_at)
        answer = joined.answer
        if answer is not None and not answer.done and not joined.left:
            first = answer.report_at - answer.lead if answer.token else answer.token_at
            moments.append(min(max(first, answer.again), answer.end))
    return min(moments, default=None)


def _is_enrolling(joined: Joined, now: int) -> bool:
    """Return True if it is time to ask for enrolment."""
    # Or the clock was put back.
    return not joined.enrolled and not now < joined.enrol_at <= now + 2 * DAY


# What is published


def _learn(
    state: State,
    address: str,
    seen: Published,
    now: int,
    everybody: EverybodysLimits,
    said: list[str],
) -> State:
    if seen.read:
        state = state.with_joined(state.of(address).having_read(seen.read, now))
    index = seen.index
    named: tuple[tuple[Kind, str], ...] = (
        ("catalogue", index.catalogue),
        ("keys", index.keys),
        ("model", index.model),
        ("task", index.task),
    )
    for kind, digest in named:
        if digest not in seen.files:
            continue
        joined, data = state.of(address), seen.files[digest]
        try:
            check_digest(kind, digest, data)
            if kind == "catalogue":
                state = take_catalogue(state, joined, data)
            elif kind == "keys":
                state = take_keys(state, joined, digest, data)
            elif kind == "model":
                state = take_model(state, joined, digest, seen.files)
                said.append("a new model is here")
            else:
                state = _take_task(state, joined, data, now, everybody, said)
        except NotNowError:
            continue  # looked at again with the next index
        except ProtocolError as error:
            said.append(str(error))
            state = state.with_joined(state.of(address).refusing(digest, now))
    return state


def _take_task(
    state: State,
    joined: Joined,
    document: bytes,
    now: int,
    everybody: EverybodysLimits,
    said: list[str],
) -> State:
    if joined.answer is not None and not joined.answer.done and now < joined.answer.end:
        return state  # its time comes when the one under way is over
    name, task = read_asked(state, joined, document, everybody, now)
    joined = changed(
        joined,
        collector=task.collector,
        seen=(
            *(old for old in joined.seen if max(old[1] + DAY, old[2]) > now),
            (name, now, task.end),
        ),
    )
    secret = sha256(b"hdpmf answer" + state.seed + name).digest()
    if is_asked(task, name, secret):
        joined = changed(joined, answer=_answer(task, name, document, secret, now))
        said.append(f"task {name.hex()[:8]}: reports before it ends")
    state = changed(state, seed=sha256(b"hdpmf next" + state.seed).digest())
    return state.with_joined(joined)


def _answer(task: Task, name: bytes, document: bytes, secret: bytes, now: int) -> Answer:
    begin = max(now, task.begin)
    lead = min(LEAD, (task.end - begin) // 20)
    first = begin + lead
    last = first + (task.end - first) * _LATEST // 10
    report_at = drawn(secret, b"report", first, last)
    return Answer(
        task=name,
        document=document,
        secret=secret,
        token_at=drawn(secret, b"token", first, report_at),
        report_at=report_at,
        end=task.end,
        lead=lead,
    )


def drawn(secret: bytes, what: bytes, first: int, last: int) -> int:
    """Return a moment from ``first`` to ``last``, uniform for whoever has not the secret."""
    number = int.from_bytes(sha256(b"hdpmf moment " + what + secret).digest()[:8], "big")
    return first + (number * (last - first) >> 64)


# Answers


def _bring_forward(
    state: State, address: str, now: int, said: list[str]
) -> tuple[State, tuple[Sending, ...]]:
    joined = state.of(address)
    answer = joined.answer
    if answer is None or answer.done:
        return state, ()
    if now >= answer.end:
        said.append(f"task {answer.task.hex()[:8]}: its time is over")
        return state.with_joined(changed(joined, answer=changed(answer, done=True))), ()
    # Or the clock was put back.
    if now < answer.again <= now + 2 * LONGEST_WAIT:
        return state, ()
    if not answer.token:
        due = now >= answer.token_at
        return state, (Sending("token", address, answer.task, now),) if due else ()
    if now < answer.report_at - answer.lead:
        return state, ()
    if not answer.promised:
        state = _promise(state, joined, answer, now)
    return state, (
        Sending("report", address, answer.task, max(answer.report_at, now + answer.lead)),
    )


def _promise(state: State, joined: Joined, answer: Answer, now: int) -> State:
    """Write down what a report costs, before anything is made of it."""
    task = read_task(answer.document)
    line = promise(
        state.limits,
        state.ledger,
        price_of(task),
        state.wish,
        at=now,
        recommender=joined.address,
        task=answer.task.hex(),
        part="linear" if isinstance(task.sums, Linear) else "pairs",
    )
    state = changed(state, ledger=(*state.ledger, line))
    return state.with_joined(changed(joined, answer=changed(answer, promised=True)))


def price_of(task: Task) -> Price:
    """Return what a task costs a person of the whole wish, by its public numbers."""
    sums = task.sums
    if isinstance(sums, Pairs):
        return matrix_price(sums.bound, sums.deviation, heads=len(sums.heads))
    price = vector_price(sums.bound, sums.presence, signed=False, entries=sums.items)
    if sums.values:
        price += vector_price(sums.bound, sums.values, signed=True, entries=sums.items)
    return price


def is_zeros(state: State, task: bytes) -> bool:
    """Return True if the promised report for a task is of zeros."""
    return next((line.zeros for line in reversed(state.ledger) if line.task == task.hex()), True)


def answered(
    state: State, sending: Sending, now: int, status: int | None, token: bytes = b""
) -> Decision:
    """Take the answer to something that was sent; a pure function as well.

    Args:
        status: Of the other side's answer; None if it could not be reached.
        token: The one that the answer brings, checked; empty for none.
    """
    joined = state.of(sending.address)
    if sending.what == "enrolment":
        return _enrolled(state, joined, now, status)
    answer = joined.answer
    if answer is None or answer.task != sending.task or answer.done:
        return Decision(state)
    short = f"task {answer.task.hex()[:8]}"
    if token:
        answer = changed(answer, token=token, tries=0, again=0)
        said = f"{short}: a token is here"
    elif sending.what == "report" and status == HTTPStatus.OK:
        answer = changed(answer, done=True)
        said = f"{short}: the report is there"
    elif status in REFUSED:
        answer = changed(answer, done=True)
        said = f"{short}: given up, the answer was {status}"
    else:
        wait = min(FIRST_WAIT << min(answer.tries, 16), LONGEST_WAIT)
        # All devices try again at moments of their own.
        again = now + drawn(answer.secret, b"again%d" % answer.tries, wait // 2, wait)
        answer = changed(answer, tries=answer.tries + 1, again=again)
        said = f"{short}: no answer" if status is None else f"{short}: the answer was {status}"
        said += "; it is tried again"
    return Decision(state.with_joined(changed(joined, answer=answer)), (), (said,))


def _enrolled(state: State, joined: Joined, now: int, status: int | None) -> Decision:
    if status in (HTTPStatus.OK, HTTPStatus.CREATED):
        joined = changed(joined, enrolled=True, proof="")
        said = "this device is enrolled"
    elif status in REFUSED:
        joined = changed(joined, enrol_at=now + DAY)
        said = "this device is not enrolled: its invitation was used, or is none; ask for another"
    else:
        joined = changed(joined, enrol_at=now + LONGEST_WAIT)
        said = "nobody was there to enrol this device; it asks again in an hour"
    return Decision(state.with_joined(joined), (), (said,))
