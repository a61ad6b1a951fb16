"""zerocopy's reader of the Arrow C data interface: correct and malformed producers."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

import zerocopy as zc
from zerocopy.protocols import arrow_c
from zerocopy.protocols.arrow_schema import ArrowSchema, pointer, read_schema

pa = pytest.importorskip("pyarrow")


class Poisoned:
    """All methods but one raise, so that a result shows which protocol was used."""

    def __init__(self, x) -> None:
        self.x = x

    def poison(self, *args, **kwargs):
        raise AssertionError("a protocol other than the Arrow C data interface was used")

    __array__ = __dataframe__ = to_numpy = to_pandas = to_arrow = poison


class OnlyArray(Poisoned):
    def __arrow_c_array__(self, requested_schema=None):
        return self.x.__arrow_c_array__(requested_schema)


class OnlyStream(Poisoned):
    def __arrow_c_stream__(self, requested_schema=None):
        return self.x.__arrow_c_stream__(requested_schema)


class OnlyDevice(Poisoned):
    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        return self.x.__arrow_c_device_array__(requested_schema)


TABLE = pa.table({"a": np.arange(6.0), "b": np.arange(6, dtype="i2")})
CHUNKED = pa.concat_tables([TABLE, TABLE])


@pytest.mark.parametrize("kind", [OnlyArray, OnlyStream, OnlyDevice])
def test_table_with_one_protocol_is_aliased(kind: type) -> None:
    batch = TABLE.to_batches()[0]
    source = kind(TABLE if kind is OnlyStream else batch)
    converted = zc.convert(source, to="numpy")
    assert list(converted) == ["a", "b"]
    for name in converted:
        np.testing.assert_array_equal(converted[name], TABLE[name].to_numpy())
        assert zc.shares_memory(converted[name], TABLE[name])
        assert not converted[name].flags.writeable


@pytest.mark.parametrize("kind", [OnlyArray, OnlyStream, OnlyDevice])
def test_column_with_one_protocol_is_aliased(kind: type) -> None:
    column = pa.array(np.arange(6.0))
    converted = zc.convert(kind(pa.chunked_array([column]) if kind is OnlyStream else column), to="numpy")
    assert zc.shares_memory(converted, column)
    assert converted.tolist() == column.to_pylist()


@pytest.mark.parametrize("kind", [OnlyArray, OnlyStream])
@pytest.mark.parametrize("target", ["pyarrow", "pyarrow.Table"])
def test_pyarrow_aliases_producers_with_one_protocol(kind: type, target: str) -> None:
    batch = TABLE.to_batches()[0]
    converted = zc.convert(kind(TABLE if kind is OnlyStream else batch), to=target)
    assert converted.equals(TABLE)
    assert zc.shares_memory(converted["b"], TABLE["b"])


def test_stream_batches_are_concatenated() -> None:
    plan = zc.explain(OnlyStream(CHUNKED), "numpy")
    assert plan.possible
    assert "once" in plan.warnings[0]
    converted = zc.convert(OnlyStream(CHUNKED), to="numpy")
    assert converted["a"].tolist() == CHUNKED["a"].to_pylist()
    with pytest.raises(zc.CopyRequiredError, match="2 chunks"):
        zc.convert(OnlyStream(CHUNKED), to="numpy", copy=False)


def test_explain_does_not_read_a_reader() -> None:
    reader = CHUNKED.to_reader()
    plan = zc.explain(reader, "numpy")
    assert plan.possible
    assert zc.explain(reader, "pyarrow.Table").possible
    converted = zc.convert(reader, to="numpy")
    assert converted["a"].tolist() == CHUNKED["a"].to_pylist()


def test_stream_that_fails_in_the_middle_is_reported() -> None:
    def batches():
        yield TABLE.to_batches()[0]
        raise OSError("the disk is gone")

    for target in ("numpy", "pyarrow.Table"):
        reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
        with pytest.raises(zc.UnsupportedConversionError, match="the disk is gone") as caught:
            zc.convert(OnlyStream(reader), to=target)
        assert "OnlyStream" in str(caught.value)


def test_stream_that_fails_at_once_is_reported() -> None:
    class Failing:
        def __arrow_c_stream__(self, requested_schema=None):
            raise RuntimeError("no connection")

    for target in ("numpy", "pyarrow.Table"):
        with pytest.raises(zc.UnsupportedConversionError, match="no connection") as caught:
            zc.convert(Failing(), to=target)
        assert caught.value.__cause__ is not None


def test_capsule_that_was_consumed_is_refused() -> None:
    class Same:
        def __init__(self) -> None:
            self.capsule = TABLE.__arrow_c_stream__()

        def __arrow_c_stream__(self, requested_schema=None):
            return self.capsule

    source = Same()
    assert zc.convert(source, to="numpy")["a"].tolist() == TABLE["a"].to_pylist()
    for target in ("numpy", "pyarrow.Table"):
        with pytest.raises(zc.UnsupportedConversionError, match=r"read already|released|read the Same"):
            zc.convert(source, to=target)


def test_capsule_with_another_name_is_refused() -> None:
    class Wrong:
        def __arrow_c_array__(self, requested_schema=None):
            return TABLE["a"].chunk(0).__arrow_c_array__()[::-1]

    with pytest.raises(zc.UnsupportedConversionError, match="exporter raised ValueError"):
        zc.convert(Wrong(), to="numpy")


class Mismatch:
    """Exports the schema of one array with the memory of another."""

    def __init__(self, schema, array) -> None:
        self.schema, self.array = schema, array

    def __arrow_c_array__(self, requested_schema=None):
        return self.schema.__arrow_c_schema__(), self.array.__arrow_c_array__()[1]


@pytest.mark.parametrize(
    ("schema", "array", "what"),
    [
        (pa.string(), pa.array([1, 2]), "3 buffers, and the array has 2"),
        (pa.struct([("x", pa.int64())]), pa.array([1, 2]), "children|buffers"),
        (pa.int64(), pa.array([{"x": 1}]), "0 children, and the array has 1"),
        (pa.dictionary(pa.int32(), pa.string()), pa.array([1, 2], pa.int32()), "1 dictionaries"),
        (pa.struct([("x", pa.int64()), ("y", pa.int64())]), pa.array([{"x": 1}]), "2 children"),
    ],
)
def test_schema_that_does_not_match_its_array_is_refused(schema, array, what: str) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match=what):
        zc.convert(Mismatch(schema, array), to="numpy")


def test_inconsistent_lengths_are_refused() -> None:
    class Broken:
        def __init__(self, **values: int) -> None:
            self.values = values

        def __arrow_c_array__(self, requested_schema=None):
            schema, capsule = pa.array([1, 2, 3]).__arrow_c_array__()
            struct = arrow_c.ArrowArray.from_address(pointer(capsule, b"arrow_array"))
            for name, value in self.values.items():
                setattr(struct, name, value)
            return schema, capsule

    for values in ({"length": -1}, {"offset": -2}, {"null_count": 4}, {"null_count": -2}):
        with pytest.raises(zc.UnsupportedConversionError, match="are inconsistent"):
            zc.convert(Broken(**values), to="numpy")


def test_released_structs_are_refused() -> None:
    class Released:
        def __arrow_c_array__(self, requested_schema=None):
            schema, capsule = pa.array([1, 2, 3]).__arrow_c_array__()
            pa.Array._import_from_c_capsule(TABLE["a"].chunk(0).__arrow_c_array__()[0], capsule)
            return schema, capsule

    with pytest.raises(zc.UnsupportedConversionError, match="released already"):
        zc.convert(Released(), to="numpy")


def test_null_count_of_minus_one_is_counted() -> None:
    sliced = pa.array([1, None, 3, None, 5, None, None, 8, 9, None]).slice(3, 6)

    class Uncounted:
        def __arrow_c_array__(self, requested_schema=None):
            schema, capsule = sliced.__arrow_c_array__()
            arrow_c.ArrowArray.from_address(pointer(capsule, b"arrow_array")).null_count = -1
            return schema, capsule

    with pytest.raises(zc.LossyConversionError, match="3 nulls in 6 rows"):
        zc.convert(Uncounted(), to="numpy")
    assert zc.convert(Uncounted(), to="numpy", nulls="mask").mask.tolist() == [
        value is None for value in sliced.to_pylist()
    ]
    assert zc.convert(Uncounted(), to="numpy", nulls=-1).tolist() == [-1, 5, -1, -1, 8, 9]


def test_null_rows_of_a_table_are_refused() -> None:
    rows = pa.array([{"x": 1}, None])
    with pytest.raises(zc.UnsupportedConversionError, match="1 of its rows are null"):
        zc.convert(OnlyArray(rows), to="numpy")


def test_memory_stays_alive_while_aliased_and_is_then_freed() -> None:
    def total() -> int:
        gc.collect()
        return pa.total_allocated_bytes()

    before = total()
    source = OnlyStream(pa.table({"a": pa.array(range(100_000))}))
    converted = zc.convert(source, to="numpy")
    del source
    assert total() - before >= 800_000
    assert converted["a"][-1] == 99_999
    del converted
    assert total() == before


def test_nothing_leaks_over_many_streams() -> None:
    table = pa.table({"a": pa.array(range(1000)), "s": pa.array(["x"] * 1000)})
    zc.convert(OnlyStream(table), to="numpy", encode=True)
    gc.collect()
    before = pa.total_allocated_bytes()
    for _ in range(300):
        zc.convert(OnlyStream(table), to="numpy", encode=True)
    gc.collect()
    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
        *(pa.timestamp("s"), pa.timestamp("us", "Europe/Paris"), pa.duration("ns"), pa.binary(5)),
        *(pa.decimal128(20, 3), pa.decimal256(50, 2), pa.decimal32(5, 1), pa.decimal64(12, 4)),
        *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()),
        *(pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 3), pa.list_view(pa.int8())),
        *(pa.struct([("x", pa.int8()), ("y", pa.string())]), pa.month_day_nano_interval()),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
def test_field_names_match_pyarrow(kind) -> None:
    field = read_schema(kind.__arrow_c_schema__())
    ours = str(field)
    theirs = str(kind).replace("item: ", "").replace(", ordered=0", "")
    assert ours.replace("x: ", "").replace("y: ", "") == theirs.replace("x: ", "").replace("y: ", "")
    widths = {pa.types.is_fixed_size_binary, pa.types.is_temporal, pa.types.is_decimal, pa.types.is_integer}
    if any(test(kind) for test in widths):
        assert field.width * 8 == kind.bit_width
    if hasattr(kind, "unit") and not pa.types.is_date(kind):
        assert field.unit == kind.unit
    assert getattr(kind, "tz", None) in (None, field.timezone)


def test_metadata_is_read_from_bytes() -> None:
    field = pa.field("x", pa.int8(), nullable=False, metadata={b"k": b"v", b"": b"\x00\xff"})
    ours = read_schema(field.__arrow_c_schema__())
    assert (ours.name, ours.nullable, ours.metadata) == ("x", False, {b"k": b"v", b"": b"\x00\xff"})


def test_structs_have_the_sizes_of_the_specification() -> None:
    assert ctypes.sizeof(ArrowSchema) == 72
    assert ctypes.sizeof(arrow_c.ArrowArray) == 80
    assert ctypes.sizeof(arrow_c.ArrowArrayStream) == 40
    assert ctypes.sizeof(arrow_c.ArrowDeviceArray) == 128


def test_reader_whose_batches_change_their_schema_is_refused() -> None:
    """A partly read reader must not be read again, because its remaining rows are not the table."""

    def batches():
        yield TABLE.to_batches()[0]
        yield pa.record_batch({"other": ["x"]})

    for target in ("pyarrow.Table", "numpy"):
        reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
        with pytest.raises(zc.UnsupportedConversionError):
            zc.convert(reader, to=target)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"length": 9}, "needs 9 rows of each child"),
        ({"offset": 4}, "needs 10 rows of each child"),
    ],
)
def test_children_shorter_than_their_parent_are_refused(change: dict[str, int], what: str) -> None:
    class Short:
        def __arrow_c_array__(self, requested_schema=None):
            schema, capsule = TABLE.to_batches()[0].__arrow_c_array__()
            struct = arrow_c.ArrowArray.from_address(pointer(capsule, b"arrow_array"))
            for name, value in change.items():
                setattr(struct, name, value)
            return schema, capsule

    with pytest.raises(zc.UnsupportedConversionError, match=what):
        zc.convert(Short(), to="numpy")


def test_missing_buffers_are_refused() -> None:
    class Hollow:
        def __init__(self, x) -> None:
            self.x = x

        def __arrow_c_array__(self, requested_schema=None):
            schema, capsule = self.x.__arrow_c_array__()
            arrow_c.ArrowArray.from_address(pointer(capsule, b"arrow_array")).buffers[1] = None
            return schema, capsule

    for x in (pa.array([1, 2]), pa.array(["a", "b"]), pa.array([[1]])):
        with pytest.raises(zc.UnsupportedConversionError, match="its buffer is NULL"):
            zc.convert(Hollow(x), to="numpy", encode=True)


@pytest.mark.parametrize("name", [b"\xff", b"other.name"])
@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("to", ["pandas", "pyarrow", "polars"])
def test_structs_of_unknown_extensions_are_columns(to: str, rows: int, name: bytes) -> None:
    """pyarrow imports an extension whose name is not UTF-8 as a plain struct, which elsewhere is a table."""
    array = pa.array([{"a": 1}] * rows, pa.struct([("a", pa.int64())]))
    field = pa.field("x", array.type, metadata={b"ARROW:extension:name": name})

    class Producer:
        def __arrow_c_array__(self, requested_schema=None):
            return field.__arrow_c_schema__(), array.__arrow_c_array__()[1]

    plan = zc.explain(Producer(), to)
    try:
        result = zc.convert(Producer(), to)
    except zc.ZeroCopyError:
        assert not plan.possible
    else:
        assert plan.possible
        assert len(result) == rows
