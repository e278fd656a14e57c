"""The paper's report: its results beside the published numbers."""

from __future__ import annotations

from os import PathLike

from hdpmf.experiments import Experiment
from hdpmf.paper import NAMES
from hdpmf.paper.exports import paper_csv, paper_latex
from hdpmf.paper.findings import count_marks, findings
from hdpmf.paper.headline import headline
from hdpmf.paper.sections import facts_section, order_section, table3_section
from hdpmf.report.chart_sections import chart_data, charts_section
from hdpmf.report.content import Content, read_content
from hdpmf.report.figures import figure_files
from hdpmf.report.honest_section import honest_data, honest_section
from hdpmf.report.list_sections import list_data, lists_section
from hdpmf.report.lists import list_experiments
from hdpmf.report.markup import tag
from hdpmf.report.overview import overview_figure
from hdpmf.report.page import Page
from hdpmf.report.run_sections import environment_section, runs_section, tuning_section
from hdpmf.report.table_sections import claims_section
from hdpmf.report.writer import Written, write_files

TITLE = "HDPMF: the paper's evaluation, run again"

_CAPTIONS = {
    "figure_epsilon_uc": "Conservative users draw their weights from this value up: further right, they ask for less.",
    "figure_f_uc": "Further right, more users are conservative and the guarantees asked for are stronger overall.",
    "figure_sparsity": "Each user keeps this share of the training ratings; one rating per user is the test.",
    "figure_ablation": "HDPMF-R predicts without bringing stretched ratings back to scale.",
    "table_no_features": "In Table III and the other figures HDP-Sum and HDP-Bit use what is public about items, where "
    "a data set has it (genres and years of MovieLens' films). Here they do not.",
    "figure_epsilon": "Nominal and proved budgets share this axis but not their meaning: the legend "
    "says which is which.",
}
_FIGURES = {
    "figure_epsilon_uc": "smallest weight of conservative users",
    "figure_f_uc": "share of conservative users",
    "figure_sparsity": "sparsity",
    "figure_ablation": "ablation",
    "figure_epsilon": "accuracy against epsilon",
}


def write_paper_report(results: str | PathLike[str], out: str | PathLike[str]) -> tuple[Written, dict[str, int]]:
    """Turn the results in a folder into the paper's report (see `hdpmf.report.write_report`).

    Returns:
        What was written, and how many numbers of Table III got each mark.
    """
    content = read_content(results, NAMES)
    figures = figure_files(content, [*charts(content), *list_experiments(content)])
    written = write_files(out, content, paper_page(content), paper_csv(content), paper_latex(content), figures)
    return written, count_marks(content)


def paper_page(content: Content) -> Page:
    """What the page says about the paper."""
    shown = charts(content)
    absent = [
        tag("p", f"Not run here: the figure of {words} ({name}).", class_="empty")
        for name, words in _FIGURES.items()
        if name not in content.experiments
    ]
    data = chart_data(content, shown)
    data["figures"] = [*list_data(content), *honest_data(content), *data["figures"]]
    honest = honest_section(content, "Not run here: it takes the runs of figure_epsilon.")
    return Page(
        kind="hdpmf reproduction report",
        title=TITLE,
        overview=overview_figure(content),
        headline=headline(content),
        findings=findings(content),
        sections={
            "table3": ("Table III", table3_section(content)),
            "lists": ("Lists", lists_section(content)),
            "epsilon": ("What epsilon stands on", claims_section(content)),
            "honest": ("Honest epsilon", honest),
            "order": ("Order of methods", order_section(content)),
            "figures": ("Figures", charts_section(content, shown, _CAPTIONS, *absent)),
            "facts": ("Tables I and II", facts_section(content)),
            "tuning": ("Hyper-parameters", tuning_section(content)),
            "again": ("Run it again", environment_section(content)),
            "runs": ("Runs", runs_section(content)),
        },
        charts=data,
    )


def charts(content: Content) -> list[Experiment]:
    """What is shown as a figure of errors; Table III and lists have sections of their own."""
    experiments = content.experiments.values()
    return [experiment for experiment in experiments if experiment.errors and experiment.name != "table3"]
