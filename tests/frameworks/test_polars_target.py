"""polars as a target: aliases, copies with reasons, refusals, and losses."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

import numpy as np
import pytest
from helpers.polars_cases import DAY, LONG, Streamed, blocks, leaf, memory_of, series

import zerocopy as zc
from zerocopy.errors import CopyRequiredError, LossyConversionError, UnsupportedConversionError
from zerocopy.protocols import arrow_c

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")


def starts(obj: object, step: int) -> list[int]:
    """Return the address of the first row of each chunk, of a type of that many bytes."""
    return [chunk.buffers[1] + chunk.offset * step for chunk in memory_of(obj)]


STAMPS = pa.array([DAY, None, DAY], pa.timestamp("us"))


#: Arrow's types, the polars type of each, and whether polars aliases it.
TAKEN = {
    "int64": (pa.array([1, None, 3]), pl.Int64, True),
    "halffloat": (pa.array([1.5, None, 3.0], pa.float16()), pl.Float16, True),
    "bool": (pa.array([True, None, False]), pl.Boolean, True),
    "string": (pa.array(["a", None, LONG]), pl.String, False),
    "large_string": (pa.array(["a", None, LONG], pa.large_string()), pl.String, False),
    "string_view": (pa.array(["a", None, LONG], pa.string_view()), pl.String, True),
    "binary": (pa.array([b"a", None, b"c"]), pl.Binary, False),
    "fixed_binary": (pa.array([b"ab", None, b"cd"], pa.binary(2)), pl.Binary, False),
    "date32": (pa.array([DAY.date(), None, DAY.date()]), pl.Date, True),
    "timestamp_s": (STAMPS.cast("timestamp[s]"), pl.Datetime("ms"), False),
    "timestamp_us": (STAMPS, pl.Datetime("us"), True),
    "timestamp_zone": (STAMPS.cast(pa.timestamp("us", "UTC")), pl.Datetime("us", "UTC"), True),
    "duration_s": (pa.array([1, None, 3], pa.duration("s")), pl.Duration("ms"), False),
    "duration_ns": (pa.array([1000, None, 3000], pa.duration("ns")), pl.Duration("ns"), True),
    "time32": (pa.array([dt.time(1), None, dt.time(3)], pa.time32("ms")), pl.Time, False),
    "time64_us": (pa.array([dt.time(1), None, dt.time(3)], pa.time64("us")), pl.Time, False),
    "time64_ns": (pa.array([dt.time(1), None, dt.time(3)], pa.time64("ns")), pl.Time, True),
    "decimal32": (
        pa.array([Decimal("1.25"), None, Decimal("3")], pa.decimal32(5, 2)),
        pl.Decimal(5, 2),
        False,
    ),
    "decimal64": (
        pa.array([Decimal("1.25"), None, Decimal("3")], pa.decimal64(9, 2)),
        pl.Decimal(9, 2),
        False,
    ),
    "decimal128": (
        pa.array([Decimal("1.25"), None, Decimal("3")], pa.decimal128(9, 2)),
        pl.Decimal(9, 2),
        True,
    ),
    "dictionary": (pa.array(["a", None, "b"]).dictionary_encode(), pl.Categorical, False),
    "dictionary_ints": (pa.array([5, None, 6]).dictionary_encode(), pl.Int64, False),
    "dictionary_seconds": (STAMPS.cast("timestamp[s]").dictionary_encode(), pl.Datetime("ms"), False),
    "list": (pa.array([[1, 2], None, []]), pl.List(pl.Int64), False),
    "large_list": (pa.array([[1, 2], None, []], pa.large_list(pa.int64())), pl.List(pl.Int64), True),
    "list_of_text": (pa.array([["a"], None, []], pa.large_list(pa.string())), pl.List(pl.String), False),
    "fixed_list": (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)), pl.Array(pl.Int8, 2), True),
    "struct": (pa.array([{"a": 1}, None, {"a": 3}]), pl.Struct({"a": pl.Int64}), True),
    "struct_decimal32": (
        pa.array([{"a": Decimal("1.25")}, None, {"a": None}], pa.struct([("a", pa.decimal32(5, 2))])),
        pl.Struct({"a": pl.Decimal(5, 2)}),
        False,
    ),
    "list_decimal64": (
        pa.array([[Decimal("1.25")] * 3, None, []], pa.large_list(pa.decimal64(9, 2))),
        pl.List(pl.Decimal(9, 2)),
        False,
    ),
    "list_struct_decimal32": (
        pa.array([[{"a": Decimal("1.25")}], None, []], pa.list_(pa.struct([("a", pa.decimal32(5, 2))]))),
        pl.List(pl.Struct({"a": pl.Decimal(5, 2)})),
        False,
    ),
    "bool8": (pa.array([True, None, False]).cast(pa.bool8()), pl.Boolean, False),
}


@pytest.mark.parametrize("rows", [slice(0, 3), slice(1, 3), slice(0, 0)])
@pytest.mark.parametrize("name", TAKEN)
def test_arrow_columns_are_aliased_or_the_plan_has_reasons(name: str, rows: slice) -> None:
    array, dtype, aliased = TAKEN[name]
    array = array[rows.start : rows.stop]
    column = pa.chunked_array([array, array])
    sliced_lists = name == "fixed_list" and rows.start  # polars refuses them if they have nulls
    table = pa.table({"x": column, "y": pa.array(range(2 * len(array)))})
    plan = zc.explain(table, "polars")
    frame = zc.convert(table, "polars")
    assert frame.columns == ["x", "y"]
    assert frame["x"].dtype == dtype
    assert frame["x"].to_list() == column.to_pylist()
    assert frame["y"].to_list() == table["y"].to_pylist()
    if not len(array):
        return
    assert frame.n_chunks("all") == [2, 1]
    assert leaf(plan).zero_copy == (aliased and not sliced_lists)
    assert bool(leaf(plan).reasons) == (not leaf(plan).zero_copy) == bool(leaf(plan).copied_bytes)
    if leaf(plan).zero_copy and name not in ("large_list", "fixed_list", "struct", "bool"):
        # polars imports a slice at the address of its first row.
        step = 16 if name == "string_view" else arrow_c.read_array(array).field.width
        assert starts(frame["x"], step) == starts(column, step)
    elif leaf(plan).zero_copy:
        assert rows.start or blocks(frame["x"]) == blocks(column)
    if leaf(plan).zero_copy:
        assert zc.convert(table, "polars", copy=False).equals(frame)
    else:
        with pytest.raises(CopyRequiredError):
            zc.convert(table, "polars", copy=False)
    copied = zc.convert(table, "polars", copy=True)
    assert copied.equals(frame)
    assert not blocks(copied["x"]) & blocks(column)


@pytest.mark.hazard("polars#panics")
@pytest.mark.parametrize(
    ("array", "why"),
    [
        (pa.array([Decimal("1.25")], pa.decimal256(50, 2)), "decimal256"),
        (pa.array([[]], pa.list_(pa.int64(), 0)), r"fixed_size_list<.*>\[0\]"),
        (pa.array([[[]]], pa.list_(pa.list_(pa.int64(), 0))), r"fixed_size_list<.*>\[0\]"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "interval"),
        (pa.array([[1]], pa.list_view(pa.int64())), "list_view"),
        (pa.RunEndEncodedArray.from_arrays([2, 3], [1, 2]), "run_end_encoded"),
        (pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]), "union"),
        (pa.array([1], pa.timestamp("us", "+05:30")), r"\+05:30"),
        (pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), "two fields"),
        (
            pa.array([12], pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(10, -1), safe=False),
            "negative",
        ),
    ],
)
def test_types_on_which_polars_panics_are_refused(array: pa.Array, why: str) -> None:
    table = pa.table({"fine": pa.array([0] * len(array)), "x": array})
    assert not zc.explain(table, "polars").possible
    with pytest.raises(UnsupportedConversionError, match=f"column 'x' .*{why}") as caught:
        zc.convert(table, "polars")
    assert caught.value.remedy
    assert "'fine'" not in caught.value.why


@pytest.mark.parametrize("values", [[b"a"], [True]])
def test_dictionaries_inside_another_type_have_text_or_numbers(values: list[object]) -> None:
    def nested(values: list[object]) -> pa.Table:
        return pa.table({"x": pa.StructArray.from_arrays([pa.array(values).dictionary_encode()], ["a"])})

    with pytest.raises(UnsupportedConversionError, match="inside another type, which polars lacks"):
        zc.convert(nested(values), "polars")
    for table in (nested(["a"]), nested([1.5])):
        assert zc.convert(table, "polars").to_dicts() == table.to_pylist()


def test_seconds_that_milliseconds_do_not_hold_are_refused() -> None:
    with pytest.raises(LossyConversionError, match="'x'"):
        zc.convert(pa.table({"x": pa.array([2**62], pa.timestamp("s"))}), "polars")


@pytest.mark.parametrize("source", ["pandas", "pandas.DataFrame", "pyarrow.Table", "nanoarrow.Array"])
@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("s", "+01:00"), pa.duration("s")], ids=str)
def test_fix_casts_seconds_once(source: str, kind: pa.DataType) -> None:
    pytest.importorskip(source.partition(".")[0])
    array = pa.array([1, None], kind)
    column = "Table" not in source and "Frame" not in source
    x = zc.convert(array if column else pa.table({"t": array}), source.removesuffix(".DataFrame"))
    call = zc.explain(x, "polars", copy=False).error.calls[0]
    imports, _, code = call.rpartition("; ")
    exec(imports, names := {"zc": zc, "x": x})
    assert ("x['t']" in code) != column
    assert zc.convert(eval(code, names), "pyarrow").equals(zc.convert(zc.convert(x, "polars"), "pyarrow"))


def test_misaligned_memory_is_copied_with_a_reason() -> None:
    raw = pa.py_buffer(bytearray(8 * 5 + 4))
    for kind, shift, aliased in (
        (pa.int64(), 4, False),
        (pa.int32(), 4, True),
        (pa.decimal128(9, 2), 8, False),
    ):
        array = pa.Array.from_buffers(kind, 2, [None, raw.slice(shift)])
        table = pa.table({"x": array})
        plan, frame = zc.explain(table, "polars"), zc.convert(table, "polars")
        assert leaf(plan).zero_copy == aliased == (blocks(frame["x"]) == blocks(array))
        assert frame["x"].to_list() == array.to_pylist()


def test_tensors_in_a_column_become_an_array_of_that_shape() -> None:
    values = np.arange(24.0).reshape(4, 3, 2)
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    plan, frame = (
        zc.explain(pa.table({"x": tensors}), "polars"),
        zc.convert(pa.table({"x": tensors}), "polars"),
    )
    assert frame["x"].dtype == pl.Array(pl.Float64, (3, 2))
    assert leaf(plan).zero_copy
    assert blocks(frame["x"]) == {values.ctypes.data}
    assert np.array_equal(zc.convert(frame, "numpy")["x"], values)
    part = zc.convert(pa.table({"x": tensors[1:3]}), "polars")
    assert np.array_equal(zc.convert(part, "numpy")["x"], values[1:3])
    kind = pa.fixed_shape_tensor(pa.float64(), [3, 2], permutation=[1, 0])
    turned = pa.ExtensionArray.from_storage(kind, tensors.storage)
    with pytest.raises(UnsupportedConversionError, match="permuted"):
        zc.convert(pa.table({"x": turned}), "polars")


def test_losses_are_warned_of() -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.uuid()),
            pa.field("day", pa.date64(), nullable=False),
            pa.field("zone", pa.timestamp("us", "+01:00"), metadata={"unit": "m"}),
            pa.field("fine", pa.int64()),
        ],
        metadata={"origin": "somewhere"},
    )
    table = pa.Table.from_arrays([pa.array([None], field.type) for field in schema], schema=schema)
    table = table.set_column(1, schema.field("day"), pa.array([DAY.date()], pa.date64()))
    message = "\n".join(zc.explain(table, "polars").warnings)
    for part in (
        "'origin'",
        "'id'.*uuid.*Binary",
        "'day'.*Datetime",
        "forbid nulls",
        "Etc/GMT-1",
        "'zone'.*unit",
    ):
        assert re.search(part, message), part
    assert "fine" not in message
    assert not zc.explain(pa.table({"a": [1]}), "polars").warnings


def test_enum_and_categorical_survive_arrow() -> None:
    frame = pl.DataFrame(
        {
            "e": series(["b", "a"], pl.Enum(["b", "a", "c"])),
            "c": series(["b", "a"], pl.Categorical),
            "n": [None, None],
        }
    )
    back = zc.convert(zc.convert(frame, "pyarrow"), "polars")
    assert back.schema == frame.schema
    assert back.equals(frame)


@pytest.mark.hazard("polars#dictionaries-inside-lists")
@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["a"]), pl.Enum([])])
def test_unused_categories_are_kept(dtype: object) -> None:
    frame = pl.DataFrame({"x": series([None, None], dtype)})
    back = zc.convert(zc.convert(frame, "pyarrow"), "polars")
    assert back.schema == frame.schema
    assert back.equals(frame)


def test_frames_without_columns_or_rows_are_converted() -> None:
    empty = pl.DataFrame(height=3)
    assert zc.convert(empty, "pyarrow").num_columns == 0
    table = pa.table({"a": [1, 2, 3]}).select([])
    assert zc.convert(table, "polars").shape == (3, 0)
    assert zc.convert({}, "polars").shape == (0, 0)
    none = pa.table({"a": pa.chunked_array([], pa.int64()), "s": pa.chunked_array([], pa.string())})
    assert zc.convert(none, "polars").schema == {"a": pl.Int64, "s": pl.String}


def test_duplicate_names_are_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert not zc.explain(table, "polars").possible
    with pytest.raises(UnsupportedConversionError, match="several columns are called 'a'"):
        zc.convert(table, "polars")
    with pytest.raises(UnsupportedConversionError, match="several columns are called '1'"):
        zc.convert({1: np.arange(2), "1": np.arange(2)}, "polars")


def test_empty_column_name_is_kept() -> None:
    table = pa.table({"a": [1], "": [2]})
    assert (
        zc.convert(table, "polars").columns
        == ["a", ""]
        == zc.convert({"a": np.ones(1), "": np.ones(1)}, "polars").columns
    )


def test_polars_targets_select_the_type_of_the_result() -> None:
    frame = pl.DataFrame({"a": [1, 2], "b": [3, 4]})
    assert zc.convert(frame, "polars.DataFrame") is frame
    with pytest.raises(UnsupportedConversionError, match="2 columns is not one"):
        zc.convert(frame, "polars.Series")
    one = zc.convert(frame, "polars.Series", columns=["b"])
    assert one.name == "b"
    assert blocks(one) == blocks(frame["b"])
    assert zc.convert(one, "polars.Series") is one is zc.convert(one, "polars")
    assert zc.convert(one, "polars.DataFrame").equals(frame.select("b"))
    assert zc.convert(pa.array([1, None]), "polars.DataFrame").to_dict(as_series=False) == {
        "column_0": [1, None]
    }
    assert zc.convert(pa.chunked_array([[1], [None]]), "polars").n_chunks() == 2
    assert zc.convert(Streamed(pa.table({"a": [1], "b": ["x"]})), "polars").to_dicts() == [{"a": 1, "b": "x"}]


@pytest.mark.parametrize(
    ("array", "dtype", "stored", "aliased"),
    [
        (np.array([1, 2, 3], "M8[us]"), pl.Datetime("us"), "M8[us]", True),
        (np.array([1, 2, 3], "m8[ns]"), pl.Duration("ns"), "m8[ns]", True),
        (np.array(["2020-01-01", "NaT"], "M8[ms]"), pl.Datetime("ms"), "M8[ms]", True),
        (np.array([1, 2, 3], "M8[s]"), pl.Datetime("ms"), "M8[ms]", False),
        (np.array(["2020-01-01", "NaT"], "M8[D]"), pl.Date, "M8[D]", False),
    ],
)
def test_numpy_dates_are_aliased_or_copied(
    array: np.ndarray, dtype: object, stored: str, aliased: bool
) -> None:
    plan, frame = zc.explain({"x": array}, "polars"), zc.convert({"x": array}, "polars")
    assert frame["x"].dtype == dtype
    assert leaf(plan).zero_copy == aliased == (blocks(frame["x"]) == {array.ctypes.data})
    first = array.astype(stored)[:1].view("i8")[0]
    assert frame["x"].cast(pl.Int64)[0] == first
    assert frame["x"].null_count() == np.isnat(array).sum()


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(4,), (4, 2), (4, 2, 3)])
def test_ndarrays_are_aliased(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    plan, frame = zc.explain({"x": array}, "polars"), zc.convert({"x": array}, "polars", copy=False)
    assert leaf(plan).zero_copy
    assert blocks(frame["x"]) == {array.ctypes.data}
    assert np.array_equal(frame["x"].to_numpy(), array)
    assert any("writing to the source" in message for message in plan.warnings)
    array.flags.writeable = False
    assert not zc.explain({"x": array}, "polars").warnings
    copied = zc.convert({"x": array}, "polars", copy=True)
    assert copied.equals(frame)
    assert blocks(copied["x"]) != {array.ctypes.data}


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (np.arange(8)[::2], "requires contiguous memory"),
        (np.arange(8)[::-1], "requires contiguous memory"),
        (np.asfortranarray(np.ones((3, 2))), "requires contiguous memory"),
        (np.zeros(3 * 8 + 1, "u1")[1:].view("i8"), "aligned"),
        (np.arange(3, dtype=">i4"), "byte order"),
        (np.array([True, False, True]), "bits"),
        (np.ones((2, 3), bool), "bits"),
    ],
)
def test_ndarrays_that_are_copied(array: np.ndarray, why: str) -> None:
    plan = zc.explain({"x": array}, "polars")
    assert not leaf(plan).zero_copy
    assert why in str(leaf(plan).reasons[0])
    with pytest.raises(CopyRequiredError, match=why):
        zc.convert({"x": array}, "polars", copy=False)
    assert zc.convert({"x": array}, "polars")["x"].to_list() == array.tolist()


def test_1d_array_becomes_a_series_and_2d_a_frame() -> None:
    array = np.arange(6.0)
    for _ in range(2):
        one = zc.convert(array, "polars")
        assert isinstance(one, pl.Series)
        assert blocks(one) == {array.ctypes.data}
    for _ in range(2):
        assert zc.convert(np.arange(6)[::-1], "polars").to_list() == [5, 4, 3, 2, 1, 0]
        assert zc.convert(np.arange(3, dtype=">i8"), "polars").to_list() == [0, 1, 2]
        with pytest.raises(UnsupportedConversionError, match="complex128"):
            zc.convert(np.ones(3, complex), "polars")


def test_result_outlives_its_source() -> None:
    frame = zc.convert({"x": np.arange(1000)}, "polars")
    table = zc.convert(frame, "pyarrow")
    tensors = zc.convert(table, "numpy")
    back = zc.convert(table, "polars")
    del frame, table
    assert tensors["x"].sum() == back["x"].sum() == 499_500


def test_ml_dtypes_are_refused_on_the_fast_path() -> None:
    """The NumPy kind of float8_e5m2 is "f": polars would create a column of objects."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    zc.convert(np.zeros(4), to="polars")  # builds the route
    with pytest.raises(UnsupportedConversionError):
        zc.convert(np.zeros(4, ml_dtypes.float8_e5m2), to="polars")


@pytest.mark.parametrize("to", ["polars", "pandas", "pyarrow"])
@pytest.mark.parametrize("name", ["int1", "uint1"])
def test_unknown_numpy_types_are_not_bytes(name: str, to: str) -> None:
    """The NumPy kind of both is V, as for bytes: polars would create binaries."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = getattr(ml_dtypes, name, None)
    if dtype is None:
        pytest.skip(f"this ml_dtypes has no {name}")
    x = np.zeros(4, dtype)
    assert not zc.explain(x, to=to).possible
    with pytest.raises(UnsupportedConversionError):
        zc.convert(x, to=to)


@pytest.mark.parametrize("dtype", ["object", "string[python]"])
def test_the_plan_of_text_in_objects_counts_views_and_has_a_cast_that_works(dtype: str) -> None:
    pd = pytest.importorskip("pandas")
    column = pd.Series(["Oslo", "Bern", None], dtype=dtype)
    plan = zc.explain(column, "polars")
    own = zc.explain(column, "pyarrow").copied_bytes
    assert plan.copied_bytes == own + 3 * 16
    stored = column.astype("str")
    assert [fix.source for reason in plan.reasons for fix in reason.fixes] == ["{x}.astype('str')"]
    assert zc.explain(stored, "polars").copied_bytes == 3 * 16
    assert zc.convert(stored, "polars").to_list() == ["Oslo", "Bern", None]
