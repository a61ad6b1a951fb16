"""polars: what is aliased and what is not, both ways; that sources stay as they were; the guards."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

import numpy as np
import pytest

import zerocopy as zc
from zerocopy.errors import CopyRequiredError, LossyConversionError, UnsupportedConversionError
from zerocopy.protocols import arrow_c

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

DAY = dt.datetime(2024, 2, 29, 12, 30)
LONG = "more than twelve bytes, so that it lies outside its view"


def series(values: list, dtype: object = None, name: str = "x") -> pl.Series:
    return pl.Series(name, values, dtype=dtype)


#: Columns of polars that go out as they lie.
ALIASED = {
    **{str(t): series([1, 2, 3], t) for t in (pl.Int8, pl.Int16, pl.Int32, pl.Int64)},
    **{str(t): series([1, 2, 3], t) for t in (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)},
    **{str(t): series([1.5, -0.0, 3.0], t) for t in (pl.Float16, pl.Float32, pl.Float64)},
    "nulls": series([1, None, 3]),
    "bool": series([True, None, False]),
    "string": series(["a", None, LONG]),
    "binary": series([b"a", None, LONG.encode()]),
    "date": series([DAY.date(), None, DAY.date()]),
    "datetime": series([DAY, None, DAY], pl.Datetime("us")),
    "zone": series([DAY, None, DAY], pl.Datetime("ns", "Europe/Paris")),
    "duration": series([dt.timedelta(1), None, dt.timedelta(2)], pl.Duration("ms")),
    "time": series([dt.time(1), None, dt.time(2)]),
    "decimal": series([Decimal("1.25"), None, Decimal("-3.5")], pl.Decimal(10, 2)),
    "enum": series(["a", None, "b"], pl.Enum(["b", "a"])),
    "list": series([[1, 2], None, []], pl.List(pl.Int64)),
    "array": series([[1.0, 2.0], None, [3.0, 4.0]], pl.Array(pl.Float64, 2)),
    "struct": series([{"a": 1, "b": "x"}, {"a": None, "b": LONG}, {"a": 3, "b": "z"}]),
}
FLAT = [k for k in ALIASED if k not in ("list", "array", "struct", "enum")]


def memory_of(obj: object) -> list[arrow_c.Memory]:
    return [arrow_c.read_array(obj)] if isinstance(obj, pa.Array) else list(arrow_c.read_stream(obj)[1])


def blocks(obj: object) -> set[int]:
    """Return where the values of a column lie: no bitmaps, and no sizes of the blocks of a view."""
    found = set()

    def walk(chunk: arrow_c.Memory) -> None:
        views = chunk.field.kind in ("string_view", "binary_view")
        found.update(chunk.buffers[1:-1] if views else chunk.buffers[1:])
        for child in (*chunk.children, *([chunk.dictionary] if chunk.dictionary else [])):
            walk(child)

    for chunk in memory_of(obj):
        walk(chunk)
    return found - {0}


def starts(obj: object, step: int) -> list[int]:
    """Return the address of the first row of each chunk, of a type of that many bytes."""
    return [chunk.buffers[1] + chunk.offset * step for chunk in memory_of(obj)]


def leaf(plan: zc.Plan, name: str = "x") -> zc.Plan:
    return plan.leaves[f"[{name!r}]"]


class Streamed:
    """An object that speaks Arrow's stream and nothing else."""

    def __init__(self, obj: object) -> None:
        self._obj = obj

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._obj.__arrow_c_stream__(requested_schema)


# -- polars -> others -----------------------------------------------------------


@pytest.mark.parametrize("name", ALIASED)
def test_columns_go_to_arrow_as_they_lie_in_their_chunks(name: str) -> None:
    one = ALIASED[name]
    frame = pl.DataFrame([pl.concat([one, one], rechunk=False), pl.Series("y", range(6))])
    before = frame.n_chunks("all")
    plan = zc.explain(frame, "pyarrow", copy=False)
    table = zc.convert(frame, "pyarrow", copy=False)
    assert leaf(plan).zero_copy
    assert plan.copied_bytes == 0
    assert blocks(table["x"]) == blocks(frame["x"]) != set()
    assert [c.num_chunks for c in table.columns] == [2, 1] == before == frame.n_chunks("all")
    assert table["x"].to_pylist() == pl.concat([one, one], rechunk=False).to_list()
    back = zc.convert(table, "polars")
    assert back.schema == frame.schema
    assert back.equals(frame)
    assert back.n_chunks("all") == before


@pytest.mark.parametrize("name", ALIASED)
@pytest.mark.parametrize("rows", [slice(1, 3), slice(0, 0), slice(2, 3)])
def test_slices_and_empty_columns(name: str, rows: slice) -> None:
    part = ALIASED[name][rows]
    array = zc.convert(part, "pyarrow", copy=False)
    assert array.to_pylist() == part.to_list()
    back = zc.convert(pa.table({"x": array}), "polars")
    assert back["x"].to_list() == part.to_list()
    if name != "enum":  # an array alone has no metadata, where the categories would be
        assert back["x"].dtype == part.dtype


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.List(pl.Categorical)])
def test_a_categorical_is_made_anew(dtype: object) -> None:
    made = pl.DataFrame({"x": series([["a"], ["b"]] if dtype == pl.List else ["a", "b"], dtype)})
    plan = zc.explain(made, "pyarrow")
    assert not leaf(plan).zero_copy
    assert leaf(plan).copied_bytes
    assert "anew" in str(leaf(plan).reasons[0])
    with pytest.raises(CopyRequiredError, match="Categorical"):
        zc.convert(made, "pyarrow", copy=False)
    table = zc.convert(made, "pyarrow")
    assert table["x"].to_pylist() == made["x"].to_list()
    assert zc.convert(table, "polars").equals(made)


def test_shortcut_for_types_is_what_the_stream_says() -> None:
    from zerocopy._frameworks.polars import FRAMEWORK

    for one in (*ALIASED.values(), series([None, None])):
        said = FRAMEWORK.table(one).columns[0].field
        assert (said.format, said.name) == (arrow_c.read_stream(one)[0].format, one.name)


@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
def test_numbers_go_to_tensors_as_they_lie(to: str) -> None:
    frame = pl.DataFrame(
        {"a": [1.0, 2.0, 3.0], "b": [1, 2, 3], "c": [[1, 2]] * 3},
        schema_overrides={"c": pl.Array(pl.Int32, 2)},
    )
    for given in (frame, frame[1:]):
        # The second time by the fast way, if there is one.
        for _ in range(2):
            found = zc.convert(given, to)
            for name, column in found.items():
                assert np.array_equal(np.asarray(column), given[name].to_numpy())
        if to != "jax":  # which takes memory at multiples of 64 bytes
            assert zc.explain(given, to, copy=False).zero_copy
            for name, column in found.items():
                assert zc.view(column).ptr == given[name].to_numpy().ctypes.data
                assert zc.shares_memory(given[name], column)


def test_a_series_is_a_tensor_where_it_is_plain() -> None:
    one = series([1, 2, 3])
    array = zc.convert(one, "numpy", copy=False)
    assert array.ctypes.data == one.to_numpy().ctypes.data
    assert not array.flags.writeable
    again = zc.convert(one, "numpy")
    assert again.ctypes.data == array.ctypes.data
    assert not again.flags.writeable
    for _ in range(2):  # where polars' own export is writable
        assert not zc.convert(one.clear(), "numpy").flags.writeable
    with pytest.raises(LossyConversionError, match="1 null"):
        zc.convert(series([1, None]), "numpy")
    masked = zc.convert(series([1, None]), "numpy", nulls="mask")
    assert masked.mask.tolist() == [False, True]
    chunks = pl.concat([one, one], rechunk=False)
    with pytest.raises(CopyRequiredError, match=r"2 chunks.*(\n.*)*rechunk"):
        zc.convert(chunks, "numpy", copy=False)
    assert zc.convert(chunks, "numpy").tolist() == [1, 2, 3] * 2
    assert chunks.n_chunks() == 2
    with pytest.raises(UnsupportedConversionError, match="pick a column"):
        zc.view(one.to_frame())


def test_zones_are_not_lost_on_the_fast_way() -> None:
    zc.convert(series([1]), "numpy")
    for _ in range(2):
        with pytest.raises(UnsupportedConversionError, match="no time zone"):
            zc.convert(ALIASED["zone"].drop_nulls().to_frame(), "numpy")


def test_tensors_need_no_pyarrow(run_python) -> None:
    done = run_python("""
        import sys, numpy as np, polars as pl, torch, zerocopy as zc
        frame = pl.DataFrame({"a": [1, 2], "b": [1.5, 2.5], "s": ["x", "y"], "e": [True, None]})
        zc.convert(frame, "torch", columns=["a", "b"])
        zc.convert(frame, "numpy", encode=True, nulls="mask")
        zc.convert(frame["a"], "torch")
        made = zc.convert({"a": np.arange(3), "b": torch.ones(3, 2), "c": np.zeros(3, bool)}, "polars")
        assert made.schema == {"a": pl.Int64, "b": pl.Array(pl.Float32, 2), "c": pl.Boolean}, made
        zc.convert(np.arange(3), "polars.Series")
        zc.convert(made["a"], "polars.DataFrame")
        assert "pyarrow" not in sys.modules
    """)
    assert done.returncode == 0, done.stderr


# -- refusals -------------------------------------------------------------------


def test_a_lazy_frame_is_not_run() -> None:
    lazy = pl.LazyFrame({"a": [1]})
    for to in ("polars", "numpy", "torch", "pyarrow", "polars.DataFrame"):
        assert not zc.explain(lazy, to).possible
        with pytest.raises(UnsupportedConversionError, match=r"has not run(.|\n)*x\.collect\(\)"):
            zc.convert(lazy, to)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (series([1, 2], pl.Int128), "Int128"),
        (series([[1], [2]], pl.List(pl.Int128)), "Int128"),
        (series([object(), object()], pl.Object), "Object"),
    ],
)
@pytest.mark.parametrize("to", ["pyarrow", "torch"])
def test_what_nobody_else_has_is_refused_and_named(one: pl.Series, why: str, to: str) -> None:
    frame = pl.DataFrame([pl.Series("fine", [1, 2]), one])
    assert not zc.explain(frame, to).possible
    with pytest.raises(
        UnsupportedConversionError, match=rf"column 'x' is .*({why}|_pli128)(.|\n)*(cast|make)"
    ) as caught:
        zc.convert(frame, to, **({} if to == "pyarrow" else {"encode": True}))
    assert "'fine'" not in caught.value.why
    assert zc.convert(frame, "polars") is frame
    assert zc.convert(one, "polars.DataFrame")["x"].dtype == one.dtype
    assert zc.convert(frame, to, columns=["fine"]) is not None


def test_the_source_is_as_it_was_after_a_refusal() -> None:
    frame = pl.DataFrame([pl.concat([series(["a"]), series(["b"])], rechunk=False), pl.Series("y", [1, 2])])
    before = (frame.clone(), frame.n_chunks("all"), blocks(frame["x"]))
    for to, options in (("torch", {}), ("numpy", {"layout": "matrix"}), ("jax", {"columns": ["z"]})):
        with pytest.raises(UnsupportedConversionError):
            zc.convert(frame, to, **options)
    assert frame.equals(before[0])
    assert (frame.n_chunks("all"), blocks(frame["x"])) == before[1:]


# -- others -> polars -----------------------------------------------------------

STAMPS = pa.array([DAY, None, DAY], pa.timestamp("us"))
#: Arrow's types: what they become, and whether polars takes them as they lie.
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
def test_arrow_columns_come_in_as_they_lie_or_the_plan_says_why(name: str, rows: slice) -> None:
    array, dtype, aliased = TAKEN[name]
    array = array[rows.start : rows.stop]
    column = pa.chunked_array([array, array])
    sliced_lists = name == "fixed_list" and rows.start  # which polars refuses, if they have nulls
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
        # A slice comes in by addresses that were moved to its first row.
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
def test_what_polars_panics_on_is_refused_before(array: pa.Array, why: str) -> None:
    table = pa.table({"fine": pa.array([0] * len(array)), "x": array})
    assert not zc.explain(table, "polars").possible
    with pytest.raises(UnsupportedConversionError, match=f"column 'x' .*{why}") as caught:
        zc.convert(table, "polars")
    assert caught.value.remedy
    assert "'fine'" not in caught.value.why


def test_seconds_that_milliseconds_do_not_hold_are_refused() -> None:
    with pytest.raises(LossyConversionError, match="'x'"):
        zc.convert(pa.table({"x": pa.array([2**62], pa.timestamp("s"))}), "polars")


def test_list_views_are_cast_wrongly_upstream() -> None:
    # Why list views are refused and not cast. If this fails, pyarrow casts them right: cast them.
    views = pa.array([[1], [7, 8], [2, 3]], pa.list_view(pa.int64()))
    assert views.to_pylist() == [[1], [7, 8], [2, 3]] != views.cast(pa.large_list(pa.int64())).to_pylist()


def test_memory_that_is_not_aligned_is_copied_and_said_so() -> None:
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
    given = np.arange(24.0).reshape(4, 3, 2)
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(given)
    plan, frame = (
        zc.explain(pa.table({"x": tensors}), "polars"),
        zc.convert(pa.table({"x": tensors}), "polars"),
    )
    assert frame["x"].dtype == pl.Array(pl.Float64, (3, 2))
    assert leaf(plan).zero_copy
    assert blocks(frame["x"]) == {given.ctypes.data}
    assert np.array_equal(zc.convert(frame, "numpy")["x"], given)
    part = zc.convert(pa.table({"x": tensors[1:3]}), "polars")
    assert np.array_equal(zc.convert(part, "numpy")["x"], given[1:3])
    kind = pa.fixed_shape_tensor(pa.float64(), [3, 2], permutation=[1, 0])
    turned = pa.ExtensionArray.from_storage(kind, tensors.storage)
    with pytest.raises(UnsupportedConversionError, match="permuted"):
        zc.convert(pa.table({"x": turned}), "polars")


def test_what_does_not_survive_is_said() -> None:
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
    said = "\n".join(zc.explain(table, "polars").warnings)
    for part in (
        "'origin'",
        "'id'.*uuid.*Binary",
        "'day'.*Datetime",
        "forbid nulls",
        "Etc/GMT-1",
        "'zone'.*unit",
    ):
        assert re.search(part, said), part
    assert "fine" not in said
    assert not zc.explain(pa.table({"a": [1]}), "polars").warnings


def test_an_enum_and_a_categorical_come_back_as_they_were() -> None:
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


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["a"]), pl.Enum([])])
def test_categories_of_which_none_is_used(dtype: object) -> None:
    frame = pl.DataFrame({"x": series([None, None], dtype)})
    back = zc.convert(zc.convert(frame, "pyarrow"), "polars")
    assert back.schema == frame.schema
    assert back.equals(frame)


def test_hazard_dictionaries_in_lists_lose_rows_and_panic() -> None:
    kind = pa.large_list(pa.dictionary(pa.int8(), pa.string()))
    column = pa.chunked_array([pa.array([], kind), pa.array([["a"], ["b", "a"]], kind)])
    assert len(pl.Series(Streamed(column))) == 0, "polars keeps the rows now: the guard can go"
    assert zc.convert(column, "polars").to_list() == [["a"], ["b", "a"]]
    hollow = pa.chunked_array([pa.array([[None]], kind)])
    with pytest.raises(UnsupportedConversionError, match="without values"):
        zc.convert(pa.table({"x": hollow}), "polars")


def test_frames_without_columns_or_rows() -> None:
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


def test_a_column_without_a_name_keeps_it() -> None:
    table = pa.table({"a": [1], "": [2]})
    assert (
        zc.convert(table, "polars").columns
        == ["a", ""]
        == zc.convert({"a": np.ones(1), "": np.ones(1)}, "polars").columns
    )


def test_forms() -> None:
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
def test_dates_of_numpy(array: np.ndarray, dtype: object, stored: str, aliased: bool) -> None:
    plan, frame = zc.explain({"x": array}, "polars"), zc.convert({"x": array}, "polars")
    assert frame["x"].dtype == dtype
    assert leaf(plan).zero_copy == aliased == (blocks(frame["x"]) == {array.ctypes.data})
    first = array.astype(stored)[:1].view("i8")[0]
    assert frame["x"].cast(pl.Int64)[0] == first
    assert frame["x"].null_count() == np.isnat(array).sum()


# -- ndarrays -> polars ---------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(4,), (4, 2), (4, 2, 3)])
def test_ndarrays_come_in_as_they_lie(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    plan, frame = zc.explain({"x": array}, "polars"), zc.convert({"x": array}, "polars", copy=False)
    assert leaf(plan).zero_copy
    assert blocks(frame["x"]) == {array.ctypes.data}
    assert np.array_equal(frame["x"].to_numpy(), array)
    assert any("writing to the source" in said for said in plan.warnings)
    array.flags.writeable = False
    assert not zc.explain({"x": array}, "polars").warnings
    copied = zc.convert({"x": array}, "polars", copy=True)
    assert copied.equals(frame)
    assert blocks(copied["x"]) != {array.ctypes.data}


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (np.arange(8)[::2], "without gaps"),
        (np.arange(8)[::-1], "without gaps"),
        (np.asfortranarray(np.ones((3, 2))), "without gaps"),
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


def test_a_flat_array_is_a_series_and_a_matrix_a_frame() -> None:
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


# -- hazards: what a plain call does, and that we do not -------------------------


def test_hazard_whole_frames_and_to_arrow_rechunk_in_place() -> None:
    def chunked() -> pl.DataFrame:
        return pl.DataFrame([pl.concat([series([1]), series([2])], rechunk=False)])

    upstream = chunked()
    pa.table(upstream)
    assert upstream.n_chunks() == 1
    upstream = chunked()["x"]
    upstream.to_arrow()
    assert upstream.n_chunks() == 1
    frame = chunked()
    one = frame["x"]
    before = blocks(one)
    for to in ("pyarrow", "torch", "numpy", "polars.Series"):
        zc.convert(frame, to)
        zc.convert(one, to)
        zc.explain(frame, to)
    assert frame.n_chunks() == one.n_chunks() == 2
    assert blocks(one) == blocks(frame["x"]) == before


def test_hazard_tables_are_rechunked_on_their_way_in() -> None:
    column = pa.chunked_array([[1], [2]])
    assert pl.DataFrame(pa.table({"x": column}))["x"].n_chunks() == 1
    frame = zc.convert(pa.table({"x": column}), "polars", copy=False)
    assert frame.n_chunks() == 2
    assert blocks(frame["x"]) == blocks(column)


def test_hazard_datetimes_and_c_ordered_matrices_are_copied() -> None:
    stamps = np.array([1, 2, 3], "M8[us]")
    assert blocks(pl.Series(stamps)) != {stamps.ctypes.data}
    aliased = pl.Series(pa.array(stamps))
    assert blocks(aliased) == {stamps.ctypes.data}
    matrix = np.arange(6.0).reshape(3, 2)
    assert blocks(pl.DataFrame(matrix)["column_0"]) != {matrix.ctypes.data}
    plan = zc.explain(matrix, "polars")
    assert plan.copied_bytes == matrix.nbytes
    assert "gaps" in str(leaf(plan, "column_0").reasons[0])
    turned = np.asfortranarray(matrix)
    frame = zc.convert(turned, "polars", copy=False)
    assert [blocks(c) for c in frame] == [{turned.ctypes.data}, {turned[:, 1].ctypes.data}]
    assert np.array_equal(frame.to_numpy(), matrix)
    # Rows of one name are one column, and need no copy in C order.
    assert blocks(zc.convert({"x": matrix}, "polars", copy=False)["x"]) == {matrix.ctypes.data}


def test_hazard_datetimes_come_in_as_they_lie() -> None:
    stamps = np.array([1, 2, 3], "M8[us]")
    one = zc.convert(pa.array(stamps), "polars", copy=False)
    assert one.dtype == pl.Datetime("us")
    assert blocks(one) == {stamps.ctypes.data}


def test_hazard_small_decimals_in_a_struct_are_wrong_upstream(run_python) -> None:
    done = run_python("""
        import polars as pl, pyarrow as pa
        from decimal import Decimal
        import zerocopy as zc
        given = [{"a": Decimal("1.25")}] * 3
        table = pa.table({"x": pa.array(given, pa.struct([("a", pa.decimal64(10, 2))]))})
        assert zc.convert(table, "polars")["x"].to_list() == given
        print("right" if pl.from_arrow(table)["x"].to_list() == given else "wrong")
    """)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["wrong"], "polars reads them right now: the cast can go"


def test_a_result_outlives_its_source() -> None:
    frame = zc.convert({"x": np.arange(1000)}, "polars")
    table = zc.convert(frame, "pyarrow")
    tensors = zc.convert(table, "numpy")
    back = zc.convert(table, "polars")
    del frame, table
    assert tensors["x"].sum() == back["x"].sum() == 499_500


def test_numbers_that_only_ml_dtypes_has_are_refused_on_the_fast_way_too() -> None:
    """NumPy says "f" of the kind of float8_e5m2: polars would make objects of it."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    zc.convert(np.zeros(4), to="polars")  # builds the route
    with pytest.raises(UnsupportedConversionError):
        zc.convert(np.zeros(4, ml_dtypes.float8_e5m2), to="polars")


@pytest.mark.parametrize("to", ["polars", "pandas", "pyarrow"])
@pytest.mark.parametrize("name", ["int1", "uint1"])
def test_types_that_nobody_else_knows_are_no_bytes(name: str, to: str) -> None:
    """NumPy says V of the kind of both, as of bytes: of bits they would become binaries."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = getattr(ml_dtypes, name, None)
    if dtype is None:
        pytest.skip(f"this ml_dtypes has no {name}")
    x = np.zeros(4, dtype)
    assert not zc.explain(x, to=to).possible
    with pytest.raises(UnsupportedConversionError):
        zc.convert(x, to=to)
