"""``hdpmf recommender status``: devices, runs and alerts, once or repeatedly."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options.common import RecommenderFolder, command, option
from hdpmf.cli.output import Block, Result, Table, emit, plain_text, wants_json
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.protocol.enrolment import Enrolled
    from hdpmf.untrusted.service.folder import ServiceFolder

_EVERY = 2.0


@command
def status(
    folder: RecommenderFolder,
    watch: Annotated[
        bool, option("Look again and again, until interrupted; with --json a line per look.")
    ] = False,
    every: Annotated[
        float | None, option("With --watch: time between looks.", "SECONDS", default="2")
    ] = None,
) -> Result | None:
    """Show what the recommender is doing, its devices, its runs and its alerts."""
    from hdpmf.untrusted.service.folder import ServiceFolder

    if every is not None and not watch:
        raise ConfigError("--every is the time between looks of --watch")
    if every is not None and not 0.1 <= every <= 86_400:
        raise ConfigError(f"--every must be from 0.1 to 86400 seconds, not {every:g}")
    service = ServiceFolder(folder)
    if not watch:
        enrolled, fields = _look(service)
        return Result(fields, _status_text(enrolled, fields))
    with suppress(KeyboardInterrupt):  # how people end it
        _watch(service, _EVERY if every is None else every)
    return None


def device_fields(enrolled: Enrolled) -> list[dict[str, Any]]:
    """Return the devices on the roster, for JSON."""
    return [
        {"name": card.name, "identity": card.identity, "users": card.users}
        for card in enrolled.cards
    ]


def roster_text(enrolled: Enrolled, *, each: bool = True) -> Iterator[Block]:
    """Yield the devices on the roster, their number, and the digest that people compare."""
    if each and len(enrolled):
        rows = [(card.name, card.identity[:16], f"{card.users:,}") for card in enrolled.cards]
        yield Table(("device", "identity", "users"), rows, numeric=("users",))
    yield f"{len(enrolled)} devices, {enrolled.count_users(enrolled.users):,} users"
    yield f"digest: {enrolled.digest}"


def _watch(service: ServiceFolder, every: float) -> None:
    def again(look: Callable[[], None]) -> None:
        while True:
            look()
            time.sleep(every)

    def result() -> Result:
        enrolled, fields = _look(service)
        heading = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {service.config.name}"
        # Without devices: a long roster would push the rest off the screen.
        text = [heading, *_status_text(enrolled, fields, each=False)]
        return Result({**fields, "time": time.time()}, text)

    if wants_json() or not sys.stdout.isatty():
        again(lambda: emit(result(), compact=True))
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        again(lambda: live.update(Text(plain_text(result().text)), refresh=True))


def _look(service: ServiceFolder) -> tuple[Enrolled, dict[str, Any]]:
    from hdpmf.untrusted.service.health import look
    from hdpmf.untrusted.service.progress import run_facts

    enrolled = service.enrolled
    model = service.path / "model"
    return enrolled, {
        "name": service.config.name,
        "devices": device_fields(enrolled),
        "digest": enrolled.digest,
        "catalogue": _catalogue_fields(service),
        "runs": [run_facts(service, run) for run in service.runs()],
        "state": service.state(),
        "model": str(model) if model.exists() else None,
        "alerts": [alert.as_dict() for alert in look(service).alerts],
    }


def _status_text(
    enrolled: Enrolled, fields: dict[str, Any], *, each: bool = True
) -> Iterator[Block]:
    from hdpmf.untrusted.service.refusals import refusals_in_words

    yield from roster_text(enrolled, each=each)
    catalogue = fields["catalogue"]
    yield (
        f"catalogue: version {catalogue['version']}, {catalogue['items']:,} items, "
        f"{catalogue['retired']:,} retired"
    )
    runs = fields["runs"]
    if runs:
        yield ""
        yield Table(
            ("run", "method", "sees", "stage", "rounds", "devices", "users"),
            [
                (
                    run["run"][:12],
                    run["method"],
                    run["view"],
                    run["stage"],
                    f"{run['rounds_done']}/{run['rounds']}",
                    "?" if run["devices"] is None else str(run["devices"]),
                    str(run["users"]),
                )
                for run in runs
            ],
            numeric=("rounds", "devices", "users"),
        )
    for run in runs:
        yield from _run_lines(run)
    state = fields["state"]
    if state is not None:
        yield ""
        yield (f"last seen doing: {state['stage']} (round {state['number']} of {state['rounds']})")
        # A state that an earlier version wrote counts for the whole process.
        refusals = state.get("refusals_of_run", state["refusals"])
        yield from refusals_in_words(refusals) or ["refusals: none"]
    for alert in fields["alerts"]:
        yield ""
        yield f"ALERT ({alert['name']}): {alert['words']}"
        yield f"  to do: {alert['todo']}"


def _run_lines(run: dict[str, Any]) -> Iterator[str]:
    name = run["run"][:12]
    for task in run["tasks"]:
        begin = _date(task["begin"])
        end = _date(task["end"])
        yield f"task {task['id'][:12]} of run {name}: {begin} to {end}, {task['state']}"
    if run["impossible_numbers"]:
        yield f"a device sent wrong numbers in run {name}; those that cannot be were clamped"
    for device in run["wrong_shares"]:
        yield (
            f"device {device} gave or dealt wrong shares in run {name}; to take it off: "
            "enroll --remove"
        )


def _date(when: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))


def _catalogue_fields(service: ServiceFolder) -> dict[str, Any]:
    from hdpmf.common.protocol.catalogue import digests_of, number_of, retired_in, table_of

    items = service.items
    return {
        "version": number_of(items),
        "items": len(table_of(items).ids),
        "retired": len(retired_in(items)),
        "digest": digests_of(items)[-1].hex(),
    }
