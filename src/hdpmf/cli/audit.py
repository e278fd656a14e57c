"""``hdpmf audit``: attack the claims of methods; bounds on epsilon, reconstructed ratings."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from hdpmf.cli.options import (
    DATASET_NAMES,
    DATASETS,
    MethodOptions,
    Seed,
    command,
    data_option,
    make_folder,
    option,
    privacy_option,
    run_option,
)
from hdpmf.cli.output import Block, Result, Table, hdpmf_version
from hdpmf.common.base.progress import progress_bar
from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.lab.audit.game import AuditResult


@dataclass(frozen=True)
class WorldOptions:
    """The data, and the seed of everything that is drawn."""

    data: Annotated[
        str, data_option(f"The data set: {', '.join(DATASET_NAMES)}.", "NAME", words=DATASETS)
    ] = "synthetic"
    seed: Seed = 0

    def world(self) -> Ratings:
        """Return the ratings in which one rating is changed."""
        from hdpmf.common.data import load_dataset

        return load_dataset(self.data)


class AttackOptions(MethodOptions):
    """The options of the audited method."""

    only: ClassVar[tuple[str, ...]] = ("epsilon", "n_factors", "epochs")

    def arguments(self, method: str) -> dict[str, Any]:
        """Return the options given, under the names that audits use."""
        given = self.chosen(method)
        return given | ({"factors": given.pop("n_factors")} if "n_factors" in given else {})


@command
def run(
    options: AttackOptions,
    trial: WorldOptions,
    method: Annotated[
        str | None, option("The method.", "METHOD", default="all, in every view", words=METHODS)
    ] = None,
    runs: Annotated[
        int,
        run_option(
            "Runs of each of the two worlds to measure on; more again choose the test.", "N"
        ),
    ] = 10_000,
    view: Annotated[
        str, option("What the attacker sees.", "messages|sums|sums-h-hidden|final")
    ] = "messages",
    adjacency: Annotated[
        str,
        option(
            "What it has to find out: the rating; whether there is one; of hdp-pairs, too, whether "
            "a person has a history, or which of two.",
            "value|presence|person|exchange",
        ),
    ] = "value",
    weight: Annotated[
        float,
        privacy_option("Privacy weight of the audited rating; its claim is W times epsilon.", "W"),
    ] = 1.0,
    out: Annotated[
        Path, option("Where the numbers of all methods go.", "FILE", "--out", "-o")
    ] = Path("out") / "audit.json",
) -> Result:
    """Guess one rating, lowest or highest, many times; the error rates bound epsilon from below.

    Without --method it audits every method in every view, which takes a quarter of an hour.
    """
    if method is None:
        if options.any:
            raise ConfigError("a method's options need --method; without it all methods run as are")
        return _audit_all(trial, runs, weight, out)
    from hdpmf.lab.audit.game import Audit, run_audit

    audit = Audit(
        method,
        view,
        runs=runs,
        weight=weight,
        seed=trial.seed,
        adjacency=adjacency,
        **options.arguments(method),
    )
    result = run_audit(audit, trial.world())
    return Result(asdict(result), _audit_text(result))


def _audit_all(trial: WorldOptions, runs: int, weight: float, out: Path) -> Result:
    """Audit every method in every view; write a table and a file of numbers."""
    begin = time.perf_counter()
    make_folder(out.parent)
    from hdpmf.common.base.files import atomic_write
    from hdpmf.lab.audit.game import Audit, pairs, run_audit

    world = trial.world()
    audits = [Audit(*pair, runs, weight=weight, seed=trial.seed) for pair in pairs()]
    results = []
    with progress_bar("auditing", len(audits)) as advance:
        for done, audit in enumerate(audits):
            advance(done, len(audits))
            results.append(run_audit(audit, world))
    subtitle = (
        f"epsilon 1, weight {weight:g}; {runs:,} runs of each world; bounds hold with "
        f"{100 * results[0].confidence:g}% confidence; {world.name}, {world.n_users:,} users"
    )
    document: dict[str, Any] = {
        "results": [asdict(result) for result in results],
        "data": trial.data,
        "seconds": time.perf_counter() - begin,
        "hdpmf_version": hdpmf_version(),
    }
    atomic_write(out, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())
    table = Table(
        ("method", "view", "claimed", "at least", "verdict", "claimed for"),
        [
            (
                METHODS[result.method].label,
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
    return Result(document, [table, f"numbers: {out}"])


@command
def reconstruct(
    options: AttackOptions,
    trial: WorldOptions,
    method: Annotated[str, option("The method.", "METHOD", words=METHODS)] = "hdpmf",
    users: Annotated[int, option("How many users to attack.", "N")] = 50,
    weight: Annotated[
        float | None,
        privacy_option("Everybody's privacy weight.", "W", default="drawn as in the paper"),
    ] = None,
) -> Result:
    """Reconstruct star ratings from the noisy gradients of all rounds."""
    from hdpmf.lab.audit.reconstruction import AttackSetting
    from hdpmf.lab.audit.reconstruction import reconstruct as attacked

    setting = AttackSetting(method, weight=weight, seed=trial.seed, **options.arguments(method))
    with progress_bar("reconstructing") as advance:
        found = attacked(setting, trial.world(), users, advance)
    fields = {**asdict(found), **asdict(setting), "data": trial.data}
    return Result(
        fields,
        [
            f"{found.ratings:,} ratings of {found.users} users, from their noisy gradients of all "
            "rounds:",
            f"  this attack:         {found.exact:6.1%} exactly right, RMSE {found.rmse:.3f}",
            f"  the commonest star:  {found.modal_exact:6.1%} exactly right, RMSE "
            f"{found.modal_rmse:.3f}",
            f"  the item's mean:     {found.item_mean_exact:6.1%} exactly right, RMSE "
            f"{found.item_mean_rmse:.3f}",
        ],
    )


def _claimed(result: AuditResult) -> str:
    if result.epsilon_claimed is None:
        return "none"
    elsewhere = "" if result.claim_covers_view else ", not for this view"
    return f"{result.epsilon_claimed:g} ({result.claim_status}{elsewhere})"


def _subject(result: AuditResult) -> str:
    if METHODS[result.method].unit == "person":
        return f"{result.settings['adjacency']}, in a history that is the worst for it"
    return (
        f"one rating of a user with {result.target['ratings_of_user']}, of an item with "
        f"{result.target['raters_of_item']} raters"
    )


def _audit_text(result: AuditResult) -> Iterator[Block]:
    bound = f"{result.epsilon_lower_bound:.3f}"
    yield Table(
        ("method", "view", "claimed epsilon", "audited, at least", "verdict"),
        [(result.method, result.view, _claimed(result), bound, result.verdict)],
        numeric=("claimed epsilon", "audited, at least"),
        title=f"{result.data}: {_subject(result)}",
    )
    yield (
        f"The bound holds with {100 * result.confidence:g}% confidence: the attack said so in "
        f"{result.power:.2%} of {result.runs:,} runs where it was true, and in "
        f"{result.false_alarms:.2%} where it was not."
    )
    yield f"So many runs can prove at most {result.ceiling:.2f}."
    parts = result.parts
    if parts:
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
