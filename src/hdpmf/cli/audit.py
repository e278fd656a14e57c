"""``hdpmf audit``: attack what methods claim; print lower bounds on epsilon and reconstructed
ratings.
"""

from __future__ import annotations

import json as json_format
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from hdpmf.cli.options.common import (
    DATASET_NAMES,
    Json,
    Seed,
    complete_dataset,
    completion,
    data_option,
    make_folder,
    privacy_option,
    run_option,
    with_option_groups,
)
from hdpmf.cli.options.methods import MethodOptions
from hdpmf.cli.output import hdpmf_version, print_json, print_lines, print_table, progress_bar
from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.lab.audit import AuditResult


@with_option_groups
def servers(
    canaries: Annotated[
        int,
        run_option(
            "--canaries",
            metavar="N",
            help="Ratings of the audited person, each of which is guessed.",
        ),
    ] = 10_000,
    reports: Annotated[
        int,
        run_option(
            "--reports", metavar="N", help="Persons whose shares are looked at, one by one."
        ),
    ] = 2_000,
    epsilon: Annotated[
        float, privacy_option("--epsilon", metavar="E", help="Of the survey.")
    ] = 1.0,
    control: Annotated[
        float,
        privacy_option(
            "--control", metavar="F", help="So much noise has a server that must be caught."
        ),
    ] = 0.5,
    confidence: Annotated[
        float,
        run_option(
            "--confidence",
            metavar="C",
            help="Of each bound: so seldom does a good server fail by chance.",
        ),
    ] = 0.999,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Guess ratings from what the recommender and one of two servers hold: the other's sums, and
    shares of reports.

    All of it is played with faults planted, too: less noise, shares that are not random, proofs
    that hide nothing. The exit status is 1 if what is as it should be does not pass, or what has a
    fault does.
    """
    from hdpmf.lab.audit.game import STANDS
    from hdpmf.lab.audit.two_servers import (
        audit_server_shares,
        audit_server_sums,
        faults_seen_by,
        server_cells,
    )

    if not (0 < control < 1 and 0 < confidence < 1):
        raise ConfigError("--control and --confidence must be above 0 and below 1")
    cells = server_cells(
        canaries=canaries, reports=reports, epsilon=epsilon, confidence=confidence, seed=seed
    )
    rows, documents, failed = [], [], False
    with progress_bar("auditing servers", len(cells)) as advance:
        for done, cell in enumerate(cells):
            advance(done, len(cells))
            sums, planted = (
                audit_server_sums(cell),
                audit_server_sums(replace(cell, noise_factor=control)),
            )
            shares = audit_server_shares(cell)
            faulty = [
                audit_server_shares(replace(cell, fault=fault))
                for fault in faults_seen_by(cell.corrupt)
            ]
            missed = STANDS in (planted.verdict, *(fault.verdict for fault in faulty))
            failed |= missed or (sums.verdict, shares.verdict) != (STANDS, STANDS)
            documents.append(
                {
                    "sums": sums.as_dict(),
                    "control": planted.as_dict(),
                    "shares": shares.as_dict(),
                    "faults": [fault.as_dict() for fault in faulty],
                }
            )
            rows.append(
                (
                    cell.corrupt,
                    f"{cell.adjacency}{', labels' if cell.labels else ''}",
                    f"{sums.epsilon_claimed:g} ({sums.status})",
                    f"{sums.epsilon_lower_bound:.2f}",
                    sums.verdict,
                    f"{planted.epsilon_lower_bound:.2f}",
                    planted.verdict,
                    f"{100 * shares.best.right:.1f} %",
                    shares.verdict,
                    ", ".join(
                        f"{found.audit.fault}: {100 * found.best.right:.0f} %" for found in faulty
                    ),
                )
            )
    if json:
        print_json(
            {
                "results": documents,
                "canaries": canaries,
                "reports": reports,
                "hdpmf_version": hdpmf_version(),
            }
        )
    else:
        less = f"noise x {control:g}"
        print_table(
            (
                "with",
                "of",
                "claimed",
                "at least",
                "verdict",
                less,
                "control",
                "shares",
                "verdict",
                "faults",
            ),
            rows,
            numeric=("at least", less, "shares"),
            title=f"The recommender with one of two servers: {canaries:,} ratings guessed from "
            "sums (bounds hold with "
            f"{100 * confidence:g}% confidence, at most {sums.ceiling:.2f} can be proved), "
            "and one of each of "
            f"{reports:,} persons from shares (a coin is right 50 % of the time, give or take "
            f"{100 * shares.deviation:.1f} %; shown is what was farthest from it)",
        )
    if failed:
        raise typer.Exit(1)


app = typer.Typer(
    help="Try to break what a method claims: bounds on epsilon by attack, and ratings "
    "reconstructed."
)


app.command("servers")(servers)

_ATTACKS = ("reconstruct", "difference", "zero-h")

_Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="METHOD",
        help="Whose claim or messages.",
        autocompletion=completion(METHODS),
    ),
]

_Weight = Annotated[
    float,
    privacy_option(
        "--weight",
        metavar="W",
        help="Privacy weight of the audited rating; its claim is W times epsilon.",
    ),
]

_Epsilon = Annotated[
    float, privacy_option("--epsilon", metavar="E", help="Of every method that has one.")
]


@dataclass(frozen=True)
class TrialOptions:
    """How often, and in which world."""

    runs: Annotated[
        int | None,
        run_option(
            "--runs",
            metavar="N",
            help="Runs of each of the two worlds to measure on; more again choose the test.",
            show_default="10,000; attacks: 1,000",
        ),
    ] = None
    data: Annotated[
        str,
        data_option(
            "--data",
            metavar="NAME",
            help=f"The world: {', '.join(DATASET_NAMES)}.",
            autocompletion=complete_dataset,
        ),
    ] = "synthetic"
    seed: Seed = 0

    def world(self) -> Ratings:
        """The ratings that one rating is changed in."""
        from hdpmf.common.data import load_dataset

        return load_dataset(self.data)


class AttackOptions(MethodOptions):
    """How the attacked method is run."""

    only: ClassVar[tuple[str, ...]] = ("epsilon", "n_factors", "epochs")

    def named(self, method: str) -> dict[str, Any]:
        """What was given, as the audit calls it."""
        given = self.chosen(method)
        return given | ({"factors": given.pop("n_factors")} if "n_factors" in given else {})


class AuditOptions(AttackOptions):
    """How the audited method is run."""

    only = (*AttackOptions.only, "labels")


@app.command("run")
@with_option_groups
def run(
    method: _Method,
    options: AuditOptions,
    trial: TrialOptions,
    view: Annotated[
        str,
        typer.Option(
            "--view", metavar="messages|sums|sums-h-hidden|final", help="What the attacker sees."
        ),
    ] = "messages",
    adjacency: Annotated[
        str,
        typer.Option(
            "--adjacency",
            metavar="value|presence",
            help="What it has to find out: the rating, or whether there is one.",
        ),
    ] = "value",
    weight: _Weight = 1.0,
    delta: Annotated[float, privacy_option("--delta", metavar="D", help="Of the guarantee.")] = 0.0,
    json: Json = False,
) -> None:
    """Guess one rating, lowest or highest, many times; the error rates bound epsilon from below."""
    from hdpmf.lab.audit import Audit, run_audit

    audit = Audit(
        method,
        view,
        runs=10_000 if trial.runs is None else trial.runs,
        weight=weight,
        delta=delta,
        seed=trial.seed,
        adjacency=adjacency,
        **options.named(method),
    )
    world = trial.world()
    with progress_bar(f"auditing {method}, {view}") as advance:
        result = run_audit(audit, world, advance)
    if json:
        print_json(result.as_dict())
        return
    _print_result(result)


@app.command("devices")
@with_option_groups
def devices(
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="Only this one.",
            show_default="all",
            autocompletion=completion(METHODS),
        ),
    ] = None,
    canaries: Annotated[
        int,
        run_option(
            "--canaries",
            metavar="N",
            help="Ratings of the audited device, each of which is guessed.",
        ),
    ] = 4_000,
    epsilon: _Epsilon = 1.0,
    control: Annotated[
        float,
        privacy_option(
            "--control", metavar="F", help="So much of the noise have devices that must be caught."
        ),
    ] = 0.5,
    confidence: Annotated[
        float,
        run_option(
            "--confidence",
            metavar="C",
            help="Of each bound: so seldom does a good device fail by chance.",
        ),
    ] = 0.999,
    answers: Annotated[
        bool,
        run_option("--answers/--no-answers", help="Also compare refusals and sizes of answers."),
    ] = True,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Guess all ratings of a real device agent, as it is and with a fault planted, from what leaves
    it in one run.

    The exit status is 1 if a device as it is does not pass, or one with the fault does.
    """
    from dataclasses import replace

    from hdpmf.lab.audit.devices import answers_alike, audit_devices, device_cells
    from hdpmf.lab.audit.game import STANDS

    if not (0 < control < 1 and 0 < confidence < 1):
        raise ConfigError("--control and --confidence must be above 0 and below 1")
    cells = [
        cell
        for cell in device_cells(
            canaries=canaries, epsilon=epsilon, confidence=confidence, seed=seed
        )
        if method in (None, cell.method)
    ]
    if not cells:
        raise ConfigError(f"{method} has no noise on devices that could be audited")
    rows, documents, failed = [], [], False
    with progress_bar("auditing devices", len(cells)) as advance:
        for done, cell in enumerate(cells):
            advance(done, len(cells))
            result, planted = (
                audit_devices(cell),
                audit_devices(replace(cell, noise_factor=control)),
            )
            alike = answers_alike(cell) if answers else None
            failed |= result.verdict != STANDS or planted.verdict == STANDS or alike is False
            documents.append(
                {"result": result.as_dict(), "control": planted.as_dict(), "answers_alike": alike}
            )
            rows.append(
                (
                    f"{cell.method}{', labels' if cell.labels else ''}",
                    cell.view,
                    cell.adjacency,
                    f"{result.epsilon_claimed:g} ({result.status})",
                    f"{result.epsilon_lower_bound:.2f}",
                    result.verdict,
                    f"{planted.epsilon_lower_bound:.2f}",
                    planted.verdict,
                    {None: "", True: "alike", False: "DIFFERENT"}[alike],
                )
            )
    if json:
        print_json({"results": documents, "canaries": canaries, "hdpmf_version": hdpmf_version()})
    else:
        print_table(
            (
                "method",
                "view",
                "of",
                "made for",
                "at least",
                "verdict",
                f"noise x {control:g}",
                "control",
                "answers",
            ),
            rows,
            numeric=("at least", f"noise x {control:g}"),
            title=f"Real devices, {canaries:,} ratings guessed in one run; bounds hold with "
            f"{100 * confidence:g}% confidence, at most {result.ceiling:.2f} can be proved",
        )
    if failed:
        raise typer.Exit(1)


@app.command("attack")
@with_option_groups
def attack(
    name: Annotated[str, typer.Argument(metavar="|".join(_ATTACKS), help="Which attack.")],
    options: AttackOptions,
    trial: TrialOptions,
    method: _Method = "hdpmf",
    users: Annotated[
        int, typer.Option("--users", metavar="N", help="How many users to attack.")
    ] = 50,
    weight: Annotated[
        float | None,
        privacy_option(
            "--weight",
            metavar="W",
            help="Everybody's privacy weight.",
            show_default="drawn as in the paper",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Reconstruct star ratings from noisy gradients, subtract noise used twice, or ask for
    messages without noise.
    """
    if name not in _ATTACKS:
        raise ConfigError(f"there is no attack {name!r}; choose from {', '.join(_ATTACKS)}")
    from hdpmf.lab.audit import attacks

    settings = attacks.AttackSetting(
        method, weight=weight, seed=trial.seed, **options.named(method)
    )
    runs = 1_000 if trial.runs is None else trial.runs
    with progress_bar(name) as advance:
        result = attacks.run(
            name, settings, trial.world(), users=users, runs=runs, progress=advance
        )
    fields = {
        "attack": name,
        "method": method,
        **asdict(result),
        **asdict(settings),
        "data": trial.data,
    }
    if json:
        print_json(fields)
        return
    print_lines(*attacks.in_words(result))


@app.command("report")
@with_option_groups
def report(
    trial: TrialOptions,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where it goes.")
    ] = Path("out") / "audit",
    epsilon: _Epsilon = 1.0,
    weight: _Weight = 1.0,
    json: Json = False,
) -> None:
    """Audit every method in every view (a quarter of an hour); a figure (audit.png) and all
    numbers (audit.json).
    """
    begin = time.perf_counter()
    make_folder(out)
    from hdpmf.common.base.files import atomic_write
    from hdpmf.lab.audit import cells, run_audit
    from hdpmf.lab.audit.figure import audit_png, row_of

    world = trial.world()
    runs = 10_000 if trial.runs is None else trial.runs
    results = []
    audits = cells(runs, epsilon, weight, trial.seed)
    with progress_bar("auditing", len(audits)) as advance:
        for done, audit in enumerate(audits):
            advance(done, len(audits))
            results.append(run_audit(audit, world))
    subtitle = (
        f"epsilon {epsilon:g}, weight {weight:g}; {runs:,} runs of each world; bounds hold with "
        f"{100 * results[0].confidence:g}% confidence; {world.name}, {world.n_users:,} users"
    )
    document: dict[str, Any] = {
        "results": [result.as_dict() for result in results],
        "data": trial.data,
        "seconds": time.perf_counter() - begin,
        "hdpmf_version": hdpmf_version(),
    }
    atomic_write(out / "audit.png", audit_png(results, subtitle))
    atomic_write(
        out / "audit.json", (json_format.dumps(document, indent=2, allow_nan=False) + "\n").encode()
    )
    if json:
        print_json({**document, "figure": str(out / "audit.png")})
        return
    print_table(
        ("method", "view", "claimed", "at least", "verdict", "claimed for"),
        [
            (
                row_of(result),
                result.view,
                _claimed(result),
                f"{result.epsilon_lower_bound:.2f}",
                result.verdict,
                result.claim_view,
            )
            for result in results
        ],
        numeric=("claimed", "at least"),
        title=f"{subtitle}; at most {results[0].ceiling:.2f} can be proved",
    )
    print_lines(f"figure: {out / 'audit.png'}", f"numbers: {out / 'audit.json'}")


def _claimed(result: AuditResult) -> str:
    if result.epsilon_claimed is None:
        return "none"
    elsewhere = "" if result.claim_covers_view else ", not for this view"
    return f"{result.epsilon_claimed:g} ({result.claim_status}{elsewhere})"


def _print_result(result: AuditResult) -> None:
    print_table(
        ("method", "view", "claimed epsilon", "audited, at least", "verdict"),
        [
            (
                result.method,
                result.view,
                _claimed(result),
                f"{result.epsilon_lower_bound:.3f}",
                result.verdict,
            )
        ],
        numeric=("claimed epsilon", "audited, at least"),
        title=f"{result.data}: one rating of a user with {result.target['ratings_of_user']}, "
        "of an item with "
        f"{result.target['raters_of_item']} raters",
        strong=(0,),
    )
    print_lines(
        f"The bound holds with {100 * result.confidence:g}% confidence: the attack said "
        f"so in {result.power:.2%} of "
        f"{result.runs:,} runs where it was true, and in {result.false_alarms:.2%} "
        "where it was not.",
        f"So many runs can prove at most {result.ceiling:.2f}.",
    )
    if "label" in result.parts:
        print_lines(
            f"With the item summed per label: {result.parts['head']:.3f}; knowing the "
            "device's label as well: "
            f"{result.parts['label']:.3f}."
        )
    elif result.parts:
        print_lines(
            f"From messages about the item alone: {result.parts['direct']:.3f}; from those "
            "about the user's other "
            f"items, through the user's vector: {result.parts['indirect']:.3f}."
        )
    if result.epsilon_claimed is not None:
        covered = "" if result.claim_covers_view else " It was not made for the view of this audit."
        print_lines(
            f"The claim is {result.claim_status.upper()}, against an observer of: "
            f"{result.claim_view}.{covered}"
        )
    print_lines(f"{result.seconds:.1f} s")
