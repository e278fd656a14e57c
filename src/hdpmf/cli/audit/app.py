"""``hdpmf audit``: try to break every claim, and print what the attempt proves."""

from __future__ import annotations

import json as json_format
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.shared import options
from hdpmf.cli.shared.output import hdpmf_version, print_json, print_lines, print_table, progress_bar
from hdpmf.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from hdpmf.audit import AuditResult
    from hdpmf.ratings import Ratings

app = typer.Typer(help="Try to break what a method claims: bounds on epsilon by attack, and ratings reconstructed.")

_ATTACKS = ("reconstruct", "difference", "zero-h")

_Data = Annotated[
    str,
    typer.Option(
        "--data", metavar="NAME", help=f"The world: {', '.join(options.DATASET_NAMES)}.",
        autocompletion=options.complete_dataset, rich_help_panel=options.DATA_PANEL,
    ),
]  # fmt: skip
_Weight = Annotated[
    float,
    typer.Option(
        "--weight", metavar="W", help="Privacy weight of the audited rating; its claim is W times epsilon.",
        rich_help_panel=options.PRIVACY_PANEL,
    ),
]  # fmt: skip
_Delta = Annotated[
    float, typer.Option("--delta", metavar="D", help="Of the guarantee.", rich_help_panel=options.PRIVACY_PANEL)
]
_Runs = Annotated[
    int,
    typer.Option(
        "--runs", metavar="N", help="Runs of each of the two worlds to measure on; more again choose the test.",
        rich_help_panel=options.RUN_PANEL,
    ),
]  # fmt: skip


@app.command("run")
def run(
    method: Annotated[str, typer.Option("--method", metavar="METHOD", help="Whose claim.")],
    view: Annotated[
        str, typer.Option("--view", metavar="messages|sums|sums-h-hidden|final", help="What the attacker sees.")
    ] = "messages",
    adjacency: Annotated[
        str,
        typer.Option(
            "--adjacency",
            metavar="value|presence",
            help="What it has to find out: the rating, or whether there is one.",
        ),
    ] = "value",
    labels: Annotated[bool, typer.Option("--labels", help="hdp-sum by taste labels (sums and final).")] = False,
    runs: _Runs = 10_000,
    data: _Data = "synthetic",
    epsilon: options.Epsilon = 1.0,
    weight: _Weight = 1.0,
    delta: _Delta = 0.0,
    factors: options.Factors = 10,
    epochs: options.Epochs = 100,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Guess one rating, lowest or highest, many times; the error rates bound epsilon from below."""
    from hdpmf.audit import Audit, run_audit

    audit = Audit(method, view, runs, epsilon, weight, factors, epochs, delta, seed, adjacency, labels)
    world = _world(data)
    with progress_bar(f"auditing {method}, {view}") as advance:
        result = run_audit(audit, world, advance)
    if json:
        print_json({**result.as_dict(), "hdpmf_version": hdpmf_version()})
        return
    _print_result(result)


@app.command("attack")
def attack(
    name: Annotated[str, typer.Argument(metavar="|".join(_ATTACKS), help="Which attack.")],
    method: Annotated[str, typer.Option("--method", metavar="METHOD", help="On whose messages.")] = "hdpmf",
    data: _Data = "synthetic",
    users: Annotated[int, typer.Option("--users", metavar="N", help="How many users to attack.")] = 50,
    runs: _Runs = 1_000,
    epsilon: options.Epsilon = 1.0,
    weight: Annotated[
        float | None,
        typer.Option(
            "--weight", metavar="W", help="Everybody's privacy weight.", show_default="drawn as in the paper",
            rich_help_panel=options.PRIVACY_PANEL,
        ),
    ] = None,
    factors: options.Factors = 10,
    epochs: options.Epochs = 100,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Reconstruct star ratings from noisy gradients, subtract noise used twice, or ask for messages without noise."""
    if name not in _ATTACKS:
        raise ConfigError(f"there is no attack {name!r}; choose from {', '.join(_ATTACKS)}")
    from hdpmf.audit import attacks

    settings = attacks.AttackSetting(method, epsilon, weight, factors, epochs, seed)
    with progress_bar(name) as advance:
        result = attacks.run(name, settings, _world(data), users=users, runs=runs, progress=advance)
    fields = {"attack": name, "method": method, **asdict(result), **asdict(settings), "data": data}
    if json:
        print_json({**fields, "hdpmf_version": hdpmf_version()})
        return
    print_lines(*attacks.in_words(result))


@app.command("report")
def report(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where it goes.")] = Path("out") / "audit",
    runs: _Runs = 10_000,
    data: _Data = "synthetic",
    epsilon: options.Epsilon = 1.0,
    weight: _Weight = 1.0,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Audit every method in every view (a quarter of an hour); a figure (audit.png) and all numbers (audit.json)."""
    begin = time.perf_counter()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {out}: {error.strerror}; choose another with --out") from error
    from hdpmf.audit import cells, run_audit
    from hdpmf.audit.figure import audit_png, row_of
    from hdpmf.files import atomic_write

    world = _world(data)
    results = []
    audits = cells(runs, epsilon, weight, seed)
    with progress_bar("auditing", len(audits)) as advance:
        for done, audit in enumerate(audits):
            advance(done, len(audits))
            results.append(run_audit(audit, world))
    subtitle = (
        f"epsilon {epsilon:g}, weight {weight:g}; {runs:,} runs of each world; bounds hold with "
        f"{100 * results[0].confidence:g}% confidence; {world.name}, {world.n_users:,} users"
    )
    document: dict[str, Any] = {
        "results": [one.as_dict() for one in results],
        "data": data,
        "seconds": time.perf_counter() - begin,
        "hdpmf_version": hdpmf_version(),
    }
    atomic_write(out / "audit.png", audit_png(results, subtitle))
    atomic_write(out / "audit.json", (json_format.dumps(document, indent=2, allow_nan=False) + "\n").encode())
    if json:
        print_json({**document, "figure": str(out / "audit.png")})
        return
    print_table(
        ("method", "view", "claimed", "at least", "verdict", "claimed for"),
        [
            (row_of(one), one.view, _claimed(one), f"{one.epsilon_lower_bound:.2f}", one.verdict, one.claim_view)
            for one in results
        ],
        numeric=("claimed", "at least"),
        title=f"{subtitle}; at most {results[0].ceiling:.2f} can be proved",
    )
    print_lines(f"figure: {out / 'audit.png'}", f"numbers: {out / 'audit.json'}")


def _world(name: str) -> Ratings:
    from hdpmf.ratings import load_dataset

    return load_dataset(name)


def _claimed(result: AuditResult) -> str:
    if result.epsilon_claimed is None:
        return "none"
    elsewhere = "" if result.claim_covers_view else ", not for this view"
    return f"{result.epsilon_claimed:g} ({result.claim_status}{elsewhere})"


def _print_result(result: AuditResult) -> None:
    print_table(
        ("method", "view", "claimed epsilon", "audited, at least", "verdict"),
        [(result.method, result.view, _claimed(result), f"{result.epsilon_lower_bound:.3f}", result.verdict)],
        numeric=("claimed epsilon", "audited, at least"),
        title=f"{result.data}: one rating of a user with {result.target['ratings_of_user']}, of an item with "
        f"{result.target['raters_of_item']} raters",
        strong=(0,),
    )
    print_lines(
        f"The bound holds with {100 * result.confidence:g}% confidence: the attack said so in {result.power:.2%} of "
        f"{result.runs:,} runs where it was true, and in {result.false_alarms:.2%} where it was not.",
        f"So many runs can prove at most {result.ceiling:.2f}.",
    )
    if "label" in result.parts:
        print_lines(
            f"With the item summed per label: {result.parts['head']:.3f}; knowing the device's label as well: "
            f"{result.parts['label']:.3f}."
        )
    elif result.parts:
        print_lines(
            f"From messages about the item alone: {result.parts['direct']:.3f}; from those about the user's other "
            f"items, through the user's vector: {result.parts['indirect']:.3f}."
        )
    if result.epsilon_claimed is not None:
        covered = "" if result.claim_covers_view else " It was not made for the view of this audit."
        print_lines(
            f"The claim is {result.claim_status.upper()}, against an observer of: {result.claim_view}.{covered}"
        )
    print_lines(f"{result.seconds:.1f} s")
