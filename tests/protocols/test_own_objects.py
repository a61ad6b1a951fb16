"""zerocopy's own results in the constructors of other libraries: right, or an error."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import zerocopy as zc

polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
torch, duckdb = pytest.importorskip("torch"), pytest.importorskip("duckdb")
jax = pytest.importorskip("jax")

WORDS = pa.array(["b", None, "a"])
TABLE = pa.table({"a": [1, 2, 3], "t": WORDS})
DICTS = [{"a": 1, "t": "b"}, {"a": 2, "t": None}, {"a": 3, "t": "a"}]

#: Objects, and the rows that each stands for.
OBJECTS: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "view": (lambda: zc.view(np.arange(3.0)), [0.0, 1.0, 2.0]),
    "shared array": (lambda: zc.share(np.arange(3.0)), [0.0, 1.0, 2.0]),
    "masked": (lambda: zc.convert(pa.array([1.5, None]), "numpy", nulls="mask"), [1.5, None]),
    "masked words": (lambda: zc.convert(WORDS, "torch", nulls="mask", encode=True), WORDS.to_pylist()),
    "encoded": (
        lambda: zc.convert(pa.array([1, 2], pa.timestamp("s")), "torch", encode=True),
        pa.array([1, 2], pa.timestamp("s")).to_pylist(),
    ),
    "shared table": (lambda: zc.share(TABLE), DICTS),
    "loader": (lambda: zc.loader(TABLE, to="torch", batch_size=2, encode=True, nulls="mask"), DICTS),
}


def duckdb_rows(obj: Any) -> list[Any]:
    relation = duckdb.from_arrow(obj)
    rows = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    return [row["value"] for row in rows] if relation.columns == ["value"] else rows


REFUSALS = (
    TypeError,
    ValueError,
    AttributeError,
    BufferError,
    RuntimeError,
    duckdb.Error,
    polars.exceptions.PolarsError,
)
#: Constructors, how the rows of a result are read, and the objects that they take; they refuse the others.
ARRAYS = {"view", "shared array"}
COLUMNS = {"masked", "masked words", "encoded"}
TABLES = {"shared table", "loader"}
CONSUMERS: dict[str, tuple[Callable[[Any], list[Any]], set[str]]] = {
    "numpy.from_dlpack": (lambda obj: np.from_dlpack(obj).tolist(), ARRAYS),
    "torch.from_dlpack": (lambda obj: torch.from_dlpack(obj).tolist(), ARRAYS),
    "jax.numpy.from_dlpack": (lambda obj: jax.numpy.from_dlpack(obj).tolist(), {"view"}),
    "numpy.asarray": (lambda obj: np.asarray(obj).tolist(), ARRAYS),
    "pyarrow.array": (lambda obj: pa.array(obj).to_pylist(), COLUMNS),
    "pyarrow.table": (lambda obj: pa.table(obj).to_pylist(), TABLES),
    "polars.Series": (lambda obj: polars.Series(obj).to_list(), COLUMNS | TABLES),
    "polars.DataFrame": (lambda obj: polars.DataFrame(obj).to_dicts(), TABLES),
    "duckdb.from_arrow": (duckdb_rows, COLUMNS | TABLES),
    "convert to pyarrow": (lambda obj: zc.convert(obj, "pyarrow").to_pylist(), COLUMNS | TABLES | ARRAYS),
    "convert to polars": (lambda obj: polars_rows(zc.convert(obj, "polars")), COLUMNS | TABLES | ARRAYS),
}


def polars_rows(result: Any) -> list[Any]:
    return list(result.to_dicts() if isinstance(result, polars.DataFrame) else result.to_list())


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("name", OBJECTS)
def test_the_rows_arrive_or_the_call_is_refused(name: str, consumer: str) -> None:
    make, rows = OBJECTS[name]
    read, taken = CONSUMERS[consumer]
    if name in taken:
        assert read(make()) == rows
        return
    with pytest.raises(REFUSALS):
        # polars and NumPy would otherwise make an array of objects, or of twice as many rows.
        assert read(make()) == rows


@pytest.mark.parametrize("name", ["masked", "masked words", "encoded"])
@pytest.mark.parametrize("call", [np.asarray, np.ma.asarray, pandas.Series])
def test_no_array_mixes_the_values_and_the_mask(call: Callable[[Any], Any], name: str) -> None:
    if name == "encoded" and call is pandas.Series:
        pytest.skip("pandas takes an object without a length as one value")
    with pytest.raises(zc.UnsupportedConversionError, match="several arrays"):
        call(OBJECTS[name][0]())


def test_no_view_shows_a_part_of_several_arrays() -> None:
    for nulls in ([None], []):
        masked = zc.convert(pa.array([1, 2, *nulls]), "numpy", nulls="mask")
        with pytest.raises(zc.UnsupportedConversionError, match="several arrays"):
            zc.view(masked)
        assert zc.shares_memory(masked, masked.values)


def test_a_view_exports_its_own_memory() -> None:
    x = np.arange(6.0).reshape(2, 3)
    torch.from_dlpack(zc.view(x))[0, 0] = 9
    assert x[0, 0] == 9
    assert np.shares_memory(np.from_dlpack(zc.view(x)), x)
    assert not np.shares_memory(np.from_dlpack(zc.view(x), copy=True), x)
    assert zc.view(x).__dlpack_device__() == (1, 0)


def test_read_only_memory_is_marked_or_refused() -> None:
    x = np.arange(3.0)
    x.flags.writeable = False
    assert not np.from_dlpack(zc.view(x)).flags.writeable
    with pytest.raises(BufferError, match="read-only, which DLPack before"):
        zc.view(x).__dlpack__()
    assert np.from_dlpack(zc.view(x), copy=True).flags.writeable


def test_views_that_dlpack_cannot_describe_are_refused() -> None:
    with pytest.raises(BufferError, match="negative"):
        zc.view(np.arange(3.0)[::-1]).__dlpack__()
    with pytest.raises(BufferError, match="the memory is on cpu"):
        zc.view(np.arange(3.0)).__dlpack__(dl_device=(2, 0))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "bool", "complex64", "uint16"])
def test_dtypes_arrive(dtype: str) -> None:
    x = torch.ones(3).to(getattr(torch, dtype))
    assert torch.equal(torch.from_dlpack(zc.view(x)).to(torch.complex64), x.to(torch.complex64))


def test_the_dtype_and_the_device_have_dlpack_methods() -> None:
    view = zc.view(np.arange(3, dtype="u2"))
    assert view.dtype.__dlpack_data_type__() == (1, 16, 1)
    assert view.device.__dlpack_device__() == (1, 0)


COLUMNS_OF_TYPES = {
    "text": pa.array(["a", None, "bc"]),
    "bytes": pa.array([b"a", None, b""]),
    "bytes of one length": pa.array([b"ab", None], pa.binary(2)),
    "days": pa.array([1, None], pa.date32()),
    "milliseconds": pa.array([86_400_000, None], pa.date64()),
    "time": pa.array([1, None], pa.time64("us")),
    "zone": pa.array([1, None], pa.timestamp("us", "Europe/Zurich")),
    "duration": pa.array([1, None], pa.duration("ms")),
    "decimal": pa.array([Decimal("-1.25"), None]),
    "decimal of a negative scale": pa.array([Decimal("12300"), None], pa.decimal128(5, -2)),
    "decimal32": pa.array([Decimal("-1.25"), None], pa.decimal32(5, 2)),
    "decimal256": pa.array([Decimal("-1.25"), None], pa.decimal256(60, 2)),
    "lists": pa.array([[1, None], None, []]),
    "large lists": pa.array([[1, 2], None], pa.large_list(pa.int64())),
    "list views": pa.array([[1, 2], None], pa.list_view(pa.int64())),
    "lists of text": pa.array([["a", None], None]),
    "structs": pa.array([{"a": 1, "b": "x"}, None]),
    "maps": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "fixed lists": pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
    "categories": pa.array(["x", None, "y"]).dictionary_encode(),
    "booleans": pa.array([True, None]),
}


@pytest.mark.parametrize("encode", [True, "bytes"])
@pytest.mark.parametrize("origin", ["numpy", "torch"])
@pytest.mark.parametrize("name", COLUMNS_OF_TYPES)
def test_a_column_comes_back_from_its_numbers(name: str, origin: str, encode: Any) -> None:
    column = COLUMNS_OF_TYPES[name]
    result = zc.convert(column, origin, encode=encode, nulls="mask")
    assert zc.convert(result, "pyarrow").to_pylist() == column.to_pylist()
    assert zc.convert({"x": result}, "pyarrow")["x"].to_pylist() == column.to_pylist()
    other = zc.convert(result, "numpy")  # part by part, into the same type of result
    assert type(other) is type(result)
    assert other.to_pylist() == result.to_pylist()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=st.lists(st.none() | st.text(max_size=5), max_size=20), sliced=st.integers(0, 5))
def test_text_comes_back(rows: list[str | None], sliced: int) -> None:
    column = pa.array(rows, pa.string()).slice(min(sliced, len(rows)))
    for encode in (True, "bytes"):
        result = zc.convert(column, "numpy", encode=encode, nulls="mask")
        assert pa.array(result).to_pylist() == column.to_pylist()


def test_changed_parts_are_refused() -> None:
    text = zc.convert(pa.array(["ab", "c"]), "numpy", encode="bytes")
    text.offsets = np.array([0, 2, 2**30], np.int32)
    with pytest.raises(zc.UnsupportedConversionError, match="its parts are not those of a column"):
        pa.array(text)
    masked = zc.Masked(np.arange(3), np.array([0, 1, 0]))
    with pytest.raises(zc.UnsupportedConversionError, match="bool"):
        pa.array(masked)
    with pytest.raises(zc.UnsupportedConversionError, match="bool"):
        zc.convert(masked, "polars")


def test_parts_of_other_dtypes_and_shapes_are_refused() -> None:
    def days() -> Any:
        return zc.convert(pa.array([1, 2, 3], pa.date32()), "numpy", encode=True)

    for values in (np.arange(3), np.arange(3.0), np.arange(6, dtype="i4").reshape(3, 2)):
        day = days()
        day.values = values
        with pytest.raises(zc.UnsupportedConversionError, match=r"its values are .*, not int32 of shape"):
            zc.convert(day, "pyarrow")
    with pytest.raises(zc.UnsupportedConversionError, match=r"shape \(2, 2\)"):
        zc.decode(np.array([[1, 2], [3, 4]]), like=days())
    text = zc.Encoded("string", np.frombuffer(b"abcde", "u1"), offsets=np.array([0, 3, 5], "u8"))
    with pytest.raises(zc.UnsupportedConversionError, match="its offsets are uint64"):
        pa.array(text)
    city = zc.convert(pa.array(["a", "b", "a"]), "numpy", encode=True)
    with pytest.raises(zc.UnsupportedConversionError, match=r"the mask has shape \(1,\)"):
        pa.array(zc.Masked(city, np.array([True])))
    json = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}']))
    with pytest.raises(zc.UnsupportedConversionError, match="cannot be rebuilt"):
        pa.array(zc.convert(json, "numpy", encode="bytes"))


def test_copies_of_parts_are_reported() -> None:
    day = zc.Encoded("date32[day]", np.arange(6, dtype="i4")[::2], unit="D")
    assert [reason.code for reason in zc.explain(day, "pyarrow").reasons] == ["not-contiguous"]
    with pytest.raises(zc.CopyRequiredError, match="gaps"):
        zc.convert(day, "pyarrow", copy=False)
    assert zc.convert(day, "pyarrow").cast(pa.int32()).to_pylist() == [0, 2, 4]
    masked = zc.Masked(np.ones((3, 2), bool), np.zeros((3, 2), bool))
    assert not zc.explain(masked, "pyarrow").zero_copy
    plain = zc.convert(pa.array([1, 2], pa.date32()), "numpy", encode=True)
    assert zc.shares_memory(plain, zc.convert(plain, "pyarrow", copy=False))


def test_a_shared_column_is_a_stream() -> None:
    for column in (pa.array(["a", "b"]), pa.chunked_array([["a"], ["b"]]), polars.Series(["a", "b"])):
        with zc.share(column) as shared:
            assert polars.Series(shared).to_list() == ["a", "b"]


def test_decimals_of_all_widths_are_decoded() -> None:
    for kind in (pa.decimal32(7, 2), pa.decimal128(30, 2), pa.decimal256(60, 2)):
        like = zc.convert(pa.array([Decimal("1.25")], kind), "numpy", encode=True)
        column = zc.decode(np.array([250, -5]), like=like)
        assert column.type == kind
        assert column.to_pylist() == [Decimal("2.50"), Decimal("-0.05")]


def test_predictions_become_words_and_dates() -> None:
    city = zc.convert(polars.Series(["Bern", "Oslo", "Bern"]), "torch", encode=True)
    assert zc.decode(torch.tensor([1, 0, -1]), like=city).to_pylist() == ["Oslo", "Bern", None]
    assert zc.decode(np.array([1.0]), city, "polars.Series").to_list() == ["Oslo"]
    days = zc.convert(pa.array([None, 2], pa.date32()), "jax", encode=True, nulls="mask")
    column = zc.decode(zc.Masked(np.array([3, 4]), np.array([False, True])), like=days)
    assert column.to_pylist() == pa.array([3, None], pa.date32()).to_pylist()


def test_predictions_that_have_no_word_are_refused() -> None:
    city = zc.convert(pa.array(["Bern", "Oslo"]), "numpy", encode=True)
    with pytest.raises(zc.UnsupportedConversionError, match="Index 2 out of bounds"):
        zc.decode(np.array([2]), like=city)
    with pytest.raises(zc.LossyConversionError, match="not an integer"):
        zc.decode(np.array([0.5]), like=city)
    with pytest.raises(zc.UnsupportedConversionError, match="like= is int"):
        zc.decode(np.array([1]), like=3)
    with pytest.raises(zc.UnsupportedConversionError, match="not one number"):
        zc.decode(np.array([1]), like=zc.convert(pa.array([[1]]), "numpy", encode=True))


def test_a_stream_casts_to_the_requested_schema() -> None:
    loader = zc.loader(TABLE.select(["a"]), to="torch", batch_size=2)
    schema = pa.schema({"a": pa.float64()})
    assert pa.RecordBatchReader.from_stream(loader, schema=schema).read_all().schema == schema
    with pytest.raises(ValueError, match="field names"):
        pa.RecordBatchReader.from_stream(loader, schema=pa.schema({"other": pa.int64()}))


def test_a_stream_leaves_the_position_of_the_loader() -> None:
    loader = zc.loader(TABLE.select(["a"]), to="numpy", batch_size=2, shuffle=True)
    for _ in range(2):
        exported = pa.table(loader)["a"].to_pylist()
        assert loader.epoch == 0
    assert [value for batch in loader for value in batch["a"].tolist()] == exported


def test_batches_without_names_are_refused_as_a_stream() -> None:
    loader = zc.loader({"x": np.arange(4.0), "y": np.arange(4.0)}, "torch", batch_size=2, layout="matrix")
    with pytest.raises(zc.errors.LoaderUseError, match="leave out layout="):
        pa.table(loader)
    with pytest.raises(zc.errors.LoaderUseError, match="it has no batches"):
        pa.table(zc.loader(TABLE.slice(0, 0), to="polars", batch_size=2))


def test_masked_columns_are_collated_pinned_and_moved() -> None:
    from torch.utils.data import default_collate

    rows = [zc.convert(pa.array([1, None]), "torch", nulls="mask") for _ in range(3)]
    batch = default_collate(rows)
    assert type(batch) is zc.Masked
    assert batch.values.shape == batch.mask.shape == (3, 2)
    assert batch.to("meta").mask.device.type == "meta"
    _, mask = jax.jit(lambda x: x)(zc.convert(pa.array([1, None], pa.int32()), "jax", nulls="mask"))
    assert mask.tolist() == [False, True]
