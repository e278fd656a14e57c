"""The page's parts about the paper: Table III beside its own, the order of methods, Tables I and II."""

from __future__ import annotations

from hdpmf.experiments import Cell
from hdpmf.paper import published
from hdpmf.paper.findings import count_marks, mark_of
from hdpmf.paper.ordering import duels, paper_pairs, reversals, statements
from hdpmf.paper.wishes import table2
from hdpmf.report.content import Content
from hdpmf.report.markup import Child, Html, tag
from hdpmf.report.numbers import METRIC_LABELS, density, four, p_value, percent, plain
from hdpmf.report.pieces import number, section, slug, symbol, table
from hdpmf.report.table_sections import accuracy_table, counts, title_of

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
    numbers = [tag("li", _mark(word), tag("b", f" {count}")) for word, count in count_marks(content).items()]
    lead = (
        "Mean ± standard deviation over the seeds; below each, the paper's number and how ours compares. As in the "
        "paper, bold means that HDPMF is ahead of PDPMF, and stars the confidence of the paired t-test (* 90 %, "
        "** 95 %, *** 99 %). Every number leads to its runs."
    )
    rule = (
        "Reproduced: within the paper's deviation or 5 %. Close: within 10 %. Not comparable: the Yelp sample is not "
        "the paper's Yelp. Errors count test ratings whose user and item were in training, as the paper does. HDP-Sum "
        "and HDP-Bit use the public genres and years of MovieLens' films; without them: table_no_features, below."
    )
    tests = duels(cells)

    def entry(cell: Cell, metric: str) -> list[Child]:
        duel = tests.get((metric, cell.dataset, cell.factors)) if cell.method == "hdpmf" else None
        ours = number(
            cell, metric, strong=duel is not None and duel.gain > 0, stars=0 if duel is None else duel.test.stars
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
    """How a number compares, as sign and word, so that colour is never all there is; short hides the word."""
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
        ours = [f"{better.label} ", number(better, pair.metric), f" < {worse.label} ", number(worse, pair.metric)]
        measure = f"{METRIC_LABELS[pair.metric]}, K = {better.factors}"
        theirs = f"{worse.label} < {better.label}"
        turned.append((better.dataset_title, measure, theirs, ours, p_value(pair.test.p)))
    order: Child = tag("p", "No pair that the paper has an order for changed places.", class_="empty")
    if turned:
        order = table(
            ("Data set", "Measure", "The paper's order", "Here", "Paired t-test"), turned, label="pairs in other order"
        )
    elif not any(paper_pairs(content)):
        order = tag("p", "Not run here on the paper's data sets.", class_="empty")
    return section(
        "order", "Does the paper's order of methods hold?",
        table(
            ("The paper says", "Where", "Here", "Places", "Exceptions"), checks,
            class_="prose statements", label="statements",
        ),
        tag("h3", "Pairs of Table III in another order than the paper's"), order,
        tag("h3", "HDPMF against PDPMF"), _duels(content),
        lead="Sentences of the paper, counted in our numbers. In a place where the first method's mean error is the "
        "smaller one the sentence holds there; whether such a difference is more than chance is what the tests "
        "further down say.",
    )  # fmt: skip


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
    head = ("Data set", "Measure", "HDPMF", "PDPMF", "Error saved by HDPMF", "Two-sided t-test", "Saved in the paper")
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
    for group in table2():
        known = stated.get(group.ratio_name)
        agrees = known is None or abs(known - group.ratio) < 1e-9
        weights = plain(group.low) if group.low == group.high else f"[{plain(group.low)}, {plain(group.high)})"
        names = [symbol(part) if part.isidentifier() else part for part in _split_names(group.weight_name)]
        ratio_names = [symbol(part) if part.isidentifier() else part for part in _split_names(group.ratio_name)]
        rows2.append(
            (group.side, group.group, ratio_names, plain(group.ratio), names, weights,
             "as printed" if agrees else f"paper: {plain(known or 0.0)}")
        )  # fmt: skip
    return section(
        "facts", "Tables I and II: data sets and privacy wishes",
        tag("h3", "Table I, counted, with the paper's slips"), statistics,
        tag("h3", "Table II, from the library's defaults"),
        table(("Side", "Group", "Share", "Value", "Weight", "Range", "Paper"), rows2, label="Table II"),
        tag("p", "The paper's text calls the second share f_mc once; its table calls it f_um.", class_="note"),
    )  # fmt: skip


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
