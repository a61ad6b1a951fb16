"""``nulls="drop"`` in the loader: the batches joined have the rows of ``convert`` of the whole source."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.table_cases import rows

import zerocopy as zc

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
import pyarrow.csv as csv  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

ROWS = 60


def table() -> Any:
    """Return a table in three chunks; rows 8 to 11, a batch, all have a null."""
    numbers = range(ROWS)
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "a": pa.array([None if i % 7 == 3 or 8 <= i < 12 else i for i in numbers], pa.int32()),
        "b": pa.array([None if i % 11 == 5 else i / 2 for i in numbers], pa.float64()),
        "s": pa.array([None if i % 13 == 2 else f"word {i % 4}" for i in numbers]),
        "v": pa.array([None if i % 17 == 4 else [i, i + 1] for i in numbers], pa.list_(pa.int64())),
        "t": pa.array([None if i % 19 == 1 else i for i in numbers], pa.timestamp("s")),
    }
    whole = pa.table(columns)
    return pa.concat_tables([whole.slice(0, 17), whole.slice(17, 20), whole.slice(37)])


TABLE = table()
NUMBERS = ["id", "a", "b"]
CASES: dict[str, dict[str, Any]] = {
    "numbers": {"columns": NUMBERS},
    "one column": {"columns": NUMBERS, "nulls": {"a": "drop", "b": "nan"}},
    "mask": {"columns": NUMBERS, "nulls": {"a": "drop", "b": "mask"}},
    "filled": {"columns": NUMBERS, "nulls": {"b": "drop", "a": -1}},
    "cast": {"columns": NUMBERS, "dtype": "float32"},
    "matrix": {"columns": NUMBERS, "dtype": "float64", "layout": "matrix"},
    "lists": {"columns": ["id", "a", "v"]},
    "padded": {"columns": ["id", "a", "v"], "lists": "pad"},
    "encoded": {"columns": ["id", "a", "s", "t"], "encode": True},
    "bytes": {"columns": ["id", "a", "s"], "encode": "bytes"},
    "all": {"encode": True},
}
ORDERS: list[dict[str, Any]] = [{}, {"shuffle": 12}, {"shuffle": "full", "drop_last": True}]


def plain(result: Any) -> list[Any]:
    """Return the rows of a result: lists of the values of their columns."""
    if isinstance(result, dict):
        return [list(row) for row in zip(*map(rows, result.values()), strict=True)]
    return rows(result)


def joined(batches: Any) -> list[Any]:
    return list(itertools.chain.from_iterable(map(plain, batches)))


def source_of(kind: str, chosen: Any, folder: Path) -> Any:
    """Return the rows of a table in memory or in a file."""
    if kind == "parquet":
        pq.write_table(chosen, folder / "a.parquet", row_group_size=13)
        return folder / "a.parquet"
    if kind == "csv":
        csv.write_csv(chosen, folder / "a.csv")
        return folder / "a.csv"
    sources = {"arrow": chosen, "polars": pl.from_arrow(chosen), "pandas": chosen.to_pandas()}
    return sources[kind]


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_batches_are_those_of_the_whole_source(case: str, order: dict[str, Any]) -> None:
    options = {"nulls": "drop"} | CASES[case]
    want = plain(zc.convert(TABLE, "numpy", **options))
    assert 0 < len(want) < ROWS
    loader = zc.loader(TABLE, "numpy", batch_size=4, **options, **order)
    batches, states = [], [loader.state_dict()]
    for batch in loader:
        batches.append(plain(batch))
        states.append(json.loads(json.dumps(loader.state_dict())))
    result = list(itertools.chain.from_iterable(batches))
    assert repr(result if not order else sorted(result, key=lambda row: row[0])) == repr(want)
    assert len(batches) == len(zc.loader(TABLE, "numpy", batch_size=4, **options, **order)) == ROWS // 4
    assert order or case == "filled" or [] in batches
    assert max(map(len, batches)) <= 4
    for done in (1, 8):
        again = zc.loader(TABLE, "numpy", batch_size=4, **options, **order)
        again.load_state_dict(states[done])
        assert len(again) == len(batches) - done
        assert repr([plain(batch) for batch in again]) == repr(batches[done:])
    own = {**options, **order, "world_size": 3}
    shards = [zc.loader(TABLE, "numpy", batch_size=4, rank=k, **own) for k in range(3)]
    parts = sorted(joined(itertools.chain.from_iterable(shards)), key=lambda row: row[0])
    assert repr(parts) == repr(want)
    assert repr(joined(pickle.loads(pickle.dumps(shards[0])))) != repr(want)


@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "pyarrow", "polars", "pandas"])
@pytest.mark.parametrize("kind", ["arrow", "polars", "pandas", "parquet", "csv"])
def test_sources_and_targets(kind: str, to: str, tmp_path: Path) -> None:
    pytest.importorskip(to)
    source = source_of(kind, TABLE.select(NUMBERS), tmp_path)
    want = [list(row) for row in zip(*TABLE.select(NUMBERS).to_pydict().values(), strict=True)]
    filled = {} if to in ("pyarrow", "polars", "pandas") else {"b": -1}
    for nulls, places in (("drop", (1, 2)), ({"a": "drop"} | filled, (1,))):
        expected = [row[0] for row in want if all(row[place] is not None for place in places)]
        for order in ({}, {"shuffle": True}):
            batches = list(zc.loader(source, to, batch_size=7, nulls=nulls, **order))
            result = [i for batch in batches for i in np.asarray(batch["id"]).tolist()]
            assert (result if not order else sorted(result)) == expected
            assert len(batches) == 9


def test_a_dict_of_series_and_arrays() -> None:
    data = {"x": pd.Series([1.0, np.nan, 3.0]), "n": np.arange(3)}
    batches = list(zc.loader(data, "numpy", batch_size=2, nulls="drop"))
    assert [batch["n"].tolist() for batch in batches] == [[0], [2]]
    assert next(iter(zc.loader(data, "numpy", batch_size=2, nulls={"n": "drop"})))["x"][0] == 1.0
    times = np.array(["2020", "NaT", "2022"], "M8[s]")
    batches = list(zc.loader({"t": times, "n": np.arange(3)}, "numpy", batch_size=3, nulls="drop"))
    assert batches[0]["n"].tolist() == [0, 2]


def test_nulls_of_other_columns_are_refused_in_rows_that_remain() -> None:
    for column in ("b", "s"):
        options = {"encode": True} if column == "s" else {}
        data = TABLE.select(["id", "a", column])
        with pytest.raises(zc.LossyConversionError):
            list(zc.loader(data, "numpy", batch_size=4, nulls={"a": "drop"}, **options))
    data = pa.table({"a": [1, None, 3], "s": ["x", None, "y"]})
    for to in ("numpy", "torch"):
        (batch,) = zc.loader(data, to, nulls={"a": "drop"}, encode=True)
        assert rows(batch["s"]) == ["x", "y"]


def test_the_plan_says_that_rows_are_left_out() -> None:
    plan = zc.loader(TABLE.select(NUMBERS), "numpy", batch_size=4, nulls="drop").explain()
    assert any(reason.code == "dropped-rows" for reason in plan.columns["id"].reasons)
    whole = zc.loader(TABLE.select(["id"]), "numpy", batch_size=4, nulls="drop").explain()
    assert whole.columns["id"].aliased


@pytest.mark.parametrize("order", [{}, {"shuffle": True}], ids=str)
def test_workers_deliver_the_same_rows(order: dict[str, Any]) -> None:
    data = pytest.importorskip("torch.utils.data")
    loader = zc.loader(TABLE.select(NUMBERS), "torch", batch_size=4, nulls="drop", **order)
    batches = list(data.DataLoader(loader, batch_size=None, num_workers=2))
    assert len(batches) == ROWS // 4
    want = plain(zc.convert(TABLE.select(NUMBERS), "numpy", nulls="drop"))
    assert sorted(joined(batches)) == want
