"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

METRIC_LABELS = {"mse": "MSE", "mae": "MAE"}

NDCG = "ndcg_at_10"
NDCG_MARGIN = "ndcg_margin_at_10"

RANKING_LABELS = {
    NDCG: "NDCG@10",
    "recall_at_10": "Recall",
    "precision_at_10": "Precision",
    "map_at_10": "MAP",
    "mrr_at_10": "MRR",
    "hit_rate_at_10": "Hit rate",
    "coverage_at_10": "Coverage",
    "popularity_at_10": "Raters",
    "gini_at_10": "Gini",
}
"""Of lists of ten, in the order of tables."""

LABELS = METRIC_LABELS | RANKING_LABELS


def plain(value: float) -> str:
    """A parameter: short, exact."""
    return f"{value:.10g}"


def four(value: float) -> str:
    """An error, with the paper's four digits."""
    return f"{value:.4f}" if math.isfinite(value) else "n/a"


def two(value: float) -> str:
    """An error at a glance."""
    return f"{value:.2f}" if math.isfinite(value) else "n/a"


def p_value(p: float) -> str:
    """A p value in words."""
    if math.isnan(p):
        return "no test"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def percent(share: float, digits: int = 1) -> str:
    """A share, signed."""
    return f"{100 * share:+.{digits}f} %".replace("-", "−")


def density(share: float) -> str:
    """A density as the paper prints it."""
    digits, _, power = f"{share:.2e}".partition("e")
    return f"{digits}e{int(power)}"


def duration(seconds: float | None) -> str:
    """A time span."""
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def words(items: Sequence[str]) -> str:
    """A list in a sentence."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def counted(n: int, noun: str) -> str:
    """A count with its noun."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
