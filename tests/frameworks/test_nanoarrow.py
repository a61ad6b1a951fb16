"""nanoarrow: aliases of Arrow memory, and hazards of nanoarrow's own exporters."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers.arrow_producers import TableProducer, declare_dtypes, numbers
from helpers.table_cases import KINDS, SHAPES, rows, shaped
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy._engine.convert import convert_slowly

na = pytest.importorskip("nanoarrow")
pa = pytest.importorskip("pyarrow")

VIEW = pa.string_view()


def blocks(column: Any) -> Iterator[tuple[int, int]]:
    """Yield the extents of the buffers of a chunked column."""
    for chunk in column.chunks:
        for buffer in chunk.storage.buffers() if hasattr(chunk, "storage") else chunk.buffers():
            if buffer is not None and buffer.size:
                yield buffer.address, buffer.address + buffer.size


def inside(part: Any, whole: Any) -> bool:
    """Whether all memory of a column is within the memory of another."""
    places = list(blocks(whole))
    return all(any(a <= low and high <= b for a, b in places) for low, high in blocks(part))


# -- round trips -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "shape"),
    [
        *(("nanoarrow", shape) for shape in SHAPES),
        *(("nanoarrow.ArrayStream", shape) for shape in ("null slice", "null chunks", "empty", "no chunks")),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_each_type_in_each_shape_survives(kind: str, shape: str, form: str) -> None:
    table = pa.table({"x": shaped(KINDS[kind], shape)}, metadata={"made": "here"})
    plan = zc.explain(table, form)
    converted = zc.convert(table, form)
    assert type(converted) is (na.ArrayStream if form.endswith("Stream") else na.Array)
    back = zc.convert(converted, "pyarrow")
    assert back.schema.metadata == {b"made": b"here"}
    column = back["x"]
    if kind == "string_view" and form == "nanoarrow":
        assert column.type == pa.large_string()
        assert column.to_pylist() == table["x"].to_pylist()
        assert plan.copied_bytes == (table.nbytes if len(table) else 0)
        assert plan.warnings == ("column 'x': views become large_string or large_binary",)
        return
    assert column.equals(table["x"])
    assert inside(column, table["x"])
    assert plan.copied_bytes == 0
    if shape != "no chunks":  # nanoarrow leaves out empty ones
        assert column.num_chunks <= table["x"].num_chunks


@pytest.mark.parametrize(
    ("kind", "shape"), [*sampled(3, [k for k in KINDS if k not in ("null", "string_view")], [*SHAPES])]
)
def test_each_type_keeps_its_values_in_numpy(kind: str, shape: str) -> None:
    array = na.Array(pa.table({"x": shaped(KINDS[kind], shape)}))
    table = zc.convert(array, "pyarrow")
    options = {"nulls": "mask", "encode": True}
    converted = zc.convert(array, "numpy", **options)["x"]
    expected = zc.convert(table, "numpy", **options)["x"]
    assert str(rows(converted)) == str(rows(expected))
    leaves = zc.explain(array, "numpy", **options).leaves
    assert {path: leaf.zero_copy for path, leaf in leaves.items()} == {
        path: leaf.zero_copy for path, leaf in zc.explain(table, "numpy", **options).leaves.items()
    }


@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_numbers_are_aliased(target: str) -> None:
    pytest.importorskip(target)
    source = pa.table({"x": pa.array(range(64)), "y": pa.array(np.arange(64.0).tolist())})
    array = na.Array(source)
    plan = zc.explain(array, target)
    converted = zc.convert(array, target)
    for name in ("x", "y"):
        column = source[name].chunk(0)
        assert plan.leaves[f"[{name!r}]"].zero_copy
        assert zc.shares_memory(converted[name], column)
        assert np.array_equal(np.asarray(converted[name]), column.to_numpy())


def test_single_columns_are_aliased() -> None:
    values = np.arange(8.0)
    for array in (na.Array(values, na.float64()), na.c_array(values)):
        converted = zc.convert(array, "numpy", copy=False)
        assert converted.tolist() == values.tolist()
        assert zc.shares_memory(converted, values)
        assert not converted.flags.writeable
        assert zc.shares_memory(zc.convert(array, "pyarrow", copy=False), values)
    result = zc.convert(values, "nanoarrow", copy=False)
    assert type(result) is na.Array
    assert zc.shares_memory(result, values)
    with pytest.raises(zc.LossyConversionError, match="it has 1 null"):
        zc.convert(na.Array([1, None], na.int32()), "numpy")


def test_low_level_buffers_and_streams_are_read_by_protocol() -> None:
    array = na.Array(pa.array([1, 2, 3]))
    assert zc.convert(array.buffer(1), "numpy").tolist() == [1, 2, 3]
    stream = na.c_array_stream(pa.table({"x": [1, 2]}))
    assert zc.convert(stream, "numpy")["x"].tolist() == [1, 2]
    batch = na.c_array(pa.record_batch({"x": [1, 2], "s": ["a", None]}))
    assert zc.convert(batch, "numpy", columns=["x"])["x"].tolist() == [1, 2]
    assert zc.convert(batch, "pyarrow").to_pydict() == {"x": [1, 2], "s": ["a", None]}
    assert type(zc.convert(batch, "nanoarrow")) is na.Array  # it is not a nanoarrow object yet


def test_own_objects_are_returned_unchanged() -> None:
    array = na.Array(pa.table({"x": [1, 2]}))
    assert zc.convert(array, "nanoarrow") is array
    assert zc.convert(array, "nanoarrow.Array") is array
    stream = zc.convert(array, "nanoarrow.ArrayStream")
    assert type(stream) is na.ArrayStream
    assert zc.convert(stream, "nanoarrow") is stream
    read = zc.convert(stream, "nanoarrow.Array")
    assert type(read) is na.Array
    assert read.to_pylist() == array.to_pylist()
    copy = zc.convert(array, "nanoarrow", copy=True)
    assert not inside(pa.table(copy)["x"], pa.table(array)["x"])


# -- structs: offsets, nulls, chunks ---------------------------------------------


@pytest.mark.hazard("other-frameworks#slices-of-structs")
def test_slice_of_struct_keeps_offset() -> None:
    structs = pa.array([{"a": i, "s": str(i)} for i in range(10)])[3:7]
    array = na.Array(structs)
    assert len(array.child(0)) == 10  # nanoarrow loses the offset
    with pytest.raises(pa.ArrowInvalid, match="non-zero offset"):
        pa.table(array)  # and pyarrow refuses it
    for source in (array, na.c_array(structs)):
        assert zc.explain(source, "pyarrow").zero_copy
        converted = zc.convert(source, "pyarrow", copy=False)
        assert converted.to_pydict() == {"a": [3, 4, 5, 6], "s": ["3", "4", "5", "6"]}
        numbers = zc.convert(source, "numpy", columns=["a"], copy=False)["a"]
        assert numbers.tolist() == [3, 4, 5, 6]
        assert zc.shares_memory(numbers, structs.field("a"))


def test_null_rows_are_refused() -> None:
    array = na.Array(pa.array([{"a": 1}, None, {"a": 3}]))
    for target in ("numpy", "pyarrow"):
        with pytest.raises(zc.UnsupportedConversionError, match="1 of its rows are null"):
            zc.convert(array, target)
    hidden = na.Array(pa.array([{"a": 1}, None, {"a": 3}])[2:])
    assert zc.convert(hidden, "numpy")["a"].tolist() == [3]


def test_chunks_are_kept_and_nulls_refused_by_name() -> None:
    table = pa.table(
        {"a": pa.chunked_array([[1, 2, None], [4, 5]]), "b": pa.chunked_array([[1.0] * 3, [2.0] * 2])}
    )
    array = na.Array(table)
    with pytest.raises(ValueError, match="non-contiguous"):
        pa.record_batch(array)  # the array exporter refuses chunks, zerocopy reads the stream
    assert [c.num_chunks for c in zc.convert(array, "pyarrow").columns] == [2, 2]
    with pytest.raises(zc.LossyConversionError, match="column 'a' has 1 null"):
        zc.convert(array, "numpy")
    with pytest.raises(zc.CopyRequiredError, match="2 chunks"):
        zc.convert(array, "numpy", columns=["b"], copy=False)
    assert zc.convert(array, "numpy", nulls=0)["a"].tolist() == [1, 2, 0, 4, 5]


# -- streams ---------------------------------------------------------------------


def test_stream_is_read_once() -> None:
    table = pa.table({"x": [1, 2, 3], "s": ["a", "b", None]})
    stream = na.ArrayStream(table)
    plan = zc.explain(stream, "numpy", columns=["x"])
    assert plan.possible
    assert any("read once" in warning for warning in plan.warnings)
    converted = zc.convert(stream, "numpy", columns=["x"], copy=False)["x"]
    assert converted.tolist() == [1, 2, 3]
    assert zc.shares_memory(converted, table["x"].chunk(0))
    for target in ("numpy", "pyarrow"):
        with pytest.raises(zc.UnsupportedConversionError, match=r"stream failed.*released") as caught:
            zc.convert(stream, target, columns=["x"])
        assert isinstance(caught.value.__cause__, RuntimeError)


def test_stream_of_plain_arrays_is_a_column() -> None:
    assert zc.convert(na.ArrayStream(pa.array([1, 2])), "numpy").tolist() == [1, 2]
    with pytest.raises(zc.UnsupportedConversionError, match="possible once") as caught:
        zc.view(na.ArrayStream(pa.array([1, 2])))
    assert "read_all()" in caught.value.remedy


def test_stream_that_fails_while_it_is_read() -> None:
    def batches() -> Iterator[Any]:
        yield pa.record_batch({"x": [1]})
        raise RuntimeError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches())
    with pytest.raises(zc.UnsupportedConversionError, match="the disk is gone") as caught:
        zc.convert(na.ArrayStream(reader), "numpy")
    assert caught.value.__cause__ is not None


# -- views abort the process -----------------------------------------------------

_VIEWS = """
import nanoarrow as na, pyarrow as pa, zerocopy as zc
t = pa.table({'s': pa.array(['a', 'b' * 20], pa.string_view())})
"""


@pytest.mark.hazard("other-frameworks#arrays-with-views")
def test_hazard_arrays_with_views_abort_the_process(run_python) -> None:
    """nanoarrow itself crashes, in a separate process."""
    # 1,000 calls, because the first ones may only damage the heap.
    often = "for _ in range(1000): pa.table(na.Array(t)).to_pydict()\n"
    completed = run_python(_VIEWS + often + "print('alive')")
    assert completed.returncode != 0
    assert "alive" not in completed.stdout


@pytest.mark.hazard("other-frameworks#arrays-with-views")
def test_arrays_with_views_are_refused_before_they_are_read(run_python) -> None:
    completed = run_python(
        _VIEWS
        + """
array = na.Array(t)
nested = na.Array(pa.table({'s': pa.array([['a']], pa.list_(pa.string_view()))}))
low = na.c_array(t.to_batches()[0])
for source in (array, nested, low):
    for target in ("numpy", "pyarrow", "nanoarrow.ArrayStream"):
        assert not zc.explain(source, target, encode=target == "numpy" or None).possible
        try:
            zc.convert(source, target)
        except zc.UnsupportedConversionError as error:
            assert "string_view" in error.why and "ArrayStream" in error.remedy
        else:
            raise AssertionError(target)
assert zc.convert(array, "nanoarrow") is array
found = zc.convert(na.ArrayStream(t), "numpy", encode=True)["s"]
assert found.to_pylist() == ["a", "b" * 20], found
assert zc.convert(na.ArrayStream(t), "pyarrow").equals(t)
again = zc.convert(zc.convert(t, "nanoarrow.ArrayStream"), "pyarrow")
assert again.equals(t)
cast = zc.convert(t, "nanoarrow")
assert pa.table(cast).to_pydict() == t.to_pydict()
print("alive")
"""
    )
    assert completed.returncode == 0, completed.stderr
    assert "alive" in completed.stdout


@pytest.mark.hazard("other-frameworks#arrays-with-views")
@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", "b" * 20, None], VIEW),
        pa.array([b"a", b"b" * 20, None], pa.binary_view()),
        pa.array([["a", None], None], pa.list_(VIEW)),
        pa.array([["a"]], pa.large_list(VIEW)),
        pa.array([["a", "b"]], pa.list_(VIEW, 2)),
        pa.array([{"s": "a", "n": 1}], pa.struct([("s", VIEW), ("n", pa.int8())])),
        pa.array([[("k", "v")]], pa.map_(VIEW, VIEW)),
        pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["a", "b"], VIEW)),
    ],
    ids=lambda a: str(a.type),
)
def test_views_are_cast_with_a_reason(array: Any) -> None:
    table = pa.table({"v": array, "n": np.arange(len(array))})
    plan = zc.explain(table, "nanoarrow")
    assert not plan.leaves["['v']"].zero_copy
    assert plan.leaves["['n']"].zero_copy
    assert any("aborts the process" in reason.why for reason in plan.leaves["['v']"].reasons)
    with pytest.raises(zc.CopyRequiredError, match="aborts the process"):
        zc.convert(table, "nanoarrow", copy=False)
    back = zc.convert(zc.convert(table, "nanoarrow"), "pyarrow")
    assert back["v"].to_pylist() == table["v"].to_pylist()
    assert inside(back["n"], table["n"])
    single = zc.convert(array, "nanoarrow")
    assert pa.chunked_array(single).to_pylist() == array.to_pylist()


@pytest.mark.parametrize(
    "array",
    [
        pa.array([["a"]], pa.list_view(VIEW)),
        pa.RunEndEncodedArray.from_arrays([2], pa.array(["a"], VIEW)),
        pa.ExtensionArray.from_storage(pa.opaque(VIEW, "text", "us"), pa.array(["a"], VIEW)),
    ],
    ids=lambda a: str(a.type),
)
def test_views_that_pyarrow_cannot_cast_need_a_stream(array: Any) -> None:
    table = pa.table({"v": array})
    with pytest.raises(zc.UnsupportedConversionError, match=r"'v' is .*aborts the process") as caught:
        zc.convert(table, "nanoarrow")
    assert "nanoarrow.ArrayStream" in caught.value.remedy
    assert zc.explain(table, "nanoarrow.ArrayStream").zero_copy
    assert zc.convert(zc.convert(table, "nanoarrow.ArrayStream"), "pyarrow").equals(table)


# -- warnings and lifetimes -----------------------------------------------------


def test_types_that_nanoarrow_cannot_show_are_warned_of() -> None:
    table = pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), "x": [1]})
    (message,) = zc.explain(table, "nanoarrow").warnings
    assert message.startswith("column 'm': ")
    with pytest.raises(KeyError):
        zc.convert(table, "nanoarrow").to_pylist()
    assert zc.convert(zc.convert(table, "nanoarrow"), "pyarrow").equals(table)
    assert "a stream can be read once" in zc.explain(table, "nanoarrow.ArrayStream").warnings


def test_results_keep_memory_alive() -> None:
    values = np.arange(1000)
    alive = weakref.ref(values)
    array = zc.convert({"x": values}, "nanoarrow", copy=False)
    converted = zc.convert(array, "numpy", copy=False)["x"]
    del values, array
    gc.collect()
    assert alive() is not None
    assert converted.sum() == 499_500
    del converted
    gc.collect()
    assert alive() is None


# -- tables to tensors, through the core ------------------------------------------------------


def test_the_columns_of_a_table_live_as_long_as_their_tensors() -> None:
    for _ in range(3):
        arrays = [np.arange(4.0), np.arange(4.0)]
        table = na.Array(pa.record_batch([pa.array(array) for array in arrays], names=["a", "b"]))
        watched = [weakref.ref(array) for array in arrays]
        columns = zc.convert(table, "numpy")
        assert table.to_pylist()[3] == {"a": 3.0, "b": 3.0}
        del table, arrays, columns["a"]
        gc.collect()
        assert columns["b"].tolist() == [0, 1, 2, 3]
        del columns
        gc.collect()
        assert [ref() for ref in watched] == [None, None]


@pytest.mark.parametrize("to", ["polars", "pandas", "pyarrow"])
def test_names_of_columns_are_those_of_the_plan(to: str) -> None:
    """Each call gives the same name: the first plans the column, and later ones take its route."""
    pytest.importorskip(to)
    array = na.Array([1, 2, 3], na.Schema(na.Type.INT64, name="heights"))
    names = [getattr(zc.convert(array, to), "name", None) for _ in range(3)]
    assert names == [None if to == "pyarrow" else "heights"] * 3
    named = {"polars": "Series", "pandas": "Series", "pyarrow": "array"}[to]
    source = getattr(pytest.importorskip(to), named)([1, 2, 3])
    source = source if to == "pyarrow" else source.rename("heights")
    assert [zc.convert(source, "nanoarrow").schema.name for _ in range(3)] == [""] * 3


@pytest.mark.parametrize("to", ["polars", "pandas", "pyarrow", "numpy"])
def test_names_that_are_not_utf8_are_refused(to: str) -> None:
    """pyarrow imports such names, and raises UnicodeDecodeError when they are read."""
    pytest.importorskip(to)
    declare_dtypes()
    producer = TableProducer(numbers())
    producer.fields[0].name = b"\xff\xfe"
    array = na.Array(producer)
    for _ in range(3):
        with pytest.raises(zc.UnsupportedConversionError):
            zc.convert(array, to)


@pytest.mark.parametrize("to", ["polars", "pandas", "pyarrow", "duckdb", "numpy"])
def test_parts_of_structs_and_structs_with_nulls_convert_as_planned(to: str) -> None:
    """Consumers lose the offset and the nulls of a struct."""
    pytest.importorskip(to)
    rows_of = [{"a": 1.5, "b": 4}, {"a": 2.5, "b": 5}, {"a": 3.5, "b": 6}]
    whole, with_nulls = pa.array(rows_of), pa.array([rows_of[0], None, rows_of[2]])
    for _ in range(2):
        zc.convert(na.Array(whole), to)

    def outcome(convert: Callable[..., Any], array: Any) -> Any:
        try:
            result = convert(na.Array(array), to)
        except zc.ZeroCopyError as error:
            return type(error), error.code
        return type(result), str(zc.convert(result, "pyarrow") if to != "numpy" else result)

    for array in (whole, whole[1:], whole[:2], whole[:0], with_nulls, with_nulls[2:]):
        assert outcome(zc.convert, array) == outcome(lambda x, to: convert_slowly(x, to, {}), array)


# -- kept schemas ------------------------------------------------------------------


def tables(source: str) -> list[Any]:
    """Return tables of alternating schemas: names, types and, if they are kept, nullability and metadata."""
    x, y = pa.array([1.5, None, 3.5]), pa.array(["a", "bb", None], pa.large_string())
    fields = [pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64(), metadata={"k": "v"})]
    made = [
        pa.table({"a": x, "b": y}),
        pa.table({"a": y, "b": x}),
        pa.table({"a": x, "c": y}),
        pa.table({"a": x.cast("float32"), "b": x}),
    ]
    if source == "pyarrow":
        made += [
            pa.table([pa.array([1, 2, 3])] * 2, pa.schema(fields)),
            pa.table({"a": [1, 2, 3], "b": [1] * 3}),
        ]
    return [zc.convert(table, source) for table in made]


@pytest.mark.parametrize("target", ["nanoarrow", "pyarrow", "polars", "pandas"])
@pytest.mark.parametrize("source", ["nanoarrow", "pyarrow", "polars"])
def test_tables_of_alternating_schemas_are_as_on_the_slow_path(source: str, target: str) -> None:
    for module in (source, target):
        pytest.importorskip(module)
    expected = [zc.convert(convert_slowly(table, target, {}), "pyarrow") for table in tables(source)]
    results = [zc.convert(table, target) for _ in range(2) for table in tables(source)]
    for result, other in zip(results, expected * 2, strict=True):
        arrow = zc.convert(result, "pyarrow")
        assert arrow.schema.equals(other.schema, check_metadata=True)
        assert arrow.equals(other)


def test_arrays_of_one_kept_schema_are_independent() -> None:
    pl = pytest.importorskip("polars")
    for source in (pa.table({"a": [1.5, 2.5]}), pl.DataFrame({"a": [1.5, 2.5]})):
        first, second = zc.convert(source, "nanoarrow"), zc.convert(source, "nanoarrow")
        for _ in range(2):  # a consumer takes the schema and the array
            assert pa.record_batch(first).to_pydict() == {"a": [1.5, 2.5]}
        del first
        gc.collect()
        assert zc.convert(second, "numpy")["a"].tolist() == [1.5, 2.5]
        assert second.schema.field(0).name == "a"


def test_a_frame_that_changes_between_two_calls_has_its_new_schema() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": [1.5, 2.5]})
    for target in ("pyarrow", "nanoarrow"):
        frame = pl.DataFrame({"a": [1.5, 2.5]})
        zc.convert(frame, target)
        frame.replace_column(0, pl.Series("a", [1, 2], pl.Int8))
        assert zc.convert(zc.convert(frame, target), "pyarrow").schema.types == [pa.int8()]
        frame.insert_column(1, pl.Series("b", ["x", None]))
        assert zc.convert(zc.convert(frame, target), "pyarrow").to_pydict() == {"a": [1, 2], "b": ["x", None]}
