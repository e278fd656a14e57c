"""The paper's report: page, CSV files and LaTeX tables beside the published numbers."""

from __future__ import annotations

from os import PathLike

from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.paper import NAMES, published
from hdpmf.lab.paper.findings import count_marks, mark_of, paper_findings, paper_headline
from hdpmf.lab.paper.ordering import duels, paper_pairs, reversals, statements
from hdpmf.lab.paper.published import privacy_groups
from hdpmf.lab.report.charts import (
    chart_data,
    charts_section,
    honest_data,
    honest_section,
    list_data,
    lists_section,
)
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    Content,
    density,
    four,
    list_experiments,
    p_value,
    percent,
    plain,
    read_content,
)
from hdpmf.lab.report.exports import (
    LOWEST,
    Emphasis,
    accuracy_latex,
    csv_files,
    escape,
    list_tables,
    lowest_bold,
    statistics_latex,
    to_csv,
    to_files,
)
from hdpmf.lab.report.figures import figure_files
from hdpmf.lab.report.markup import Child, Html, number, section, slug, symbol, table, tag
from hdpmf.lab.report.overview import overview_figure
from hdpmf.lab.report.page import Page, Written, write_files
from hdpmf.lab.report.tables import (
    accuracy_table,
    claims_section,
    counts,
    environment_section,
    runs_section,
    title_of,
    tuning_section,
)

_BOLD = (
    "Bold number means HDPMF outperforms PDPMF on the average. $^{***}$ means "
    "HDPMF outperforms PDPMF at 99\\% "
    "confidence level in a two-sided paired t-test, $^{**}$ means 95\\%, $^{*}$ means 90\\%."
)

_PUBLIC = (
    "HDP-Sum and HDP-Bit use the public genres and years of MovieLens' films; "
    "without them: table\\_no\\_features."
)


def paper_csv(content: Content) -> dict[str, bytes]:
    """Every experiment, Table III beside the paper's numbers; Tables I and II."""
    tests = duels(content.cells.get("table3", []))

    def beside(cell: Cell) -> dict[str, object]:
        row: dict[str, object] = {}
        for metric in METRIC_LABELS:
            marked = mark_of(cell, metric)
            for field in ("mean", "std", "stars"):
                row[f"paper_{metric}_{field}"] = (
                    None if marked is None else getattr(marked.published, field)
                )
            row[f"{metric}_mark"] = None if marked is None else marked.mark
            duel = (
                tests.get((metric, cell.dataset, cell.factors)) if cell.method == "hdpmf" else None
            )
            row[f"{metric}_p_hdpmf_pdpmf"] = None if duel is None else duel.test.p
            row[f"{metric}_stars"] = None if duel is None else duel.test.stars
        return row

    files = csv_files(content, {"table3": beside})
    if files.pop("datasets.csv", None) is not None:
        files["table1.csv"] = _table1_csv(content)
    head = ("side", "group", "ratio_name", "ratio", "weight_name", "low", "high")
    files["table2.csv"] = to_csv(
        head, [[getattr(row, name) for name in head] for row in privacy_groups()]
    )
    return files


def _table1_csv(content: Content) -> bytes:
    printed = {row.dataset: row for row in published.table1()}
    fields = ("users", "items", "ratings", "density")
    rows = []
    for name, facts in content.datasets.items():
        paper = printed.get(name)
        theirs = [None if paper is None else getattr(paper, field) for field in fields]
        slips = None if paper is None else "; ".join(paper.slips)
        rows.append((name, facts["title"], *(facts[field] for field in fields), *theirs, slips))
    return to_csv(
        ("dataset", "title", *fields, *(f"paper_{field}" for field in fields), "paper_slips"), rows
    )


def paper_latex(content: Content) -> dict[str, bytes]:
    """The tables in the paper's layout."""
    tables = {"table2": _table2_latex()}
    if content.datasets:
        tables["table1"] = statistics_latex(content)
    for name, cells in content.cells.items():
        experiment = content.experiments[name]
        if experiment.kind == "table" and experiment.errors:
            note = _PUBLIC if name == "table3" else ""
            # Only a table with both has something to say about the one against the other.
            emphasis, rule = (
                (_ahead(cells), _BOLD) if duels(cells) else (lowest_bold(cells), LOWEST)
            )
            added = bool(experiment.paper_methods)
            tables[name] = accuracy_latex(experiment, cells, emphasis, rule, note=note, added=added)
    return to_files(tables | list_tables(content))


def _ahead(cells: list[Cell]) -> Emphasis:
    """HDPMF where it is ahead of PDPMF."""
    tests = duels(cells)

    def emphasis(cell: Cell, metric: str) -> tuple[bool, int]:
        duel = tests.get((metric, cell.dataset, cell.factors)) if cell.method == "hdpmf" else None
        return (False, 0) if duel is None else (duel.gain > 0, duel.test.stars)

    return emphasis


def _table2_latex() -> str:
    lines = [
        "\\begin{table}[htbp]",
        "  \\centering",
        "  \\caption{Privacy specification parameters and their default values. con, "
        "mod, lib mean conservative, "
        "moderate and liberal.}",
        "  \\begin{tabular}{llllll}",
        "    \\toprule",
        "    & group & ratio & default & weight & default \\\\",
    ]
    side = ""
    for row in privacy_groups():
        first = ""
        if row.side != side:
            side = row.side
            lines.append("    \\midrule")
            first = f"\\multirow{{3}}{{*}}{{{side}}}"
        weights = plain(row.low) if row.low == row.high else f"[{plain(row.low)},{plain(row.high)})"
        lines.append(
            f"    {first} & {escape(row.group[:3])} & ${_formula(row.ratio_name)}$ & "
            f"${plain(row.ratio)}$ & "
            f"${_formula(row.weight_name)}$ & ${weights}$ \\\\"
        )
    lines += ["    \\bottomrule", "  \\end{tabular}", "  \\label{privacy}", "\\end{table}", ""]
    return "\n".join(lines)


def _formula(text: str) -> str:
    """epsilon_uc as LaTeX has it."""
    words = text.replace("epsilon", "\\epsilon")
    for low in ("uc", "um", "ul", "ic", "im", "il"):
        words = words.replace(f"_{low}", f"_{{{low}}}")
    return words


_SIGNS = {
    "reproduced": "✓",
    "close": "≈",
    "different": "✗",
    "not comparable": "–",
    "diverged": "∞",
    "failed": "!",
    "incomplete": "…",
    "not run": "○",
}


def table3_section(content: Content) -> Html:
    """Table III, ours over the paper's."""
    title = "Table III: accuracy at the default privacy wishes"
    cells = content.cells.get("table3")
    if not cells:
        return section("table3", title, tag("p", "Not run here.", class_="empty"))
    numbers = [
        tag("li", _mark(word), tag("b", f" {count}"))
        for word, count in count_marks(content).items()
    ]
    lead = (
        "Mean ± standard deviation over the seeds; below each, the paper's number and "
        "how ours compares. As in the "
        "paper, bold means that HDPMF is ahead of PDPMF, and stars the confidence of "
        "the paired t-test (* 90 %, "
        "** 95 %, *** 99 %). Every number leads to its runs."
    )
    rule = (
        "Reproduced: within the paper's deviation or 5 %. Close: within 10 %. Not "
        "comparable: the Yelp sample is not "
        "the paper's Yelp. Errors count test ratings whose user and item were in "
        "training, as the paper does. HDP-Sum "
        "and HDP-Bit use the public genres and years of MovieLens' films; without "
        "them: table_no_features, below."
    )
    tests = duels(cells)

    def entry(cell: Cell, metric: str) -> list[Child]:
        duel = tests.get((metric, cell.dataset, cell.factors)) if cell.method == "hdpmf" else None
        ours = number(
            cell,
            metric,
            strong=duel is not None and duel.gain > 0,
            stars=0 if duel is None else duel.test.stars,
        )
        compared = mark_of(cell, metric)
        if compared is None:
            return [tag("div", ours, " ")]
        paper = compared.published
        stars = tag("sup", "*" * paper.stars, class_="stars") if paper.stars else None
        theirs = tag("div", f"paper {four(paper.mean)} ± {four(paper.std)}", stars, class_="theirs")
        return [tag("div", ours, " ", _mark(compared.mark, short=True)), theirs]

    return section(
        "table3", title,
        tag("ul", numbers, class_="counts", aria_label="how many numbers got each mark"),
        accuracy_table(content, content.experiments["table3"], entry),
        tag("p", rule, class_="note"),
        lead=lead,
    )  # fmt: skip


def _mark(word: str, *, short: bool = False) -> Html:
    """How a number compares, as sign and word, so that colour is never all there is; short hides
    the word.
    """
    text = tag("span", word, class_="hidden" if short else None)
    sign = tag("span", _SIGNS[word], aria_hidden="true")
    return tag("span", sign, " ", text, class_=f"mark {slug(word)}", title=word if short else None)


def order_section(content: Content) -> Html:
    """Where the paper's order does not hold."""
    checks = [
        (
            statement.text,
            statement.where,
            tag("span", statement.verdict, class_=f"verdict {slug(statement.verdict)}"),
            f"{statement.holds} of {statement.places}" if statement.places else "–",
            _exceptions(statement.exceptions),
        )
        for statement in statements(content)
    ]
    turned = []
    for pair in reversals(content):
        better, worse = pair.better, pair.worse
        ours = [
            f"{better.label} ",
            number(better, pair.metric),
            f" < {worse.label} ",
            number(worse, pair.metric),
        ]
        measure = f"{METRIC_LABELS[pair.metric]}, K = {better.factors}"
        theirs = f"{worse.label} < {better.label}"
        turned.append((better.dataset_title, measure, theirs, ours, p_value(pair.test.p)))
    order: Child = tag(
        "p", "No pair that the paper has an order for changed places.", class_="empty"
    )
    if turned:
        order = table(
            ("Data set", "Measure", "The paper's order", "Here", "Paired t-test"),
            turned,
            label="pairs in other order",
        )
    elif not any(paper_pairs(content)):
        order = tag("p", "Not run here on the paper's data sets.", class_="empty")
    return section(
        "order",
        "Does the paper's order of methods hold?",
        table(
            ("The paper says", "Where", "Here", "Places", "Exceptions"),
            checks,
            class_="prose statements",
            label="statements",
        ),
        tag("h3", "Pairs of Table III in another order than the paper's"),
        order,
        tag("h3", "HDPMF against PDPMF"),
        _duels(content),
        lead="Sentences of the paper, counted in our numbers. In a place where the first "
        "method's mean error is the "
        "smaller one the sentence holds there; whether such a difference is more than "
        "chance is what the tests "
        "further down say.",
    )


def _exceptions(places: tuple[str, ...]) -> Child:
    shown = [tag("div", place) for place in places]
    if len(places) <= 3:
        return shown
    return tag("details", tag("summary", f"{len(places)} places"), shown)


def _duels(content: Content) -> Html:
    tests = duels(content.cells.get("table3", []))
    if not tests:
        return tag("p", "Not run here.", class_="empty")
    rows = [
        (
            duel.first.dataset_title,
            f"{METRIC_LABELS[duel.metric]}, K = {duel.first.factors}",
            number(duel.first, duel.metric),
            number(duel.second, duel.metric),
            percent(duel.gain),
            tag("span", p_value(duel.test.p), " ", tag("sup", "*" * duel.test.stars)),
            "–" if duel.paper_gain is None else tag(
                "span", percent(duel.paper_gain), tag("sup", "*" * duel.paper_stars),
                None if duel.comparable else tag("span", " other data", class_="partial"),
            ),
        )
        for duel in tests.values()
    ]  # fmt: skip
    head = (
        "Data set",
        "Measure",
        "HDPMF",
        "PDPMF",
        "Error saved by HDPMF",
        "Two-sided t-test",
        "Saved in the paper",
    )
    return table(head, rows, label="HDPMF against PDPMF", numeric=2)


def facts_section(content: Content) -> Html:
    """Tables I and II."""
    printed = {row.dataset: row for row in published.table1()}
    rows: list[tuple[Child, ...]] = []
    for name, facts in content.datasets.items():
        row = printed.get("yelp" if name == "yelp-sample" else name)
        here = tag("span", title_of(content, name), " ", tag("span", "here", class_="partial"))
        rows.append((here, *counts(facts), ""))
        if row is None:
            continue
        theirs = [f"{row.users:,}", f"{row.items:,}", f"{row.ratings:,}", density(row.density)]
        notes = [tag("div", slip, class_="slip") for slip in row.slips]
        if name == "yelp-sample":
            notes.append(tag("div", "the paper's whole Yelp, which the Yelp sample is not"))
        rows.append((tag("span", "in the paper", class_="inpaper"), *theirs, notes))
    statistics: Child = tag("p", "Not run here.", class_="empty")
    if rows:
        heads = ("Data set", "Users", "Items", "Ratings", "Density", "Slips in the paper's table")
        statistics = table(heads, rows, class_="facts", label="Table I")
    stated = published.table2()
    rows2 = []
    for group in privacy_groups():
        known = stated.get(group.ratio_name)
        agrees = known is None or abs(known - group.ratio) < 1e-9
        weights = (
            plain(group.low)
            if group.low == group.high
            else f"[{plain(group.low)}, {plain(group.high)})"
        )
        names = [
            symbol(part) if part.isidentifier() else part
            for part in _split_names(group.weight_name)
        ]
        ratio_names = [
            symbol(part) if part.isidentifier() else part for part in _split_names(group.ratio_name)
        ]
        rows2.append(
            (group.side, group.group, ratio_names, plain(group.ratio), names, weights,
             "as printed" if agrees else f"paper: {plain(known or 0.0)}")
        )  # fmt: skip
    return section(
        "facts",
        "Tables I and II: data sets and privacy wishes",
        tag("h3", "Table I, counted, with the paper's slips"),
        statistics,
        tag("h3", "Table II, from the library's defaults"),
        table(
            ("Side", "Group", "Share", "Value", "Weight", "Range", "Paper"), rows2, label="Table II"
        ),
        tag(
            "p",
            "The paper's text calls the second share f_mc once; its table calls it f_um.",
            class_="note",
        ),
    )


def _split_names(text: str) -> list[str]:
    """The names in a formula, and what is between them."""
    parts: list[str] = []
    for char in text:
        name = char.isalnum() or char == "_"
        if parts and name == (parts[-1][-1].isalnum() or parts[-1][-1] == "_"):
            parts[-1] += char
        else:
            parts.append(char)
    return parts


TITLE = "HDPMF: the paper's evaluation, run again"

_CAPTIONS = {
    "figure_epsilon_uc": "Conservative users draw their weights from this value up: further "
    "right, they ask for less.",
    "figure_f_uc": "Further right, more users are conservative and the guarantees asked for are "
    "stronger overall.",
    "figure_sparsity": "Each user keeps this share of the training ratings; one rating per user "
    "is the test.",
    "figure_ablation": "HDPMF-R predicts without bringing stretched ratings back to scale.",
    "table_no_features": "In Table III and the other figures HDP-Sum and HDP-Bit use what is "
    "public about items, where "
    "a data set has it (genres and years of MovieLens' films). Here they do not.",
    "figure_epsilon": "Nominal and proved budgets share this axis but not their meaning: the "
    "legend "
    "says which is which.",
}

_FIGURES = {
    "figure_epsilon_uc": "smallest weight of conservative users",
    "figure_f_uc": "share of conservative users",
    "figure_sparsity": "sparsity",
    "figure_ablation": "ablation",
    "figure_epsilon": "accuracy against epsilon",
}


def write_paper_report(
    results: str | PathLike[str], out: str | PathLike[str]
) -> tuple[Written, dict[str, int]]:
    """Turn the results in a folder into the paper's report (see `hdpmf.lab.report.write_report`).

    Returns:
        What was written, and how many numbers of Table III got each mark.
    """
    content = read_content(results, NAMES)
    figures = figure_files(content, [*charts(content), *list_experiments(content)])
    written = write_files(
        out, content, paper_page(content), paper_csv(content), paper_latex(content), figures
    )
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
        headline=paper_headline(content),
        findings=paper_findings(content),
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
    return [
        experiment
        for experiment in experiments
        if experiment.errors and experiment.name != "table3"
    ]
