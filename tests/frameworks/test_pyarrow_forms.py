"""The forms of ``to="pyarrow...."``: arrays of all types, permuted tensors, and extension types."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers.table_cases import KINDS, SHAPES, TABLES, pa, shaped

import zerocopy as zc
from zerocopy import registry

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
HOST = [name for name in TABLES if name not in ("cudf", "pylibcudf")]


@pytest.mark.parametrize("kind", KINDS)
def test_array_takes_what_pyarrow_takes(kind: str) -> None:
    for shape in SHAPES:
        column = shaped(KINDS[kind], shape)
        expected = zc.convert(column, "pyarrow")
        plan = zc.explain(column, "pyarrow.Array")
        array = zc.convert(column, "pyarrow.Array")
        assert isinstance(array, pa.Array)
        assert array.type == expected.type
        assert array.to_pylist() == expected.to_pylist()
        several = column.num_chunks > 1
        if not len(column):
            continue
        assert plan.zero_copy is (not several and zc.shares_memory(column, array))
        if several:
            with pytest.raises(zc.CopyRequiredError, match="chunks"):
                zc.convert(column, "pyarrow.Array", copy=False)
        copied = zc.convert(column, "pyarrow.Array", copy=True)
        assert copied.to_pylist() == expected.to_pylist()
        assert not zc.shares_memory(column, copied)


@pytest.mark.parametrize("source", HOST)
def test_array_of_a_table_is_a_dict_of_arrays(source: str) -> None:
    table = pa.table({"s": ["a", None], "x": [1.5, 2.5], "l": [[1], None]})
    arrays = zc.convert(zc.convert(table, source), "pyarrow.Array")
    assert {name: array.to_pylist() for name, array in arrays.items()} == table.to_pydict()
    assert all(isinstance(array, pa.Array) for array in arrays.values())
    picked = zc.convert(zc.convert(table, source), "pyarrow.Array", columns=["s"])
    assert list(picked) == ["s"]


def test_array_keeps_dicts_of_other_lengths_and_the_options_for_tensors() -> None:
    arrays = zc.convert({"a": np.ones(2), "b": {"c": np.ones(3)}}, "pyarrow.Array")
    assert arrays["a"].to_pylist() == [1.0, 1.0]
    assert arrays["b"]["c"].to_pylist() == [1.0, 1.0, 1.0]
    masked = zc.convert(pa.array([1, None]), "pyarrow.Array", nulls="mask")
    assert masked.mask.to_pylist() == [False, True]
    twice = pa.table([[1], [2]], names=["a", "a"])
    with pytest.raises(zc.UnsupportedConversionError, match="several columns are called 'a'"):
        zc.convert(twice, "pyarrow.Array")
    assert not zc.explain(twice, "pyarrow.Array").possible


def test_chunks_of_polars_are_counted_for_arrays_and_batches() -> None:
    series = pl.concat([pl.Series([1.0]), pl.Series([2.0])], rechunk=False)
    for to, source in (("pyarrow.Array", series), ("pyarrow.RecordBatch", series.to_frame("x"))):
        plan = zc.explain(source, to)
        assert not plan.zero_copy
        assert plan.zero_copy == zc.shares_memory(source, zc.convert(source, to))
        with pytest.raises(zc.CopyRequiredError, match="2 chunks"):
            zc.convert(source, to, copy=False)


def permutations() -> list[Any]:
    """Return each order of the dimensions of arrays of 2, 3 and 4 dimensions, some of size 1."""
    shapes = ((2, 3), (2, 3, 4), (2, 1, 3), (3, 2, 1, 4), (1, 2, 3))
    return [(shape, order) for shape in shapes for order in itertools.permutations(range(len(shape)))]


@pytest.mark.parametrize(("shape", "order"), permutations(), ids=str)
def test_permuted_tensors_are_aliased_if_rows_are_whole(shape: Any, order: Any) -> None:
    values = np.arange(np.prod(shape), dtype="f4").reshape(shape).transpose(order)
    plan = zc.explain(values, "pyarrow.FixedShapeTensorArray")
    column = zc.convert(values, "pyarrow.FixedShapeTensorArray")
    assert plan.zero_copy == zc.shares_memory(values, column)
    if order[0] == 0 and len(shape) == 3:  # two dimensions after the first: in order, or exchanged
        assert plan.zero_copy
    assert np.array_equal(column.to_numpy_ndarray(), values)
    assert np.array_equal(zc.convert(column, "numpy"), values)
    copied = zc.convert(values, "pyarrow.FixedShapeTensorArray", copy=True)
    assert np.array_equal(copied.to_numpy_ndarray(), values)
    assert not zc.shares_memory(values, copied)


@pytest.mark.hazard("pyarrow#permuted-tensors")
def test_hazard_pyarrow_reads_permutations_as_their_inverse() -> None:
    """If this fails, pyarrow reads such permutations correctly: `memory_order` may return them."""
    values = np.arange(48.0).reshape(2, 2, 3, 4).transpose(0, 2, 3, 1)
    own = pa.FixedShapeTensorArray.from_numpy_ndarray(values).to_numpy_ndarray()
    assert own.shape != values.shape or not np.array_equal(own, values)
    column = zc.convert(values, "pyarrow.FixedShapeTensorArray")
    assert np.array_equal(column.to_numpy_ndarray(), values)
    with pytest.raises(zc.CopyRequiredError, match="exchanged in pairs"):
        zc.convert(values, "pyarrow.FixedShapeTensorArray", copy=False)


@pytest.mark.parametrize("target", ["pyarrow", "polars", "duckdb", "nanoarrow", "pandas"])
def test_permuted_tensors_as_columns_of_tables_are_right(target: str) -> None:
    values = np.arange(24.0).reshape(2, 3, 4).transpose(0, 2, 1)
    assert not zc.explain({"x": values}, target).zero_copy
    table = zc.convert(zc.convert({"x": values}, target), "pyarrow")
    rows = table["x"].to_pylist()
    assert np.array_equal(np.array(rows).reshape(2, 4, 3), values)


def test_unregistered_extension_types_are_kept_or_reported() -> None:
    metadata = {b"ARROW:extension:name": b"geoarrow.wkb", b"ARROW:extension:metadata": b"{}"}
    point = bytes.fromhex("0101000000000000000000f03f0000000000000040")
    schema = pa.schema([pa.field("g", pa.binary(), metadata=metadata)])
    table = pa.table([pa.array([point])], schema=schema)
    relation = zc.convert(table, "duckdb")
    assert [str(kind) for kind in relation.types] == ["GEOMETRY"]
    for source in (table, relation):
        for to in ("pandas", "polars"):
            warnings = zc.explain(source, to).warnings
            assert any("extension type geoarrow.wkb is lost" in warning for warning in warnings), to
        back = zc.convert(source, "pyarrow.Table")
        assert back.schema.field("g").metadata == metadata
        assert back["g"].to_pylist() == [point]
        through = zc.convert(zc.convert(source, "nanoarrow"), "pyarrow")
        assert through.schema.field("g").metadata == metadata
    assert not any("lost" in warning for warning in zc.explain(table, "duckdb").warnings)
    system = {**metadata, b"ARROW:extension:metadata": b'{"crs": "EPSG:4326"}'}
    with_system = table.cast(pa.schema([pa.field("g", pa.binary(), metadata=system)]))
    assert any("coordinate system" in warning for warning in zc.explain(with_system, "duckdb").warnings)


class _Stream:
    """A producer with the C data interface alone."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", [pa.int8(), pa.string(), pa.struct([("a_view", pa.int8())])])
def test_names_of_columns_do_not_count_as_views(kind: Any) -> None:
    """Empty batches are kept: they are dropped for views alone."""
    chunk = pa.nulls(2, kind)
    for name in ("page", "page_view"):
        table = pa.table({name: pa.chunked_array([chunk, chunk[:0], chunk])})
        assert zc.convert(_Stream(table), "pyarrow")[name].num_chunks == table[name].num_chunks


@pytest.mark.parametrize("target", ["torch", "awkward"])
def test_the_name_of_the_items_does_not_make_a_list_a_view(target: str) -> None:
    pytest.importorskip(target)
    lists = pa.array([[1, 2], [3]], pa.list_(pa.field("list_view", pa.int64())))
    for _ in range(2):
        plan = zc.explain(lists, target)
        result = zc.convert(lists, target)
        assert plan.zero_copy
        assert zc.shares_memory(lists, result)
        assert [row.tolist() for row in result] == [[1, 2], [3]]


_BOOL8 = pa.array([True, False]).cast(pa.bool8())
_UNION = pa.UnionArray.from_dense(
    pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]
)
_TENSORS = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8.0).reshape(2, 2, 2))
UNMADE = {
    "tensors": _TENSORS,
    "union": _UNION,
    "union in a struct": pa.StructArray.from_arrays([_UNION], ["a"]),
    "tensors in a struct": pa.StructArray.from_arrays([_TENSORS], ["a"]),
    "bool8 in lists": pa.FixedSizeListArray.from_arrays(_BOOL8, 1),
    "lists in a dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([[1]])),
}


@pytest.mark.parametrize("name", UNMADE)
def test_batch_without_rows_has_types_that_pyarrow_does_not_make_of_python_objects(name: str) -> None:
    rows = UNMADE[name]
    batch = pa.record_batch({"a": rows})
    for source in (
        pa.table({"a": rows}).slice(0, 0),
        pa.table({"a": pa.chunked_array([], rows.type)}),
        pa.chunked_array([rows.slice(0, 0), rows.slice(1, 0)]),
        {"a": rows.slice(0, 0), "b": np.empty(0)},
        pa.RecordBatchReader.from_batches(batch.schema, []),
    ):
        assert zc.explain(source, "pyarrow.RecordBatch").possible
        empty = zc.convert(source, "pyarrow.RecordBatch")
        empty.validate(full=True)
        assert empty.num_rows == 0
        assert empty.column(0).type == rows.type


def test_batch_without_rows_keeps_metadata_and_fields_that_forbid_nulls() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False, metadata={"k": "v"})], {"m": "n"})
    for source in (schema.empty_table(), pa.RecordBatchReader.from_batches(schema, [])):
        assert zc.convert(source, "pyarrow.RecordBatch").schema.equals(schema, check_metadata=True)


@pytest.mark.skipif(not hasattr(pa.Array, "from_dlpack"), reason="pyarrow 24 has no import of DLPack")
def test_row_major_arrays_become_tensors_without_a_plan() -> None:
    importer = registry.by_name("pyarrow").fast_importers()["ndarray"]
    array = np.arange(6.0).reshape(2, 3)
    assert importer(array).to_numpy().tolist() == array.tolist()
    for planned in (array.T, array[:, :2], array[0, ::2], array > 1, array[0] > 1):
        with pytest.raises(pa.ArrowInvalid):
            importer(planned)


def test_an_empty_array_is_an_array_of_arrow() -> None:
    for x in (np.empty(0), np.empty(0, "f4"), np.arange(4)[::2][:0]):
        assert type(zc.convert(x, "pyarrow")) is type(zc.explain(x, "pyarrow").run()) is type(pa.array(x))


def test_a_stream_whose_arrays_violate_its_schema_is_refused_with_the_difference() -> None:
    class Producer:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            schema, batch = pa.schema({"a": pa.int64()}), pa.record_batch({"a": ["x"]})
            return pa.RecordBatchReader.from_batches(schema, [batch]).__arrow_c_stream__()

    with pytest.raises(zc.UnsupportedConversionError, match="with 2 buffers, and the array has 3") as caught:
        zc.convert(Producer(), "pyarrow")
    assert caught.value.code == "invalid-producer"
