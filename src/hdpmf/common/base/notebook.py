"""Tables for notebooks, and data frames. What shows itself has counts, options and claims only."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hdpmf.errors import ConfigError, MissingExtraError


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """Return a small table: a title, and a row for each fact that is not empty."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
        if value not in (None, "")
    )
    return (
        f"<table><caption style='text-align:left'><b>{escape(title)}</b></caption>"
        f"<tbody>{rows}</tbody></table>"
    )


def frame_of(columns: Any, kind: str) -> Any:
    """Return columns, or a list of rows, as a frame of polars or pandas.

    Raises:
        MissingExtraError: It is one of pandas, which is not installed.
    """
    if kind not in ("polars", "pandas"):
        raise ConfigError(f"frames are of polars or pandas, not {kind!r}")
    if kind == "polars":
        import polars as pl

        return pl.DataFrame(columns, infer_schema_length=None)
    if find_spec("pandas") is None:
        raise MissingExtraError(
            'frames of pandas need it: pip install pandas; to_frame("polars") does without'
        )
    return import_module("pandas").DataFrame(columns)
