from __future__ import annotations

import numpy as np
import pytest
import torch

from hdpmf.errors import RatingsError
from hdpmf.gpu import parquet
from hdpmf.gpu.parquet import ParquetRatings

pl = pytest.importorskip("polars")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "customer": rng.choice([3, 10, 2**40, 77], 200),
            "item": rng.choice([5, 6, 900], 200).astype(np.uint32),
            "rating": rng.integers(1, 6, 200).astype(np.uint8),
        }
    )
    path = tmp_path_factory.mktemp("parquet") / "ratings.parquet"
    frame.write_parquet(path, row_group_size=32)
    return path, frame


@pytest.mark.parametrize("reader", ["_with_polars", "_with_pyarrow"])
@pytest.mark.parametrize("keep", [True, False])
def test_blocks_are_the_file(file, device, monkeypatch, reader, keep):
    path, frame = file
    monkeypatch.setattr(parquet, "_reader", lambda: getattr(parquet, reader))
    ratings = ParquetRatings.open(path, device, {"user": "customer"}, keep, rows=50)
    assert ratings.n == 200
    assert ratings.users.tolist() == [3, 10, 77, 2**40]
    assert ratings.items.tolist() == [5, 6, 900]
    for _ in range(2):
        blocks = list(ratings.blocks(lambda users, items, values: values * 2))
        assert len(blocks) > 2
        users, items, target = (torch.cat([getattr(b, name) for b in blocks]) for name in ("users", "items", "target"))
        assert np.array_equal(ratings.users[users.long()].cpu().numpy(), frame["customer"].to_numpy())
        assert np.array_equal(ratings.items[items.long()].cpu().numpy(), frame["item"].to_numpy())
        assert np.array_equal(target.cpu().numpy(), 2.0 * frame["rating"].to_numpy())


@pytest.mark.parametrize("reader", ["_with_polars", "_with_pyarrow"])
def test_what_cannot_be_used_is_said(tmp_path, device, monkeypatch, reader):
    monkeypatch.setattr(parquet, "_reader", lambda: getattr(parquet, reader))
    with pytest.raises(RatingsError, match="cannot read"):
        ParquetRatings.open(tmp_path / "none.parquet", device)
    (tmp_path / "bad.parquet").write_bytes(b"not a file of that kind")
    with pytest.raises(RatingsError, match="cannot read"):
        ParquetRatings.open(tmp_path / "bad.parquet", device)
    good = {"user": [1, 2], "item": [1, 2], "rating": [1.0, 2.0]}
    for change, words in (
        ({"user": ["a", "b"]}, "numbers"),
        ({"user": [0.5, 1.0]}, "whole"),
        ({"rating": [1.0, float("nan")]}, "missing or infinite"),
        ({"rating": [1, None]}, "missing or infinite"),
    ):
        pl.DataFrame({**good, **change}).write_parquet(tmp_path / "x.parquet")
        with pytest.raises(RatingsError, match=words):
            ParquetRatings.open(tmp_path / "x.parquet", device)
    pl.DataFrame(good).select("user", "item").write_parquet(tmp_path / "x.parquet")
    with pytest.raises(RatingsError, match="rating"):
        ParquetRatings.open(tmp_path / "x.parquet", device)
