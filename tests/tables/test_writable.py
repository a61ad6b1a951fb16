"""``writable=True`` for tables: a write to the result succeeds, and does not reach immutable memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy import registry

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
xr = pytest.importorskip("xarray")

#: Table targets whose results are written to in place.
TARGETS = [name for name in ("pandas", "xarray") if registry.by_name(name).mutable]
ARROW = {
    "float64": pa.array([1.5, 2.5, 4.0]),
    "int8": pa.array([1, 2, 4], pa.int8()),
    "float16": pa.array(np.array([1, 2, 4], "f2")),
    "bool": pa.array([True, False, True]),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 1], pa.int8())),
    "timestamp": pa.array([1, 2, 4], pa.timestamp("ns")),
    "duration": pa.array([1, 2, 4], pa.duration("us")),
    "date": pa.array([1, 2, 4], pa.date32()),
    "nulls": pa.array([1, 2, None]),
    "no dates": pa.array([1, 2, None], pa.timestamp("ns")),
    "text": pa.array(["a", "b", None]),
}
PANDAS = {
    "Int64": pd.array([1, 2, None], "Int64"),
    "boolean": pd.array([True, False, None], "boolean"),
    "period": pd.period_range("2020", periods=3, freq="D").array,
    "interval": pd.interval_range(0, 3).array,
    "category": pd.Categorical(["a", "b", "a"]),
    "str": pd.array(["a", "b", "c"], "str"),
    "arrow": pd.array([1, 2, None], "int64[pyarrow]"),
    "zone": pd.date_range("2020", periods=3, tz="UTC").array,
    "float": np.arange(3.0),
}


def read_only() -> Any:
    matrix = np.arange(6.0).reshape(3, 2)
    matrix.flags.writeable = False
    return matrix


def sources() -> dict[str, Any]:
    """Return objects with memory that writes must not reach, by their names."""
    made: dict[str, Any] = {}
    for name, array in ARROW.items():
        made[f"pyarrow {name}"], made[f"pyarrow table {name}"] = array, pa.table({"x": array})
        for other in ("polars", "nanoarrow"):
            try:
                made[f"{other} {name}"] = zc.convert(pa.table({"x": array}), other)
            except zc.ZeroCopyError:
                continue
    for name, array in PANDAS.items():
        made[f"pandas {name}"] = pd.Series(array)
        made[f"pandas frame {name}"] = pd.DataFrame({"x": array, "n": [1, 2, 3]})
    frozen = read_only()
    made["numpy"], made["dict"] = frozen, {"x": frozen[:, 0], "y": frozen[:, 1]}
    made["one block"] = pd.DataFrame(frozen, columns=["x", "y"], copy=False)
    made["one block of rows"] = made["one block"][1:]
    made["series"], made["stamps"] = (
        pd.Series(frozen[:, 0], copy=False),
        pd.Series(np.asfortranarray(frozen)[:, 0].astype("M8[ns]"), copy=False),
    )
    made["dataset"] = xr.Dataset({"x": ("t", frozen[:, 0])})
    made["array"] = xr.DataArray(xr.Variable("t", frozen[:, 1], fastpath=True))
    return made


def write(result: Any) -> None:
    """Copy a row of each column over another one."""
    if isinstance(result, pd.Series):
        result.iloc[0] = result.iloc[1]
    elif isinstance(result, pd.DataFrame):
        for place in range(result.shape[1]):
            result.iloc[0, place] = result.iloc[1, place]
    else:
        for column in result.data_vars.values() if hasattr(result, "data_vars") else [result]:
            column[0:1] = column.variable[1:2]


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("name", sources())
def test_writes_succeed_and_do_not_reach_the_source(name: str, to: str) -> None:
    source = sources()[name]
    plan = zc.explain(source, to, writable=True)
    result = zc.convert(source, to, writable=True)
    assert plan.shares_memory in (None, zc.shares_memory(source, result))
    before = _rows(source)
    write(result)
    assert _rows(source) == before
    if not plan.zero_copy and plan.reasons:
        with pytest.raises(zc.CopyRequiredError):
            zc.convert(source, to, writable=True, copy=False)
    # Copy-on-write does not count a source that has been freed.
    del source
    write(zc.convert(sources()[name], to, writable=True))


def _rows(source: Any) -> list[Any]:
    if isinstance(source, np.ndarray):
        return source.tolist()  # type: ignore[no-any-return]
    return [str(row) for row in zc.convert(source, "pyarrow", copy=True).to_pylist()]


@pytest.mark.parametrize("to", TARGETS)
def test_the_reason_of_the_copy_is_the_option(to: str) -> None:
    frozen = pd.DataFrame(read_only(), columns=["x", "y"], copy=False)
    table = pa.table({"x": [1.0, 2.0]})
    for source in [frozen, *([table, table["x"], pl.DataFrame(table)] if to == "xarray" else [])]:
        plan = zc.explain(source, to, writable=True)
        assert not plan.shares_memory
        assert "memory is immutable" in str(plan)
        assert zc.explain(source, to).zero_copy
