"""``hdpmf device ledger``: what was sent, when, to whom, and what it reveals under which assumption."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import print_json, print_lines, print_paragraph, print_table

if TYPE_CHECKING:
    from hdpmf.device.refusals import KeptRefusals

_SHOWN = 20


@grouped
def ledger(
    target: StoreOptions,
    everything: Annotated[bool, typer.Option("--all", help=f"All entries, not only the last {_SHOWN}.")] = False,
    json: Json = False,
) -> None:
    """Say in plain words what this device has sent, when, to whom, what that reveals, and what it has refused."""
    from hdpmf.device.history import past_runs
    from hdpmf.device.refusals import kept_refusals
    from hdpmf.device.spending import spent_together
    from hdpmf.device.what_left import what_left

    with target.open(moved=True) as store:
        if json:
            print_json(what_left(store))
            return
        entries, runs, together = store.ledger.entries(), past_runs(store), spent_together(store.ledger)
        epsilon, limit, users = store.policy.own_epsilon, store.policy.own_total, store.users
        refused = kept_refusals(store)
    if not entries:
        print_lines("Nothing was ever sent from this device.")
        _print_refusals(refused, everything)
        return
    for run in runs:
        first = run.entries[0]
        print_lines(f"Run {run.run[:8]} with {first.recommender} ({first.method}), {run.when}")
        for text in run.words():
            _paragraph(text)
        if run.paid is not None:
            print_lines("")
    shown = entries if everything else entries[-_SHOWN:]
    title = "Entries, oldest first" + ("" if len(shown) == len(entries) else f" (the last {len(shown)}; --all for all)")
    rows = [
        (entry.at, entry.action, entry.recommender, entry.run[:8], str(entry.number), entry.words) for entry in shown
    ]
    print_table(("when", "what", "with", "run", "round", "in words"), rows, numeric=("round",), title=title)
    _print_refusals(refused, everything)
    whose = "one user" if users == 1 else "the user here who has spent most"
    _paragraph(
        f"In all, the ratings of {whose} have spent {together} together: so much about the person, if all the ratings "
        f"were other ones. {'' if together.proved else 'No guarantee: some of it counts one channel of several. '}A "
        f"single rating of weight 1 may spend epsilon {epsilon:g} in its whole life, whoever asks"
        f"{'' if math.isinf(limit) else f', and all of them {limit:g}'}; when that is spent, this "
        "device sends nothing of it any more. Other devices of yours have ledgers of their own, and what they have "
        "spent comes on top, unless the policy of each says how many they are (devices = 2)."
    )
    print_lines(f"A signed receipt of what left in a run: hdpmf device receipt {target.path} RUN")


def _print_refusals(kept: KeptRefusals, everything: bool) -> None:
    """What recommenders asked for and did not get."""
    if not kept.refused:
        return
    shown = kept.refused if everything else kept.refused[-_SHOWN:]
    more = "" if len(shown) == len(kept.refused) else f" (the last {len(shown)}; --all for all)"
    rows = [
        (
            each.last if each.count == 1 else f"{each.first} to {each.last}",
            str(each.count),
            each.recommender,
            each.run[:8],
            f"{each.method} {each.view}, epsilon {each.epsilon:g}" if each.method else "",
            each.reason,
            each.words,
        )
        for each in shown
    ]
    columns = ("when", "times", "with", "run", "asked for", "why", "in words")
    print_table(columns, rows, numeric=("times",), title=f"Refused, oldest first{more}")
    dropped = sum(kept.dropped.values())
    if dropped:
        _paragraph(f"{dropped:,} more were refused, which are not kept one by one.")


def _paragraph(text: str) -> None:
    print_paragraph(text, indent="  ")
