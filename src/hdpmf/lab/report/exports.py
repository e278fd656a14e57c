"""Files of a report: the templates' environment, LaTeX (booktabs and multirow) and CSV."""

import base64
import csv
import hashlib
import io
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from inspect import getmembers, isfunction
from typing import Any

import msgspec
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hdpmf.common.privacy.accounting import DELTA
from hdpmf.lab.experiments import Cell, Experiment, Summary
from hdpmf.lab.experiments.store import METRICS
from hdpmf.lab.experiments.summary import Tests, stars_of_best
from hdpmf.lab.report import content as read
from hdpmf.lab.report import overview, tables
from hdpmf.lab.report.content import (
    ALL_LABELS,
    METRIC_LABELS,
    NDCG,
    Content,
    four,
    list_metrics,
    lowest,
)
from hdpmf.lab.report.tables import HONEST_FIGURE, RATERS, Point, points

PACKAGE = "hdpmf.lab.report"

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


@cache
def environment(package: str = PACKAGE) -> Environment:
    """Return the environment of pages, with the templates of a package and of reports."""
    found = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in dict.fromkeys((package, PACKAGE))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    found.tests["finite"] = math.isfinite
    found.globals |= {
        "metrics": METRIC_LABELS,
        "ranking_labels": read.RANKING_LABELS,
        "ndcg": NDCG,
        "honest_figure": HONEST_FIGURE,
        "raters": RATERS,
        "delta": DELTA,
        "zip": zip,
    }
    functions = [*getmembers(read, isfunction), *getmembers(tables, isfunction)]
    found.filters |= {name: one for name, one in functions if one.__module__.startswith(PACKAGE)}
    found.filters |= {
        "csp_hash": _csp_hash,
        "deviating": _deviating,
        "enumerated": enumerate,
        "exact": lambda value: repr(float(value)),
        "metric_label": read.LABELS.get,
        "parameters": tables.parameters_in_words,
        "stars_of_best": stars_of_best,
        "shape": lambda status: overview.SHAPES.get(status, overview.SHAPES["unknown"]),
        "status_words": lambda status: read.STATUS_WORDS.get(status, status),
        "tex": escape,
        "unbroken": _unbroken,
    }
    return found


@cache
def latex_environment(package: str = PACKAGE) -> Environment:
    """Return the environment of LaTeX tables, whose braces are LaTeX's own."""
    return environment(package).overlay(
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        autoescape=False,
        keep_trailing_newline=True,
    )


def asset(name: str) -> str:
    """Return a script or a style."""
    return files(PACKAGE).joinpath("assets", name).read_text(encoding="utf-8")


def escape(text: str) -> str:
    """Escape text for LaTeX; control characters are dropped."""
    return "".join(_SPECIAL.get(char, char) for char in text if char.isprintable())


def _deviating(summary: Summary) -> str:
    """Format a mean with its deviation for LaTeX."""
    deviation = f" $\\pm$ {four(summary.std)}" if math.isfinite(summary.std) else ""
    return four(summary.mean) + deviation


def _csp_hash(source: str) -> str:
    """Return the hash by which a Content-Security-Policy allows one inline script or style.

    It allows exactly this script and this style, and nothing that a name in the results might
    bring along.
    """
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _unbroken(sentence: str) -> str:
    """Keep equations on one line."""
    for sign in (" = ", " < "):
        sentence = sentence.replace(sign, sign.replace(" ", "\u00a0"))
    return sentence.replace(" %", "\u00a0%")


Emphasis = Callable[[Cell, str], tuple[bool, int]]
"""Whether a cell's number for a measure is bold, and its stars."""

LOWEST = "Bold is the lowest error of its data set and K."

_STARS = (
    "$^{***}$: lower than every other method's over all test ratings at the 99\\% confidence "
    "level, by two-sided t-tests paired by user and corrected by Holm; $^{**}$ 95\\%, $^{*}$ 90\\%."
)


def latex_files(content: Content) -> dict[str, bytes]:
    """Return the data sets, and every table with its lowest errors in bold, by file name."""
    files = {"datasets.tex": latex("datasets.tex", content=content)} if content.datasets else {}
    for experiment in error_tables(content):
        cells = content.error_cells(experiment)
        tests = content.tests[experiment.name]
        stars = _STARS if tests else ""
        files |= accuracy_latex(experiment, cells, lowest_bold(cells, tests), LOWEST, stars=stars)
    return files | list_files(content)


def error_tables(content: Content) -> list[Experiment]:
    """Return the experiments that have a table of errors."""
    return [one for one in content.experiments.values() if one.vary is None and one.errors]


def list_files(content: Content) -> dict[str, bytes]:
    """Return the tables of lists, by file name."""
    return {
        f"{one.name}_lists.tex": latex("lists.tex", content=content, experiment=one)
        for one in content.with_lists
    }


def lowest_bold(cells: list[Cell], tests: Tests) -> Emphasis:
    """Emphasize the lowest error of each data set and K, with stars where tests say so."""
    best = lowest(cells, ALL_LABELS | METRIC_LABELS)

    def emphasis(cell: Cell, metric: str) -> tuple[bool, int]:
        bold = (metric, cell.dataset, cell.method, cell.factors) in best
        here = tests.get((cell.dataset, cell.factors), {}) if metric in ALL_LABELS else {}
        tested = here.get(metric.removesuffix("_all"), [])
        return bold, stars_of_best(tested, cell.method) if bold else 0

    return emphasis


def accuracy_latex(
    experiment: Experiment,
    cells: list[Cell],
    emphasis: Emphasis,
    rule: str,
    note: str = "",
    stars: str = "",
) -> dict[str, bytes]:
    """Return tables with methods down, measures and K across: over all test ratings, and warm ones.

    The caption explains what is in the table and nothing else: ``rule`` says what is bold, ``note``
    ends it; ``stars`` are explained where all test ratings count. Where a paper has methods, the
    others have a dagger.
    """
    return {
        f"{experiment.name}{suffix}.tex": latex(
            "accuracy.tex",
            metrics=labels,
            suffix=suffix,
            experiment=experiment,
            cells=cells,
            emphasis=emphasis,
            rule=rule if suffix else f"{rule} {stars}".rstrip(),
            note=note,
            in_paper=bool(experiment.paper_methods),
        )
        for suffix, labels in (("", ALL_LABELS), ("_warm", METRIC_LABELS))
    }


def latex(template: str, package: str = PACKAGE, **facts: Any) -> bytes:
    """Return a table in LaTeX."""
    return latex_environment(package).get_template(template).render(facts).encode()


MoreColumns = Callable[[Cell], dict[str, object]]
"""Further columns of an experiment's file, the same for every cell."""


def csv_files(content: Content, more: Mapping[str, MoreColumns] | None = None) -> dict[str, bytes]:
    """Return files by name; ``more`` are further columns of some experiments, by name."""
    more = more or {}
    files = {
        f"{name}.csv": _cells_csv(content, content.experiments[name], more.get(name))
        for name in content.cells
    }
    files |= {
        f"{name}_tests.csv": _tests_csv(tests) for name, tests in content.tests.items() if tests
    }
    if content.datasets:
        files["datasets.csv"] = _datasets_csv(content)
    if shown := points(content):
        files[f"{HONEST_FIGURE}.csv"] = _honest_csv(shown)
    return files


def _cells_csv(content: Content, experiment: Experiment, more: MoreColumns | None) -> bytes:
    cells = content.cells[experiment.name]
    paper = any(one.paper_methods for one in content.experiments.values())
    chosen = list(dict.fromkeys(key for cell in cells for key in cell.hyperparameters))
    ranked = list_metrics(cells) if experiment.lists else []
    by_seed = [*METRIC_LABELS, *(metric for metric in ranked if metric == NDCG)]
    rows = []
    for cell in cells:
        row: dict[str, object] = {
            name: getattr(cell, name)
            for name in ("experiment", "dataset", "dataset_title", "method", "label")
        }
        if paper:
            row["in_paper"] = str(cell.in_paper).lower()
        row |= {"factors": cell.factors, "x": cell.x, "status": cell.status}
        row |= _summaries(cell, METRICS)
        values = cell.hyperparameters
        row |= {key: read.plain(values[key]) if key in values else None for key in chosen}
        row |= {
            "epsilon": cell.claim and cell.claim.epsilon,
            "epsilon_status": cell.claim and cell.claim.standing,
            "epsilon_view": cell.claim and cell.claim.view,
        }
        row |= (more(cell) if more is not None else {}) | _summaries(cell, ranked)
        runs = dict(itertools.zip_longest(experiment.seeds, cell.run_ids))
        for metric in by_seed:
            for seed, run in runs.items():
                result = content.results.get(run or "")
                row[f"{metric}_seed_{seed}"] = None if result is None else result.metric(metric)
        rows.append(row | {f"run_seed_{seed}": run for seed, run in runs.items()})
    return to_csv(rows)


def _tests_csv(tests: Tests) -> bytes:
    """Return the tests over users of all pairs of methods."""
    return to_csv(
        [
            {"dataset": dataset, "factors": factors, "metric": metric, **asdict(test)}
            for (dataset, factors), by_metric in tests.items()
            for metric, pairs in by_metric.items()
            for test in pairs
        ]
    )


def raw_files(content: Content) -> dict[str, bytes]:
    """Return every measure of every run, a row each, as Parquet and CSV."""
    import polars as pl

    shown: list[tuple[object, ...]] = [
        (cell.experiment, cell.factors, cell.x, seed, None, run)
        for cell in content.all_cells
        for seed, run in zip(content.experiments[cell.experiment].seeds, cell.run_ids, strict=False)
    ]
    for tuned in content.tuned:
        names, _, _, factors, seed = " ".join(tuned.experiments), *tuned.configuration
        for row in tuned.grid:
            shown += [(names, factors, None, seed, *fold) for fold in enumerate(row.run_ids)]
    head = ("experiment", "factors", "x", "seed", "fold", "run")
    rows = [
        {
            **dict(zip(head, place, strict=True)),
            "dataset": result.run.data.name,
            "method": result.run.method,
            "params": msgspec.json.encode(result.run.params, order="sorted").decode(),
            "version": result.version,
            "status": result.status,
            "metric": metric,
            "value": value,
        }
        for place in shown
        for result in content.done([str(place[-1])])
        for metric, value in (result.metrics or {"mse": math.inf}).items()
    ]
    numbers = {"x": pl.Float64, "value": pl.Float64, "seed": pl.Int64, "fold": pl.Int64}
    table = pl.DataFrame(rows, schema_overrides=numbers, infer_schema_length=None)
    parquet = io.BytesIO()
    table.write_parquet(parquet)
    return {"runs.csv": to_csv(rows), "runs.parquet": parquet.getvalue()}


def _summaries(cell: Cell, metrics: Iterable[str]) -> dict[str, object]:
    row: dict[str, object] = {}
    for metric in metrics:
        summary = cell.summary(metric)
        row |= {f"{metric}_mean": summary.mean, f"{metric}_std": summary.std}
    return row


def _datasets_csv(content: Content) -> bytes:
    head = ("title", "users", "items", "ratings", "density")
    return to_csv(
        [
            {"dataset": name, **{key: facts[key] for key in head}}
            for name, facts in content.datasets.items()
        ]
    )


def _honest_csv(shown: Iterable[Point]) -> bytes:
    """Return the numbers of accuracy against honest epsilon."""
    return to_csv(
        [
            {
                "dataset": point.cell.dataset,
                "method": point.cell.method,
                "label": point.cell.label,
                "factors": point.cell.factors,
                # A level has no epsilon of its own: any nominal one gives the same run.
                "nominal_epsilon": None if point.x is None else point.cell.x,
                "view": point.cost.view,
                "honest_epsilon": point.cost.epsilon_at_delta,
                "delta": point.cost.delta,
                "honest_pure_epsilon": point.cost.pure,
                "honest_status": point.cost.status,
                "covers": point.cost.covers,
                "n_raters": RATERS,
                "status": point.cell.status,
                **_summaries(point.cell, METRIC_LABELS),
            }
            for point in shown
        ]
    )


def to_csv(rows: Sequence[Mapping[str, object]]) -> bytes:
    """Return a CSV file with numbers in full; unknown ones are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0] if rows else [])
    writer.writerows([map(_field, row.values()) for row in rows])
    return text.getvalue().encode()


def _field(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    # A spreadsheet would take a name that begins like this for a formula.
    formula = isinstance(value, str) and text[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{text}" if formula else text
