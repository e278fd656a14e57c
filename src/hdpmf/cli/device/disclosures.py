"""``hdpmf device consent``, ``ledger`` and ``receipt``: what runs ask for, what was sent, and
signed receipts of it.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.device.store import OldCopy, PassphraseFile, StoreOptions
from hdpmf.cli.options.common import Json, read_bytes, with_option_groups
from hdpmf.cli.output import print_json, print_lines, print_paragraph, print_table
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.private.device.consent import Asked
    from hdpmf.private.device.disclosures.receipts import LeftBytes, Receipt
    from hdpmf.private.device.disclosures.refusals import KeptRefusals
    from hdpmf.private.device.store.device_store import DeviceStore


@with_option_groups
def consent(
    target: StoreOptions,
    number: Annotated[
        int | None, typer.Argument(metavar="[N]", min=1, help="Which question, as listed.")
    ] = None,
    answer: Annotated[
        str | None, typer.Argument(metavar="[ANSWER]", help="once, always, never, or again.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what runs ask for and what would be sent, or answer: once, always under these terms,
    never; ask me again.
    """
    from hdpmf.private.device.consent import consents, give_answer, pending, take_back

    if (number is None) != (answer is None):
        raise ConfigError("give both, the number of a question and an answer, or neither")
    if answer is not None and answer not in ("once", "always", "never", "again"):
        raise ConfigError("answer once, always, never or again")
    with target.open() as store:
        given = {known.asked.key: known.answer for known in consents(store)}
        asked = [*pending(store, time.time()), *(known.asked for known in consents(store))]
        if number is not None and answer is not None:
            if number > len(asked):
                raise ConfigError(f"there is no question {number}; there are {len(asked)}")
            key = asked[number - 1].key
            if answer == "again":
                take_back(store, key)
            else:
                give_answer(store, key, answer)  # type: ignore[arg-type]  # looked at above
            if json:
                print_json({"question": key, "answer": None if answer == "again" else answer})
            else:
                print_lines(f"Question {number}: {answer}.")
            return
        found = [_fields(store, each, given.get(each.key)) for each in asked]
    if json:
        print_json({"questions": found})
        return
    if not found:
        print_lines("Nobody asks for anything. Questions come where the policy has ask = true.")
    for place, fields in enumerate(found, start=1):
        print_lines(
            f"{place}. {fields['recommender']}: {fields['method']} with epsilon "
            f"{fields['epsilon']:g}"
        )
        print_paragraph(
            f"{fields['ratings']} of your ratings would take part and spend epsilon "
            f"{fields['pays']:.3g} together. "
            f"{fields['leaves_the_device']} {fields['reveals']} What was sent cannot be "
            "taken back.",
            indent="  ",
        )
        print_lines(f"  Your answer: {fields['answer'] or 'none yet'}")


def _fields(store: DeviceStore, asked: Asked, answer: str | None) -> dict[str, Any]:
    from hdpmf.private.device.disclosures.history import reveals
    from hdpmf.private.device.preview import preview_of
    from hdpmf.private.device.store.catalogues import id_of

    found = preview_of(store, asked)
    return {
        "recommender": asked.recommender,
        "servers": asked.names,
        "digest": asked.servers,
        "method": asked.terms.method,
        "view": asked.terms.view,
        "epsilon": asked.terms.epsilon,
        "minimum": asked.terms.minimum,
        "asked": asked.at,
        "answer": answer,
        "ratings": len(found.numbers),
        "left_out": found.left_out,
        "pays": found.pays,
        "leaves_the_device": found.sends,
        "reveals": reveals(found.cost),
        "refused": found.refused or None,
        "numbers": [
            {"item": id_of(number.item), "plain": number.plain, "noised_example": number.noised}
            for number in found.numbers
        ],
    }


_SHOWN = 20


@with_option_groups
def ledger(
    target: StoreOptions,
    everything: Annotated[
        bool, typer.Option("--all", help=f"All entries, not only the last {_SHOWN}.")
    ] = False,
    json: Json = False,
) -> None:
    """Say in plain words what this device has sent, when, to whom, what that reveals, and what
    it has refused.
    """
    from hdpmf.private.device.disclosures.data_export import disclosures
    from hdpmf.private.device.disclosures.history import past_runs, spent_together
    from hdpmf.private.device.disclosures.refusals import kept_refusals

    with target.open(moved=True) as store:
        if json:
            print_json(disclosures(store))
            return
        entries, runs, together = (
            store.ledger.entries(),
            past_runs(store),
            spent_together(store.ledger),
        )
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
    title = "Entries, oldest first" + (
        "" if len(shown) == len(entries) else f" (the last {len(shown)}; --all for all)"
    )
    rows = [
        (entry.at, entry.action, entry.recommender, entry.run[:8], str(entry.number), entry.words)
        for entry in shown
    ]
    print_table(
        ("when", "what", "with", "run", "round", "in words"), rows, numeric=("round",), title=title
    )
    _print_refusals(refused, everything)
    whose = "one user" if users == 1 else "the user here who has spent most"
    _paragraph(
        f"In all, the ratings of {whose} have spent {together} together: so much about "
        "the person, if all the ratings "
        "were other ones. "
        f"{'' if together.proved else 'No guarantee: some of it counts one channel of several. '}A "
        f"single rating of weight 1 may spend epsilon {epsilon:g} in its whole life, whoever asks"
        f"{'' if math.isinf(limit) else f', and all of them {limit:g}'}; when that is spent, this "
        "device sends nothing of it any more. Other devices of yours have ledgers of "
        "their own, and what they have "
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


def receipt(
    path: Annotated[
        Path | None, typer.Argument(metavar="[STORE]", help="The device's file.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="Which run, or how its name begins (hdpmf device ledger)."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write the signed receipt there, to keep and to show."
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check", metavar="FILE", help="Say whether the signature on a receipt holds."
        ),
    ] = None,
    passphrase_file: PassphraseFile = None,
    old_copy: OldCopy = False,
    json: Json = False,
) -> None:
    """Say what left in a run, who asked, under which terms and what the leader answered, signed
    by this device.
    """
    from hdpmf.common.base.files import atomic_write
    from hdpmf.private.device.disclosures.receipts import read_receipt, receipt_of

    if check is not None:
        if path is not None or out is not None or passphrase_file is not None or old_copy:
            raise ConfigError("--check FILE stands alone: it needs no store")
        found = read_receipt(read_bytes(check, "the receipt"))
    elif path is None or run is None:
        raise ConfigError(
            "give STORE and RUN (hdpmf device ledger STORE lists runs), or --check FILE"
        )
    else:
        if out is not None and out.exists():
            raise ConfigError(f"{out} exists already; choose another name for the receipt")
        with StoreOptions(path, passphrase_file, old_copy).open(moved=True) as store:
            found = receipt_of(store, run)
        if out is not None:
            atomic_write(out, found.to_json(), mode=0o600)
    if json:
        file = check if out is None else out
        print_json(
            {
                "receipt": found.fields(),
                "file": None if file is None else str(file),
                "signature_holds": True,
            }
        )
        return
    if out is not None:
        print_lines(
            f"Wrote {out}. It holds no rating. Whoever has it: hdpmf device receipt --check {out}"
        )
        return
    for line in _words(found):
        print_paragraph(line)
    if check is not None:
        print_paragraph(
            f"The signature holds: it is of device {found.device}. Compare that with the "
            f"device's card. {found.proves}"
        )


def _words(found: Receipt) -> list[str]:
    asked, terms = found.asked_by, found.terms
    known = (
        f", known by the authority SHA-256 {', '.join(asked.authority)}" if asked.authority else ""
    )
    lines = [f"Run {found.run}, asked for by {asked.recommender}{known}."]
    if asked.leader is not None and asked.helper is not None:
        pair = " and ".join(
            f"{server.name} ({server.url})" for server in (asked.leader, asked.helper)
        )
        lines.append(f"Summed by {pair}, digest {asked.servers}.")
    epsilon = "without protection" if terms.epsilon is None else f"epsilon {terms.epsilon:g}"
    others = "" if terms.minimum is None else f", in sums over {terms.minimum} people at least"
    rounds = f"{terms.rounds} round{'s' if terms.rounds != 1 else ''}"
    lines.append(f"Terms: {terms.method}, view {terms.view}, {epsilon}, {rounds}{others}.")
    if terms.catalogue is not None:
        lines.append(f"Catalogue: version {terms.catalogue_version}, digest {terms.catalogue}.")
    if not found.complete:
        lines.append(
            "An older version sent it, which did not write down what bytes left, nor what "
            "was answered."
        )
    lines += [_left_words(piece) for piece in found.left]
    if found.more:
        lines.append(
            f"And {found.more:,} more, of {found.more_bytes:,} bytes, which are only counted."
        )
    lines += [f"{entry.at}: {entry.action}. {entry.words}" for entry in found.happened]
    if found.given_back:
        lines.append(
            f"Given back, because it never left: {100 * found.given_back:.3g} % of the cost."
        )
    lines.append(f"What it reveals: {found.reveals}")
    return lines


def _left_words(piece: LeftBytes) -> str:
    digest = (
        "in clear, so without a digest: a guess could be checked by it"
        if piece.sha256 is None
        else (f"SHA-256 {piece.sha256}")
    )
    answer = (
        "" if piece.answer is None else f" The leader answered {piece.answer} at {piece.answered}."
    )
    return f"{piece.at}: {piece.size:,} bytes left, number {piece.number}, {digest}.{answer}"
