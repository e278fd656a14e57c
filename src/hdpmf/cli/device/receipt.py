"""``hdpmf device receipt``: a document about what left in a run, to keep and to show; and whether one holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hdpmf.cli.device.store import OldCopy, PassphraseFile, StoreOptions
from hdpmf.cli.shared.files import read_bytes
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import print_json, print_lines, print_paragraph
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.device.receipts import LeftBytes, Receipt


def receipt(
    path: Annotated[Path | None, typer.Argument(metavar="[STORE]", help="The device's file.")] = None,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Which run, or how its name begins (hdpmf device ledger).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the signed receipt there, to keep and to show.")
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", metavar="FILE", help="Say whether the signature on a receipt holds.")
    ] = None,
    passphrase_file: PassphraseFile = None,
    old_copy: OldCopy = False,
    json: Json = False,
) -> None:
    """Say what left in a run, who asked, under which terms and what the leader answered, signed by this device."""
    from hdpmf.device.receipts import read_receipt, receipt_of
    from hdpmf.files import atomic_write

    if check is not None:
        if path is not None or out is not None or passphrase_file is not None or old_copy:
            raise ConfigError("--check FILE stands alone: it needs no store")
        found = read_receipt(read_bytes(check, "the receipt"))
    elif path is None or run is None:
        raise ConfigError("give STORE and RUN (hdpmf device ledger STORE lists runs), or --check FILE")
    else:
        if out is not None and out.exists():
            raise ConfigError(f"{out} exists already; choose another name for the receipt")
        with StoreOptions(path, passphrase_file, old_copy).open(moved=True) as store:
            found = receipt_of(store, run)
        if out is not None:
            atomic_write(out, found.to_json(), mode=0o600)
    if json:
        file = check if out is None else out
        print_json({"receipt": found.fields(), "file": None if file is None else str(file), "signature_holds": True})
        return
    if out is not None:
        print_lines(f"Wrote {out}. It holds no rating. Whoever has it: hdpmf device receipt --check {out}")
        return
    for line in _words(found):
        print_paragraph(line)
    if check is not None:
        print_paragraph(
            f"The signature holds: it is of device {found.device}. Compare that with the device's card. {found.proves}"
        )


def _words(found: Receipt) -> list[str]:
    asked, terms = found.asked_by, found.terms
    known = f", known by the authority SHA-256 {', '.join(asked.authority)}" if asked.authority else ""
    lines = [f"Run {found.run}, asked for by {asked.recommender}{known}."]
    if asked.leader is not None and asked.helper is not None:
        pair = " and ".join(f"{server.name} ({server.url})" for server in (asked.leader, asked.helper))
        lines.append(f"Summed by {pair}, digest {asked.servers}.")
    epsilon = "without protection" if terms.epsilon is None else f"epsilon {terms.epsilon:g}"
    others = "" if terms.minimum is None else f", in sums over {terms.minimum} people at least"
    rounds = f"{terms.rounds} round{'s' if terms.rounds != 1 else ''}"
    lines.append(f"Terms: {terms.method}, view {terms.view}, {epsilon}, {rounds}{others}.")
    if terms.catalogue is not None:
        lines.append(f"Catalogue: version {terms.catalogue_version}, digest {terms.catalogue}.")
    if not found.complete:
        lines.append("An older version sent it, which did not write down what bytes left, nor what was answered.")
    lines += [_left_words(piece) for piece in found.left]
    if found.more:
        lines.append(f"And {found.more:,} more, of {found.more_bytes:,} bytes, which are only counted.")
    lines += [f"{entry.at}: {entry.action}. {entry.words}" for entry in found.happened]
    if found.given_back:
        lines.append(f"Given back, because it never left: {100 * found.given_back:.3g} % of the cost.")
    lines.append(f"What it reveals: {found.reveals}")
    return lines


def _left_words(piece: LeftBytes) -> str:
    digest = "in clear, so without a digest: a guess could be checked by it" if piece.sha256 is None else (
        f"SHA-256 {piece.sha256}"
    )  # fmt: skip
    answer = "" if piece.answer is None else f" The leader answered {piece.answer} at {piece.answered}."
    return f"{piece.at}: {piece.size:,} bytes left, number {piece.number}, {digest}.{answer}"
