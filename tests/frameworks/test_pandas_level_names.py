"""Names of index levels that are not text: pandas takes an integer for a name first, then for a position."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
from helpers.tiers import sampled

import zerocopy as zc

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("nanoarrow")
from helpers.table_cases import TABLES  # noqa: E402

NAMES: list[Any] = [None, 1, 0, 2, "k", (1, 2), ("a",), True, 1.5, np.int64(1), "0", b"x", "column"]
NAMES += [datetime.date(2020, 1, 1), pd.Timestamp("2020"), frozenset([1]), float("nan")]
LEVELS = [[10, 30], [20, 40], [50, 60]]


def frame_of(names: list[Any]) -> Any:
    index = pd.MultiIndex.from_arrays(LEVELS[: len(names)], names=names)
    return pd.DataFrame({"column": [1, 2]}, index=index)


def level_values(result: Any, count: int) -> list[list[int]]:
    """Return the values of a table's last columns."""
    table = result if isinstance(result, pa.Table) else zc.convert(result, "pyarrow.Table")
    return [column.to_pylist() for column in table.columns[-count:]]


@pytest.mark.hazard("pandas#integer-names-of-levels")
def test_an_integer_is_a_name_before_it_is_a_position() -> None:
    frame = frame_of([1, 2])
    assert frame.index.get_level_values(1).tolist() == [10, 30]  # pandas: the level of that name
    assert zc.convert(frame, "pyarrow").to_pydict() == {"column": [1, 2], "1": [10, 30], "2": [20, 40]}
    assert zc.convert(frame, "numpy", layout="matrix", index=True).tolist() == [[1, 10, 20], [2, 30, 40]]


@pytest.mark.parametrize("to", [n for n in TABLES if n not in ("cudf", "pylibcudf")])
def test_every_table_keeps_each_level(to: str) -> None:
    for names in [*sampled(4, NAMES, NAMES), (1, 2, 0), (2, 0, 1), (None, 0, 1)]:
        frame = frame_of([*names])
        plan = zc.explain(frame, to)
        if not plan.possible:
            assert plan.error.code == "duplicate-names", names  # True and 1 are one key
            with pytest.raises(type(plan.error)):
                zc.convert(frame, to)
            continue
        assert level_values(zc.convert(frame, to), len(names)) == LEVELS[: len(names)], names


@pytest.mark.parametrize("layout", ["columns", "matrix", "records"])
def test_tensors_keep_each_level(layout: str) -> None:
    for names in sampled(4, NAMES, NAMES):
        frame = frame_of([*names])
        plan = zc.explain(frame, "numpy", layout=layout, index=True)
        if not plan.possible:
            assert plan.error.code == "duplicate-names", names
            continue
        result = zc.convert(frame, "numpy", layout=layout, index=True)
        if layout == "columns":
            assert [x.tolist() for x in result.values()] == [[1, 2], *LEVELS[:2]], names
        else:
            assert [list(row) for row in result.tolist()] == [[1, 10, 20], [2, 30, 40]], names


def test_other_paths_keep_each_level() -> None:
    frame = frame_of([1, 0])
    (batch,) = zc.loader(frame, "numpy", batch_size=2)
    assert [x.tolist() for x in batch.values()] == [[1, 2], *LEVELS[:2]]
    with zc.share(frame) as shared:
        opened = zc.convert(shared, "pandas")
        assert [level.tolist() for level in map(opened.index.get_level_values, [1, 0])] == LEVELS[:2]
    for names in ([1, 0], ["a", "a"], [1, None], [None, None]):
        index = frame_of(names).index
        assert level_values(zc.convert(index, "pyarrow"), 2) == LEVELS[:2]
        series = pd.Series([1, 2], index=index, name=1)
        assert level_values(zc.convert(series, "pyarrow", index=True), 2) == LEVELS[:2]


@pytest.mark.parametrize("name", NAMES[1:], ids=repr)
def test_dimensions_of_xarray_are_text(name: Any) -> None:
    pytest.importorskip("xarray")
    index = pd.Index([10, 30], name=name)
    plan = zc.explain(pd.DataFrame({"y": [1, 2]}, index=index), "xarray")
    dataset = zc.convert(pd.DataFrame({"y": [1, 2]}, index=index), "xarray")
    assert list(dataset.dims) == [str(name)]
    assert dataset[str(name)].values.tolist() == [10, 30]
    renamed = any("names are strings" in text for text in plan.warnings)
    assert renamed == (not isinstance(name, str))
    assert zc.convert(dataset, "pandas").index.tolist() == [10, 30]
