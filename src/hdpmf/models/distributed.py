"""Lists for more users than one machine should hold: over frames of dask and of Spark.

The model goes to every worker as it is, with its private part: workers are machines of whoever
holds the ratings, as this one is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hdpmf.common.data.columns import is_dask
from hdpmf.errors import ConfigError
from hdpmf.models.result_tables import RecommendedList, RecommendedLists

if TYPE_CHECKING:
    import pandas as pd

    from hdpmf.models.base import Estimator

_TYPES = {
    "user": "id",
    "rank": "int64",
    "item": "id",
    "title": "object",
    "year": "Int64",
    "genres": "object",
    "expected": "float64",
    "rank_score": "float64",
    "reason": "object",
}
"""The columns of `RecommendedLists.rows`, with their types in pandas."""

_SPARK = {"int64": "long", "Int64": "long", "object": "string", "float64": "double"}


def is_distributed(users: Any) -> bool:
    """Return whether users are in a frame or a column of dask, or in a frame of Spark."""
    return is_dask(users) or _is_spark(users)


def _is_spark(users: Any) -> bool:
    return type(users).__module__.partition(".")[0] == "pyspark"


def recommend_over(model: Estimator, users: Any, n: int, **options: Any) -> Any:
    """Return a lazy frame of the same kind: a row for each item of each user's list.

    Args:
        model: A fitted model.
        users: A frame with a column ``user``, or with one column; or a column of dask.
        n: Length of the lists.
        **options: Further arguments of `Estimator.recommend_each`.

    Raises:
        ConfigError: It is not clear which column has the users.
    """
    types = _types(model)
    if _is_spark(users):
        schema = ", ".join(f"{name} {_SPARK[kind]}" for name, kind in types.items())

        def lists(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            return (lists_of(frame, model, n, types, options) for frame in frames)

        return users.select(_user_column(list(users.columns))).mapInPandas(lists, schema=schema)
    import dask.dataframe as dd
    from dask.delayed import delayed

    frame = users.to_frame(name="user") if users.ndim == 1 else users
    chosen = frame[[_user_column(list(frame.columns))]]
    shared = delayed(model)  # one task, so that it travels once
    parts = [delayed(lists_of)(part, shared, n, types, options) for part in chosen.to_delayed()]
    return dd.from_delayed(parts, meta=_frame([], types), verify_meta=False)


def lists_of(
    users: pd.DataFrame, model: Estimator, n: int, types: dict[str, str], options: dict[str, Any]
) -> pd.DataFrame:
    """Return the lists of the users in one partition."""
    ids = users.iloc[:, 0].tolist()
    made = model.recommend_each(ids, n, **options) if ids else ()
    lists = RecommendedLists((user, RecommendedList(own)) for user, own in made)
    return _frame(list(lists.rows()), types)


def _types(model: Estimator) -> dict[str, str]:
    indexes = {"user": model.devices_.users, "item": model.catalogue_.items}
    return {
        name: kind if kind != "id" else "int64" if indexes[name].is_integer else "object"
        for name, kind in _TYPES.items()
    }


def _frame(rows: list[dict[str, Any]], types: dict[str, str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=kind) for name, kind in types.items()}
    )


def _user_column(names: list[str]) -> str:
    if "user" in names or len(names) == 1:
        return "user" if "user" in names else names[0]
    raise ConfigError(f"which column has the users? Call it 'user'; there are {', '.join(names)}")
