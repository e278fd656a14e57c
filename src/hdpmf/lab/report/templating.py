"""The templates' environment: their filters, for pages and for LaTeX."""

from __future__ import annotations

import base64
import hashlib
import math
from functools import cache
from importlib.resources import files

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hdpmf.common.privacy.accounting import DELTA
from hdpmf.lab.experiments import Summary
from hdpmf.lab.report import content, overview, tables

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
        "metrics": content.METRIC_LABELS,
        "ranking_labels": content.RANKING_LABELS,
        "ndcg": content.NDCG,
        "honest_figure": tables.HONEST_FIGURE,
        "raters": tables.RATERS,
        "delta": DELTA,
        "zip": zip,
    }
    found.filters |= {
        name: getattr(content, name)
        for name in (
            *("anchor", "axis_value", "by_dataset", "counted", "counts", "duration", "four"),
            *("further_measures", "grid_anchor", "guarantee", "highest", "is_level", "lowest"),
            *("p_value", "percent", "plain", "slug", "symbol_parts", "table_place", "words"),
        )
    }
    found.filters |= {
        name: getattr(tables, name)
        for name in (
            *("choice_rows", "claim_rows", "environment", "fitting_in_words"),
            *("view_words", "weights_in_words"),
        )
    }
    found.filters |= {
        "csp_hash": _csp_hash,
        "deviating": _deviating,
        "enumerated": enumerate,
        "exact": lambda value: repr(float(value)),
        "metric_label": content.LABELS.get,
        "parameters": tables.parameters_in_words,
        "shape": lambda status: overview.SHAPES.get(status, overview.SHAPES["unknown"]),
        "status_words": lambda status: content.STATUS_WORDS.get(status, status),
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
    deviation = f" $\\pm$ {content.four(summary.std)}" if math.isfinite(summary.std) else ""
    return content.four(summary.mean) + deviation


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
