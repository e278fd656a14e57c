"""``hdpmf device``: a person's device without a page: init, join, rate, recommend, ledger."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.inference import ListOptions
from hdpmf.cli.options import (
    SameHost,
    Yes,
    argument,
    command,
    option,
    read_bytes,
    read_text,
    warn_about_servers,
)
from hdpmf.cli.output import Block, Paragraph, Result, Table, clean, confirm, note
from hdpmf.errors import ConfigError, PrivacyError

if TYPE_CHECKING:
    from hdpmf.private.device.ledger import Cost, Limits
    from hdpmf.private.device.public import Items
    from hdpmf.private.device.state import Joined, State
    from hdpmf.private.device.state_file import StateFile

VARIABLE = "HDPMF_DEVICE_PASSPHRASE"
FILE_VARIABLE = "HDPMF_DEVICE_PASSPHRASE_FILE"
"""Names a file whose first line is the passphrase."""

_LAST = 20
_MOST_FOUND = 50

StorePath = Annotated[Path, argument("The device's file.", "STORE")]
Level = Annotated[
    str | None,
    option(
        "How private, for your whole life: careful, middle or open.",
        "LEVEL",
        default="middle",
        words=("careful", "middle", "open"),
    ),
]


@dataclass(frozen=True)
class StoreOptions:
    """The device's file; its passphrase is in the environment, or asked for."""

    path: StorePath

    def open(self) -> StateFile:
        """Open it; ask for a passphrase only if one is needed."""
        from hdpmf.private.device.state_file import StateFile

        if not StateFile.needs_passphrase(self.path):
            return StateFile.open(self.path)
        return StateFile.open(self.path, _passphrase(f"Passphrase of {self.path}"))


@dataclass(frozen=True)
class JoinedOptions(StoreOptions):
    """The device's file, and one of the recommenders that were joined."""

    recommender: Annotated[
        str | None,
        option("Whose items, if you have joined several.", "ADDRESS", default="the only one"),
    ] = None

    def of(self, state: State) -> Joined:
        """Return the recommender that is meant."""
        from hdpmf.common.protocol.servers import plain_address

        return state.only(None if self.recommender is None else plain_address(self.recommender))


def _passphrase(words: str, *, new: bool = False) -> str:
    """Return the passphrase, from the environment or by a question."""
    if FILE_VARIABLE in os.environ:
        path = Path(os.environ[FILE_VARIABLE])
        lines = read_text(path, "the passphrase").splitlines()
        if not lines or not lines[0]:
            raise ConfigError(f"the first line of {path} is empty; it should be the passphrase")
        return lines[0]
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    if not sys.stdin.isatty():
        raise PrivacyError(
            f"a passphrase is needed: set {VARIABLE} or {FILE_VARIABLE}, or run this in a terminal"
        )
    return str(typer.prompt(words, hide_input=True, confirmation_prompt=new, err=True))


@command
def init(
    target: StoreOptions,
    level: Level = None,
    encrypt: Annotated[bool, option("Seal the file with a passphrase.")] = False,
    name: Annotated[str | None, option("Its name, for yourself.", default="device-...")] = None,
) -> Result:
    """Make a device with keys of its own."""
    from hdpmf.common.protocol.documents import to_base64
    from hdpmf.private.device.state import new_state
    from hdpmf.private.device.state_file import StateFile

    if name is not None and not (1 <= len(name) <= 200 and name.isprintable()):
        raise ConfigError("a name has 1 to 200 printable characters")
    limits = _limits(level or "middle")
    passphrase = _passphrase("New passphrase", new=True) if encrypt else None
    state = new_state(limits, name=name)
    StateFile.create(target.path, state, passphrase).close()
    fields = {
        "store": str(target.path),
        "name": state.name,
        "identity": to_base64(state.signer.public),
        "encrypted": encrypt,
        "limits": _limit_fields(limits),
    }
    sealed = "sealed" if encrypt else "not sealed; --encrypt would do so"
    text: list[Block] = [
        f"Made {target.path} ({sealed}), readable by you only.",
        Paragraph(_limit_words(limits)),
        "A second device of yours has a ledger of its own, and what both send adds up.",
        f"Next: hdpmf device join {target.path} LINK, and hdpmf device rate {target.path} "
        "ITEM VALUE",
    ]
    return Result(fields, text)


@command
def join(
    target: StoreOptions,
    invitation: Annotated[
        str | None, argument("The link of an invitation, or a file with it.", "[LINK]")
    ] = None,
    login: Annotated[
        Path | None, option("A token (JWT) of the recommender's own login, in a file.", "FILE")
    ] = None,
    authority: Annotated[
        Path | None, option("In a trial: the authority of the recommender's certificate.", "FILE")
    ] = None,
    yes: Yes = False,
    once: Annotated[bool, option("Leave when a new model has come.")] = False,
    look: Annotated[bool, option("Look at what is published, once, and leave.")] = False,
    leave: Annotated[
        str | None, option("Leave this recommender: nothing is read or sent any more.", "ADDRESS")
    ] = None,
    every: Annotated[
        float | None, option("How often to look for something new.", "SECONDS", default="300")
    ] = None,
    same_host: SameHost = False,
) -> Result:
    """Join a recommender by its invitation, and take part until interrupted.

    Compare the invitation's digest with its operator, and the servers' with both organisations, in
    a way that does not go through the recommender. Reports leave at moments that depend on no
    rating; the ledger has them before.
    """
    from hdpmf.private.device import joining

    if every is not None and not 1 <= every <= 86_400:
        raise ConfigError("--every takes 1 to 86400 seconds")
    with target.open() as file:
        if leave is not None:
            file.change(lambda state: joining.leave(state, leave))
            words = "What it was sent cannot be recalled; the ledger keeps it."
            return Result({"left": leave}, [f"Left {leave}. {words}"])
        if invitation is not None:
            proof = "" if login is None else read_text(login, "the token").strip()
            issuer = "" if authority is None else read_text(authority, "the authority")
            _join(file, invitation, proof, issuer, yes=yes, same_host=same_host)
        elif login is not None or authority is not None:
            raise ConfigError("--login and --authority go with a LINK")
        if not any(not joined.left for joined in file.load().state.joined):
            raise ConfigError("nobody was joined yet: hdpmf device join STORE LINK")
        file.take_part()
        with _stopped_by_signals() as stop:
            return _take_part(file, stop, once=once, look=look, every=every)


def _join(
    file: StateFile, text: str, login: str, authority: str, *, yes: bool, same_host: bool
) -> None:
    """Pin what an invitation says, once the owner has compared it."""
    from hdpmf.common.protocol.identity import InvitationLink
    from hdpmf.private.device import carrier, joining

    link = InvitationLink.read(text if "://" in text else read_text(Path(text), "the link"))
    invited = carrier.read_invitation(link, authority)
    servers = invited.servers
    named = f"{invited.name} ({invited.address})" if invited.name else invited.address
    note(
        f"{named} invites this device; digest {invited.digest}. Sums by {servers.names}, digest "
        f"{servers.digest}. Both together would see your ratings."
    )
    warn_about_servers(servers)
    known = {each.address for each in file.load().state.joined if not each.left}
    joining.join(file.load().state, invited, same_host=same_host)  # nothing is asked in vain
    if invited.address not in known:
        confirm(
            "Is this what its operator told you in another way?",
            yes=yes,
            otherwise="compare the digest with the recommender's operator, and confirm with --yes",
        )
    proof = login or link.secret
    file.change(lambda state: joining.join(state, invited, proof=proof, same_host=same_host))


def _take_part(
    file: StateFile, stop: threading.Event, *, once: bool, look: bool, every: float | None
) -> Result:
    """Take part until stopped; return what was done."""
    from hdpmf.private.device.carrier import WebCarrier
    from hdpmf.private.device.participant import POLL_EVERY, Participant

    def log(line: str) -> None:
        note(clean(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}"))

    state = before = file.load().state
    carrier = WebCarrier(joined.invitation for joined in state.joined if not joined.left)
    participant = Participant(file, carrier, every=every or POLL_EVERY, log=log)
    while not stop.is_set():
        wait = participant.step()
        state = file.load().state
        if look:
            participant.step()  # what the first one has made
        if look or (once and _models(state) != _models(before)):
            break
        stop.wait(wait)
    lines = len(state.ledger) - len(before.ledger)
    fields = {
        "recommenders": [joined.address for joined in state.joined if not joined.left],
        "promised": lines,
        "model": _models(state) != _models(before),
    }
    news = "a new model is here" if fields["model"] else "no new model came"
    return Result(
        fields,
        [
            f"{lines} report{'' if lines == 1 else 's'} promised; {news}.",
            f"What was sent: hdpmf device ledger {file.path}. What to choose: hdpmf device "
            f"recommend {file.path}",
        ],
    )


def _models(state: State) -> list[str]:
    return [joined.model for joined in state.joined]


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and the first Ctrl-C set; the second Ctrl-C interrupts."""
    stop = threading.Event()
    before: dict[signal.Signals, Callable[..., object] | int | None] = {}

    def end(number: int, frame: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, end)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@command
def rate(
    target: JoinedOptions,
    item: Annotated[str | None, argument("The item's id.", "[ITEM]")] = None,
    value: Annotated[float | None, argument("Your rating of it.", "[VALUE]")] = None,
    weight: Annotated[
        float | None,
        option("How much of ITEM may be sent: 1 (all), less, or 0 (nothing, ever).", "W"),
    ] = None,
    remove: Annotated[bool, option("Remove the rating of ITEM.")] = False,
    file: Annotated[
        Path | None, option("Ratings from a CSV with the columns item and rating.", "FILE")
    ] = None,
    search: Annotated[str | None, option("Print items with TEXT in the title.", "TEXT")] = None,
) -> Result:
    """Add or change a rating: rate STORE ITEM VALUE. Without ITEM, print all. Nothing is sent."""
    from hdpmf.private.device import joining

    if (file is not None) + (search is not None) + (item is not None) > 1:
        raise ConfigError("choose one of: ITEM VALUE, --file FILE, --search TEXT")
    if item is None and (remove or weight is not None):
        raise ConfigError("--weight and --remove go with an ITEM")
    if remove and (value is not None or weight is not None):
        raise ConfigError("--remove goes with an ITEM alone")
    now = int(time.time())
    with target.open() as store:
        state = store.load().state
        joined = target.of(state)
        if search is not None:
            return _found(state, joined, search)
        if file is not None:
            taken = joining.rate_file(state, joined, read_bytes(file, "the file of ratings"), now)
            store.commit(taken.state, store.load().version)
            fields = {"rated": taken.rated, "unknown": taken.unknown, "off_scale": taken.off_scale}
            return Result(
                fields,
                [
                    f"{taken.rated} ratings; left out: {taken.unknown} of items that the catalogue "
                    f"does not have, {taken.off_scale} that are not on the scale. Nothing was sent."
                ],
            )
        if item is None:
            return _own_ratings(state, joined)
        address = joined.address
        if remove:
            state = store.change(lambda old: old.with_rating(address, item, None)).state
        elif value is None and weight is None:
            raise ConfigError("say how you rate it: rate STORE ITEM VALUE")
        else:
            state = store.change(
                lambda old: joining.rate(old, old.of(address), item, value, weight, now)
            ).state
        count = len(state.ratings_of(address))
    done = "Removed. What it was part of stays sent" if remove else "Rated"
    words = f"{done}. This device has {count} ratings of its items; nothing was sent."
    return Result({"item": item, "ratings": count}, [words])


def _own_ratings(state: State, joined: Joined) -> Result:
    from hdpmf.private.device.ledger import WHOLE
    from hdpmf.private.device.public import items_of

    items = items_of(state, joined)
    own = sorted(state.ratings_of(joined.address).items())
    found = [
        {
            "item": item,
            "title": _title(items, item),
            "value": rated.value,
            "weight": rated.weight / WHOLE,
        }
        for item, rated in own
    ]
    rows = [
        (item, f"{rated.value:g}", f"{rated.weight / WHOLE:g}", _title(items, item))
        for item, rated in own
    ]
    columns = ("item", "rating", "weight", "title")
    return Result({"ratings": found}, [Table(columns, rows, numeric=("rating", "weight"))])


def _title(items: Items, item: str) -> str:
    position = items.positions.get(item)
    return items.table.titles[position] if items.table.titles and position is not None else ""


def _found(state: State, joined: Joined, text: str) -> Result:
    from hdpmf.common.protocol.titles import find_titles
    from hdpmf.private.device.public import items_of

    table = items_of(state, joined).table
    places = find_titles(table, text)
    found = [(table.ids[place], table.titles[place] if table.titles else "") for place in places]
    more = len(found) - _MOST_FOUND
    return Result(
        {"items": [{"item": item, "title": title} for item, title in found]},
        [Table(("item", "title"), found[:_MOST_FOUND])],
        notes=[f"{more} more; say more of the title."] if more > 0 else [],
    )


@command
def recommend(target: JoinedOptions, options: ListOptions) -> Result:
    """Print the items that you would soonest choose and like, and the reasons. Nothing is sent."""
    from hdpmf.private.device.lists import OwnModel
    from hdpmf.private.device.public import read_model

    with target.open() as store:
        state = store.load().state
    joined = target.of(state)
    model = OwnModel(state, joined)
    found = model.recommend(options.number, keep_rated=options.keep_rated, only=options.only())
    run = read_model(state.files[joined.model]).run
    return options.result(
        iter([("me", found)]),
        {"run": run},
        alone="me",
        total=1,
        notes=[
            f"From the model of run {run[:8]} and your own ratings, on this device; nothing was "
            "sent."
        ],
    )


@command
def ledger(target: StoreOptions, level: Level = None) -> Result:
    """Show what was sent about you, what that tells at most, and what is left; set the level."""
    from hdpmf.private.device.ledger import MONTH, total
    from hdpmf.private.device.state import changed

    with target.open() as store:
        if level is not None:
            limits = _limits(level)
            store.change(lambda old: changed(old, limits=limits))
        state = store.load().state
    now = int(time.time())
    spent, month = total(state.ledger), total(state.ledger, now - MONTH)
    left = max(0, min(state.limits.life - spent.none, state.limits.month - month.none))
    lines = [
        {
            "at": _at(line.at),
            "recommender": line.recommender,
            "task": line.task,
            "part": line.part,
            "zeros": line.zeros,
            "squared_mu": line.cost.none / _unit(),
        }
        for line in state.ledger
    ]
    fields = {
        "person": _person_fields(spent),
        "limits": _limit_fields(state.limits),
        "left": left / _unit(),
        "lines": lines,
    }
    text: list[Block] = [Paragraph(_person_words(spent)), Paragraph(_limit_words(state.limits))]
    if lines:
        rows = [
            (
                _at(line.at),
                line.recommender,
                line.task[:8],
                line.part,
                "zeros" if line.zeros else f"{line.cost.none / _unit():.4f}",
            )
            for line in state.ledger[-_LAST:]
        ]
        text.append(Table(("at", "recommender", "task", "part", "cost"), rows, numeric=("cost",)))
        if len(lines) > _LAST:
            text.append(f"The last {_LAST} of {len(lines)}; --json has all.")
        text.append(
            "Costs are squares of mu, which add up. Zeros were sent where your limits left no room."
        )
    return Result(fields, text)


def _at(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes")


def _unit() -> int:
    from hdpmf.private.device.ledger import UNIT

    return UNIT


def _limits(level: str) -> Limits:
    from hdpmf.private.device.ledger import LEVELS

    if level not in LEVELS:
        raise ConfigError(f"--level is one of {', '.join(LEVELS)}, not {level!r}")
    return LEVELS[level]


def _limit_fields(limits: Limits) -> dict[str, Any]:
    from hdpmf.private.device.ledger import Cost

    return {
        "life": _person_fields(Cost(limits.life)),
        "month": limits.month / _unit(),
    }


def _limit_words(limits: Limits) -> str:
    from hdpmf.private.device.ledger import Cost, spent_of

    life = spent_of(Cost(limits.life))[0]
    return (
        f"Your limit for your whole life is epsilon {_rounded(life.epsilon())} at delta 1e-5; "
        f"{100 * limits.month / max(limits.life, 1):.0f} % of its square may be spent in 30 days. "
        "What is beyond is answered with zeros, which nobody can tell apart."
    )


def _person_fields(cost: Cost) -> dict[str, Any]:
    from hdpmf.private.device.ledger import spent_of

    none, other = spent_of(cost)
    return {
        "squared_mu": cost.none / _unit(),
        "epsilon": none.epsilon(),
        "delta": 1e-5,
        "guess_right_at_most": none.right,
        "guess_between_histories_right_at_most": other.right,
        "sure_in_at_most": none.sure,
    }


def _person_words(cost: Cost) -> str:
    from hdpmf.common.privacy.accounting.person import sentence
    from hdpmf.private.device.ledger import spent_of

    if not cost.none:
        return "Nothing that tells anything of you was sent."
    none, other = spent_of(cost)
    return f"By everything that was sent, {sentence(none, other)}."


def _rounded(epsilon: float) -> str:
    from hdpmf.common.privacy.accounting.costs import rounded_up

    return rounded_up(epsilon)
