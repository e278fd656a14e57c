"""``hdpmf recommender status``: devices, runs and alerts, once or repeatedly."""

from __future__ import annotations

import json as json_text
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.options.common import Json
from hdpmf.cli.output import hdpmf_version, print_json, print_lines, print_table
from hdpmf.cli.recommender.trust import task_lines
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.protocol.enrolled import Enrolled
    from hdpmf.untrusted.service.folder import ServiceFolder


def devices_of(enrolled: Enrolled) -> list[dict[str, Any]]:
    """The devices, for JSON."""
    return [
        {"name": card.name, "identity": card.identity, "users": card.users}
        for card in enrolled.cards
    ]


def show_roster(enrolled: Enrolled, *, each: bool = True) -> None:
    """How many devices there are, with the digest that people compare; before it a table of
    them.
    """
    if each and len(enrolled):
        print_table(
            ("device", "identity", "users"),
            [(card.name, card.identity[:16], f"{card.users:,}") for card in enrolled.cards],
            numeric=("users",),
        )
    print_lines(
        f"{len(enrolled)} devices, {enrolled.count_users(enrolled.users):,} users",
        f"digest: {enrolled.digest}",
    )


_EVERY = 2.0


def status(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Look again and again, until interrupted; with --json a line per look."
        ),
    ] = False,
    every: Annotated[
        float | None,
        typer.Option(
            "--every", metavar="SECONDS", help="With --watch: time between looks.", show_default="2"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show what the recommender is doing, its devices, its runs and its alerts."""
    from hdpmf.untrusted.service.folder import ServiceFolder

    if every is not None and not watch:
        raise ConfigError("--every is the time between looks of --watch")
    if every is not None and not 0.1 <= every <= 86_400:
        raise ConfigError(f"--every must be from 0.1 to 86400 seconds, not {every:g}")
    service = ServiceFolder(folder)
    if not watch:
        enrolled, facts = _facts(service)
        if json:
            print_json(facts)
        else:
            _show(enrolled, facts)
        return
    try:
        _watch(service, _EVERY if every is None else every, json=json)
    except KeyboardInterrupt:  # how people end it
        return


def _watch(service: ServiceFolder, every: float, *, json: bool) -> None:
    def looked() -> str:
        enrolled, facts = _facts(service)
        if json:
            return json_text.dumps(
                {**facts, "time": time.time(), "hdpmf_version": hdpmf_version()}, allow_nan=False
            )
        text = StringIO()
        with redirect_stdout(text):
            _show(enrolled, facts, each=False)  # a long roster would push the rest off the screen
        return f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {service.config.name}\n{text.getvalue()}"

    if json or not sys.stdout.isatty():
        _again(every, lambda: print_lines(*looked().splitlines()))
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        _again(every, lambda: live.update(Text(looked()), refresh=True))


def _again(every: float, do: Callable[[], None]) -> None:
    while True:
        do()
        time.sleep(every)


def _facts(service: ServiceFolder) -> tuple[Enrolled, dict[str, Any]]:
    from hdpmf.untrusted.service.run_facts import run_facts
    from hdpmf.untrusted.service.watching import look

    enrolled, seen = service.enrolled, look(service)
    return enrolled, {
        "name": service.config.name,
        "devices": devices_of(enrolled),
        "digest": enrolled.digest,
        "catalogue": _catalogue(service),
        "runs": [run_facts(service, run) for run in service.runs()],
        "state": service.state(),
        "model": str(service.path / "model") if (service.path / "model").exists() else None,
        "alerts": [alert.as_dict() for alert in seen.alerts],
    }


def _show(enrolled: Enrolled, facts: dict[str, Any], *, each: bool = True) -> None:
    from hdpmf.untrusted.service.refusals import refusals_in_words

    runs, state = facts["runs"], facts["state"]
    show_roster(enrolled, each=each)
    catalogue = facts["catalogue"]
    print_lines(
        f"catalogue: version {catalogue['version']}, {catalogue['items']:,} items, "
        f"{catalogue['retired']:,} retired"
    )
    if runs:
        print_lines("")
        print_table(
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
        print_lines(*task_lines(run))
        if run["impossible_numbers"]:
            print_lines(
                f"a device sent wrong numbers in run {run['run'][:12]}; those that cannot be "
                "were clamped"
            )
        for device in run["wrong_shares"]:
            print_lines(
                f"device {device} gave or dealt wrong shares in run {run['run'][:12]}; to take "
                "it off: enroll --remove"
            )
    if state is not None:
        print_lines(
            "", f"last seen doing: {state['stage']} (round {state['number']} of {state['rounds']})"
        )
        # A state that an earlier version wrote counts for the whole process.
        print_lines(
            *refusals_in_words(state.get("refusals_of_run", state["refusals"]))
            or ["refusals: none"]
        )
    for alert in facts["alerts"]:
        print_lines("", f"ALERT ({alert['name']}): {alert['words']}", f"  to do: {alert['todo']}")


def _catalogue(service: ServiceFolder) -> dict[str, Any]:
    from hdpmf.common.protocol.versions import digests_of, number_of, retired_in, table_of

    items = service.items
    return {
        "version": number_of(items),
        "items": len(table_of(items).ids),
        "retired": len(retired_in(items)),
        "digest": digests_of(items)[-1].hex(),
    }
