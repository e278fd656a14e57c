"""``hdpmf paper``: run the paper's whole evaluation, show its progress, and write the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hdpmf.cli.experiment import (
    ExecutionOptions,
    Fresh,
    ReportFolder,
    Results,
    cell_fields,
    cell_tables,
    report_result,
    run_and_collect,
    run_result,
)
from hdpmf.cli.options.common import DATASET_NAMES, command, data_option, option
from hdpmf.cli.output import Result, note
from hdpmf.errors import DatasetError

if TYPE_CHECKING:
    from hdpmf.lab.experiments import Experiment

_OUT = Path("out") / "paper"
_QUICK_OUT = Path("out") / "paper-quick"


@dataclass(frozen=True)
class PaperOptions:
    """The paper's experiments to run, and the data sets."""

    data: Annotated[
        list[str] | None,
        data_option(
            "Only this data set; repeatable.",
            "NAME",
            default="every one of the paper's that is here",
            words=DATASET_NAMES,
        ),
    ] = None
    experiment: Annotated[
        list[str] | None,
        option("Only this experiment; repeatable.", "NAME", "--experiment", "-e", default="all"),
    ] = None
    quick: Annotated[
        bool, option("A reduced version of everything on ML-100K, in under two minutes.")
    ] = False

    def experiments(self) -> list[Experiment]:
        """Return the experiments on the data sets given, or on those that are here."""
        import msgspec

        from hdpmf.lab import paper
        from hdpmf.lab.experiments import resolve

        experiments = [paper.experiment(name) for name in self.experiment or paper.NAMES]
        if self.quick:
            experiments = [paper.quick(experiment) for experiment in experiments]
        wanted = tuple(dict.fromkeys(self.data)) if self.data else _present(experiments)
        chosen = [
            resolve(msgspec.structs.replace(experiment, datasets=wanted))[0]
            for experiment in experiments
        ]
        if "yelp" in wanted and any("yelp-sample" in each.datasets for each in chosen):
            note(
                "Yelp's official file is not here; the Yelp sample stands in for it and is "
                "labelled so"
            )
        return chosen


@command
def run_paper(
    choice: PaperOptions,
    execution: ExecutionOptions,
    out: Annotated[
        Path | None,
        option(
            "Folder of results; a stopped command continues from there.",
            "FOLDER",
            "--out",
            "-o",
            default=f"{_OUT}, with --quick {_QUICK_OUT}",
        ),
    ] = None,
    fresh: Fresh = None,
) -> Result:
    """Repeat the paper's experiments: cross-validation, five seeds, all cores, resumable."""
    folder = out or (_QUICK_OUT if choice.quick else _OUT)
    experiments = choice.experiments()
    words = ("hdpmf", "paper", "run")
    done, cells = run_and_collect(experiments, folder, execution, fresh, words, asdict(choice))
    fields = {
        "quick": choice.quick,
        "experiments": {name: list(map(cell_fields, found)) for name, found in cells.items()},
    }
    tables = (
        table
        for experiment in experiments
        for table in cell_tables(experiment, cells.get(experiment.name, []))
        if experiment.has_runs
    )
    return run_result(
        folder, done, fields, tables, [one for found in cells.values() for one in found]
    )


@command
def report(out: ReportFolder, results: Results = _OUT) -> Result:
    """Write an HTML page, figures (PNG, PDF), CSV and LaTeX tables, next to the paper's results."""
    from hdpmf.lab.paper.report import write_paper_report

    written, marks = write_paper_report(results, out)
    return report_result(written, results, findings=list(written.findings), marks=marks)


def _present(experiments: Sequence[Experiment]) -> tuple[str, ...]:
    """Return the experiments' data sets that are on this machine; note the others."""
    from hdpmf.common.data import dataset_info
    from hdpmf.lab.experiments.expansion import available

    every = dict.fromkeys(name for experiment in experiments for name in experiment.datasets)
    present = tuple(name for name in every if available(name))
    for name in every:
        if name not in present:
            info = dataset_info(name)
            note(f"without {info.title}, which is not on this machine; {info.how_to_get()}")
    if not present:
        raise DatasetError(
            "none of the paper's data sets is on this machine; run: hdpmf data get ml-100k"
        )
    return present
