"""Columns of one repeated value, whose memory polars writes when they are read (P2, P3)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from helpers.table_cases import TABLES, TENSORS

import zerocopy as zc

pl = pytest.importorskip("polars")


def _frame() -> Any:
    return pl.DataFrame({"k": [1, 2, 3, 4], "v": [1.0, 2.0, 3.0, 4.0]})


def _other() -> Any:
    return pl.DataFrame({"k": [1, 2, 3, 4]}).with_columns(pl.lit(5).alias("c"))


FRAMES: dict[str, Callable[[], Any]] = {
    "select": lambda: _frame().select(pl.col("k"), pl.lit(2.5).alias("c")),
    "with_columns": lambda: _frame().with_columns(pl.lit(7).alias("c")),
    "lit of text": lambda: _frame().with_columns(pl.lit("a text longer than a view holds").alias("c")),
    "lit of a date": lambda: _frame().with_columns(pl.lit(date(2020, 1, 2)).alias("c")),
    "lit of a bool": lambda: _frame().with_columns(pl.lit(True).alias("c")),
    "lit of null": lambda: _frame().with_columns(pl.lit(None, dtype=pl.Int64).alias("c")),
    "lit of a list": lambda: _frame().with_columns(pl.lit([1, 2]).alias("c")),
    "repeat": lambda: pl.select(c=pl.repeat(3, 4)),
    "constructor": lambda: pl.DataFrame({"k": [1, 2, 3], "c": 5}),
    "join": lambda: _frame().join(_other(), on="k"),
    "cross join": lambda: _frame().join(_other().head(1), how="cross"),
    "group_by": lambda: _frame().group_by("k", maintain_order=True).agg(pl.lit(3).alias("c")),
    "sum": lambda: _frame().select(pl.sum("v").alias("c")),
    "window": lambda: _frame().with_columns(pl.col("v").sum().alias("c")),
    "slice": lambda: _frame().with_columns(pl.lit(7).alias("c")).slice(1, 2),
    "filter": lambda: _frame().with_columns(pl.lit(7).alias("c")).filter(pl.col("k") > 1),
    "plain": _frame,
}
TARGETS = [name for name in (*TABLES, *TENSORS) if name not in ("duckdb", "datasets")]


@pytest.mark.hazard("polars#scalar-columns")
def test_hazard_get_columns_writes_a_repeated_value_in_each_call() -> None:
    frame = FRAMES["with_columns"]()
    first, second = frame.get_columns()[2], frame.get_columns()[2]
    assert not zc.shares_memory(first, second)
    assert zc.shares_memory(frame.to_series(2), frame.get_columns()[2])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", ["frame", "series"])
def test_explain_is_right_about_each_column(target: str, form: str) -> None:
    for name, make in FRAMES.items():
        for label in make().columns:
            for copy in (None, False, False, None):  # the second time by a route
                # Made anew: an earlier export of the frame would have written its column.
                source = make().select(label) if form == "frame" else make().get_column(label)
                plan = zc.explain(source, target, copy=copy)
                if not plan.possible:
                    continue
                result = zc.convert(source, target, copy=copy)
                assert zc.shares_memory(source, result) == plan.zero_copy, (name, label, copy)


@pytest.mark.hazard("polars#scalar-columns")
@pytest.mark.parametrize("target", TARGETS)
def test_every_column_of_a_frame_is_an_alias_where_copies_are_refused(target: str) -> None:
    for name, make in FRAMES.items():
        for _ in range(2):
            frame = make()
            if not zc.explain(frame, target, copy=False).possible:
                continue
            result = zc.convert(frame, target, copy=False)
            columns = result if target in TENSORS else zc.convert(result, "pyarrow", copy=False)
            for label in frame.columns:
                assert zc.shares_memory(frame.get_column(label), columns[label]), (name, label)
