"""The page's tables: I, II, III, what each epsilon stands on, and the order of methods."""

from __future__ import annotations

from hdpmf.experiments import Cell, published, table2
from hdpmf.experiments.store import Claim
from hdpmf.models import METHODS
from hdpmf.privacy.accounting import DELTA
from hdpmf.report.content import Content, list_metrics
from hdpmf.report.findings import count_marks, mark_of
from hdpmf.report.honest import RATERS, cost_range, view_words
from hdpmf.report.markup import Child, Html, tag
from hdpmf.report.numbers import METRIC_LABELS, RANKING_LABELS, density, four, p_value, percent, plain
from hdpmf.report.ordering import Duel, duels, paper_pairs, reversals, statements
from hdpmf.report.pieces import claim_chip, mark, number, scroller, section, symbol, table


def table3_section(content: Content) -> Html:
    """Table III, ours over the paper's."""
    title = "Table III: accuracy at the default privacy wishes"
    cells = content.cells.get("table3")
    if not cells:
        return section("table3", title, tag("p", "Not run here.", class_="empty"))
    counts = [tag("li", mark(word), tag("b", f" {count}")) for word, count in count_marks(content).items()]
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
    lists = (
        "Right of the errors (deviations are in the CSV file): NDCG, recall and coverage of the ten items that a user "
        "would be shown first; larger is better. Ranked is every item with a training rating that the user has not "
        "rated, by predicted rating; relevant are test ratings in the top quarter of the scale (4 and 5 stars), and "
        "users without one are left out; coverage is the share of items in anybody's ten. No lists: the method "
        "predicts the same for every item."
    )
    return section(
        "table3", title,
        tag("ul", counts, class_="counts", aria_label="how many numbers got each mark"),
        scroller(_table3(content, cells), "Table III"),
        tag("p", rule, class_="note"),
        tag("p", lists if list_metrics(cells) else "Lists of ten were not measured in these runs.", class_="note"),
        lead=lead,
    )  # fmt: skip


def _lists(cell: Cell, metric: str) -> Html:
    if metric in cell.metrics and cell.metrics[metric].values:
        return number(cell, metric, narrow=True)
    # A method of the user's own may not be known here any more.
    same = cell.method in METHODS and not METHODS[cell.method].model.can_rank
    why = "predicts the same for every item" if same else "the store has no such numbers of these runs"
    return tag("span", "no lists" if same else "not measured", class_="partial", title=why)


def _table3(content: Content, cells: list[Cell]) -> Html:
    factors = list(dict.fromkeys(cell.factors for cell in cells))
    columns = [(metric, k) for metric in METRIC_LABELS for k in factors]
    tests = {(one.metric, one.first.dataset, one.first.factors): one for one in duels(content)}
    groups = [
        tag("th", METRIC_LABELS[metric], colspan=len(factors), scope="colgroup", class_="group", data_metric=metric)
        for metric in METRIC_LABELS
    ]
    heads = [tag("th", f"K = {k}", scope="col", data_metric=metric, data_k=k) for metric, k in columns]
    lists = list_metrics(cells)
    groups += [
        tag("th", RANKING_LABELS[metric], colspan=len(factors), scope="colgroup", class_="group", data_list=metric)
        for metric in lists
    ]
    heads += [tag("th", f"K = {k}", scope="col", data_list=metric, data_k=k) for metric in lists for k in factors]
    head = tag("thead", tag("tr", tag("th", "Method", scope="col", rowspan=2), groups), tag("tr", heads))
    width = 1 + len(heads)
    bodies = []
    for dataset, title in content.dataset_titles.items():
        here = [cell for cell in cells if cell.dataset == dataset]
        if not here:
            continue
        caption = tag("tr", tag("th", title, colspan=width, scope="rowgroup"), class_="dataset")
        methods = dict.fromkeys(cell.method for cell in here)
        rows = [_row3(method, here, columns, lists, tests) for method in methods]
        bodies.append(tag("tbody", caption, rows, data_dataset=dataset))
    return tag("table", head, bodies, class_="wide", id="table3-table")


def _row3(
    method: str,
    cells: list[Cell],
    columns: list[tuple[str, int]],
    lists: list[str],
    tests: dict[tuple[str, str, int], Duel],
) -> Html:
    mine = {cell.factors: cell for cell in cells if cell.method == method}
    first = next(iter(mine.values()))
    entries: list[Child] = []
    for metric, k in columns:
        cell = mine.get(k)
        if cell is None:
            entries.append(tag("td", "–", data_metric=metric, data_k=k))
            continue
        duel = tests.get((metric, cell.dataset, k)) if method == "hdpmf" else None
        ours = number(
            cell, metric, strong=duel is not None and duel.gain > 0, stars=0 if duel is None else duel.test.stars
        )
        compared = mark_of(cell, metric)
        theirs = None
        if compared is not None:
            paper = compared.published
            stars = tag("sup", "*" * paper.stars, class_="stars") if paper.stars else None
            text = f"paper {four(paper.mean)} ± {four(paper.std)}"
            theirs = tag("div", text, stars, class_="theirs")
        sign = None if compared is None else mark(compared.mark, short=True)
        entries.append(tag("td", tag("div", ours, " ", sign), theirs, data_metric=metric, data_k=k))
    for metric in lists:
        for k in dict.fromkeys(k for _, k in columns):
            cell = mine.get(k)
            entries.append(tag("td", "–" if cell is None else _lists(cell, metric), data_list=metric, data_k=k))
    extra = None if first.in_paper else tag("span", "not in the paper", class_="extra")
    name = tag("th", tag("span", first.label, class_="name"), " ", claim_chip(_claim(mine)), extra, scope="row")
    return tag("tr", name, entries, class_=None if first.in_paper else "added")


def _claim(cells: dict[int, Cell]) -> Claim | None:
    return next((cell.claim for cell in cells.values() if cell.claim is not None), None)


def claims_section(content: Content) -> Html:
    """What each method's epsilon is worth."""
    claims: dict[str, Claim] = {}
    claimed: dict[str, list[Cell]] = {}
    for cell in [*content.cells.get("table3", ()), *content.all_cells]:
        if cell.claim is not None:
            claims.setdefault(cell.method, cell.claim)
            alike = claimed.setdefault(cell.method, [cell])
            first = alike[0]
            if (cell.experiment, cell.factors, cell.x) == (first.experiment, first.factors, first.x):
                alike.append(cell)
    rows = [
        (
            label,
            "–" if claims[name].epsilon is None else plain(claims[name].epsilon or 0.0),
            claim_chip(claims[name], with_epsilon=False),
            claims[name].view,
            _honest(content, claimed[name]),
            claims[name].reason,
        )
        for name, label in content.method_labels.items()
        if name in claims
    ]
    return section(
        "epsilon", "What each epsilon stands on",
        table(
            ("Method", "ε", "Status", "Against an observer of", "Honest cost", "Why"), rows,
            class_="prose claims", label="claims",
        ),
        lead="An epsilon is worth what its proof covers. Nominal is the number that the paper states; it is no "
        "guarantee against someone who sees every message of the training. A rating's own budget is its privacy "
        "weight times this. The honest cost is what the accountant finds for a rating of weight 1 against the "
        f"recommender, all rounds together, its item having {RATERS} raters; with a star, at delta {DELTA:g}. Where it "
        "is nominal it counts the rating's own gradients only, so the truth is larger. A range is over the data sets: "
        "PDPMF and DPMF set their noise by the mean and the smallest weight.",
    )  # fmt: skip


def _honest(content: Content, cells: list[Cell]) -> Child:
    """What the method's epsilon really costs, with what is seen."""
    found = cost_range(content, cells)
    if found is None:
        return "not known"
    low, high = found
    text = low.briefly() if low.briefly() == high.briefly() else f"{low.briefly()} to {high.briefly()}"
    return [
        tag("b", text, title=high.in_numbers(), data_honest=repr(high.epsilon_at_delta)),
        " ",
        tag("span", view_words(high), class_="partial"),
    ]


def order_section(content: Content) -> Html:
    """Where the paper's order does not hold."""
    checks = [
        (
            one.text,
            one.where,
            tag("span", one.verdict, class_=f"verdict {one.verdict.replace(' ', '-')}"),
            f"{one.holds} of {one.places}" if one.places else "–",
            _exceptions(one.exceptions),
        )
        for one in statements(content)
    ]
    turned = [
        (
            one.better.dataset_title,
            f"{METRIC_LABELS[one.metric]}, K = {one.better.factors}",
            f"{one.worse.label} < {one.better.label}",
            [f"{one.better.label} ", number(one.better, one.metric), f" < {one.worse.label} ",
             number(one.worse, one.metric)],
            p_value(one.test.p),
        )
        for one in reversals(content)
    ]  # fmt: skip
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
    if len(places) <= 3:
        return [tag("div", one) for one in places]
    shown = [tag("div", one) for one in places]
    return tag("details", tag("summary", f"{len(places)} places"), shown)


def _duels(content: Content) -> Html:
    found = duels(content)
    if not found:
        return tag("p", "Not run here.", class_="empty")
    rows = [
        (
            one.first.dataset_title,
            f"{METRIC_LABELS[one.metric]}, K = {one.first.factors}",
            number(one.first, one.metric),
            number(one.second, one.metric),
            percent(one.gain),
            tag("span", p_value(one.test.p), " ", tag("sup", "*" * one.test.stars)),
            "–" if one.paper_gain is None else tag(
                "span", percent(one.paper_gain), tag("sup", "*" * one.paper_stars),
                None if one.comparable else tag("span", " other data", class_="partial"),
            ),
        )
        for one in found
    ]  # fmt: skip
    head = ("Data set", "Measure", "HDPMF", "PDPMF", "Error saved by HDPMF", "Two-sided t-test", "Saved in the paper")
    return table(head, rows, label="HDPMF against PDPMF", numeric=2)


def facts_section(content: Content) -> Html:
    """Tables I and II."""
    printed = {row.dataset: row for row in published.table1()}
    rows: list[tuple[Child, ...]] = []
    for name, facts in content.datasets.items():
        row = printed.get("yelp" if name == "yelp-sample" else name)
        title = content.dataset_titles.get(name, str(facts.get("title", name)))
        ours = [f"{facts[key]:,}" for key in ("users", "items", "ratings")] + [density(facts["density"])]
        rows.append((tag("span", title, " ", tag("span", "here", class_="partial")), *ours, ""))
        if row is None:
            continue
        theirs = [f"{row.users:,}", f"{row.items:,}", f"{row.ratings:,}", density(row.density)]
        notes = [tag("div", slip, class_="slip") for slip in row.slips]
        if name == "yelp-sample":
            notes.append(tag("div", "the paper's whole Yelp, which the Yelp sample is not"))
        rows.append((tag("span", "in the paper", class_="inpaper"), *theirs, notes))
    one: Child = tag("p", "Not run here.", class_="empty")
    if rows:
        heads = ("Data set", "Users", "Items", "Ratings", "Density", "Slips in the paper's table")
        one = table(heads, rows, class_="facts", label="Table I")
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
        tag("h3", "Table I, counted, with the paper's slips"), one,
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
