"""Booleans in bytes become Arrow's own bits, which every reader knows; ``dtype="bool8"`` keeps the bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.arrays import aligned
from helpers.pasting import pasted
from helpers.table_cases import TABLES, TENSORS, pa

import zerocopy as zc
from zerocopy import registry

pd = pytest.importorskip("pandas")

FLAGS = [True, False, True, True, False, False, True, False, True, True, False]
#: Bytes that NumPy reads as True are bytes other than 0.
BYTES = np.array(FLAGS, np.uint8) * np.array([1, 1, 255, 2, 1, 1, 7, 1, 1, 128, 1], np.uint8)


def flags() -> Any:
    return np.array(FLAGS)


class Exporter:
    """An object that only the buffer protocol, or only DLPack, describes."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


ARRAYS = {name: lambda name=name: zc.convert(flags(), name) for name in TENSORS} | {
    "strided": lambda: np.array(FLAGS).repeat(3)[::3],
    "reversed": lambda: np.array(FLAGS[::-1])[::-1],
    "other bytes": lambda: BYTES.view(bool),
    "field": lambda: np.array([(f, 1.5) for f in FLAGS], [("flag", "?"), ("x", "f8")])["flag"],
    "memoryview": lambda: memoryview(flags()),
    "exporter": lambda: Exporter(flags()),
    "Series": lambda: pd.Series(flags()),
    "boolean": lambda: pd.Series(flags(), dtype="boolean"),
    "Index": lambda: pd.Index(flags()),
}
COLUMNS = {
    "dict": lambda: {"flag": flags(), "i": np.arange(len(FLAGS))},
    "DataFrame": lambda: pd.DataFrame({"flag": FLAGS, "i": range(len(FLAGS))}),
    "block": lambda: pd.DataFrame(np.array([FLAGS, FLAGS]).T, columns=["flag", "other"]),
    "records": lambda: np.array([(f, 1.5) for f in FLAGS], [("flag", "?"), ("x", "f8")]),
    "matrix": lambda: np.array([FLAGS, FLAGS]).T,
}
#: Frameworks whose booleans are bits in Arrow's memory, also with the option.
BITS = [name for name in TABLES if registry.by_name(name).packs_booleans]
FORMS = ["pyarrow", "pyarrow.Array", "pyarrow.ChunkedArray", "pyarrow.Table", "pyarrow.RecordBatch", *BITS]
FORMS = [form for form in dict.fromkeys(FORMS) if form.partition(".")[0] in BITS]


def column(result: Any) -> Any:
    """Return a result's first column as an array of pyarrow."""
    result = result["flag"] if isinstance(result, dict) else result
    whole = zc.convert(result, "pyarrow")
    whole = whole.column(0) if hasattr(whole, "column") else whole
    return whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole


def values(array: Any) -> list[Any]:
    """Return booleans, also those of bool8, which pyarrow shows as integers."""
    return [None if value is None else bool(value) for value in array.to_pylist()]


@pytest.mark.parametrize("to", FORMS)
@pytest.mark.parametrize("source", ARRAYS)
@pytest.mark.hazard("pyarrow#booleans-in-bytes")
def test_arrays_of_booleans_become_bits(source: str, to: str) -> None:
    x = ARRAYS[source]()
    converter = zc.converter(x, to)
    for result in (zc.convert(x, to), zc.convert(x, to), converter(x), zc.convert(x, to, dtype="bool")):
        assert column(result).type == pa.bool_()
        assert values(column(result)) == FLAGS
    plan = zc.explain(x, to)
    assert not plan.zero_copy
    assert plan.copied_bytes == len(FLAGS)
    assert any(reason.code == "packed-bits" for reason in plan.reasons)


@pytest.mark.parametrize("to", FORMS)
@pytest.mark.parametrize("source", COLUMNS)
def test_columns_of_booleans_become_bits(source: str, to: str) -> None:
    x = COLUMNS[source]()
    if to == "pyarrow.ChunkedArray" or (source == "matrix" and registry.by_name(to).kind != "table"):
        pytest.skip("the target is one column, or a tensor")
    for _ in range(2):
        result = column(zc.convert(x, to))
        assert result.type == pa.bool_()
        assert values(result) == FLAGS
    plan = zc.explain(x, to)
    leaf = next(iter(plan.leaves.values()))
    assert not leaf.zero_copy
    assert any(reason.code == "packed-bits" for reason in leaf.reasons)


@pytest.mark.parametrize("to", FORMS)
@pytest.mark.parametrize("source", [*ARRAYS, "dict", "DataFrame", "block"])
def test_copy_false_names_bool8_and_it_aliases(source: str, to: str) -> None:
    is_array = source in ARRAYS
    if not is_array and to == "pyarrow.ChunkedArray":
        pytest.skip("a table is not a column")
    x = (ARRAYS if is_array else COLUMNS)[source]()
    with pytest.raises(zc.CopyRequiredError) as caught:
        zc.convert(x, to, copy=False)
    code = caught.value.calls[0]
    assert '"bool8"' in code
    result = pasted(code, {"x": x, "zc": zc})
    assert values(column(result)) == FLAGS
    plan = zc.explain(x, to, dtype={"bool": "bool8"})
    leaf = plan if is_array else next(iter(plan.leaves.values()))
    if leaf.zero_copy and "duckdb" not in to:
        aliased = zc.convert(x, to, dtype={"bool": "bool8"}, copy=False)
        assert column(aliased).type == pa.bool8()
        assert zc.shares_memory(x, aliased)
        assert values(column(aliased)) == FLAGS
    strided = ("strided", "reversed", "field", "exporter", "other bytes", "block")
    assert leaf.zero_copy or source in strided
    if is_array:
        assert "dtype='bool8'" in zc.explain(x, to).reasons[0].remedy
    else:
        assert "dtype={'flag': 'bool8'}" in str(zc.explain(x, to))


@pytest.mark.parametrize("to", [name for name in (*TENSORS, *TABLES) if name not in BITS])
def test_bool8_is_bool_for_targets_without_it(to: str) -> None:
    x = flags()
    plain, named = zc.convert(x, to), zc.convert(x, to, dtype="bool8")
    assert str(getattr(plain, "dtype", type(plain))) == str(getattr(named, "dtype", type(named)))
    assert zc.explain(x, to, dtype="bool8").zero_copy == zc.explain(x, to).zero_copy
    assert np.asarray(zc.convert(named, "numpy")).tolist() == FLAGS
    if not zc.explain(x, to).zero_copy:
        with pytest.raises(zc.CopyRequiredError) as caught:
            zc.convert(x, to, copy=False)
        assert "bool8" not in str(caught.value)


@pytest.mark.parametrize("to", [name for name in BITS if name != "duckdb"])
def test_bool8_casts_numbers_and_bits(to: str) -> None:
    nulls = pa.array([True, None, False])
    assert column(zc.convert(nulls, to, dtype="bool8")).type == pa.bool8()
    assert values(column(zc.convert(nulls, to, dtype="bool8"))) == [True, None, False]
    numbers = zc.convert(np.array([0, 1, 1]), to, dtype="bool8")
    assert column(numbers).type == pa.bool8()
    assert column(zc.convert(np.array([0, 1, 1]), to, dtype="bool")).type == pa.bool_()
    with pytest.raises(zc.LossyConversionError):
        zc.convert(np.array([0, 2]), to, dtype="bool8")
    table = zc.convert({"a": [True, False], "b": [0, 1]}, to, dtype={"a": "bool8"})
    assert zc.convert(table, "pyarrow.Table").schema.types == [pa.bool8(), pa.int64()]


@pytest.mark.parametrize("to", [*TENSORS, *TABLES])
def test_plans_warn_of_readers_that_lack_bool8(to: str) -> None:
    has_bool8 = to in BITS and to != "duckdb"
    for x in (flags(), {"flag": flags()}):
        plans = [zc.explain(x, to, dtype="bool8"), zc.explain(x, to, dtype="bool")]
        leaves = [(plan.leaves or {"": plan}).values() for plan in plans]
        warnings = [
            str([*plan.warnings, *[leaf.warnings for leaf in parts]])
            for plan, parts in zip(plans, leaves, strict=True)
        ]
        assert ["int8" in text for text in warnings] == [has_bool8, False]


@pytest.mark.parametrize("to", [*TENSORS, *TABLES])
def test_sources_of_bool8_keep_their_values(to: str) -> None:
    x = pa.array([*FLAGS]).cast(pa.bool8())
    named = {"flag": x, "i": pa.array(range(len(FLAGS)))}
    plan, result = zc.explain(x, to), zc.convert(x, to)
    if to in TENSORS:
        assert plan.zero_copy == zc.explain(aligned(FLAGS), to).zero_copy
        assert np.asarray(zc.convert(result, "numpy")).dtype == bool
    else:
        kept = to in BITS and to != "duckdb"
        whole = zc.convert(zc.convert(named, to), "pyarrow.Table")
        assert whole["flag"].type == (pa.bool8() if kept else pa.bool_())
        assert values(whole["flag"]) == FLAGS
        if kept:
            assert plan.zero_copy
            assert column(zc.convert(x, to, dtype="bool")).type == pa.bool_()
            assert not zc.explain(x, to, dtype="bool").zero_copy


def test_booleans_inside_other_types_become_bits() -> None:
    row = [("b", "?"), ("list", "?", (2,)), ("inner", [("deep", "?")])]
    rows = np.array([(True, [True, False], (False,)), (False, [False, True], (True,))], row)
    table = zc.convert(rows, "pyarrow")
    assert table.schema.types == [pa.bool_(), pa.list_(pa.bool_(), 2), pa.struct([("deep", pa.bool_())])]
    assert table.to_pylist()[0] == {"b": True, "list": [True, False], "inner": {"deep": False}}
    categories = pd.Series(pd.Categorical([True, None, False]))
    assert zc.convert(categories, "pyarrow").type.value_type == pa.bool_()


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 64, 65])
def test_bits_at_each_length(count: int) -> None:
    x = (np.arange(count) % 3 == 0).view(np.uint8) * np.uint8(3)
    array = zc.convert(x.view(bool), "pyarrow")
    array.validate(full=True)
    assert array.to_pylist() == [i % 3 == 0 for i in range(count)]
    masked = pd.Series(pd.array([None if i % 4 == 1 else i % 3 == 0 for i in range(count)], "boolean"))
    assert zc.convert(masked, "pyarrow").to_pylist() == [
        None if i % 4 == 1 else i % 3 == 0 for i in range(count)
    ]


def test_the_monitor_counts_packed_booleans_as_copied() -> None:
    x = flags()
    with zc.monitor.record() as record:
        zc.convert(x, "pyarrow")
        zc.convert({"flag": x}, "pyarrow.Table")
        zc.convert(x, "pyarrow", dtype="bool8")
    assert record.totals.copied_bytes == 2 * len(FLAGS)
    assert record.totals.aliased_bytes == len(FLAGS)


def test_functions_and_loaders_get_bits() -> None:
    @zc.accepts("pyarrow", returns=None)
    def kind(x: Any) -> Any:
        return x.type

    assert kind(flags()) == pa.bool_()
    (batch,) = zc.loader({"flag": flags()}, "pyarrow", batch_size=len(FLAGS))
    assert batch["flag"].type == pa.bool_()
    (batch,) = zc.loader({"flag": flags()}, "pyarrow", batch_size=len(FLAGS), dtype={"flag": "bool8"})
    assert batch["flag"].type == pa.bool8()
    with zc.share(pd.DataFrame({"flag": FLAGS})) as shared:
        assert zc.convert(shared, "pyarrow.Table")["flag"].type == pa.bool_()
