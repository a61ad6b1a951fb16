"""``explain`` agrees with ``convert``: whether it is possible, and what shares memory, for each leaf."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.oracle import agrees
from helpers.table_cases import KINDS, TABLES, TENSORS, shaped
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy import registry

pa = pytest.importorskip("pyarrow")

FORMS = [
    "pyarrow.Table",
    "pyarrow.RecordBatch",
    "pyarrow.ChunkedArray",
    "polars.Series",
]
HOST = [n for n in (*TABLES, *TENSORS) if "cpu" in registry.by_name(n).device_kinds and n != "mxnet"]
OPTIONS: list[dict[str, Any]] = [
    *({}, {"copy": True}, {"copy": False}, {"writable": True}, {"encode": True}, {"nulls": "mask"}),
    *({"encode": True, "nulls": "mask"}, {"layout": "matrix"}),
]
SHAPES = ["plain", "null chunks", "null slice", "empty"]
#: Columns that a framework refuses by their values or sizes, not by their type.
EDGES = {
    "bytes of width 0 with a null": pa.array([b"", None], pa.binary(0)),
    "structs with an empty dictionary": pa.array(
        [{"a": None}], pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))])
    ),
    "lists with an empty dictionary": pa.array([[None]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "an empty dictionary": pa.array([None], pa.dictionary(pa.int8(), pa.string())),
    "a dictionary without rows": pa.array([], pa.dictionary(pa.int8(), pa.string())),
    "slices of structs": pa.array([{"a": i, "b": str(i)} for i in range(9)])[3:5],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("to", [*HOST, *FORMS])
def test_explain_agrees_for_columns_and_tables(to: str, shape: str) -> None:
    first = SHAPES.index(shape) + [*HOST, *FORMS].index(to)
    for kind, options in sampled(31, list(KINDS.values()), OPTIONS, first=first):
        column = shaped(kind, shape)
        agrees(column, to, **options)
        agrees(pa.table({"x": column, "y": pa.array(np.arange(len(column)))}), to, **options)


@pytest.mark.hazard("producers#bytes-of-width-0")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("to", [*HOST, *FORMS])
@pytest.mark.parametrize("edge", EDGES)
def test_explain_agrees_for_values_that_a_framework_refuses(edge: str, to: str) -> None:
    for options in OPTIONS:
        agrees(EDGES[edge], to, **options)
        agrees(pa.table({"x": EDGES[edge]}), to, **options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("to", [*HOST, *FORMS, "pyarrow.Tensor", "pyarrow.FixedShapeTensorArray"])
def test_explain_agrees_for_every_number_of_dimensions(to: str) -> None:
    sources: list[Any] = [np.zeros((1,) * n) for n in (0, 1, 2, 3, 32)]
    sources += [np.zeros((0,) * n) for n in (1, 2, 5)]
    try:
        torch = pytest.importorskip("torch")
        sources += [torch.zeros((1,) * n) for n in (0, 33, 64, 65, 200)]
        sources += [torch.zeros((0,) * n) for n in (33, 64, 65)]
    except pytest.skip.Exception:
        pass
    for x in sources:
        for options in ({}, {"copy": True}, {"names": ["a"]}):
            agrees(x, to, **options)
            agrees({"x": x}, to, **options)


def test_partly_aliased_table_says_so_for_each_leaf() -> None:
    pytest.importorskip("polars")
    table = pa.table(
        {"numbers": [1, 2], "text": ["a text longer than a view holds", "b"], "flags": [True, False]}
    )
    plan = zc.explain(table, "polars")
    assert (plan.zero_copy, plan.shares_memory) == (False, True)
    leaves = {path: (leaf.zero_copy, leaf.shares_memory) for path, leaf in plan.leaves.items()}
    assert leaves["['numbers']"] == (True, True)
    assert leaves["['text']"] == (False, True)
    assert plan.leaves["['text']"].aliased_bytes == len("a text longer than a view holds") + len("b")
    assert plan.leaves["['text']"].copied_bytes == 2 * 16
    assert zc.explain(table, "polars", copy=True).shares_memory is False
    assert zc.shares_memory(table, zc.convert(table, "polars"))
    assert not zc.shares_memory(table, zc.convert(table, "polars", copy=True))


PARTLY = {
    str(kind): kind
    for kind in (
        *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.list_(pa.int16())),
        *(pa.list_(pa.string()), pa.large_list(pa.string()), pa.list_(pa.string(), 2)),
        *(pa.struct([("x", pa.int8()), ("y", pa.string())]), pa.struct([("t", pa.list_(pa.string()))])),
        *(pa.map_(pa.string(), pa.int64()), pa.list_(pa.int8(), 3), pa.timestamp("s"), pa.time32("ms")),
    )
}


@pytest.mark.parametrize(
    "shape", ["plain", "nulls", "slice", "null slice", "chunks", "null chunks", "one row"]
)
@pytest.mark.parametrize("kind", PARTLY)
def test_polars_is_known_to_alias_a_part_of_a_column(kind: str, shape: str) -> None:
    pytest.importorskip("polars")
    if kind.startswith(("list<item: string>", "large_list<item: string>", "fixed_size_list<item: string>")):
        texts = ["a text longer than a view holds", "", "b"]
        column = pa.chunked_array([pa.array([texts[:2], texts[1:], texts[:2]], PARTLY[kind])])
    elif kind.startswith("struct<t"):
        column = pa.chunked_array([pa.array([{"t": ["a text longer than a view holds"]}, {"t": ["b"]}])])
    else:
        column = shaped(PARTLY[kind], shape)
    table = pa.table({"x": column})
    (leaf,) = zc.explain(table, "polars").leaves.values()
    shares = zc.shares_memory(table, zc.convert(table, "polars"))
    assert leaf.shares_memory == shares
    assert bool(leaf.aliased_bytes) == shares
    assert leaf.zero_copy != bool(leaf.copied_bytes)


def test_stream_does_not_know_what_it_shares() -> None:
    reader = pa.table({"x": [1, 2]}).to_reader()
    assert zc.explain(reader, "numpy").shares_memory is None


@pytest.mark.hazard("other-frameworks#stream-of-one-array-of-views")
def test_stream_of_one_chunk_of_views_does_not_crash_nanoarrow(run_python) -> None:
    pytest.importorskip("nanoarrow")
    process = run_python(
        """
        import pyarrow as pa, zerocopy as zc
        for options in ({}, {"copy": True}):
            for x in (pa.array(["a", "b"], pa.string_view()), pa.array([], pa.string_view())):
                for _ in range(3):
                    zc.convert(x, "nanoarrow.ArrayStream", **options)
        """
    )
    assert process.returncode == 0, process.stderr


def test_polars_series_is_never_a_frame() -> None:
    pytest.importorskip("polars")
    table = pa.table({"x": [1, 2], "y": [3, 4]})
    for _ in range(2):
        with pytest.raises(zc.UnsupportedConversionError, match="is not one"):
            zc.convert(table, "polars.Series")
        assert zc.convert(table.select(["x"]), "polars.Series").to_list() == [1, 2]
        assert type(zc.convert(table, "polars")).__name__ == "DataFrame"


@pytest.mark.parametrize("unit", ["7s", "D", "W", "Y", "25us", "s", "2D"])
@pytest.mark.parametrize("value", [1, 2**40, -(2**62)])
@pytest.mark.parametrize("options", [{}, {"validate": "full"}, {"encode": True}])
def test_explain_knows_which_dates_fit(unit: str, value: int, options: dict[str, Any]) -> None:
    dates = np.array([value, 0, -(2**63)], np.int64).view(f"M8[{unit}]")  # the last is NaT
    for x in (dates, {"x": dates}, np.rec.fromarrays([dates], names="x")):
        for to in HOST:
            if "validate" not in options or to in TABLES:
                agrees(x, to, **options)


def _other_forms() -> dict[str, Any]:
    """Return pairs of objects over one memory, whose values are not the bytes in it."""
    swapped, flags = np.arange(3, dtype=">i4"), np.array([1, 2, 0], "u1")
    forms: dict[str, Any] = {
        "an array": (swapped, swapped[1:]),
        "a buffer": (swapped, memoryview(swapped)),
        "its bytes": (swapped, swapped.view("u1")),
        "a dict": ({"a": swapped, "b": np.zeros(3)}, {"a": swapped[:]}),
        "a list": ([swapped], [swapped[::-1]]),
        "booleans": (flags.view(bool), memoryview(flags)),
    }
    try:
        pd, nw = pytest.importorskip("pandas"), pytest.importorskip("narwhals")
    except pytest.skip.Exception:
        return forms
    frame = pd.DataFrame({"a": swapped}, copy=False)
    labels = pd.DataFrame(index=pd.Index([1.0, 2.0]))
    return forms | {
        "a frame": (frame, frame.copy(deep=False)),
        "a column": (frame, frame["a"]),
        "an index alone": (labels, labels.copy(deep=False)),
        "a wrapper of an index alone": (nw.from_native(labels), labels),
        "an index": (labels.index, labels.index.to_numpy(copy=False)),
    }


@pytest.mark.parametrize("form", _other_forms())
def test_memory_in_another_form_is_shared(form: str) -> None:
    a, b = _other_forms()[form]
    for x, y in ((a, b), (b, a), (a, a), (b, b)):
        assert zc.shares_memory(x, y)


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)])
def test_lists_of_other_rows_share_nothing(kind: Any) -> None:
    lists = pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], kind)
    for first, last in ((lists[:1], lists[2:]), (pa.table({"x": lists[:1]}), pa.table({"x": lists[2:]}))):
        assert not zc.shares_memory(first, last)
        assert zc.shares_memory(first, lists)


@pytest.mark.parametrize("to", ["numpy", "pyarrow", "nanoarrow"])
def test_the_words_of_categories_are_aliased(to: str) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip(to)
    frame = pd.DataFrame({"x": pd.Categorical(["a word", None, "another word"])})
    if to == "numpy":
        encoded = zc.convert(frame, to, encode="bytes", nulls="mask")["x"].values
        words = encoded.categories.values
        plan = zc.explain(frame, to, encode="bytes", nulls="mask").leaves["['x'].values.categories.values"]
        assert plan.zero_copy
    else:
        words = zc.convert(zc.convert(frame, to), "pyarrow")["x"].chunk(0).dictionary
    assert zc.shares_memory(frame["x"].cat.categories, words)
    for target in ("pandas", "xarray"):
        agrees(frame, target, copy=True)


def test_a_column_of_none_is_returned_with_its_objects() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": np.array([None, None], object), "y": [1, 2]})
    plan = zc.explain(frame, "pandas", writable=True)
    assert plan.leaves["['x']"].zero_copy
    assert zc.shares_memory(frame["x"], zc.convert(frame, "pandas", writable=True)["x"])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", _other_forms())
@pytest.mark.parametrize("to", HOST)
def test_explain_agrees_for_memory_in_another_form(to: str, form: str) -> None:
    for x in _other_forms()[form]:
        for options in ({}, {"copy": True}, {"copy": False}):
            agrees(x, to, **options)


class _Extension:
    """An array whose schema names an extension type, which may not fit its storage."""

    def __init__(self, array: Any, name: bytes, metadata: bytes) -> None:
        pairs = {b"ARROW:extension:name": name, b"ARROW:extension:metadata": metadata}
        self.array, self.field = array, pa.field("x", array.type, metadata=pairs)

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.field.__arrow_c_schema__(), self.array.__arrow_c_array__()[1]


_STORAGE = {
    "integers": pa.array([1, 2]),
    "text": pa.array(["a"]),
    "lists": pa.array([[1, 2]], pa.list_(pa.int32(), 2)),
    "dictionary": pa.array(["a"]).dictionary_encode(),
    "structs": pa.array([{"a": 1}]),
}
_STORAGE |= {
    "bytes": pa.array([b"0123456789abcdef"], pa.binary(16)),
    "int8": pa.array([1, 0], pa.int8()),
    "tensors": pa.array([{"data": [1.0], "shape": [1, 1]}]).cast(
        pa.struct([("data", pa.list_(pa.float32())), ("shape", pa.list_(pa.int32(), 2))])
    ),
}
_EXTENSIONS = [
    *(
        (b"arrow.fixed_shape_tensor", b'{"shape":%s}' % end)
        for end in (b"[2]", b"[1,2]", b"[3]", b"[-1,-2]", b"2")
    ),
    (b"arrow.fixed_shape_tensor", b'{"shape":[2],"permutation":[1]}'),
    (b"arrow.fixed_shape_tensor", b""),
    (b"arrow.opaque", b""),
    (b"arrow.opaque", b'{"type_name":"t"}'),
    (b"arrow.opaque", b'{"type_name":"t","vendor_name":"v"}'),
    (b"arrow.bool8", b"{}"),
    (b"arrow.uuid", b"x"),
    *(
        (f"arrow.{name}".encode(), b"")
        for name in ("bool8", "uuid", "json", "parquet.variant", "variable_shape_tensor")
    ),
]


@pytest.mark.parametrize("to", ["pyarrow", "polars", "nanoarrow"])
@pytest.mark.parametrize("storage", _STORAGE)
def test_explain_agrees_for_extension_types_that_do_not_fit(storage: str, to: str) -> None:
    pytest.importorskip(to)
    for name, metadata in _EXTENSIONS:
        x = _Extension(_STORAGE[storage], name, metadata)
        try:
            zc.convert(x, to)
            expected = True
        except zc.ZeroCopyError:
            expected = False
        assert zc.explain(x, to).possible is expected, (name, metadata)


def test_explain_agrees_for_an_extension_type_in_a_table_and_in_a_stream() -> None:
    """Other columns do not help: Arrow's C++ library imports the type of the whole table."""
    for metadata in (b"", b'{"type_name":"t","vendor_name":"v"}'):
        x = _Extension(pa.array([1, 2]), b"arrow.opaque", metadata)
        schema = pa.schema([x.field, pa.field("y", pa.int64())])
        plain = pa.table({"x": [1, 2], "y": [3, 4]})

        class Stream:
            def __init__(self, schema: Any, table: Any) -> None:
                self.schema, self.table = schema, table

            def __arrow_c_schema__(self) -> Any:
                return self.schema.__arrow_c_schema__()

            def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
                return self.table.cast(self.schema).__arrow_c_stream__()

        class Batch:
            def __init__(self, schema: Any, table: Any) -> None:
                self.schema, self.table = schema, table

            def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
                return self.schema.__arrow_c_schema__(), self.table.to_batches()[0].__arrow_c_array__()[1]

        for kind in (Stream, Batch):
            plan = zc.explain(kind(schema, plain), "pyarrow", columns=["y"])
            if metadata:
                assert plan.possible
                assert zc.convert(kind(schema, plain), "pyarrow", columns=["y"]).column_names == ["y"]
                continue
            assert plan.error.code == "invalid-metadata"
            with pytest.raises(zc.UnsupportedConversionError, match=r"arrow\.opaque"):
                zc.convert(kind(schema, plain), "pyarrow", columns=["y"])
