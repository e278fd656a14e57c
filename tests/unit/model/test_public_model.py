"""Public models and saved estimators come back as they were, whatever they hold; so do those of
0.1.0.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hdpmf.common.data import IdIndex, ItemTable, RatingScale, synthetic_world
from hdpmf.common.methods import METHODS
from hdpmf.common.model.device_fit import DeviceFit
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.protocol import ItemFacts, Round
from hdpmf.common.protocol.messages import Similarity
from hdpmf.errors import ModelFileError
from hdpmf.models import ItemFeatures, load_model, make_model

QUICK = settings(max_examples=60, deadline=None)


def same(left: Any, right: Any) -> bool:
    """Whether two values have the same type and every field of theirs the same bits."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(
            left, right, equal_nan=left.dtype.kind == "f"
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, msgspec.Struct):
        return all(
            same(getattr(left, name), getattr(right, name)) for name in left.__struct_fields__
        )
    if is_dataclass(left):
        return all(
            same(getattr(left, field.name), getattr(right, field.name)) for field in fields(left)
        )
    return bool(left == right)


words = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=8)
numbers = st.floats(-1e6, 1e6, width=32)


def matrix(
    rows: int, columns: int | st.SearchStrategy[int], dtype: Any = np.float32
) -> st.SearchStrategy[np.ndarray]:
    width = st.just(columns) if isinstance(columns, int) else columns
    bits = 32 if dtype is np.float32 else 64
    return width.flatmap(
        lambda k: arrays(dtype, (rows, k), elements=st.floats(-1e3, 1e3, width=bits))
    )


@st.composite
def item_facts(draw: st.DrawFn, n: int) -> ItemFacts:
    vector = arrays(np.float32, n, elements=st.floats(0, 1e3, width=32))
    return ItemFacts(
        catalogue=draw(st.text("0123456789abcdef", min_size=1, max_size=64)),
        mean=draw(numbers),
        bias=draw(arrays(np.float32, n, elements=numbers)),
        variance=draw(vector),
        popularity=draw(vector),
        similarity=draw(st.none() | similarities(n)),
        popularity_margin=draw(st.none() | vector),
    )


@st.composite
def similarities(draw: st.DrawFn, n: int) -> Similarity:
    return Similarity(
        items=np.arange(n),
        columns=draw(matrix(n, 2, np.float32)).clip(-9, 9).astype(np.float16),
        rest=np.full(n, draw(st.floats(0, 2)), np.float32),
        pull=draw(numbers),
    )


@st.composite
def rounds(draw: st.DrawFn, n: int) -> Round:
    factors = draw(matrix(n, st.integers(0, 3)))
    raters = draw(arrays(np.int64, n, elements=st.integers(0, 2**40)))
    return Round(number=draw(st.integers(1, 99)), item_factors=factors, raters=raters, h=None)


@st.composite
def fits(draw: st.DrawFn, n: int) -> DeviceFit:
    names = tuple(draw(st.lists(words, min_size=1, max_size=3)))
    size = len(names)
    vector = arrays(np.float64, n, elements=st.floats(0, 5))
    square = matrix(size, size, np.float64)
    return DeviceFit(
        names,
        draw(matrix(n, size, np.float64)),
        draw(vector),
        draw(vector),
        draw(square),
        draw(square),
    )


@st.composite
def public_models(draw: st.DrawFn) -> PublicModel:
    items = IdIndex(
        draw(
            st.lists(st.integers(-9, 2**60), min_size=1, max_size=5, unique=True)
            | st.lists(words.map(lambda word: f"i{word}"), min_size=1, max_size=5, unique=True)
        )
    )
    n = len(items)
    scale = draw(st.sampled_from([RatingScale(), RatingScale(0.5, 5, 0.5), RatingScale(0, 100)]))
    table = draw(st.none() | st.builds(
        ItemTable,
        st.just(items),
        st.tuples(*[words] * n),
        st.tuples(*[st.lists(words, max_size=2).map(tuple)] * n),
        st.tuples(*[st.none() | st.integers(1900, 2030)] * n),
    ))  # fmt: skip
    features = st.builds(
        ItemFeatures,
        st.just(("genre:a", "year")),
        matrix(n, 2, np.float64),
        arrays(np.float64, 2, elements=st.floats(1, 9)),
        words,
        st.lists(words, max_size=2).map(tuple),
    )
    return PublicModel(
        about=draw(st.dictionaries(words, st.none() | numbers | words | st.booleans(), max_size=3)),
        items=items,
        scale=scale,
        item_table=table,
        numbers=draw(item_facts(n) | rounds(n)),
        fit=draw(st.none() | fits(n)),
        features=draw(st.none() | features),
    )


@pytest.mark.slow
@QUICK
@given(model=public_models())
def test_every_field_of_a_public_model_comes_back(model: PublicModel) -> None:
    with TemporaryDirectory() as folder:
        model.save(Path(folder) / "m")
        assert same(PublicModel.load(Path(folder) / "m"), model)


WORLD = synthetic_world(12, 8, 60, rng=0)
GIVEN = {
    "hdp-sum": {
        "features": st.sampled_from(
            ["auto", True, ItemFeatures.of_table(WORLD.item_table, WORLD.items)]
        ),
    },
    "hdp-bit": {
        "patterns": st.integers(0, 3),
        "features": st.just(False),
        "coding": st.sampled_from(["auto", "linear"]),
    },
}


@pytest.mark.slow
@QUICK
@given(name=st.sampled_from(list(METHODS)), data=st.data())
def test_every_field_of_an_estimator_comes_back(name: str, data: st.DataObject) -> None:
    params = {key: data.draw(value) for key, value in GIVEN.get(name, {}).items()}
    quick = METHODS[name].own(n_factors=2, learning_rate=0.01, epochs=2)
    model = make_model(name, **quick, **params)
    if hasattr(model, "rng"):
        model.set_params(rng=data.draw(st.integers(0, 99)))
    weights = data.draw(st.sampled_from([None, PrivacySpec().draw(WORLD, rng=1)]))
    model.fit(WORLD, weights, validation=data.draw(st.sampled_from([None, WORLD])))
    with TemporaryDirectory() as folder:
        model.save(folder)
        back = load_model(folder)
    assert type(back) is type(model)
    vars(model).pop("bits_", None)  # what devices said is in memory only
    vars(model).pop("_turn", None)  # a lock of writers
    assert vars(back).keys() == vars(model).keys()
    for field, value in vars(model).items():
        assert same(getattr(back, field), value), field


def test_any_change_to_the_facts_is_seen(tmp_path: Path) -> None:
    make_model("hdpmf", rng=0, reg=0.01, epochs=2, n_factors=2).fit(WORLD).save(tmp_path)
    folder = tmp_path / "recommender"
    path = folder / "model.json"
    assert '"reg": 0.01' in path.read_text()
    path.write_text(path.read_text().replace('"reg": 0.01', '"reg": 0.02'))
    with pytest.raises(ModelFileError, match="damaged"):
        PublicModel.load(folder)
