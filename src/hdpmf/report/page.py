"""The HTML report: one file that opens without a network."""

from __future__ import annotations

from importlib.resources import files
from string import Template

from hdpmf.report.chart_sections import chart_data, charts_section
from hdpmf.report.content import Content
from hdpmf.report.findings import findings
from hdpmf.report.honest_section import honest_data, honest_section
from hdpmf.report.markup import Child, Html, csp_hash, data_block, join, tag
from hdpmf.report.numbers import counted, duration, words
from hdpmf.report.run_sections import environment_section, runs_section, tuning_section
from hdpmf.report.table_sections import claims_section, facts_section, order_section, table3_section

TITLE = "Heterogeneous differential privacy matrix factorization: the evaluation, run again"

_SECTIONS = (
    ("table3", "Table III"),
    ("epsilon", "What epsilon stands on"),
    ("honest", "Honest epsilon"),
    ("order", "Order of methods"),
    ("figures", "Figures"),
    ("facts", "Tables I and II"),
    ("tuning", "Hyper-parameters"),
    ("again", "Run it again"),
    ("runs", "Runs"),
)


def render(content: Content) -> str:
    """The page."""
    style = _asset("report.css")
    script = "".join(_asset(name) for name in ("scales.js", "charts.js", "report.js"))
    data = chart_data(content)
    data["figures"] = [*honest_data(content), *data["figures"]]
    body = [
        _header(content),
        _controls(content),
        tag(
            "main",
            table3_section(content),
            claims_section(content),
            honest_section(content),
            order_section(content),
            charts_section(content),
            facts_section(content),
            tuning_section(content),
            environment_section(content),
            runs_section(content),
        ),
    ]
    # Hashes let exactly this script and this style in, and nothing that a name in the results might bring along.
    policy = (
        f"default-src 'none'; script-src {csp_hash(script)}; style-src {csp_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_asset("page.html")).substitute(
        title=join(TITLE),
        policy=join(policy),
        style=style,
        body=join(body),
        data=data_block(data),
        script=script,
    )


def _asset(name: str) -> str:
    return files("hdpmf.report").joinpath("assets", name).read_text(encoding="utf-8")


def _header(content: Content) -> Html:
    titles = list(content.dataset_titles.values())
    seconds = sum(session.seconds or 0.0 for session in content.sessions)
    last = content.sessions[-1].at[:10] if content.sessions else ""
    facts = [
        words(titles),
        counted(content.n_runs, "run"),
        f"{duration(seconds)} of wall time" if seconds else "",
        last,
    ]
    notices: list[Child] = []
    if content.quick:
        text = "Reduced version (--quick): fewer seeds, epochs and combinations. First impressions, not results."
        notices.append(tag("p", text, class_="notice"))
    if any(cell.status in ("missing", "failed") for cell in content.all_cells):
        text = "Some runs are missing or failed; what is not there is marked and nothing stands in for it."
        notices.append(tag("p", text, class_="notice"))
    notices += [tag("p", text, class_="notice") for text in content.problems]
    links = [tag("li", tag("a", name, href=f"#{anchor}")) for anchor, name in _SECTIONS]
    return tag(
        "header",
        tag("p", "hdpmf reproduction report", class_="eyebrow"),
        tag("h1", TITLE),
        tag("p", " · ".join(one for one in facts if one), class_="facts-line"),
        notices,
        tag("ol", [tag("li", _unbroken(sentence)) for sentence in findings(content)], class_="findings", id="findings"),
        tag("nav", tag("ul", links), aria_label="sections"),
    )  # fmt: skip


def _unbroken(sentence: str) -> str:
    """Equations stay on one line."""
    return sentence.replace(" = ", "\u00a0=\u00a0").replace(" < ", "\u00a0<\u00a0").replace(" %", "\u00a0%")


def _controls(content: Content) -> Html:
    """Which measure, K and data set the tables and figures show; without JavaScript they show all."""
    measures = [_radio("metric", name, label) for name, label in (("mse", "MSE"), ("mae", "MAE"))]
    sizes = [_radio("k", str(k), f"K = {k}") for k in content.factors]
    options = [tag("option", "All data sets", value="")]
    options += [tag("option", title, value=name) for name, title in content.dataset_titles.items()]
    return tag(
        "div",
        tag("fieldset", tag("legend", "Measure"), measures),
        tag("fieldset", tag("legend", "Factors"), sizes) if sizes else None,
        tag("label", tag("span", "Data set", class_="hidden"), tag("select", options, id="dataset")),
        class_="controls", hidden=True,
    )  # fmt: skip


def _radio(group: str, value: str, label: str) -> Html:
    field = f'<input type="radio" name="{group}" value="{value}">'
    return tag("label", Html(field), tag("span", label))
