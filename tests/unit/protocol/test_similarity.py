"""Similarity as a part of item facts: it is bounded, and about their items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hdpmf.common.protocol import ItemFacts
from hdpmf.common.protocol.messages import MAX_SIMILAR_BYTES, MAX_SIMILAR_ITEMS, Similarity
from hdpmf.errors import ProtocolError


def part(**changed: Any) -> Similarity:
    given: dict[str, Any] = {
        "items": np.array([0, 2]),
        "columns": np.array([[0.5, 1], [0.25, -1]], np.float16),
        "rest": np.array([0.1, 0.2], np.float32),
        "pull": 0.5,
    }
    return Similarity(**given | changed)


def facts(similarity: Similarity | None = None) -> ItemFacts:
    zero = np.zeros(3, np.float32)
    return ItemFacts(
        catalogue="f",
        mean=3.5,
        bias=zero,
        variance=zero,
        popularity=zero,
        similarity=similarity,
    )


def test_the_largest_that_is_allowed_is_what_a_device_is_promised():
    n = MAX_SIMILAR_ITEMS
    largest = part(
        items=np.arange(n), columns=np.zeros((n, 128), np.float16), rest=np.zeros(n, np.float32)
    )
    assert largest.columns.nbytes == MAX_SIMILAR_BYTES


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"items": np.array([2, 0])}, "ascending"),
        ({"items": np.array([-1, 0])}, "ascending"),
        ({"items": np.array([0, 1, 2])}, "row per item"),
        ({"columns": np.zeros((2, 2), np.float32)}, "float16"),
        ({"columns": np.full((2, 2), np.inf, np.float16)}, "finite"),
        ({"columns": np.zeros((2, MAX_SIMILAR_BYTES // 4 + 1), np.float16)}, "bytes at most"),
        ({"items": np.arange(MAX_SIMILAR_ITEMS + 1)}, "items at most"),
        ({"rest": np.array([0.1, -0.2], np.float32)}, "rest"),
        ({"rest": np.array([0.1], np.float32)}, "rest"),
        ({"pull": float("nan")}, "pull"),
    ],
)
def test_what_cannot_be_right_is_refused(changed, match):
    with pytest.raises(ProtocolError, match=match):
        part(**changed)


def test_it_is_about_the_items_of_the_facts():
    with pytest.raises(ProtocolError, match="these items"):
        facts(part(items=np.array([0, 3])))
