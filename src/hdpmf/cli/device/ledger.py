"""``hdpmf device ledger``: what was sent, when, to whom, and what it reveals under which assumption."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import print_json, print_lines, print_paragraph, print_table

_SHOWN = 20


@grouped
def ledger(
    target: StoreOptions,
    everything: Annotated[bool, typer.Option("--all", help=f"All entries, not only the last {_SHOWN}.")] = False,
    json: Json = False,
) -> None:
    """Say in plain words what this device has sent, when, to whom, and what that reveals under which assumption."""
    from hdpmf.device.history import history_fields, past_runs
    from hdpmf.device.spending import spent_together

    with target.open(moved=True) as store:
        if json:
            print_json(history_fields(store))
            return
        entries, runs, together = store.ledger.entries(), past_runs(store), spent_together(store.ledger)
        epsilon, limit, users = store.policy.own_epsilon, store.policy.own_total, store.users
    if not entries:
        print_lines("Nothing was ever sent from this device.")
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
    whose = "one user" if users == 1 else "the user here who has spent most"
    _paragraph(
        f"In all, the ratings of {whose} have spent {together} together: so much about the person, if all the ratings "
        f"were other ones. {'' if together.proved else 'No guarantee: some of it counts one channel of several. '}A "
        f"single rating of weight 1 may spend epsilon {epsilon:g} in its whole life, whoever asks"
        f"{'' if math.isinf(limit) else f', and all of them {limit:g}'}; when that is spent, this "
        "device sends nothing of it any more. Other devices of yours have ledgers of their own, and what they have "
        "spent comes on top, unless the policy of each says how many they are (devices = 2)."
    )


def _paragraph(text: str) -> None:
    print_paragraph(text, indent="  ")
