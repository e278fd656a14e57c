"""The message with a model for lists: it survives the wire, and what is taken gives finite
scores for anybody.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_matrix

from hdpmf.common.model.list_model import ListModel
from hdpmf.common.protocol import ListTable, decode, encode
from hdpmf.errors import ProtocolError

WHOLE = st.integers(-127, 127)
NUMBERS = st.floats(-1e6, 1e6, width=32)


def _numbers(n: int) -> Any:
    return hnp.arrays(np.float32, n, elements=NUMBERS)


@st.composite
def tables(draw: Any) -> ListTable:
    """Any table that a recommender may send, sensible or not."""
    form = draw(st.sampled_from(["linear", "autoencoder", "factors"]))
    n, rank = draw(st.integers(1, 6)), draw(st.integers(0, 4))
    n_items = draw(st.sampled_from([n, n + 3]))
    chosen = draw(st.lists(st.integers(0, n_items - 1), min_size=n, max_size=n, unique=True))
    counts = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    positions = draw(st.sampled_from([np.int32, np.uint16, np.uint32]))
    decode_unit = draw(_numbers(rank))
    if form == "factors":
        decode_unit = np.clip(decode_unit, -100, 100)
    return ListTable(
        form=form,
        n_items=n_items,
        encode=draw(hnp.arrays(np.int8, (0 if form == "factors" else n, rank), elements=WHOLE)),
        encode_unit=draw(_numbers(rank)),
        decode=draw(hnp.arrays(np.int8, (n, rank), elements=WHOLE)),
        decode_unit=decode_unit,
        start=np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
        items=draw(hnp.arrays(positions, sum(counts), elements=st.integers(0, n - 1))),
        entries=draw(hnp.arrays(np.int8, sum(counts), elements=WHOLE)),
        entries_unit=draw(st.floats(1e-30, 1e6)),
        hidden=draw(_numbers(rank)),
        output=draw(_numbers(n)),
        strength=(draw(st.sampled_from([1e3, 1e6])), draw(st.floats(0, 1e6))),
        heads=None if n_items == n else np.sort(np.array(chosen, positions)),
        about={"kind": "any", "epochs": 3, "compression": {"score_error": 0.1}},
    )


@settings(max_examples=40)
@given(tables(), st.data())
def test_a_table_survives_the_wire_and_gives_finite_scores(table: ListTable, data: Any) -> None:
    again = decode(encode(table))
    assert isinstance(again, ListTable)
    assert encode(again) == encode(table)
    assert encode(ListModel.of(again).table()) == encode(table)
    rated = data.draw(
        st.lists(st.integers(0, table.n_items - 1), unique=True, max_size=table.n_items)
    )
    heights = np.array(
        data.draw(st.lists(st.floats(0, 4), min_size=len(rated), max_size=len(rated)))
    )
    scores = ListModel.of(again).scores(np.array(rated, np.int64), heights)
    assert scores.shape == (table.n_items,)
    assert np.isfinite(scores).all()
    own = csr_matrix((heights.astype(np.float32), rated, [0, len(rated)]), shape=(1, table.n_items))
    assert np.isfinite(ListModel.of(again).many(own)).all()


GOOD: dict[str, Any] = {
    "form": "linear",
    "n_items": 3,
    "encode": np.ones((3, 2), np.int8),
    "encode_unit": np.ones(2, np.float32),
    "decode": np.ones((3, 2), np.int8),
    "decode_unit": np.ones(2, np.float32),
    "start": np.zeros(4, np.int32),
    "items": np.zeros(0, np.uint16),
    "entries": np.zeros(0, np.int8),
    "entries_unit": 1.0,
    "hidden": np.zeros(2, np.float32),
    "output": np.zeros(3, np.float32),
}
FACTORS = {"form": "factors", "encode": np.zeros((0, 2), np.int8)}
FAR = 2**31 - 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"form": "magic"}, "form"),
        ({"n_items": 4}, "a row for every item"),
        ({"n_items": 0}, "n_items"),
        ({"encode": np.ones((3, 3), np.int8)}, "fit each other"),
        ({"decode": np.ones((3, 2), np.float32)}, "int8"),
        ({"decode": np.ones(3, np.int8)}, "int8"),
        ({"decode_unit": np.array([1, np.nan], np.float32)}, "finite"),
        ({"decode_unit": np.array([1, 1e30], np.float32)}, "finite"),
        ({"hidden": np.zeros(7, np.float32)}, "hidden"),
        ({"output": np.full(3, -np.inf, np.float32)}, "finite"),
        ({"start": np.array([0, 1, 1, 1], np.int32)}, "ascending"),
        # Differences that wrap around: each step looks as if it went up.
        ({"start": np.array([0, FAR, -FAR, 0], np.int32)}, "ascending"),
        ({"start": np.zeros(4, np.float32)}, "int32"),
        (
            {
                "start": np.array([0, 1, 1, 1], np.int32),
                "items": np.array([3], np.uint16),
                "entries": np.ones(1, np.int8),
            },
            "items that the model knows",
        ),
        (
            {
                "start": np.array([0, 1, 1, 1], np.int32),
                "items": np.array([-1], np.int32),
                "entries": np.ones(1, np.int8),
            },
            "items that the model knows",
        ),
        ({"entries": np.ones(1, np.int8)}, "one for each"),
        ({"entries_unit": float("nan")}, "unit"),
        ({"entries_unit": 0.0}, "unit"),
        ({"n_items": 9, "heads": np.array([1, 1, 2], np.int32)}, "ascending"),
        ({"n_items": 9, "heads": np.array([1, 2, 9], np.int32)}, "positions of items"),
        ({"n_items": 9, "heads": np.array([FAR, -FAR, 3], np.int32)}, "positions of items"),
        ({"strength": (float("inf"), 1.0)}, "regularisation"),
        ({"strength": (-1.0, 1.0)}, "regularisation"),
        (FACTORS | {"strength": (1e-9, 0.0)}, "so little"),
        (FACTORS | {"strength": (1.0, float("nan"))}, "unrated"),
        ({"about": {"kind": "x" * 1000}}, "few short words"),
        ({"about": {str(number): 1 for number in range(100)}}, "few short words"),
    ],
)
def test_what_cannot_be_right_is_refused(changes: dict[str, Any], words: str) -> None:
    decode(encode(ListTable(**GOOD)))
    with pytest.raises(ProtocolError, match=words):
        decode(encode(ListTable(**(GOOD | changes))))
