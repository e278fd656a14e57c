"""``hdpmf methods`` and the page of the docs that it writes."""

from __future__ import annotations

from hdpmf.common.methods import METHODS
from tools.methods_page import PAGE, markdown

from .conftest import Call


def test_the_docs_page_is_the_code() -> None:
    assert PAGE.read_text() == markdown(METHODS.values()), (
        "write it again: python tools/methods_page.py"
    )


def test_every_method_is_listed_with_what_its_epsilon_is_worth(call: Call) -> None:
    listed = call("methods")
    assert listed.code == 0
    assert all(name in listed.out for name in METHODS)
    found = {row["name"]: row for row in call("methods", "--json").json["methods"]}
    assert found["hdp-sum"]["claims"]["sums"]["presence"] == 0.75
    assert "learning_rate" not in found["hdp-sum"]["options"]


def test_one_method_and_an_unknown_one(call: Call) -> None:
    assert "--set coding" in call("methods", "hdp-sum").out
    assert "no options" in call("methods", "user-mean").out
    assert call("methods", "svd").code == 2
