"""Writing ratings to a file."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.errors import ConfigError
from hdpmf.files import atomic_write

if TYPE_CHECKING:
    from hdpmf.ratings.table import Ratings


def write_ratings(ratings: Ratings, path: str | os.PathLike[str]) -> None:
    """Write ratings as CSV, TSV or Parquet, by the ending of the name, with a header.

    Ratings are private: the file is readable by its owner only.
    """
    import polars as pl

    ending = Path(path).suffix.lower()
    if ending not in (".csv", ".tsv", ".parquet"):
        raise ConfigError(f"ratings are written to .csv, .tsv or .parquet, not to '{Path(path).name}'")
    values = ratings.values
    whole = np.rint(values)
    columns = {
        "user": pl.Series(ratings.users.ids.tolist()).gather(ratings.user_codes),
        "item": pl.Series(ratings.items.ids.tolist()).gather(ratings.item_codes),
        # "4" and not "4.0" where nobody gave half a star.
        "rating": pl.Series(whole.astype(np.int32) if np.array_equal(whole, values) else values),
    }
    if ratings.implicit:
        del columns["rating"]
    if ratings.timestamps is not None:
        columns["timestamp"] = pl.Series(ratings.timestamps)
    frame = pl.DataFrame(columns)
    buffer = io.BytesIO()
    if ending == ".parquet":
        frame.write_parquet(buffer)
    else:
        frame.write_csv(buffer, separator="," if ending == ".csv" else "\t", quote_style="necessary")
    atomic_write(path, buffer.getvalue(), mode=0o600)
