"""Producers of tables that violate Arrow's C data interface: refused, and each struct released once."""

from __future__ import annotations

import ctypes
import gc
import platform
from collections.abc import Callable
from typing import Any

import pytest
from helpers.arrow_producers import (
    ROWS,
    TableProducer,
    by_stream,
    declare_dtypes,
    metadata_of,
    numbers,
    route_of,
)

from zerocopy._native import core
from zerocopy.protocols.arrow_c import ArrowArray

if not hasattr(core, "TableRoute"):
    pytest.skip("needs the compiled core", allow_module_level=True)


@pytest.fixture(autouse=True)
def _dtypes() -> None:
    declare_dtypes()


# -- wrong structs --------------------------------------------------------------------

Change = Callable[[TableProducer], Any]
_TEXT: list[Any] = []


def _metadata(content: bytes) -> int:
    _TEXT.append(ctypes.create_string_buffer(content + bytes(64)))
    return ctypes.addressof(_TEXT[-1])


def _set(part: Callable[[TableProducer], Any], **values: Any) -> Change:
    def change(producer: TableProducer) -> None:
        for name, value in values.items():
            setattr(part(producer), name, value)

    return change


def _buffer(index: int, address: int | None) -> Change:
    def change(producer: TableProducer) -> None:
        producer.columns[0][1].buffers[index] = address

    return change


def _null_child(structs: Callable[[TableProducer], Any]) -> Change:
    def change(producer: TableProducer) -> None:
        struct = structs(producer)
        cls = type(struct)
        struct.children = producer._keep((ctypes.POINTER(cls) * 2)(struct.children[0]))

    return change


def _schema(producer: TableProducer) -> Any:
    return producer.schema


def _field(producer: TableProducer) -> Any:
    return producer.fields[1]


def _batch(producer: TableProducer) -> Any:
    return producer.batches[0]


def _column(producer: TableProducer) -> Any:
    return producer.columns[0][1]


def _misaligned(producer: TableProducer) -> None:
    producer.columns[0][1].buffers[1] += 1
    producer.columns[0][1].length -= 1
    producer.columns[0][0].length -= 1
    producer.batches[0].length -= 1


def _dictionary(part: Callable[[TableProducer], Any]) -> Change:
    def change(producer: TableProducer) -> None:
        part(producer).dictionary = ctypes.pointer(type(part(producer))())

    return change


EXTENSION = {b"key": b"value", b"ARROW:extension:name": b"arrow.bool8"}
WRONG_SCHEMAS: dict[str, Change] = {
    "schema is not a struct": _set(_schema, format=b"l"),
    "schema without a format": _set(_schema, format=None),
    "schema with a dictionary": _dictionary(_schema),
    "schema of an extension type": _set(_schema, metadata=_metadata(metadata_of(EXTENSION))),
    "no columns": _set(_schema, n_children=0),
    "negative number of columns": _set(_schema, n_children=-1),
    "2^40 columns": _set(_schema, n_children=1 << 40),
    "schema's children NULL": _set(_schema, children=None),
    "schema's child NULL": _null_child(_schema),
    "format NULL": _set(_field, format=None),
    "format empty": _set(_field, format=b""),
    "format longer": _set(_field, format=b"ll"),
    "bits": _set(_field, format=b"b"),
    "text": _set(_field, format=b"u"),
    "dates": _set(_field, format=b"tdD"),
    "decimals": _set(_field, format=b"d:19,10"),
    "name twice": _set(_field, name=b"a"),
    "name not UTF-8": _set(_field, name=b"\xff"),
    "field with a child": _set(_field, n_children=1),
    "field with a dictionary": _dictionary(_field),
    "extension type": _set(_field, metadata=_metadata(metadata_of(EXTENSION))),
    "metadata of a negative number of pairs": _set(_field, metadata=_metadata(b"\xff" * 4)),
    "metadata of 2^31 - 1 pairs": _set(_field, metadata=_metadata(b"\xff\xff\xff\x7f")),
    "metadata of a negative length": _set(_field, metadata=_metadata(b"\x01\0\0\0\xff\xff\xff\xff")),
    "metadata of 2^31 - 1 bytes": _set(_field, metadata=_metadata(b"\x01\0\0\0\xff\xff\xff\x7f")),
    "schema released": _set(_schema, release=None),
}
WRONG_ARRAYS: dict[str, Change] = {
    "no rows": _set(_batch, length=0),
    "negative length": _set(_batch, length=-1),
    "negative offset": _set(_batch, offset=-1),
    "offset and length overflow": _set(_batch, offset=(1 << 63) - 1, length=(1 << 63) - 1),
    "null rows": _set(_batch, null_count=1),
    "struct without a list of buffers": _set(_batch, buffers=None),
    "struct without buffers": _set(_batch, n_buffers=0),
    "struct with a dictionary": _dictionary(_batch),
    "fewer columns than the schema": _set(_batch, n_children=1),
    "more columns than the schema": _set(_batch, n_children=3),
    "children NULL": _set(_batch, children=None),
    "child NULL": _null_child(_batch),
    "column too short": _set(_column, length=ROWS - 1),
    "column too short for the struct's offset": _set(_batch, offset=1),
    "column of negative length": _set(_column, length=-1),
    "column of negative offset": _set(_column, offset=-1),
    "column's offset overflows": _set(_column, offset=(1 << 63) - 1),
    "column's offset times its width overflows": _set(_column, offset=1 << 60),
    "column's end beyond the address space": _set(_column, offset=1 << 58),
    "nulls": _set(_column, null_count=1),
    "invalid null count": _set(_column, null_count=-2),
    "one buffer": _set(_column, n_buffers=1),
    "three buffers": _set(_column, n_buffers=3),
    "list of buffers NULL": _set(_column, buffers=None),
    "values NULL": _buffer(1, None),
    "values not aligned": _misaligned,
    "column with a child": _set(_column, n_children=1),
    "column with a dictionary": _dictionary(_column),
    "column released": _set(_column, release=None),
}


@pytest.mark.hazard("robustness#structs-of-the-core")
@pytest.mark.parametrize("options", [{}, {"nulls": 0, "dtype": (2, 64)}], ids=["plain", "filled and cast"])
@pytest.mark.parametrize("export", ["__arrow_c_stream__", "__arrow_c_array__"])
@pytest.mark.parametrize("name", [*WRONG_SCHEMAS, *WRONG_ARRAYS])
def test_wrong_structs_are_refused_and_released_once(name: str, export: str, options: Any) -> None:
    producer = TableProducer(numbers())
    {**WRONG_SCHEMAS, **WRONG_ARRAYS}[name](producer)
    route = route_of(core.TableExporter(getattr(TableProducer, export)), **options)
    with pytest.raises((BufferError, UnicodeDecodeError)):
        route(producer)
    whole = {"stream", "schema", "batch"}
    released = {part: count for part, count in producer.released.items() if part in whole}
    expected = {part: count for part, count in producer.exported.items() if part in whole}
    if "schema released" in name:
        expected.pop("schema")
        if export == "__arrow_c_array__":  # refused before the array is taken from its capsule
            expected.pop("batch")
    assert released == expected
    assert max(producer.released.values(), default=0) <= 1


@pytest.mark.hazard("robustness#schemas-of-the-core")
@pytest.mark.parametrize("name", WRONG_SCHEMAS)
def test_schema_is_refused_before_the_data_is_read(name: str) -> None:
    producer = TableProducer(numbers())
    WRONG_SCHEMAS[name](producer)
    with pytest.raises((BufferError, UnicodeDecodeError)):
        by_stream(producer)
    assert "batch" not in producer.exported


def test_unknown_null_count_with_a_bitmap_is_refused() -> None:
    producer = TableProducer(numbers())
    column = producer.columns[0][1]
    column.null_count, column.buffers[0] = -1, column.buffers[1]
    with pytest.raises(BufferError):
        by_stream(producer)
    assert producer.released == producer.exported


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="arm64 keeps tags in the highest byte of an address"
)
def test_a_bitmap_beyond_the_address_space_is_refused() -> None:
    producer = TableProducer(numbers())
    column = producer.columns[0][1]
    column.null_count, column.buffers[0] = 1, (1 << 63) - 8
    with pytest.raises(BufferError):
        by_stream(producer, nulls=0)
    assert producer.released == producer.exported


@pytest.mark.hazard("robustness#one-child-twice")
def test_one_column_twice_in_the_list_of_children_is_refused() -> None:
    producer = TableProducer(numbers())
    batch = producer.batches[0]
    producer.fields[1].format = producer.fields[0].format
    batch.children[1] = batch.children[0]
    with pytest.raises(BufferError):
        by_stream(producer)
    assert producer.released["column a"] == 1


@pytest.mark.parametrize("second", [ROWS, 0])
def test_several_chunks_are_refused_and_released(second: int) -> None:
    tail = {name: array[:second] for name, array in numbers().items()}
    producer = TableProducer(numbers(), tail)
    with pytest.raises(BufferError):
        by_stream(producer)
    assert producer.exported["batch"] == 2
    assert producer.released == producer.exported


@pytest.mark.hazard("robustness#streams-that-fail")
def test_errors_of_the_stream_are_refused() -> None:
    for error, count in (("error", 1), ("schema_error", 0)):
        producer = TableProducer(numbers())
        setattr(producer, error, 5)
        with pytest.raises(BufferError):
            by_stream(producer)
        assert producer.exported["batch"] == count
        assert producer.released == producer.exported


@pytest.mark.hazard("robustness#streams-that-fail")
def test_stream_without_functions_is_refused() -> None:
    for function in ("get_schema", "get_next"):
        producer = TableProducer(numbers())
        capsule = producer.__arrow_c_stream__()
        setattr(producer.stream, function, None)
        with pytest.raises(BufferError):
            route_of(core.TableExporter(lambda obj, made=capsule: made))(producer)
        assert producer.released == {"stream": 1}


@pytest.mark.parametrize("value", [None, 1, (), (1, 2), "capsule", (None, None, None)])
def test_export_of_something_else_is_refused(value: Any) -> None:
    with pytest.raises((BufferError, ValueError)):
        route_of(core.TableExporter(lambda obj: value))(object())


@pytest.mark.hazard("robustness#streams-that-fail")
def test_capsule_is_used_once() -> None:
    producer = TableProducer(numbers())
    capsule = producer.__arrow_c_stream__()
    route = route_of(core.TableExporter(lambda obj: capsule))
    assert list(route(producer)) == ["a", "b"]
    with pytest.raises(BufferError):
        route(producer)
    gc.collect()
    assert producer.released == producer.exported


def test_kept_plan_does_not_hide_an_extension_type() -> None:
    route = route_of(core.TableExporter(TableProducer.__arrow_c_stream__))
    assert list(route(TableProducer(numbers()))) == ["a", "b"]
    for name in ("extension type", "field with a dictionary", "field with a child"):
        producer = TableProducer(numbers())
        WRONG_SCHEMAS[name](producer)
        with pytest.raises(BufferError):
            route(producer)


@pytest.mark.parametrize("name", WRONG_SCHEMAS)
def test_a_wrong_schema_is_not_a_plain_one(name: str) -> None:
    plain = core.plain_schema_key(TableProducer(numbers()).__arrow_c_array__()[0])
    assert plain is not None
    producer = TableProducer(numbers())
    WRONG_SCHEMAS[name](producer)
    other = core.plain_schema_key(producer.__arrow_c_array__()[0])
    again = TableProducer(numbers())
    WRONG_SCHEMAS[name](again)
    stream = again.__arrow_c_stream__()
    assert core.plain_schema_key(stream) == core.plain_schema_key(stream) == other  # it stays readable
    if "name" in name:  # callers check the names
        assert other != plain
        return
    # Tables of booleans and text pass between table frameworks, but not to tensors.
    assert (other is not None) is (name in ("bits", "text"))
    assert other != plain


# -- one array of an export -------------------------------------------------------------


@pytest.mark.parametrize("export", ["__arrow_c_stream__", "__arrow_c_array__"])
def test_an_array_is_moved_once_and_released_once(export: str) -> None:
    producer, out = TableProducer(numbers()), ArrowArray()
    array = core.read_single_array(getattr(producer, export)())
    array.move_to(ctypes.addressof(out))
    assert out.length == ROWS
    with pytest.raises(ValueError, match="moved"):
        array.move_to(ctypes.addressof(out))
    del array
    assert not producer.released["batch"]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(out.release)(ctypes.addressof(out))
    assert producer.released["batch"] == 1
    unused = TableProducer(numbers())
    core.read_single_array(getattr(unused, export)())
    assert unused.released["batch"] == 1
    assert producer.released["stream"] == producer.exported["stream"]


def test_an_array_lives_while_it_is_imported_and_is_released_if_that_fails() -> None:
    producer = TableProducer(numbers())

    def read(address: int, schema: Any) -> int:
        gc.collect()
        assert not producer.released["batch"]
        return schema(ArrowArray.from_address(address).length)  # type: ignore[no-any-return]

    assert core.read_single_array(producer.__arrow_c_stream__()).import_by(read, int) == ROWS
    assert producer.released["batch"] == 1
    with pytest.raises(ZeroDivisionError):
        core.read_single_array(TableProducer(numbers()).__arrow_c_array__()).import_by(
            lambda *_: 1 // 0, None
        )


def test_an_export_of_several_arrays_or_none_is_refused_and_released() -> None:
    two = TableProducer(numbers(), numbers())
    with pytest.raises(ValueError, match="no array, or several"):
        core.read_single_array(two.__arrow_c_stream__())
    assert two.released["batch"] == 2
    assert two.released["stream"] == 1
    failing = TableProducer(numbers())
    failing.error, failing.batches = 5, []
    capsule = failing.__arrow_c_stream__()
    for _ in range(2):  # the second time, the stream has been used
        with pytest.raises(ValueError, match="no array, or several"):
            core.read_single_array(capsule)
    with pytest.raises(ValueError, match="PyCapsule"):
        core.read_single_array(None)
