"""Tables and columns to tensors: each type in each shape, each policy, each refusal."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from helpers.table_cases import KINDS, SHAPES, TABLES, TENSORS, pa, rows, shaped, storage, values

import zerocopy as zc
from zerocopy import registry
from zerocopy.tables.result import result_leaves

PLAIN = [n for n, k in KINDS.items() if pa.types.is_integer(k) or pa.types.is_floating(k)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_type_in_each_shape_keeps_its_values(kind: str, shape: str) -> None:
    """The conversion to NumPy with all options has the same rows as Arrow."""
    column = shaped(KINDS[kind], shape)
    options = {"nulls": "mask", "encode": True}
    if kind == "null":
        with pytest.raises(zc.UnsupportedConversionError, match="is null"):
            zc.convert(column, to="numpy", **options)
        return
    result = zc.convert(column, to="numpy", **options)
    expected = storage(column)
    converted = rows(result)
    if kind.startswith("extension<arrow.fixed"):
        converted = [None if v is None else np.reshape(v, -1).tolist() for v in converted]
    assert converted == expected
    plan = zc.explain(column, "numpy", **options)
    assert plan.possible
    leaves = dict(result_leaves(result))
    for path, leaf in (plan.leaves or {"": plan}).items():
        assert leaf.zero_copy == zc.shares_memory(leaves[path], column), path


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("target", TENSORS)
def test_numbers_in_one_chunk_are_aliased(target: str, shape: str) -> None:
    table = pa.table({kind: shaped(KINDS[kind], shape) for kind in PLAIN})
    plan = zc.explain(table, target)
    if "null" in shape:
        assert isinstance(plan.error, zc.LossyConversionError)
        return
    result = zc.convert(table, to=target)
    assert list(result) == PLAIN
    for kind in PLAIN:
        leaf = plan.leaves[f"[{kind!r}]"]
        assert leaf.zero_copy == zc.shares_memory(result[kind], table[kind])
        assert zc.convert(result[kind], "numpy").tolist() == table[kind].to_pylist()
        assert str(zc.view(result[kind]).dtype) == str(zc.view(values(KINDS[kind])).dtype)
    assert plan.zero_copy == all(leaf.zero_copy for leaf in plan.leaves.values())
    assert plan.copied_bytes == sum(leaf.copied_bytes for leaf in plan.leaves.values())
    if plan.copied_bytes:
        with pytest.raises(zc.CopyRequiredError, match=r"column '\w+': copy=False"):
            zc.convert(table, to=target, copy=False)
    else:
        zc.convert(table, to=target, copy=False)
    copied = zc.convert(table, to=target, copy=True)
    assert not any(zc.shares_memory(copied[kind], table[kind]) for kind in PLAIN)


def test_nulls_are_refused_by_name_and_count() -> None:
    table = pa.table({"a": [1, None, None], "b": [1, 2, 3], "c": [None, 1.5, 2.5]})
    with pytest.raises(zc.LossyConversionError) as caught:
        zc.convert(table, to="numpy")
    assert "column 'a' has 2 nulls in 3 rows; column 'c' has 1 null in 3 rows" in caught.value.why
    assert "nulls=" in caught.value.remedy
    assert zc.convert(table, to="numpy", columns=["b"])["b"].tolist() == [1, 2, 3]


def test_nulls_mask_aliases_the_values_and_marks_every_column() -> None:
    table = pa.table({"a": pa.array([1, None, 3]), "b": [1.0, 2.0, 3.0]})
    result = zc.convert(table, to="numpy", nulls="mask")
    assert zc.shares_memory(result["a"].values, table["a"])
    assert result["a"].mask.tolist() == [False, True, False]
    assert result["b"].mask.tolist() == [False, False, False]
    plan = zc.explain(table, "numpy", nulls="mask")
    assert plan.leaves["['a'].values"].zero_copy
    assert plan.leaves["['a'].mask"].copied_bytes == 3
    with pytest.raises(zc.CopyRequiredError, match="packs nulls"):
        zc.convert(table, to="numpy", nulls="mask", copy=False)
    without = zc.convert(table, to="numpy", nulls="mask", copy=False, columns=["b"])
    assert zc.shares_memory(without["b"].values, table["b"])


def test_nulls_are_filled() -> None:
    table = pa.table(
        {"i": [1, None, 3], "f": [0.5, None, float("nan")], "u": pa.array([1, 2, 3], pa.uint8())}
    )
    result = zc.convert(table, to="numpy", nulls={"i": -1, "f": "nan"})
    assert result["i"].tolist() == [1, -1, 3]
    np.testing.assert_array_equal(result["f"], [0.5, np.nan, np.nan])
    assert zc.shares_memory(result["u"], table["u"])
    assert table["i"].to_pylist() == [1, None, 3]
    with pytest.raises(zc.LossyConversionError, match="int64, which has no NaN"):
        zc.convert(table, to="numpy", nulls="nan")
    assert zc.convert(table, to="torch", nulls=7)["f"][1] == 7


@pytest.mark.parametrize(
    ("kind", "fill"),
    [
        *(("uint8", -1), ("uint8", 256), ("int8", 128), ("int64", 0.5), ("int64", True), ("uint64", 2**64)),
        *(("float", 1e300), ("bool", 2), ("int32", 1j), ("int64", 2**63)),
    ],
)
def test_fill_value_that_does_not_fit_is_refused(kind: str, fill: object) -> None:
    column = shaped(KINDS[kind], "nulls")
    with pytest.raises(zc.LossyConversionError, match="cannot hold"):
        zc.convert(column, to="numpy", nulls=fill)


@pytest.mark.parametrize(
    ("kind", "fill"), [("float", 0.1), ("double", 3), ("bool", True), ("uint64", 2**64 - 1)]
)
def test_fill_value_that_fits_keeps_the_dtype(kind: str, fill: object) -> None:
    column = shaped(KINDS[kind], "nulls")
    result = zc.convert(column, to="numpy", nulls=fill)
    expected = [result.dtype.type(fill) if v is None else v for v in column.to_pylist()]
    assert result.tolist() == [getattr(v, "item", lambda v=v: v)() for v in expected]


@pytest.mark.parametrize("target", TENSORS)
@pytest.mark.parametrize(
    "kind",
    [
        *("date32[day]", "time32[s]", "timestamp[us, tz=Europe/Paris]", "duration[us]", "decimal128(20, 3)"),
        *("string", "large_string", "string_view", "binary", "fixed_size_binary[5]", "list<item: int16>"),
        *("dictionary<values=string, indices=int8, ordered=0>", "struct<x: int8, y: string>"),
    ],
)
def test_types_that_tensors_lack_are_refused_with_a_remedy(kind: str, target: str) -> None:
    column = shaped(KINDS[kind], "plain")
    if target == "numpy" and kind.startswith(("date", "duration")):
        assert zc.convert(column, to=target).tolist() == column.to_pylist()
        return
    table = pa.table({"x": column})
    is_ragged = kind.startswith("list") and target in ("awkward", "tensorflow", "torch")
    for source in (table,) if is_ragged else (column, table):
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            zc.convert(source, to=target)
        assert ('lists="pad"' if kind.startswith("list") else "encode=True") in caught.value.remedy
    assert "column 'x'" in caught.value.why
    encoded = zc.convert(pa.table({"x": column}), to=target, encode=True)["x"]
    assert rows(encoded) == storage(column)


def test_encoded_has_type_unit_and_zone() -> None:
    def encoded(kind: str):
        return zc.convert(shaped(KINDS[kind], "plain"), to="numpy", encode=True)

    stamp = encoded("timestamp[us, tz=Europe/Paris]")
    assert (stamp.unit, stamp.timezone, stamp.values.dtype) == ("us", "Europe/Paris", np.int64)
    assert encoded("date32[day]").unit == "D"
    assert (encoded("time32[ms]").unit, encoded("time32[ms]").values.dtype) == ("ms", np.int32)
    assert encoded("decimal64(12, 4)").scale == 4
    assert encoded("decimal128(20, 3)").values.shape == (12, 2)
    codes = encoded("dictionary<values=large_string, indices=int32, ordered=1>")
    assert codes.ordered
    assert codes.categories.to_pylist() == ["c0", "c1", "c2"]
    assert codes.to_pylist() == ["c0", "c1", "c2"] * 4
    assert encoded("fixed_size_binary[5]").values.shape == (12, 5)
    text = encoded("string")
    assert text.to_pylist() == shaped(KINDS["string"], "plain").to_pylist()
    assert "Encoded(type='string'" in repr(text)


@pytest.mark.parametrize("kind", ["timestamp[ns]", "date64[ms]", "duration[us]", "timestamp[s]"])
def test_dates_become_numpy_datetime64(kind: str) -> None:
    """Hazard 4: ``Array.to_numpy()`` copies or boxes some of these, although a view of the buffer exists."""
    column = shaped(KINDS[kind], "plain")
    converted = zc.convert(pa.table({"t": column}), to="numpy", copy=False)["t"]
    assert converted.dtype.kind in "mM"
    assert zc.shares_memory(converted.view("i8"), column)
    assert converted.view("i8").tolist() == storage(column)
    dates = shaped(KINDS[kind], "nulls")
    filled = zc.convert(pa.table({"t": dates}), to="numpy", nulls="nan")["t"]
    assert np.isnat(filled).tolist() == [v is None for v in dates.to_pylist()]


@pytest.mark.hazard("pyarrow#copies-of-to_numpy-where-a-view-exists")
def test_hazard_4_bits_and_nulls_are_views_too() -> None:
    column = pa.array([1, None, 3])
    assert zc.shares_memory(zc.convert(column, to="numpy", nulls="mask").values, column)
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, 1], pa.int8()))
    for target in TENSORS:
        converted = zc.convert(flags, to=target)
        assert zc.convert(converted, "numpy").tolist() == [False, True, True]
    assert zc.shares_memory(zc.convert(flags, to="numpy", copy=False), flags)


@pytest.mark.hazard("pyarrow#writes-to-aliases-of-tables")
def test_hazard_3_alias_of_arrow_is_marked_read_only_or_warned_of() -> None:
    table = pa.table({"a": [1.0, 2.0]})
    torch = pytest.importorskip("torch")
    plan = zc.explain(table, "torch")
    assert any("immutable" in warning for warning in plan.warnings)
    safe = zc.convert(table, to="torch", writable=True)["a"]
    safe[0] = 9
    assert table["a"].to_pylist() == [1.0, 2.0]
    assert not zc.convert(table, to="numpy")["a"].flags.writeable
    assert isinstance(safe, torch.Tensor)


def test_lists_of_one_length_are_tensors() -> None:
    nested = shaped(KINDS["fixed_size_list<item: fixed_size_list<item: float>[2]>[2]"], "plain")
    converted = zc.convert(nested, to="torch", copy=False)
    assert tuple(converted.shape) == (12, 2, 2)
    assert converted.tolist() == nested.to_pylist()
    sliced = zc.convert(nested.slice(3, 4), to="numpy", copy=False)
    assert sliced.tolist() == nested.slice(3, 4).to_pylist()
    with pytest.raises(zc.LossyConversionError, match="nulls inside its lists: 1"):
        zc.convert(pa.array([[1, None], [3, 4]], pa.list_(pa.int8(), 2)), to="numpy")


def test_tensor_column_keeps_permuted_dimensions() -> None:
    kind = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0])
    column = pa.ExtensionArray.from_storage(kind, values(pa.list_(pa.int32(), 6), 4))
    converted = zc.convert(column, to="numpy", copy=False)
    np.testing.assert_array_equal(converted, column.to_numpy_ndarray())
    assert converted.shape == (4, 3, 2)
    np.testing.assert_array_equal(converted[0], np.arange(6).reshape(2, 3).T)


def test_chunks_with_different_dictionaries_are_refused() -> None:
    one = pa.array(["a", "b"]).dictionary_encode()
    chunked = pa.chunked_array([one, pa.array(["c", "a"]).dictionary_encode()])
    with pytest.raises(zc.UnsupportedConversionError, match="different dictionaries") as caught:
        zc.convert(chunked, to="numpy", encode=True)
    assert "unify" in caught.value.remedy
    same = zc.convert(pa.chunked_array([one, one]), to="numpy", encode=True)
    assert same.to_pylist() == ["a", "b", "a", "b"]
    assert zc.convert(chunked.unify_dictionaries(), to="numpy", encode=True).to_pylist() == list("abca")


def test_columns_are_selected_in_order_and_names_are_checked() -> None:
    table = pa.table({"alpha": [1], "beta": ["x"], "gamma": [2.0]})
    assert list(zc.convert(table, to="numpy", columns=["gamma", "alpha"])) == ["gamma", "alpha"]
    with pytest.raises(zc.UnsupportedConversionError, match="'alpa'") as caught:
        zc.convert(table, to="numpy", columns=["alpa"])
    assert "did you mean 'alpha'" in caught.value.why
    with pytest.raises(ValueError, match="list of names"):
        zc.convert(table, to="numpy", columns="alpha")
    with pytest.raises(zc.UnsupportedConversionError, match="one column"):
        zc.convert(table["alpha"], to="numpy", columns=["alpha"])
    with pytest.raises(zc.UnsupportedConversionError, match="the key 'delta'"):
        zc.convert(table, to="numpy", columns=["alpha"], nulls={"delta": 0})


def test_tables_without_columns_or_rows() -> None:
    assert zc.convert(pa.table({}), to="numpy") == {}
    empty = zc.convert(pa.table({"a": pa.array([], pa.int16())}), to="torch")
    assert empty["a"].shape == (0,)
    plan = zc.explain(pa.table({"a": pa.array([], pa.int16())}), "torch")
    assert (plan.possible, plan.zero_copy, plan.copied_bytes) == (True, False, 0)


def test_options_for_tables_are_refused_for_tensors() -> None:
    for option in ({"nulls": 0}, {"layout": "records"}, {"encode": True}, {"columns": ["a"]}):
        with pytest.raises(zc.UnsupportedConversionError, match="applies to tables"):
            zc.convert(np.ones(3), to="torch", **option)
    with pytest.raises(zc.UnsupportedConversionError, match="names"):
        zc.convert(np.ones((3, 2)), to="torch", names=["a", "b"])


def test_64_bits_into_jax_are_refused_with_x64_off(run_warm) -> None:
    pytest.importorskip("jax")
    completed = run_warm(
        """
        import pyarrow as pa, zerocopy as zc
        stamp = pa.array([1], pa.timestamp("s"))
        table = pa.table({"ok": pa.array([1], pa.int32()), "wide": [1], "t": stamp})
        for _ in range(2):
            try: zc.convert(table, to="jax", encode=True)
            except zc.LossyConversionError as error: print(error)
        print(zc.convert(table, to="jax", columns=["ok"])["ok"].dtype)
        """
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.count("column 'wide'") == completed.stdout.count("column 't'") == 2
    assert completed.stdout.rstrip().endswith("int32")


def test_dict_of_tables_is_a_container() -> None:
    tables = {"train": pa.table({"a": [1, 2]}), "test": pa.table({"a": [3]})}
    converted = zc.convert(tables, to="numpy")
    assert {k: v["a"].tolist() for k, v in converted.items()} == {"train": [1, 2], "test": [3]}
    again = zc.convert(tables, to="pyarrow")
    assert again["train"] is tables["train"]


def test_each_column_keeps_its_memory_alive() -> None:
    gc.collect()
    before = pa.total_allocated_bytes()
    table = pa.table({"a": pa.array(range(50_000)), "s": pa.array(["text"] * 50_000)})
    converted = zc.convert(table, to="numpy", encode=True)
    text = converted["s"]
    del table, converted
    gc.collect()
    assert text.to_pylist()[-1] == "text"
    del text
    gc.collect()
    assert pa.total_allocated_bytes() == before


def test_plan_of_a_table_is_printed_by_column() -> None:
    table = pa.table({"a": [1.0, 2.0], "flag": [True, False]})
    assert str(zc.explain(table, "numpy")).splitlines() == [
        "pyarrow.Table (2, 2) -> numpy: copies 2 bytes",
        "  1. convert each column",
        "  ['a']: pyarrow.Table float64 (2,) -> numpy: zero-copy (arrow-c)",
        "  ['flag']: pyarrow.Table bool (2,) -> numpy: copies 2 bytes",
        "    1. pyarrow.Table copies its values; numpy aliases the copy",
        "    why: Arrow packs booleans into bits",
        "    fix: x['flag'].cast(pyarrow.bool8()) stores them in bytes",
    ]


def test_mask_contains_encoded_values() -> None:
    kinds = ("timestamp[us, tz=Europe/Paris]", "decimal128(20, 3)", "fixed_size_binary[5]", "string")
    for kind in (*kinds, "dictionary<values=string, indices=int8, ordered=0>", "list<item: int16>"):
        converted = zc.convert(shaped(KINDS[kind], "nulls"), to="numpy", encode=True, nulls="mask")
        assert isinstance(converted, zc.Masked), kind
        assert isinstance(converted.values, zc.Encoded), kind
        assert converted.mask.tolist() == [i % 4 == 1 for i in range(12)]


def test_dict_of_columns_takes_table_options() -> None:
    columns = {"a": np.arange(3.0), "b": pa.array([1.0, None, 3.0])}
    with pytest.raises(zc.LossyConversionError, match="'b'"):
        zc.convert(columns, to="torch")
    converted = zc.convert(columns, to="torch", layout="matrix", nulls=0)
    assert converted.tolist() == [[0, 1], [1, 0], [2, 3]]
    assert zc.explain(columns, "torch", layout="matrix", nulls=0).possible
    masked = zc.convert(columns, to="numpy", nulls="mask", columns=["b"])
    assert masked["b"].mask.tolist() == [False, True, False]
    assert zc.shares_memory(zc.convert(columns, to="torch", nulls=0)["a"], columns["a"])


def test_nulls_inside_lists_that_are_not_null_themselves() -> None:
    kind = pa.list_(pa.int64(), 2)
    mixed = pa.array([[1, None], None, [3, 4]], kind)
    with pytest.raises(zc.LossyConversionError, match="nulls inside its lists: 1"):
        zc.convert(mixed, to="numpy")
    assert zc.convert(mixed, to="numpy", nulls=0).tolist() == [[1, 0], [0, 0], [3, 4]]
    masked = zc.convert(mixed, to="numpy", nulls="mask")
    assert masked.mask.tolist() == [[False, True], [True, True], [False, False]]
    nested = pa.array([[[1], None], [[3], [4]]], pa.list_(pa.list_(pa.int64(), 1), 2))
    with pytest.raises(zc.LossyConversionError, match="nulls inside its lists: 1"):
        zc.convert(nested, to="numpy", nulls=0)
    converted = zc.convert(pa.array([[1, 2], None, [3, 4]], kind), to="numpy", nulls=0)
    assert converted.tolist() == [[1, 2], [0, 0], [3, 4]]


def test_dictionaries_are_compared_by_value() -> None:
    def of(values, codes):
        return pa.DictionaryArray.from_arrays(pa.array(codes), values)

    flags = pa.array([True, True, False])
    shifted = pa.array([False, True, True, False]).slice(1)
    converted = zc.convert(pa.chunked_array([of(flags, [2]), of(shifted, [0])]), to="numpy", encode=True)
    assert converted.categories.tolist() == [True, True, False]
    other = pa.array([False, True, False, True]).slice(1)
    with pytest.raises(zc.UnsupportedConversionError, match="different dictionaries"):
        zc.convert(pa.chunked_array([of(flags, [2]), of(other, [0])]), to="numpy", encode=True)


def test_struct_with_duplicate_field_names_is_refused() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(zc.UnsupportedConversionError, match="two fields of one name"):
        zc.convert(twice, to="numpy", encode=True)


def test_text_and_objects_keep_their_values() -> None:
    import datetime as dt

    def objects(*values: object) -> np.ndarray:
        return np.fromiter(values, object, len(values))

    assert zc.convert({"u": np.array(["a\0b", "c"])}, to="pyarrow")["u"].to_pylist() == ["a\0b", "c"]
    day = dt.date(2020, 1, 1)
    for changed in (
        objects([day, dt.datetime(2020, 1, 1, 5)]),
        objects({"a": "x"}, {"a": b"y"}),
        objects(dt.time(1, tzinfo=dt.UTC)),
        objects(np.ma.array([1, 2], mask=[True, False]), [1]),
    ):
        with pytest.raises(zc.UnsupportedConversionError, match="column 'o' holds"):
            zc.convert({"o": changed}, to="pyarrow")
    column = zc.convert({"o": objects([1, 2], [3], None)}, to="pyarrow")["o"]
    assert column.to_pylist() == [[1, 2], [3], None]


def test_rows_without_columns_are_kept() -> None:
    pandas = pytest.importorskip("pandas")
    assert zc.convert(pandas.DataFrame(index=range(5)), to="pyarrow").num_rows == 5
    assert zc.convert(np.zeros(4, dtype=[]), to="pyarrow").num_rows == 4


def test_layouts_are_for_tensors() -> None:
    for target in (t for t in TABLES if registry.by_name(t).kind == "table"):
        with pytest.raises(zc.UnsupportedConversionError, match="has tables only"):
            zc.convert(pa.table({"a": [1]}), to=target, layout="matrix")


def test_record_batch_reader_converts_to_each_table_framework() -> None:
    table = pa.table({"a": [1, 2], "s": ["x", None]})
    for target in TABLES:
        if "cpu" in zc.frameworks()[target].devices:
            converted = zc.convert(table.to_reader(), to=target)
            assert zc.convert(converted, to="pyarrow.Table").to_pydict() == table.to_pydict()


def test_bool8_becomes_numpy_bool_in_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [True, False, True]})
    back = zc.convert(zc.convert(frame, to="pyarrow", dtype="bool8"), to="pandas", copy=False)
    assert back["x"].dtype == bool
    assert len(back[back["x"]]) == 2
    assert zc.shares_memory(frame, back)
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None, 0], pa.int8()))
    assert zc.convert(pa.table({"x": flags}), to="pandas")["x"].tolist()[::2] == [True, False]


def test_writes_to_the_source_are_warned_of_if_the_target_is_immutable() -> None:
    pandas = pytest.importorskip("pandas")
    for source in ({"x": np.arange(3)}, pandas.DataFrame({"x": [1, 2, 3]})):
        for target in ("pyarrow", "polars", "nanoarrow"):
            if target in TABLES:
                plan = zc.explain(source, target)
                assert any("writing to the source" in warning for warning in plan.warnings)
                assert not zc.explain(source, target, copy=True).zero_copy


def test_matrix_leaves_out_the_index() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2, 3], "b": [4.0, 5, 6]})
    filtered = frame[frame["a"] > 1]
    assert zc.convert(filtered, to="torch", layout="matrix").tolist() == [[2, 5], [3, 6]]
    plan = zc.explain(filtered, "torch")
    assert "the index is converted too, as '__index_level_0__': index=False leaves it out" in plan.warnings
    assert not any("the index" in w for w in zc.explain(filtered, "torch", index=False).warnings)
    assert any("NaN in a column" in warning for warning in zc.explain(frame, "polars").warnings)


def test_masked_column_becomes_a_column_with_nulls() -> None:
    column = pa.array([1, None, 3])
    for origin in TENSORS:
        masked = zc.convert(column, to=origin, nulls="mask")
        for target in TABLES:
            if "cpu" in zc.frameworks()[target].devices:
                table = zc.convert({"x": masked, "y": np.arange(3)}, to=target)
                assert zc.convert(table, to="pyarrow.Table")["x"].to_pylist() == [1, None, 3]


def test_polars_chunks_share_one_dictionary() -> None:
    polars = pytest.importorskip("polars")
    parts = [polars.Series("c", ["a", "b"]), polars.Series("c", ["b", "z"])]
    parts = [part.cast(polars.Categorical) for part in parts]
    series = polars.concat(parts, rechunk=False)
    assert series.n_chunks() == 2
    assert zc.convert(series, to="numpy", encode=True).to_pylist() == ["a", "b", "b", "z"]
    assert series.n_chunks() == 2


def test_selection_keeps_the_trailing_index() -> None:
    pandas = pytest.importorskip("pandas")
    from zerocopy.describe import describe
    from zerocopy.tables.planner import select

    table = describe(pandas.DataFrame({"a": [1], "b": [2]}, index=pandas.Index([5], name="key")))
    assert table.index == 1
    converted = {
        tuple(want): select(table, want).index for want in (["a", "key"], ["key", "a"], ["key"], ["b"])
    }
    assert converted == {("a", "key"): 1, ("key", "a"): 0, ("key",): 1, ("b",): 0}


def test_explain_does_not_read_a_stream_in_a_dict() -> None:
    class Stream:
        taken = 0

        def __arrow_c_schema__(self):
            return pa.int64().__arrow_c_schema__()

        def __arrow_c_stream__(self, requested_schema=None):
            self.taken += 1
            return pa.chunked_array([[1, 2]]).__arrow_c_stream__()

    stream = Stream()
    plan = zc.explain({"x": stream}, "pyarrow")
    assert not plan.possible
    assert plan.reasons[0].why.startswith("column 'x': a ")
    assert "Stream becomes a column when its values are read" in plan.reasons[0].why
    assert stream.taken == 0


def test_copy_of_bool8_has_the_type_of_the_alias() -> None:
    pytest.importorskip("pandas")
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))
    table = pa.table({"x": flags})
    copied = zc.convert(table, to="pandas", copy=True)
    assert copied["x"].dtype == zc.convert(table, to="pandas")["x"].dtype == bool
    assert not zc.shares_memory(table, copied)
