"""Tables through Arrow's C data interface: the values, the lifetimes, and producers that violate it."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.arrow_producers import (
    FORMATS,
    ROWS,
    TableProducer,
    by_array,
    by_stream,
    declare_dtypes,
    metadata_of,
    numbers,
    route_of,
)

import zerocopy as zc
from zerocopy import registry
from zerocopy._native import core

if not hasattr(core, "TableRoute"):
    pytest.skip("needs the compiled core", allow_module_level=True)


@pytest.fixture(autouse=True)
def _dtypes() -> None:
    declare_dtypes()


@pytest.mark.parametrize("convert", [by_stream, by_array])
def test_columns_alias_the_memory_and_are_read_only(convert: Callable[..., Any]) -> None:
    producer = TableProducer(numbers())
    result = convert(producer)
    assert list(result) == ["a", "b"]
    for name, array in numbers().items():
        np.testing.assert_array_equal(result[name], array)
        assert result[name].dtype == array.dtype
        assert result[name].ctypes.data == producer.chunks[0][name].ctypes.data
        assert not result[name].flags.writeable


@pytest.mark.hazard("robustness#owners-of-columns")
@pytest.mark.parametrize("convert", [by_stream, by_array])
def test_every_struct_is_released_once_and_a_column_when_its_last_alias_is_dropped(
    convert: Callable[..., Any],
) -> None:
    producer = TableProducer(numbers())
    result = convert(producer)
    assert producer.exported - producer.released == {"column a": 1, "column b": 1}
    kept = result["b"][1:]
    del result
    gc.collect()
    assert producer.exported - producer.released == {"column b": 1}
    np.testing.assert_array_equal(kept, [10, 20, 30, 40])
    del kept
    gc.collect()
    assert producer.released == producer.exported


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_each_type_of_numbers(dtype: Any) -> None:
    array = np.arange(ROWS).astype(dtype)
    result = by_stream(TableProducer({"x": array}))["x"]
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, array)


def test_offsets_of_the_struct_and_of_a_column_add_up() -> None:
    producer = TableProducer({"x": np.arange(20, dtype=np.int32)})
    batch, column = producer.batches[0], producer.columns[0][0]
    column.offset, column.length = 3, 17
    batch.offset, batch.length = 2, 4
    np.testing.assert_array_equal(by_stream(producer)["x"], [5, 6, 7, 8])


@pytest.mark.parametrize("name", ["", "ü€𝄞", "a b", "x" * 300])
def test_names_are_utf8(name: str) -> None:
    assert list(by_stream(TableProducer({name: np.zeros(ROWS)}))) == [name]


def test_missing_name_is_empty() -> None:
    producer = TableProducer(numbers())
    producer.fields[1].name = None
    assert list(by_stream(producer)) == ["a", ""]


def test_unknown_null_count_without_a_bitmap_is_zero() -> None:
    producer = TableProducer(numbers())
    producer.batches[0].null_count = producer.columns[0][0].null_count = -1
    np.testing.assert_array_equal(by_stream(producer)["a"], np.arange(ROWS))


def test_metadata_other_than_an_extension_type_is_ignored() -> None:
    producer = TableProducer(numbers())
    text = ctypes.create_string_buffer(metadata_of({b"PARQUET:field_id": b"1", b"": b"", b"pandas": b"{}"}))
    producer.schema.metadata = producer.fields[0].metadata = ctypes.addressof(text)
    assert list(by_stream(producer)) == ["a", "b"]


# -- options --------------------------------------------------------------------------


def test_columns_selects_by_label_and_order() -> None:
    producer = TableProducer({**numbers(), "c": np.ones(ROWS)})
    producer.fields[1].format = b"u"  # not chosen
    producer.columns[0][1].null_count = 3
    result = by_stream(producer, columns=["c", "a"])
    assert list(result) == ["c", "a"]
    assert producer.exported - producer.released == {"column a": 1, "column c": 1}
    np.testing.assert_array_equal(result["a"], np.arange(ROWS))


@pytest.mark.parametrize("names", [["a"], ["a", "z"]])
def test_columns_that_are_missing_or_ambiguous_are_refused(names: list[str]) -> None:
    producer = TableProducer(numbers())
    producer.fields[1].name, producer.fields[1].format = b"a", producer.fields[0].format
    with pytest.raises(BufferError):
        by_stream(producer, columns=names)
    assert producer.released == producer.exported


@pytest.mark.parametrize("columns", [[], ["a", "a"], [1], [None]])
def test_invalid_values_of_columns_are_refused(columns: Any) -> None:
    with pytest.raises(ValueError, match="different labels"):
        route_of(core.TableExporter(len), columns=columns)


def test_plan_of_another_schema_is_not_used() -> None:
    route = route_of(core.TableExporter(TableProducer.__arrow_c_stream__))
    tables = [
        {"a": np.arange(3.0), "b": np.arange(3.0)},
        {"b": np.arange(3.0), "a": np.arange(3.0)},
        {"a": np.arange(3.0)},
        {"a": np.arange(3), "b": np.arange(3.0)},
        {"a": np.arange(3.0), "b": np.arange(3.0), "": np.arange(3.0)},
        {"": np.arange(3.0), "g": np.arange(3.0)},
        {"a" * 9: np.arange(3.0), "b": np.arange(3.0)},
    ]
    for table in [*tables, *reversed(tables), *tables]:
        result = route(TableProducer(table))
        assert list(result) == list(table)
        assert [array.dtype for array in result.values()] == [array.dtype for array in table.values()]


@pytest.mark.parametrize("options", [{"copy": True}, {"writable": True}])
def test_copies_are_writable_and_release_the_table(options: dict[str, Any]) -> None:
    producer = TableProducer(numbers())
    result = by_stream(producer, **options)
    assert producer.released == producer.exported
    for name, array in numbers().items():
        np.testing.assert_array_equal(result[name], array)
        assert result[name].flags.writeable
        assert not np.shares_memory(result[name], producer.chunks[0][name])


def test_copy_that_is_forbidden_is_refused() -> None:
    producer = TableProducer(numbers())
    with pytest.raises(BufferError):
        by_stream(producer, copy=False, writable=True)
    assert producer.released == producer.exported


def test_dtype_of_all_columns() -> None:
    assert list(by_stream(TableProducer({"a": np.zeros(2)}), dtype=(2, 64))) == ["a"]
    narrow = by_stream(TableProducer(numbers()), dtype=(2, 32))
    assert {str(column.dtype) for column in narrow.values()} == {"float32"}
    with pytest.raises(BufferError):  # the slow path names the value that does not fit
        by_stream(TableProducer({"a": np.full(2, 0.5)}), dtype=(0, 32))


def test_check_and_select_come_first() -> None:
    calls: list[Any] = []

    def check(obj: Any) -> None:
        calls.append(("check", obj))
        if obj is None:
            raise ValueError("refused")

    def select(obj: Any, labels: Any) -> Any:
        calls.append(("select", list(labels)))
        return obj

    exporter = core.TableExporter(TableProducer.__arrow_c_stream__, check=check, select=select)
    producer = TableProducer(numbers())
    assert list(route_of(exporter, columns=("b",))(producer)) == ["b"]
    assert calls == [("select", ["b"]), ("check", producer)]
    with pytest.raises(ValueError, match="refused"):
        route_of(exporter)(None)
    declined = core.TableExporter(lambda obj: calls.append(obj), check=lambda obj: False)
    with pytest.raises(BufferError, match="does not support"):
        route_of(declined)(producer)
    assert producer not in calls


def test_the_schema_of_a_known_key_is_not_exported_again() -> None:
    keys: list[Any] = ["first", "first", "second", None, "second", "second"]
    exporter = core.TableExporter(TableProducer.__arrow_c_stream__, check=lambda obj: keys.pop(0))
    route, schemas = route_of(exporter), []
    while keys:
        producer = TableProducer(numbers())
        result = route(producer)
        assert {name: column.tolist() for name, column in result.items()} == {
            name: column.tolist() for name, column in numbers().items()
        }
        schemas.append(producer.exported["schema"])
        del result
        assert producer.released == producer.exported
    assert schemas == [1, 0, 1, 1, 0, 0]


def test_a_key_is_released_with_its_plan() -> None:
    class Key:
        pass

    keys = [Key(), Key()]
    watched = [weakref.ref(key) for key in keys]
    route = route_of(core.TableExporter(TableProducer.__arrow_c_stream__, check=lambda obj: keys.pop()))
    route(TableProducer(numbers()))
    assert watched[1]() is not None
    route(TableProducer({"other": np.arange(5.0)}))
    assert [ref() is None for ref in watched] == [False, True]
    with pytest.raises(IndexError):
        route(TableProducer(numbers()))
    del route
    assert watched[0]() is None


def test_metadata_of_a_schema_is_part_of_its_key() -> None:
    """Field metadata can name an extension type that is not registered."""
    pa = pytest.importorskip("pyarrow")
    plain = pa.table(numbers())
    field = plain.schema.field(0).with_metadata({"ARROW:extension:name": "unit"})
    marked = plain.cast(plain.schema.set(0, field))
    exporter = registry.by_type(pa.Table).fast_exporters(pa.Table)["native_table"]  # type: ignore[union-attr]
    route = route_of(exporter)
    for _ in range(2):
        assert list(route(plain)) == list(numbers())
        with pytest.raises(ValueError, match="extension type"):
            route(marked)


def test_fallback_takes_what_is_refused() -> None:
    route = route_of(core.TableExporter(TableProducer.__arrow_c_stream__), fallback=lambda obj: "slow")
    assert route(TableProducer(numbers(), numbers())) == "slow"


def test_objects_do_not_leak() -> None:
    pa = pytest.importorskip("pyarrow")
    exporter, plain, before = core.TableExporter(pa.Table.__arrow_c_stream__), pa.table(numbers()), 0
    chunks, names_twice = pa.concat_tables([plain, plain]), pa.table([[1], [2]], names=["x", "x"])
    route = route_of(exporter)
    for round_ in range(3):
        for _ in range(50):
            route(plain)
            for table in (chunks, names_twice):
                with pytest.raises(BufferError):
                    route(table)
        gc.collect()
        if round_ == 1:
            before = sys.getallocatedblocks()
    assert sys.getallocatedblocks() - before < 50


# -- pyarrow --------------------------------------------------------------------------


@pytest.mark.hazard("robustness#buffers-without-sizes")
def test_wrong_buffers_of_a_file_are_refused() -> None:
    pa = pytest.importorskip("pyarrow")
    from helpers.crafted_arrow import metadata

    exporter = registry.by_type(pa.Table).fast_exporters(pa.Table)["native_table"]  # type: ignore[union-attr]
    files = dict(metadata())
    for name in ("buffer shorter than its rows", "batch and column of more rows than the buffer"):
        table = pa.ipc.open_file(files[name]).read_all()
        with pytest.raises(pa.ArrowInvalid):
            route_of(exporter)(table)


@pytest.mark.hazard("robustness#names-with-a-zero-byte")
def test_names_with_a_zero_byte_are_not_cut() -> None:
    pa = pytest.importorskip("pyarrow")
    route = route_of(registry.by_type(pa.Table).fast_exporters(pa.Table)["native_table"])  # type: ignore[union-attr]
    for _ in range(2):
        assert list(route(pa.table({"a": [1]}))) == ["a"]
        with pytest.raises(ValueError, match="would cut"):
            route(pa.table({"a\0b": [1]}))


def test_columns_of_a_pyarrow_table_are_selected_before_the_export() -> None:
    pa = pytest.importorskip("pyarrow")
    exporter = registry.by_type(pa.Table).fast_exporters(pa.Table)["native_table"]  # type: ignore[union-attr]
    table = pa.table({"a": [1, 2], "t": ["x", "y"], "b": [1.0, 2.0]})
    assert list(route_of(exporter, columns=["b", "a"])(table)) == ["b", "a"]


@pytest.mark.parametrize("empty_first", [True, False])
def test_chunks_without_rows_do_not_count(empty_first: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    values = pa.array([1.0, 2.0])
    chunks = [values[:0], values] if empty_first else [values, values[:0]]
    table = pa.table({"a": values, "b": pa.chunked_array(chunks)})
    assert zc.explain(table, "numpy").zero_copy
    assert zc.convert(table, "numpy")["b"].ctypes.data == values.buffers()[1].address


# -- polars ---------------------------------------------------------------------------


def _polars_route(to: str = "numpy") -> Any:
    pl = pytest.importorskip("polars")
    return route_of(registry.by_type(pl.DataFrame).fast_exporters(pl.DataFrame)["native_table"], to)  # type: ignore[union-attr]


@pytest.mark.hazard("robustness#frames-that-polars-rechunks")
def test_frames_that_polars_would_change_are_refused_and_unchanged() -> None:
    pl = pytest.importorskip("polars")
    one, two = pl.Series("a", [1.0, 2.0]), pl.concat([pl.Series([1.0]), pl.Series([2.0])], rechunk=False)
    route = _polars_route()
    for columns in ([two], [one, two.alias("b")], [two, one]):
        frame = pl.DataFrame(columns)
        with pytest.raises(ValueError, match="join the chunks"):
            route(frame)
        assert frame.n_chunks("all") == [series.n_chunks() for series in columns]


@pytest.mark.parametrize(
    "columns",
    [{}, {"a": []}, {"a": [1, None]}, {"a": [True]}, {"a": ["x"]}, {"a\0b": [1]}],
)
def test_frames_for_the_slow_path(columns: Any) -> None:
    pl = pytest.importorskip("polars")
    with pytest.raises((BufferError, ValueError)):
        _polars_route()(pl.DataFrame(columns))


def test_an_exporter_releases_its_functions() -> None:
    functions = [lambda obj, number=number: number for number in range(5)]
    references = list(map(weakref.ref, functions))
    first, check, select, matrix, extent = functions
    exporter = core.TableExporter(first, check=check, select=select, matrix=matrix, extent=extent)
    del functions, first, check, select, matrix, extent
    assert all(reference() for reference in references)
    del exporter
    assert not any(reference() for reference in references)
