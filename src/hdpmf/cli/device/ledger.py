"""``hdpmf device ledger``: what was sent, when, to whom, and what it reveals under which assumption."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.privacy.page import percent
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import print_json, print_lines, print_paragraph, print_table
from hdpmf.methods import method_named
from hdpmf.methods.words import MEANING

if TYPE_CHECKING:
    from hdpmf.device.ledger import Entry
    from hdpmf.device.releases import Afterwards
    from hdpmf.methods import Form
    from hdpmf.privacy.accounting import Cost

_SHOWN = 20
_RATERS = 100


@dataclass(frozen=True, slots=True)
class _Run:
    """What happened in one run, and what it costs a rating of weight 1; None where nothing was paid for.

    Attributes:
        afterwards: What the owner did with its ratings since, where anything has left.
    """

    run: str
    entries: Sequence[Entry]
    afterwards: Afterwards | None = None

    @property
    def paid(self) -> Entry | None:
        """The entry with which ratings paid."""
        return next((entry for entry in self.entries if entry.ratings), None)

    @property
    def form(self) -> Form | None:
        """How the method ran."""
        return None if self.paid is None else method_named(self.paid.method).form(bool(self.paid.labels))

    @property
    def cost(self) -> Cost | None:
        """By the accountant."""
        from hdpmf.privacy.accounting import cost

        paid = self.paid
        if paid is None:
            return None
        epsilon = paid.epsilon if math.isfinite(paid.epsilon) else 1.0  # what hides nothing does so at any epsilon
        return cost(
            paid.method, paid.view, n_raters=_RATERS, epsilon=epsilon, rounds=max(paid.rounds, 1),
            factors=max(paid.factors, 1), labels=bool(paid.labels),
        )  # fmt: skip

    def count(self, action: str) -> int:
        """How often something was done."""
        return sum(entry.action == action for entry in self.entries)


@grouped
def ledger(
    target: StoreOptions,
    everything: Annotated[bool, typer.Option("--all", help=f"All entries, not only the last {_SHOWN}.")] = False,
    json: Json = False,
) -> None:
    """Say in plain words what this device has sent, when, to whom, and what that reveals under which assumption."""
    from hdpmf.device.releases import afterwards
    from hdpmf.device.spending import spent_together

    with target.open(moved=True) as store:
        entries, total = store.ledger.entries(), store.ledger.spent_total()
        together, since = spent_together(store.ledger), afterwards(store)
        epsilon, limit, users = store.policy.own_epsilon, store.policy.own_total, store.users
    runs = _runs(entries, since)
    if json:
        print_json(
            {
                "entries": [_fields(entry) for entry in entries],
                "runs": [_run_fields(run) for run in runs],
                "spent_total": total if math.isfinite(total) else None,
                "unprotected": math.isinf(total),
                "spent_together": {
                    "pure_epsilon": together.pure if math.isfinite(together.pure) else None,
                    "epsilon_at_delta": together.at_delta if math.isfinite(together.at_delta) else None,
                    "delta": together.delta,
                    "proved": together.proved,
                },
                "budget_per_rating": epsilon,
            }
        )
        return
    if not entries:
        print_lines("Nothing was ever sent from this device.")
        return
    for run in runs:
        _print_run(run)
    shown = entries if everything else entries[-_SHOWN:]
    title = "Entries, oldest first" + ("" if len(shown) == len(entries) else f" (the last {len(shown)}; --all for all)")
    rows = [
        (entry.at, entry.action, entry.recommender, entry.run[:8], str(entry.number), entry.words) for entry in shown
    ]
    print_table(("when", "what", "with", "run", "round", "in words"), rows, numeric=("round",), title=title)
    whose = "one user" if users == 1 else "the user here who has spent most"
    _paragraph(
        f"In all, the ratings of {whose} have spent {together} together: so much about the person, if all the ratings "
        f"were other ones. {'' if together.proved else 'No guarantee: some of it counts one channel of several. '}A "
        f"single rating of weight 1 may spend epsilon {epsilon:g} in its whole life, whoever asks"
        f"{'' if math.isinf(limit) else f', and all of them {limit:g}'}; when that is spent, this "
        "device sends nothing of it any more. Other devices of yours have ledgers of their own, and what they have "
        "spent comes on top, unless the policy of each says how many they are (devices = 2)."
    )


def _runs(entries: Sequence[Entry], since: Mapping[str, Afterwards]) -> list[_Run]:
    by_run: dict[str, list[Entry]] = {}
    for entry in entries:
        by_run.setdefault(entry.run, []).append(entry)
    return [_Run(run, of_run, since.get(run)) for run, of_run in by_run.items()]


def _print_run(run: _Run) -> None:
    first, last, paid, form, cost = run.entries[0], run.entries[-1], run.paid, run.form, run.cost
    sent, refused = run.count("sent"), run.count("refused")
    when = first.at if first.at == last.at else f"{first.at} to {last.at}"
    print_lines(f"Run {run.run[:8]} with {first.recommender} ({first.method}), {when}")
    if paid is None or form is None or cost is None:
        _paragraph(f"Nothing of your ratings was sent. Refused: {refused}." if refused else "Nothing was sent.")
        return
    claim = method_named(paid.method).claim(paid.view, labels=bool(paid.labels))
    _paragraph(f"Sent {sent} time{'s' if sent != 1 else ''}, for {paid.ratings} ratings. {form.sent}")
    who = "The recommender, and either server alone, see only" if paid.view == "two-servers" else "The recommender sees"
    _paragraph(f"{who} {claim.sees}.")
    if paid.view == "two-servers":
        left = next((entry.words for entry in run.entries if entry.action == "sent"), "nothing, so far")
        _paragraph(f"What has left: {left}.")
    done = "" if run.afterwards is None else run.afterwards.in_words(paid.method)
    if done:
        _paragraph(done)
    _paragraph(f"What that reveals: {_reveals(cost)}")
    _paragraph(f"What it stands on: {MEANING[cost.status]} {cost.reason}")
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
    print_paragraph(text, indent="  ")


def _fields(entry: Entry) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(entry)
    return {name: None if isinstance(value, float) and math.isinf(value) else value for name, value in plain.items()}


def _run_fields(run: _Run) -> dict[str, Any]:
    first, paid, form, cost = run.entries[0], run.paid, run.form, run.cost
    return {
        "run": run.run,
        "recommender": first.recommender,
        "method": first.method,
        "view": first.view,
        "first": first.at,
        "last": run.entries[-1].at,
        "sent": run.count("sent"),
        "refused": run.count("refused"),
        "ratings": 0 if paid is None else paid.ratings,
        "changed_afterwards": 0 if run.afterwards is None else run.afterwards.changed,
        "removed_afterwards": 0 if run.afterwards is None else run.afterwards.removed,
        "leaves_the_device": None if form is None else form.sent,
        "not_protected": None if form is None else form.stays_open,
        "cost": None if cost is None else cost.fields(),
    }
