"""``hdpmf device ledger``: what was sent, when, to whom, and what it reveals under which assumption."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.device.store import PassphraseFile, StorePath, open_store
from hdpmf.cli.privacy.explain import percent
from hdpmf.cli.shared import options
from hdpmf.cli.shared.output import hdpmf_version, print_json, print_lines, print_table
from hdpmf.methods import method_named
from hdpmf.methods.words import MEANING

if TYPE_CHECKING:
    from hdpmf.device.ledger import Entry
    from hdpmf.privacy.accounting import Cost

_WIDTH = 100
_SHOWN = 20
_RATERS = 100


@dataclass(frozen=True, slots=True)
class _Run:
    """What happened in one run."""

    run: str
    entries: Sequence[Entry]
    cost: Cost | None

    @property
    def paid(self) -> Entry | None:
        """The entry with which ratings paid."""
        return next((one for one in self.entries if one.ratings), None)


def ledger(
    path: StorePath,
    everything: Annotated[bool, typer.Option("--all", help=f"All entries, not only the last {_SHOWN}.")] = False,
    passphrase_file: PassphraseFile = None,
    json: options.Json = False,
) -> None:
    """Say in plain words what this device has sent, when, to whom, and what that reveals under which assumption."""
    with open_store(path, passphrase_file) as store:
        entries, total = store.ledger.entries(), store.ledger.spent_total()
        epsilon, users = store.policy.epsilon, store.users
    runs = _runs(entries)
    if json:
        print_json(
            {
                "entries": [_fields(one) for one in entries],
                "runs": [_run_fields(one) for one in runs],
                "spent_total": total if math.isfinite(total) else None,
                "unprotected": math.isinf(total),
                "budget_per_rating": epsilon,
                "hdpmf_version": hdpmf_version(),
            }
        )
        return
    if not entries:
        print_lines("Nothing was ever sent from this device.")
        return
    for one in runs:
        _print_run(one)
    shown = entries if everything else entries[-_SHOWN:]
    title = "Entries, oldest first" + ("" if len(shown) == len(entries) else f" (the last {len(shown)}; --all for all)")
    rows = [(one.at, one.action, one.recommender, one.run[:8], str(one.number), one.words) for one in shown]
    print_table(("when", "what", "with", "run", "round", "in words"), rows, numeric=("round",), title=title)
    whose = "one user" if users == 1 else "the user here who has spent most"
    spent = "infinitely much (something went out without protection)" if math.isinf(total) else f"epsilon {total:.4g}"
    _paragraph(
        f"In all, the ratings of {whose} have spent {spent}. A single rating of weight 1 may spend epsilon "
        f"{epsilon:g} in its whole life, whoever asks; when that is spent, this device sends nothing of it any more."
    )


def _runs(entries: Sequence[Entry]) -> list[_Run]:
    found: dict[str, list[Entry]] = {}
    for one in entries:
        found.setdefault(one.run, []).append(one)
    return [_Run(run, those, _cost(those)) for run, those in found.items()]


def _cost(entries: Sequence[Entry]) -> Cost | None:
    """What the run costs a rating of weight 1, by the accountant; None where nothing was paid for."""
    from hdpmf.privacy.accounting import cost

    paid = next((one for one in entries if one.ratings), None)
    if paid is None:
        return None
    epsilon = paid.epsilon if math.isfinite(paid.epsilon) else 1.0  # what hides nothing does so at any epsilon
    return cost(
        paid.method, paid.view, n_raters=_RATERS, epsilon=epsilon, rounds=max(paid.rounds, 1),
        factors=max(paid.factors, 1), labels=bool(paid.labels),
    )  # fmt: skip


def _print_run(run: _Run) -> None:
    first, last, paid = run.entries[0], run.entries[-1], run.paid
    sent = sum(one.action == "sent" for one in run.entries)
    refused = sum(one.action == "refused" for one in run.entries)
    when = first.at if first.at == last.at else f"{first.at} to {last.at}"
    print_lines(f"Run {run.run[:8]} with {first.recommender} ({first.method}), {when}")
    if paid is None or run.cost is None:
        _paragraph(f"Nothing of your ratings was sent. Refused: {refused}." if refused else "Nothing was sent.")
        return
    form = method_named(paid.method).form(bool(paid.labels))
    claim = method_named(paid.method).claim(paid.view, labels=bool(paid.labels))
    times = f"{sent} time{'s' if sent != 1 else ''}"
    _paragraph(f"Sent {times}, for {paid.ratings} ratings. {form.sent}")
    _paragraph(f"The recommender sees {claim.sees}.")
    _paragraph(f"What that reveals: {_reveals(run.cost)}")
    _paragraph(f"What it stands on: {MEANING[run.cost.status]} {run.cost.reason}")
    _paragraph(form.stays_open)
    print_lines("")


def _reveals(cost: Cost) -> str:
    if cost.status == "no guarantee":
        return "possibly everything. Nothing keeps the recommender from computing the ratings."
    sure = percent(cost.guess)
    bound = "at most" if cost.status == "proved" else "at least" if cost.guess_is_exact else "about"
    return (
        f"somebody who would guess 50:50 whether one of the ratings was the lowest or the highest is right {bound} "
        f"{sure} of the time after looking, for a rating of weight 1 ({cost.in_numbers()}); less for smaller weights."
    )


def _paragraph(text: str) -> None:
    print_lines(*textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  "))


def _fields(entry: Entry) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(entry)
    return {name: None if isinstance(one, float) and math.isinf(one) else one for name, one in plain.items()}


def _run_fields(run: _Run) -> dict[str, Any]:
    paid = run.paid
    form = None if paid is None else method_named(paid.method).form(bool(paid.labels))
    return {
        "run": run.run,
        "recommender": run.entries[0].recommender,
        "method": run.entries[0].method,
        "view": run.entries[0].view,
        "first": run.entries[0].at,
        "last": run.entries[-1].at,
        "sent": sum(one.action == "sent" for one in run.entries),
        "refused": sum(one.action == "refused" for one in run.entries),
        "ratings": 0 if paid is None else paid.ratings,
        "leaves_the_device": None if form is None else form.sent,
        "not_protected": None if form is None else form.stays_open,
        "cost": None if run.cost is None else run.cost.fields(),
    }
