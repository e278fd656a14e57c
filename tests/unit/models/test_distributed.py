"""Lists over frames of dask and Spark are those that one machine makes."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import pytest

import hdpmf
from hdpmf.errors import ConfigError
from hdpmf.models import lists

pd = pytest.importorskip("pandas")
WORLD = hdpmf.synthetic_world(n_users=40, n_items=30, n_ratings=600, rng=0)
MODEL = hdpmf.BiasedMF(epochs=3, rng=0).fit(WORLD)
USERS = WORLD.users.ids.tolist()


def expected(users: list[Any], n: int) -> list[tuple[Any, ...]]:
    return [(row["user"], row["rank"], row["item"]) for row in MODEL.recommend(users, n).rows()]


def found(frame: Any) -> list[tuple[Any, ...]]:
    return list(frame[["user", "rank", "item"]].itertuples(index=False, name=None))


def test_a_dask_frame_of_users() -> None:
    dd = pytest.importorskip("dask.dataframe")
    table = pd.DataFrame({"city": "x", "user": USERS})
    lazy = MODEL.recommend_each(dd.from_pandas(table, npartitions=3), 4)
    assert lazy.npartitions == 3
    made = lazy.compute(scheduler="synchronous")
    assert found(made) == expected(USERS, 4)
    assert made.dtypes.to_dict() == lazy.dtypes.to_dict()
    column = dd.from_pandas(table, npartitions=2)["user"]
    kept = MODEL.recommend_each(column, 2, keep_rated=True).compute(scheduler="synchronous")
    assert len(kept) == 2 * len(USERS)
    with pytest.raises(ConfigError, match="which column has the users"):
        MODEL.recommend_each(dd.from_pandas(table.rename(columns={"user": "u"}), npartitions=1))


def test_a_partition_may_be_empty_and_ids_may_be_text() -> None:
    text = hdpmf.Ratings.from_arrays(
        [f"u{user}" for user in WORLD.user_ids], [f"i{item}" for item in WORLD.item_ids],
        WORLD.values,
    )  # fmt: skip
    model = hdpmf.BiasedMF(epochs=2, rng=0).fit(text)
    types = lists._types(model)
    none = lists.lists_of(pd.DataFrame({"user": []}), model, 3, types, {})
    some = lists.lists_of(pd.DataFrame({"user": ["u1"]}), model, 3, types, {})
    assert len(none) == 0
    assert none.dtypes.to_dict() == some.dtypes.to_dict()
    assert some["item"].str.startswith("i").all()


def test_a_spark_frame_is_asked_for_lists_by_its_own_interface() -> None:
    """As Spark calls it: mapInPandas hands over an iterator of frames."""

    class Frame:
        columns = ("user",)

        def select(self, name: str) -> Frame:
            assert name == "user"
            return self

        def mapInPandas(self, function: Any, schema: str) -> Any:
            parts = iter([pd.DataFrame({"user": USERS[:3]}), pd.DataFrame({"user": USERS[3:5]})])
            return pd.concat(list(function(parts))), schema

    Frame.__module__ = "pyspark.sql.dataframe"
    made, schema = MODEL.recommend_each(Frame(), 4)
    assert found(made) == expected(USERS[:5], 4)
    assert schema.startswith("user long, rank long, item long, title string, year long")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # PySpark warns of versions of pandas
def test_a_spark_frame_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="pip install pyspark, with Java 17")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not here")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master("local[1]")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    try:
        users = spark.createDataFrame([(user, "x") for user in USERS], ["user", "city"])
        lazy = MODEL.recommend_each(users.repartition(2), 4)
        made = lazy.toPandas().sort_values(["user", "rank"])
        assert found(made) == sorted(expected(USERS, 4))
        assert made["reason"].notna().any()
    finally:
        spark.stop()
