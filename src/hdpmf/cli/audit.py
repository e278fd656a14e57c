"""``hdpmf audit``: attack the claims of methods; bounds on epsilon, reconstructed ratings."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from hdpmf.cli.options.common import (
    DATASET_NAMES,
    Seed,
    argument,
    command,
    data_option,
    make_folder,
    option,
    privacy_option,
    run_option,
)
from hdpmf.cli.options.methods import MethodOptions
from hdpmf.cli.output import Block, Result, Table, command_text, hdpmf_version
from hdpmf.common.base.progress import progress_bar
from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.lab.audit.game import AuditResult

_ATTACKS = ("reconstruct", "difference", "zero-h")
_RUNS = 10_000
_ATTACK_RUNS = 1_000

_Method = Annotated[str, option("The method.", "METHOD", "--method", words=METHODS)]
_Weight = Annotated[
    float,
    privacy_option(
        "Privacy weight of the audited rating; its claim is W times epsilon.", "W", "--weight"
    ),
]
_Epsilon = Annotated[float, privacy_option("Of every method that has one.", "E", "--epsilon")]


@dataclass(frozen=True)
class TrialOptions:
    """The number of runs, and the data."""

    runs: Annotated[
        int | None,
        run_option(
            "Runs of each of the two worlds to measure on; more again choose the test.",
            "N",
            default=f"{_RUNS:,}; attacks: {_ATTACK_RUNS:,}",
        ),
    ] = None
    data: Annotated[
        str, data_option(f"The data set: {', '.join(DATASET_NAMES)}.", "NAME", words=DATASET_NAMES)
    ] = "synthetic"
    seed: Seed = 0

    def world(self) -> Ratings:
        """Return the ratings in which one rating is changed."""
        from hdpmf.common.data import load_dataset

        return load_dataset(self.data)


@dataclass(frozen=True)
class ControlOptions:
    """The budget, the planted fault, and the confidence of bounds."""

    epsilon: _Epsilon = 1.0
    control: Annotated[
        float,
        privacy_option("Share of the noise that the faulty one has, which must be caught.", "F"),
    ] = 0.5
    confidence: Annotated[
        float,
        run_option("Of each bound: a correct one fails by chance with probability 1 - C.", "C"),
    ] = 0.999
    seed: Seed = 0

    def __post_init__(self) -> None:
        if not (0 < self.control < 1 and 0 < self.confidence < 1):
            raise ConfigError("--control and --confidence must be above 0 and below 1")


class AttackOptions(MethodOptions):
    """The options of the attacked method."""

    only: ClassVar[tuple[str, ...]] = ("epsilon", "n_factors", "epochs")

    def arguments(self, method: str) -> dict[str, Any]:
        """Return the options given, under the names that audits use."""
        given = self.chosen(method)
        return given | ({"factors": given.pop("n_factors")} if "n_factors" in given else {})


class AuditOptions(AttackOptions):
    """The options of the audited method."""

    only = (*AttackOptions.only, "labels")


@command
def run(
    method: _Method,
    options: AuditOptions,
    trial: TrialOptions,
    view: Annotated[
        str, option("What the attacker sees.", "messages|sums|sums-h-hidden|final")
    ] = "messages",
    adjacency: Annotated[
        str,
        option("What it has to find out: the rating, or whether there is one.", "value|presence"),
    ] = "value",
    weight: _Weight = 1.0,
    delta: Annotated[float, privacy_option("Of the guarantee.", "D")] = 0.0,
) -> Result:
    """Guess one rating, lowest or highest, many times; the error rates bound epsilon from below."""
    from hdpmf.lab.audit.game import Audit, run_audit

    audit = Audit(
        method,
        view,
        runs=_RUNS if trial.runs is None else trial.runs,
        weight=weight,
        delta=delta,
        seed=trial.seed,
        adjacency=adjacency,
        **options.arguments(method),
    )
    world = trial.world()
    with progress_bar(f"auditing {method}, {view}") as advance:
        result = run_audit(audit, world, advance)
    return Result({**result.as_dict(), **_made()}, _audit_text(result))


@command
def devices(
    options: ControlOptions,
    method: Annotated[
        str | None, option("Only this one.", "METHOD", default="all", words=METHODS)
    ] = None,
    canaries: Annotated[
        int, run_option("Ratings of the audited device, each of which is guessed.", "N")
    ] = 4_000,
    answers: Annotated[
        bool,
        run_option("Also compare refusals and sizes of answers.", None, "--answers/--no-answers"),
    ] = True,
) -> Result:
    """Guess all ratings of a real device agent from what leaves it in one run.

    The same is done to an agent with a fault planted. The exit code is 1 if the correct one does
    not pass, or the faulty one does.
    """
    from hdpmf.lab.audit.canaries import audit_canaries
    from hdpmf.lab.audit.devices import answers_alike, device_cells
    from hdpmf.lab.audit.scores import STANDS

    cells = [
        cell
        for cell in device_cells(
            canaries=canaries,
            epsilon=options.epsilon,
            confidence=options.confidence,
            seed=options.seed,
        )
        if method in (None, cell.method)
    ]
    if not cells:
        raise ConfigError(f"{method} has no noise on devices that could be audited")
    rows = []
    documents = []
    failed = False
    with progress_bar("auditing devices", len(cells)) as advance:
        for done, cell in enumerate(cells):
            advance(done, len(cells))
            result = audit_canaries(cell)
            planted = audit_canaries(replace(cell, noise_factor=options.control))
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
                    *_bound_cells(result, planted),
                    {None: "", True: "alike", False: "DIFFERENT"}[alike],
                )
            )
    less = f"noise x {options.control:g}"
    table = Table(
        ("method", "view", "of", "made for", "at least", "verdict", less, "control", "answers"),
        rows,
        numeric=("at least", less),
        title=f"Real devices, {canaries:,} ratings guessed in one run; bounds hold with "
        f"{100 * options.confidence:g}% confidence, at most {result.ceiling:.2f} can be proved",
    )
    fields = {"results": documents, "canaries": canaries, **_made()}
    return Result(fields, [table], exit_code=int(failed))


@command
def servers(
    options: ControlOptions,
    canaries: Annotated[
        int, run_option("Ratings of the audited person, each of which is guessed.", "N")
    ] = 10_000,
    reports: Annotated[
        int, run_option("Persons whose shares are looked at, one by one.", "N")
    ] = 2_000,
) -> Result:
    """Guess ratings from what the recommender and one of two servers hold together.

    These are the other server's sums, and shares of reports. All of it is played with faults
    planted, too: less noise, shares that are not random, proofs that hide nothing. The exit code is
    1 if what is correct does not pass, or what has a fault does.
    """
    from hdpmf.lab.audit.canaries import audit_canaries
    from hdpmf.lab.audit.scores import STANDS
    from hdpmf.lab.audit.two_servers import audit_server_shares, faults_seen_by, server_cells

    cells = server_cells(
        canaries=canaries,
        reports=reports,
        epsilon=options.epsilon,
        confidence=options.confidence,
        seed=options.seed,
    )
    rows = []
    documents = []
    failed = False
    with progress_bar("auditing servers", len(cells)) as advance:
        for done, cell in enumerate(cells):
            advance(done, len(cells))
            sums = audit_canaries(cell)
            planted = audit_canaries(replace(cell, noise_factor=options.control))
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
                    *_bound_cells(sums, planted),
                    f"{100 * shares.best.right:.1f} %",
                    shares.verdict,
                    ", ".join(
                        f"{found.audit.fault}: {100 * found.best.right:.0f} %" for found in faulty
                    ),
                )
            )
    less = f"noise x {options.control:g}"
    table = Table(
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
        title=f"The recommender with one of two servers: {canaries:,} ratings guessed from sums "
        f"(bounds hold with {100 * options.confidence:g}% confidence, at most {sums.ceiling:.2f} "
        f"can be proved), and one of each of {reports:,} persons from shares (a coin is right 50 % "
        f"of the time, give or take {100 * shares.deviation:.1f} %; shown is what was farthest "
        "from it)",
    )
    fields = {"results": documents, "canaries": canaries, "reports": reports, **_made()}
    return Result(fields, [table], exit_code=int(failed))


def _bound_cells(result: Any, control: Any) -> tuple[str, ...]:
    return (
        f"{result.epsilon_claimed:g} ({result.status})",
        f"{result.epsilon_lower_bound:.2f}",
        result.verdict,
        f"{control.epsilon_lower_bound:.2f}",
        control.verdict,
    )


@command
def attack(
    name: Annotated[str, argument("Which attack.", "|".join(_ATTACKS))],
    options: AttackOptions,
    trial: TrialOptions,
    method: _Method = "hdpmf",
    users: Annotated[int, option("How many users to attack.", "N")] = 50,
    weight: Annotated[
        float | None,
        privacy_option("Everybody's privacy weight.", "W", default="drawn as in the paper"),
    ] = None,
) -> Result:
    """Reconstruct ratings from noisy gradients, subtract noise used twice, or ask for no noise."""
    if name not in _ATTACKS:
        raise ConfigError(f"there is no attack {name!r}; choose from {', '.join(_ATTACKS)}")
    from hdpmf.lab.audit import attacks

    setting = attacks.AttackSetting(
        method, weight=weight, seed=trial.seed, **options.arguments(method)
    )
    runs = _ATTACK_RUNS if trial.runs is None else trial.runs
    with progress_bar(name) as advance:
        result = attacks.run(name, setting, trial.world(), users=users, runs=runs, progress=advance)
    fields = {
        "attack": name,
        "method": method,
        **asdict(result),
        **asdict(setting),
        "data": trial.data,
    }
    return Result(fields, attacks.in_words(result))


@command
def report(
    trial: TrialOptions,
    out: Annotated[Path, option("Where it goes.", "FOLDER", "--out", "-o")] = Path("out") / "audit",
    epsilon: _Epsilon = 1.0,
    weight: _Weight = 1.0,
) -> Result:
    """Audit every method in every view (a quarter of an hour); write audit.png and audit.json."""
    begin = time.perf_counter()
    make_folder(out)
    from hdpmf.common.base.files import atomic_write
    from hdpmf.lab.audit.figure import audit_png, row_of
    from hdpmf.lab.audit.game import cells, run_audit

    world = trial.world()
    runs = _RUNS if trial.runs is None else trial.runs
    audits = cells(runs, epsilon, weight, trial.seed)
    results = []
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
        **_made(),
    }
    figure = out / "audit.png"
    numbers = out / "audit.json"
    atomic_write(figure, audit_png(results, subtitle))
    atomic_write(numbers, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())
    table = Table(
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
    return Result(
        {**document, "figure": str(figure)}, [table, f"figure: {figure}", f"numbers: {numbers}"]
    )


def _made() -> dict[str, str]:
    """Return when an audit was done and by which command, for privacy statements."""
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "command": command_text()}


def _claimed(result: AuditResult) -> str:
    if result.epsilon_claimed is None:
        return "none"
    elsewhere = "" if result.claim_covers_view else ", not for this view"
    return f"{result.epsilon_claimed:g} ({result.claim_status}{elsewhere})"


def _audit_text(result: AuditResult) -> Iterator[Block]:
    bound = f"{result.epsilon_lower_bound:.3f}"
    yield Table(
        ("method", "view", "claimed epsilon", "audited, at least", "verdict"),
        [(result.method, result.view, _claimed(result), bound, result.verdict)],
        numeric=("claimed epsilon", "audited, at least"),
        title=f"{result.data}: one rating of a user with {result.target['ratings_of_user']}, of an "
        f"item with {result.target['raters_of_item']} raters",
        strong=(0,),
    )
    yield (
        f"The bound holds with {100 * result.confidence:g}% confidence: the attack said so in "
        f"{result.power:.2%} of {result.runs:,} runs where it was true, and in "
        f"{result.false_alarms:.2%} where it was not."
    )
    yield f"So many runs can prove at most {result.ceiling:.2f}."
    parts = result.parts
    if "label" in parts:
        yield (
            f"With the item summed per label: {parts['head']:.3f}; knowing the device's label as "
            f"well: {parts['label']:.3f}."
        )
    elif parts:
        yield (
            f"From messages about the item alone: {parts['direct']:.3f}; from those about the "
            f"user's other items, through the user's vector: {parts['indirect']:.3f}."
        )
    if result.epsilon_claimed is not None:
        covered = "" if result.claim_covers_view else " It was not made for the view of this audit."
        yield (
            f"The claim is {result.claim_status.upper()}, against an observer of: "
            f"{result.claim_view}.{covered}"
        )
    yield f"{result.seconds:.1f} s"
