"""Pictures of bounds and budgets: the shapes of inline SVG, each with the words that say the same.

Every number comes from `hdpmf.private.device.disclosures.bounds`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hdpmf.common.methods.registry import at_least, at_most
from hdpmf.common.protocol.titles import upright
from hdpmf.common.web.templates import Wording
from hdpmf.private.device.disclosures.bounds import Bound, Budget, PrivacyBounds, RunBounds, budgets
from hdpmf.private.device.store.catalogues import id_of
from hdpmf.private.device.store.device_store import DeviceStore

STRIPS_SHOWN = 8
"""Strips of budgets that are not folded."""

MOST_STRIPS = 250

_WIDTH, _HEIGHT = 200.0, 60.0
_POINTS = 60
_FARTHEST = 14.0  # between two peaks: beyond it nothing overlaps that could be seen
_TAIL = 5.0  # scales of the noise beyond each peak


def part_of_scale(bound: Bound) -> str:
    """Return how far a bound is from a coin, in percent of the way to certainty."""
    return f"{100 * (1 - bound.overlap):.1f}"


def gauges(bounds: RunBounds) -> dict[str, Any]:
    """Return what one rating and the person give away before a run and after it, and the budget."""

    def gauge(before: Bound, after: Bound) -> dict[str, Any]:
        width = part_of_scale(before), part_of_scale(after)
        return {"before": before.percent, "after": after.percent, "width": width}

    before, after = bounds.left
    return {
        "rating": gauge(*bounds.rating),
        "person": gauge(*bounds.person),
        "used_up": bounds.used_up,
        "part": at_most(min(bounds.part, 1.0)),
        "left": {
            "before": at_least(before),
            "after": at_least(after),
            "width": (f"{100 * before:.1f}", f"{100 * after:.1f}"),
        },
    }


def strips(store: DeviceStore, titles: Mapping[str, str]) -> dict[str, Any]:
    """Return the budget of each rating of which something has left or is held, the emptiest first.

    Others are counted: of them everything is left.
    """
    found = budgets(store)
    spent = sorted(
        (budget for budget in found if budget.spent > 0),
        key=lambda budget: (not budget.used_up, budget.part, _title(titles, budget)),
    )
    return {
        "strips": [
            {
                "title": _title(titles, budget),
                "width": f"{100 * budget.part:.1f}",
                "left": at_least(budget.part),
                "percent": budget.so_far.percent,
                "used_up": budget.used_up,
            }
            for budget in spent[:MOST_STRIPS]
        ],
        "n_strips": len(spent),
        "n_used_up": sum(budget.used_up for budget in spent),
        "n_whole": len(found) - len(spent),
        "first": STRIPS_SHOWN,
    }


def _title(titles: Mapping[str, str], budget: Budget) -> str:
    return upright(titles.get(budget.item, "")) or id_of(budget.item)


def views(t: Wording, bounds: PrivacyBounds, *, so_far: bool) -> dict[str, dict[str, str]] | None:
    """Return what others may see in each of two truths, of one rating and of the person.

    By what has left so far, or once all has left that may at this level. None where nothing is
    proved.
    """
    if not (bounds.spent.proved if so_far else bounds.proved):
        return None
    shown = {
        "rating": bounds.rating_so_far if so_far else bounds.rating,
        "person": bounds.person_so_far if so_far else bounds.person,
    }
    return {
        who: two_views(bound) | {"words": t("views.same", same=at_least(bound.overlap))}
        for who, bound in shown.items()
    }


def two_views(bound: Bound) -> dict[str, str]:
    """Return two curves that overlap as little as a bound allows, and their common part.

    They have the form of the noise (Laplace's), of which two that are ``d`` scales apart overlap by
    ``exp(-d / 2)``.
    """
    overlap = max(bound.overlap, math.exp(-_FARTHEST / 2))
    apart = -2 * math.log(overlap)
    most = apart / 2 + _TAIL
    places = [most * (2 * number / _POINTS - 1) for number in range(_POINTS + 1)]
    # The peaks themselves are among the points, so that both curves are equally high.
    places = sorted({*places, -apart / 2, apart / 2})
    curves = [
        [math.exp(-abs(place - peak)) for place in places] for peak in (-apart / 2, apart / 2)
    ]

    def path(heights: list[float]) -> str:
        points = (
            f"{_WIDTH * (place + most) / (2 * most):.1f} {_HEIGHT * (1 - height):.1f}"
            for place, height in zip(places, heights, strict=True)
        )
        return f"M0 {_HEIGHT:g}L{'L'.join(points)}L{_WIDTH:g} {_HEIGHT:g}Z"

    both = [min(pair) for pair in zip(*curves, strict=True)]
    return {"yours": path(curves[0]), "others": path(curves[1]), "both": path(both)}
