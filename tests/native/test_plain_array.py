"""Columns and tables of plain values, which the core checks and hands to other Arrow consumers."""

from __future__ import annotations

import ctypes
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers.arrow_producers import TableProducer, declare_dtypes, numbers
from native.test_wrong_tables import WRONG_ARRAYS, WRONG_SCHEMAS

import zerocopy as zc
from zerocopy._native import core

if not hasattr(core, "ColumnExporter"):
    pytest.skip("needs the compiled core", allow_module_level=True)

#: Tables that the tensor routes refuse, and that hold plain values.
PLAIN = {"bits", "name twice"}


@pytest.fixture(autouse=True)
def _dtypes() -> None:
    declare_dtypes()


def _plain(export: str) -> Any:
    return core.TableExporter(getattr(TableProducer, export)).plain


@pytest.mark.parametrize("export", ["__arrow_c_stream__", "__arrow_c_array__"])
@pytest.mark.parametrize("name", [*WRONG_SCHEMAS, *WRONG_ARRAYS])
def test_wrong_structs_are_refused_and_released_once(name: str, export: str) -> None:
    producer = TableProducer(numbers())
    {**WRONG_SCHEMAS, **WRONG_ARRAYS}[name](producer)
    if name in PLAIN:
        assert _plain(export)(producer).is_table
    else:
        with pytest.raises(ValueError, match="slow path"):
            _plain(export)(producer)
    whole = ("stream", "schema", "batch")
    expected = {part: producer.exported[part] for part in whole if producer.exported[part]}
    if "schema released" in name:
        expected.pop("schema")
        if export == "__arrow_c_array__":  # refused before the array is taken from its capsule
            expected.pop("batch")
    assert {part: count for part, count in producer.released.items() if part in whole} == expected
    assert max(producer.released.values(), default=0) <= 1


@pytest.mark.parametrize(("count", "kind"), [(1 << 20, "table"), ((1 << 20) + 1, None)])
def test_schemas_of_too_many_columns_are_refused(count: int, kind: str | None) -> None:
    """All columns are valid; a larger number in an invalid schema would be read as addresses."""
    producer = TableProducer(numbers())
    fields = np.full(count, ctypes.addressof(producer.fields[0]), np.uintp)
    producer.schema.children = ctypes.cast(fields.ctypes.data, type(producer.schema.children))
    producer.schema.n_children = count
    assert core.plain_schema(producer.__arrow_c_array__()[0]) == kind


@pytest.mark.parametrize("second", [5, 0])
def test_several_chunks_are_refused_and_released(second: int) -> None:
    producer = TableProducer(numbers(), {name: array[:second] for name, array in numbers().items()})
    with pytest.raises(ValueError, match="slow path"):
        _plain("__arrow_c_stream__")(producer)
    assert producer.exported["batch"] == 2
    assert producer.released == producer.exported


def test_an_array_is_exported_once_and_released_by_its_consumer() -> None:
    pa = pytest.importorskip("pyarrow")
    producer = TableProducer(numbers())
    plain = _plain("__arrow_c_stream__")(producer)
    batch = pa.record_batch(plain)
    with pytest.raises(ValueError, match="possible once"):
        plain.__arrow_c_array__()
    with pytest.raises(TypeError):
        plain.__arrow_c_array__(other=None)
    del plain
    assert batch.to_pydict() == {name: array.tolist() for name, array in numbers().items()}
    assert not producer.released["batch"]
    del batch
    gc.collect()
    assert producer.released["batch"] == producer.released["schema"] == 1


def test_capsules_that_no_consumer_takes_are_released() -> None:
    producer = TableProducer(numbers())
    capsules = _plain("__arrow_c_array__")(producer).__arrow_c_array__()
    assert not producer.released["schema"]
    assert not producer.released["batch"]
    del capsules
    assert producer.released["batch"] == producer.released["schema"] == 1


def test_one_of_several_threads_exports_an_array() -> None:
    """Without the GIL, two threads moved the structs, and released them twice."""
    for _ in range(50):
        producer = TableProducer(numbers())
        plain, barrier = _plain("__arrow_c_array__")(producer), threading.Barrier(4)

        def export(array: Any = plain, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            try:
                return bool(array.__arrow_c_array__())
            except ValueError:
                return False

        with ThreadPoolExecutor(4) as pool:
            outcomes = [pool.submit(export) for _ in range(4)]
            assert sum(outcome.result() for outcome in outcomes) == 1
        assert producer.released["batch"] == producer.released["schema"] == 1


def _export_of(array: Any) -> Any:
    return core.TableExporter(type(array).__arrow_c_array__).plain(array)


def nullable(columns: Any) -> TableProducer:
    """Return a producer of columns that may have nulls, as those of frameworks are by default."""
    producer = TableProducer(columns)
    for field in producer.fields:
        field.flags = 2
    return producer


def test_tables_of_one_schema_have_one_key() -> None:
    export = _plain("__arrow_c_stream__")
    first = export(nullable(numbers())).schema_key
    assert first is not None
    assert export(nullable({name: array[:2] for name, array in numbers().items()})).schema_key is first
    renamed = {f"{name}2": array for name, array in numbers().items()}
    other = export(nullable(renamed)).schema_key
    assert other not in (None, first)
    assert export(nullable(renamed)).schema_key is other
    changed = nullable(renamed)
    changed.fields[0].flags = 0  # no nulls, which is a part of the type
    assert export(changed).schema_key is None


def test_the_address_of_an_array_is_given_once() -> None:
    pa = pytest.importorskip("pyarrow")
    producer = TableProducer(numbers())
    plain = _plain("__arrow_c_stream__")(producer)
    expected = pa.record_batch(_plain("__arrow_c_stream__")(TableProducer(numbers())))
    batch = pa.RecordBatch._import_from_c(plain.array_address(), expected.schema)
    with pytest.raises(ValueError, match="possible once"):
        plain.array_address()
    with pytest.raises(ValueError, match="possible once"):
        plain.__arrow_c_array__()
    del plain
    assert batch.equals(expected)
    assert not producer.released["batch"]
    del batch
    gc.collect()
    assert producer.released["batch"] == producer.released["schema"] == 1
    unused = TableProducer(numbers())
    _plain("__arrow_c_stream__")(unused).array_address()
    assert unused.released["batch"] == unused.released["schema"] == 1


def test_pyarrow_imports_the_same_without_its_methods_for_structs() -> None:
    pa = pytest.importorskip("pyarrow")
    from zerocopy._frameworks.pyarrow.fast_path import plain_importer

    class Other:
        """pyarrow without these methods."""

        Array = RecordBatch = type("Other", (), {})

        def __getattr__(self, name: str) -> Any:
            return getattr(pa, name)

    column = core.TableExporter(lambda obj: obj.__arrow_c_stream__()).plain
    for source in (
        pa.chunked_array([[1.5, None]]),
        pa.chunked_array([["a", None]]),
        pa.table({"a": [1, None]}),
    ):
        for _ in range(2):
            made = [plain_importer(module)(column(source)) for module in (pa, Other())]
            assert made[0].equals(made[1])
            assert type(made[0]) is type(made[1])


def test_tables_of_changing_schemas_reach_pyarrow() -> None:
    """The importer keeps the last schema, for frames and arrays of all frameworks."""
    pa, pl, na = (pytest.importorskip(name) for name in ("pyarrow", "polars", "nanoarrow"))
    x, words = pa.array([1.5, None, 2.5]), pa.array(["a", None, "ü"])
    fields = [pa.field("a", pa.float64(), nullable=False), pa.field("b", pa.string())]
    tables = [
        pa.table({"a": x, "b": words}),
        pa.table({"a": words, "b": x}),
        pa.table({"b": words, "a": x}),
        pa.table({"a": x}),
        pa.table([pa.array([1.0, 2.0, 3.0]), words], pa.schema(fields)),
        pa.table({"a": x, "b": words.cast(pa.large_string())}),
        pa.table({"a": x.cast(pa.float32()), "b": words}),
        pa.table({"a": x, "b": words, "ü": x}),
    ]
    for first in tables:
        for second in tables:
            for table in (first, first, second, first):
                assert zc.convert(na.Array(table), "pyarrow").equals(table)
                frame = pl.from_arrow(table)
                made = zc.convert(frame, "pyarrow")
                assert made.equals(pa.table(frame))
                assert made.schema.equals(pa.table(frame).schema, check_metadata=True)


def test_types_of_columns() -> None:
    pa = pytest.importorskip("pyarrow")
    text = ["a text that is longer than a view", None, ""]
    plain = [
        *(pa.array([1, None, 3], kind) for kind in ("int8", "uint64", "float16", "double")),
        pa.array([True, None, False]),
        *(pa.array(text, kind) for kind in ("string", "large_string", "string_view")),
    ]
    for array in plain:
        for part in (array, array[1:], array[:1]):
            made = _export_of(part)
            assert (made.is_table, made.has_views) == (False, array.type == pa.string_view())
            assert pa.array(made).equals(part)
    for array in (
        *(pa.array([], "int8"), pa.nulls(3), pa.array([b"x"]), pa.array([[1]]), pa.array([1], "date32")),
        *(pa.array(["a"]).dictionary_encode(), pa.array([1], pa.decimal128(9)), pa.array([{"a": [1]}])),
    ):
        with pytest.raises(ValueError, match="slow path"):
            _export_of(array)


@pytest.mark.parametrize("code", ["u", "U"])
def test_text_with_wrong_offsets_is_refused(code: str) -> None:
    kind = np.int32 if code == "u" else np.int64
    for offsets, is_right in (
        ([0, 1, 1, 2, 2, 3], True),
        ([3, 1, 1, 2, 2, 2], False),
        ([-1, 0, 0, 0, 0, 2], False),
    ):
        producer = TableProducer({"a": np.zeros(5, kind)})
        producer.fields[0].format = code.encode()
        offsets_of, text = np.array(offsets, kind), np.frombuffer(b"abc", "u1")
        buffers = producer._keep((ctypes.c_void_p * 3)(None, offsets_of.ctypes.data, text.ctypes.data))
        producer.columns[0][0].n_buffers, producer.columns[0][0].buffers = 3, buffers
        if is_right:
            assert _plain("__arrow_c_stream__")(producer).is_table
            continue
        with pytest.raises(ValueError, match="slow path"):
            _plain("__arrow_c_stream__")(producer)


def test_numbers_of_a_column_become_a_tensor() -> None:
    pa = pytest.importorskip("pyarrow")
    target = zc.registry.by_name("numpy").fast_importers()["native"]
    for array in (pa.array([1.5, 2.5, 3.5]), pa.array([1, 2, 3], "uint8")[1:]):
        exporter = core.ColumnExporter(core.TableExporter(type(array).__arrow_c_array__))
        result = core.MemoryRoute(exporter, target, mutable=True, marks_readonly=True)(array)
        assert result.tolist() == array.to_pylist()
        assert not result.flags.writeable
        assert zc.shares_memory(result, array)
        del array
        gc.collect()
        assert result[0] in (1.5, 2)
    for array in (
        *(pa.array([1.0, None]), pa.array(["a"]), pa.array([True]), pa.array([], "int8")),
        *(pa.array([{"a": 1}]), pa.array([1], "date32")),
    ):
        exporter = core.ColumnExporter(core.TableExporter(type(array).__arrow_c_array__))
        with pytest.raises(BufferError):
            core.MemoryRoute(exporter, target, mutable=True, marks_readonly=True)(array)


@pytest.mark.parametrize("renamed", [(), (0,), (1,), (0, 1)])
def test_a_capsule_that_a_consumer_renames_is_released_once(renamed: tuple[int, ...]) -> None:
    """DLPack's consumers rename capsules that they have used, so consumers of Arrow may do so too."""
    rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_SetName", ctypes.pythonapi)
    )
    producer = TableProducer(numbers())
    capsules = _plain("__arrow_c_array__")(producer).__arrow_c_array__()
    for place in renamed:
        assert rename(capsules[place], b"used") == 0
    del capsules
    gc.collect()
    assert producer.released["batch"] == producer.exported["batch"] == 1
    assert producer.released["schema"] == producer.exported["schema"] == 1


def test_a_plan_of_dictionaries_is_not_used_for_a_plain_column_of_their_codes() -> None:
    pa = pytest.importorskip("pyarrow")
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    plain = pa.table({"x": words.indices, "y": pa.array([1.0, 2.0, 3.0])})
    exporter = core.TableExporter(pa.Table.__arrow_c_stream__)
    for _ in range(2):
        with pytest.raises(ValueError, match="plain"):
            exporter.plain(pa.table({"x": words, "y": plain["y"]}))
        assert pa.table(exporter.plain(plain)).num_columns == 2
