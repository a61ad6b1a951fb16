"""Arrow schemas and arrays that violate the C data interface are refused before memory is read."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import zerocopy as zc
from zerocopy.protocols import arrow_c, arrow_format
from zerocopy.protocols.arrow_schema import ArrowSchema, Field, pointer, read_schema, read_struct

pa = pytest.importorskip("pyarrow")

Change = Callable[[Any], Any]


_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


class Changed:
    """Exports an array after `schema` and `array` have changed copies of its structs.

    The producer releases its own structs, which are not changed. It keeps what the changes return.
    """

    def __init__(self, values: Any, array: Change | None = None, schema: Change | None = None) -> None:
        self.values, self.array, self.schema = values, array, schema
        self.kept: list[Any] = []

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        schema, array = self.values.__arrow_c_array__()
        if self.schema is not None:
            schema = self.changed(schema, b"arrow_schema", ArrowSchema, self.schema)
        if self.array is not None:
            array = self.changed(array, b"arrow_array", arrow_c.ArrowArray, self.array)
        return schema, array

    def changed(self, capsule: Any, name: bytes, cls: Any, change: Change) -> Any:
        copied = cls.from_buffer_copy(cls.from_address(pointer(capsule, name)))
        self.kept += [capsule, copied, name, change(copied)]
        return _new_capsule(ctypes.addressof(copied), name, None)


def assert_refused(source: Any, code: str = "invalid-producer", **options: Any) -> str:
    for target in ("numpy", "pyarrow", "polars"):
        pytest.importorskip(target)
        plan = zc.explain(source, target, **(options if target == "numpy" else {}))
        assert not plan.possible, target
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            zc.convert(source, to=target, **(options if target == "numpy" else {}))
        assert caught.value.code == code, target
        assert caught.value.remedy
    return str(caught.value)


# -- format strings ------------------------------------------------------------------


def field_of(format: str, children: int = 0) -> Field:
    """Read a schema of one format, with children of int32."""
    inner = [ArrowSchema(format=b"i", name=b"", release=1) for _ in range(children)]
    pointers = (ctypes.POINTER(ArrowSchema) * max(children, 1))(*(ctypes.pointer(child) for child in inner))
    schema = ArrowSchema(format=format.encode(), name=b"", release=1, n_children=children, children=pointers)
    return read_struct(schema)


VALID = {
    "w:0": 0,
    "w:42": 0,
    "w:2147483647": 0,
    "+w:3": 1,
    "+ud:0,5": 2,
    "+us:": 0,
    "+ud:127": 1,
    "d:19,10": 0,
    "d:19,-2": 0,
    "d:9,2,32": 0,
    "d:18,2,64": 0,
    "d:38,2,128": 0,
    "d:76,2,256": 0,
    "ttm": 0,
    "tsn:": 0,
    "tsu:Europe/Paris": 0,
    "tDs": 0,
    "tdD": 0,
    "tin": 0,
    "_plugin": 0,
}
NUMBERS = ["1_0", "+8", "-8", " 8", "8 ", "", "8.0", "0x8", "\u0668", "\uff18", "\u00b2", "9" * 5000, "1e3"]
INVALID = [
    *(f"{start}{number}" for start in ("w:", "+w:") for number in [*NUMBERS, "2147483648"]),
    *(f"d:{number},1" for number in [*NUMBERS, "0", "39"]),
    *(f"d:9,{number}" for number in NUMBERS if number != "-8"),
    *(f"d:9,1,{number}" for number in [*NUMBERS, "0", "8", "16", "100", "512"]),
    *("d:", "d:9", "d:9,1,", "d:9,1,128,1", "d:10,1,32", "d:19,1,64", "d:77,1,256"),
    *(f"+u{mode}:{number}" for mode in "ds" for number in NUMBERS if number),
    *("+us:0,", "+us:,0", "+ud:128", "+ud:0,0", "+ud:0,,1"),
    *("tt", "ttx", "ttss", "ts", "tss", "tsx:", "tD", "tDx", "tDss", "td", "tdx", "ti", "tix", ""),
    *("ii", "i ", "g1", "uu", "n0", "+", "+ll", "+x", "d", "w", "vx", "x", " i"),
]


@pytest.mark.parametrize("format", VALID)
def test_format_of_the_specification_is_read(format: str) -> None:
    field = field_of(format, VALID[format])
    assert field.format == format
    assert field.width >= 0
    assert str(field)


@pytest.mark.hazard("robustness#formats-of-schemas")
@pytest.mark.parametrize("format", INVALID, ids=lambda text: ascii(text[:20]))
def test_format_outside_the_specification_is_refused(format: str) -> None:
    children = 1 if format.startswith("+w") else format.count(",") + 1 if format.startswith("+u") else 0
    with pytest.raises(zc.UnsupportedConversionError, match="not one of Arrow's"):
        field_of(format, children)


@pytest.mark.hazard("robustness#formats-of-schemas")
@settings(deadline=None)
@given(
    st.sampled_from(["w:", "+w:", "d:9,", "d:9,1,", "+ud:", "+us:"]),
    st.text(st.characters(categories=["Nd", "No", "Pc", "Pd", "Zs", "Sm"]), min_size=1, max_size=4),
)
def test_only_ascii_digits_are_numbers(start: str, text: str) -> None:
    digits = text.isascii() and (text.isdigit() or (start == "d:9," and text.removeprefix("-").isdigit()))
    assert arrow_format.is_valid(start + text) <= digits


@settings(deadline=None)
@given(st.text(max_size=8))
def test_any_format_is_read_or_refused(text: str) -> None:
    if "\0" in text or not text.isprintable():
        return
    try:
        field = field_of(text)
    except zc.ZeroCopyError:
        return
    assert field.width >= 0
    assert field.buffers in (0, 1, 2, 3)
    assert field.unit in ("", "s", "ms", "us", "ns", "D")
    assert str(field)


@pytest.mark.parametrize("change", [{"format": b"\xff"}, {"name": b"\xff"}])
def test_text_that_is_not_utf8_is_refused(change: dict[str, bytes]) -> None:
    def set_text(schema: Any) -> None:
        for name, value in change.items():
            setattr(schema, name, value)

    assert "UTF-8" in assert_refused(Changed(pa.array([1]), schema=set_text))


# -- schemas -------------------------------------------------------------------------


@pytest.mark.hazard("robustness#children-and-levels")
@pytest.mark.parametrize("count", [-1, 2**20 + 1, 2**40, 2**63 - 1])
def test_number_of_children_is_checked_before_they_are_read(count: int) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="children"):
        read_struct(ArrowSchema(format=b"+s", release=1, n_children=count))


def test_list_of_children_that_is_null_is_refused() -> None:
    null = ctypes.cast(None, ctypes.POINTER(ctypes.POINTER(ArrowSchema)))
    with pytest.raises(zc.UnsupportedConversionError, match="NULL"):
        read_struct(ArrowSchema(format=b"+s", release=1, n_children=1, children=null))


def nested(depth: int, width: int = 1) -> ArrowSchema:
    """Return structs in structs, in which all children of one level are one struct."""
    schema, kept = ArrowSchema(format=b"i", name=b"", release=1), []
    for _ in range(depth):
        children = (ctypes.POINTER(ArrowSchema) * width)(*([ctypes.pointer(schema)] * width))
        kept.append((schema, children))
        schema = ArrowSchema(format=b"+s", name=b"", release=1, n_children=width, children=children)
    schema.kept = kept
    return schema


@pytest.mark.hazard("robustness#children-and-levels")
def test_nesting_is_limited() -> None:
    deepest = len(list(read_struct(nested(arrow_format.MAX_DEPTH)).walk())) - 1
    assert deepest == arrow_format.MAX_DEPTH
    for depth in (arrow_format.MAX_DEPTH + 1, 100_000):
        with pytest.raises(zc.UnsupportedConversionError, match="nested deeper than 64") as caught:
            read_struct(nested(depth))
        assert caught.value.code == "nested-too-deep"


def test_number_of_types_is_limited_if_levels_share_their_structs(monkeypatch) -> None:
    monkeypatch.setattr("zerocopy.protocols.arrow_schema.MAX_FIELDS", 1000)
    with pytest.raises(zc.UnsupportedConversionError, match="1,000 types"):
        read_struct(nested(60, width=2))  # 2^60 types in 61 structs


@pytest.mark.hazard("robustness#lengths-of-metadata")
@pytest.mark.parametrize(
    "content",
    [
        struct.pack("=i", -1),
        struct.pack("=i", 2**31 - 1),
        struct.pack("=ii", 1, -5),
        struct.pack("=ii", 1, 2**31 - 1),
        struct.pack("=ii1si", 1, 1, b"k", -1),
        struct.pack("=ii1si", 1, 1, b"k", 2**31 - 1),
    ],
    ids=["-1 pairs", "2^31 - 1 pairs", "key of -5", "key of 2^31 - 1", "value of -1", "value of 2^31 - 1"],
)
def test_lengths_in_metadata_are_limited(content: bytes) -> None:
    buffer = ctypes.create_string_buffer(content, len(content) + 64)

    def set_metadata(schema: Any) -> Any:
        schema.metadata = ctypes.addressof(buffer)
        return buffer

    assert "metadata has" in assert_refused(Changed(pa.array([1]), schema=set_metadata))


@pytest.mark.hazard("robustness#parts-of-a-type")
@pytest.mark.parametrize(
    ("values", "format"),
    [
        (pa.array(["a", "b"]).dictionary_encode(), b"u"),
        (pa.array(["a", "b"]).dictionary_encode(), b"g"),
        (pa.array([[1]]), b"i"),
        (pa.array([1, 2]), b"+l"),
        (pa.RunEndEncodedArray.from_arrays([2, 4], [1, 2]), b"+l"),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())), b"+r"),
    ],
)
def test_type_with_wrong_parts_is_refused(values: Any, format: bytes) -> None:
    def set_format(schema: Any) -> None:
        schema.format = format

    assert_refused(Changed(values, schema=set_format), encode=True)


@pytest.mark.hazard("robustness#parts-of-a-type")
@pytest.mark.parametrize("storage", [pa.int16(), pa.uint8(), pa.string(), pa.list_(pa.int8())])
def test_bool8_over_another_storage_is_refused(storage: Any) -> None:
    field = pa.field("x", storage, metadata={b"ARROW:extension:name": b"arrow.bool8"})
    schema = pa.schema([field])
    with pytest.raises(zc.UnsupportedConversionError, match=r"arrow\.bool8 has storage"):
        read_schema(schema.__arrow_c_schema__())


# -- arrays --------------------------------------------------------------------------


def text_offsets(*values: int) -> Change:
    def change(array: Any) -> Any:
        offsets = np.array(values, "i4")
        array.buffers[1] = offsets.ctypes.data
        return offsets

    return change


def set_buffer(index: int, value: int | None) -> Change:
    def change(array: Any) -> None:
        array.buffers[index] = value

    return change


def set_child(index: int, **values: int) -> Change:
    def change(array: Any) -> None:
        for name, value in values.items():
            setattr(array.children[index].contents, name, value)

    return change


def set_struct(**values: Any) -> Change:
    def change(array: Any) -> None:
        for name, value in values.items():
            setattr(array, name, value)

    return change


def run_ends(*values: int) -> Change:
    def change(array: Any) -> Any:
        ends = np.array(values, "i4")
        array.children[0].contents.buffers[1] = ends.ctypes.data
        return ends

    return change


def block_sizes(*values: int) -> Change:
    def change(array: Any) -> Any:
        sizes = np.array(values, "i8")
        array.buffers[array.n_buffers - 1] = sizes.ctypes.data
        return sizes

    return change


TEXT, LISTS = pa.array(["ab", "cd"]), pa.array([[1], [2, 3]])
VIEWS = pa.array(["a text that is longer than a view", "b"], pa.string_view())
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), [1, 2])
CODES = pa.array(["a", "b"]).dictionary_encode()
LIST_VIEWS = pa.array([[1], [2, 3]], pa.list_view(pa.int64()))
SPARSE = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])

NO_BUFFERS = ctypes.cast((ctypes.c_void_p * 2)(), ctypes.POINTER(ctypes.c_void_p))

INVALID_ARRAYS = {
    "text at NULL": (TEXT, set_buffer(2, None)),
    "offsets at NULL": (TEXT, set_buffer(1, None)),
    "first offset below 0": (TEXT, text_offsets(-1, 0, 1)),
    "last offset below the first": (TEXT, text_offsets(3, 2, 1)),
    "list ends past its elements": (LISTS, text_offsets(0, 1, 9)),
    "list begins below 0": (LISTS, text_offsets(-2, 1, 2)),
    "list view without sizes": (LIST_VIEWS, set_buffer(2, None)),
    "block of text at NULL": (VIEWS, set_buffer(2, None)),
    "sizes of blocks at NULL": (VIEWS, set_buffer(3, None)),
    "block of negative size": (VIEWS, block_sizes(-1)),
    "more buffers than are read": (VIEWS, set_struct(n_buffers=2**40)),
    "negative number of buffers": (VIEWS, set_struct(n_buffers=-1)),
    "too few buffers": (TEXT, set_struct(n_buffers=2)),
    "too many buffers": (TEXT, set_struct(n_buffers=4)),
    "two buffers of nulls": (pa.nulls(3), set_struct(n_buffers=2, buffers=NO_BUFFERS)),
    "list of buffers at NULL": (TEXT, set_struct(buffers=ctypes.POINTER(ctypes.c_void_p)())),
    "too many children": (LISTS, set_struct(n_children=2**40)),
    "rows above int64": (pa.array([1, 2]), set_struct(offset=2**62)),
    "runs end before the rows": (RUNS, run_ends(1, 3)),
    "first run ends at 0": (RUNS, run_ends(0, 4)),
    "no runs": (RUNS, set_child(0, length=0)),
    "fewer values than runs": (RUNS, set_child(1, length=1)),
    "run ends at a negative offset": (RUNS, set_child(0, offset=-1)),
    "empty dictionary": (CODES, lambda array: setattr(array.dictionary.contents, "length", 0)),
    "no dictionary": (CODES, lambda array: setattr(array, "dictionary", None)),
    "child of a union too short": (SPARSE, set_child(1, length=1)),
    "types of a union at NULL": (SPARSE, set_buffer(0, None)),
}


@pytest.mark.hazard("robustness#counts-and-offsets")
@pytest.mark.parametrize(("values", "change"), INVALID_ARRAYS.values(), ids=INVALID_ARRAYS)
def test_array_that_contradicts_its_lengths_is_refused(values: Any, change: Change) -> None:
    assert_refused(Changed(values, change), encode=True)


@pytest.mark.parametrize("function", ["get_schema", "get_next"])
def test_stream_without_a_function_is_refused(function: str) -> None:
    class Stream:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            capsule = pa.table({"x": [1]}).__arrow_c_stream__()
            setattr(arrow_c.ArrowArrayStream.from_address(pointer(capsule, arrow_c.STREAM)), function, None)
            return capsule

    with pytest.raises(zc.UnsupportedConversionError, match="a function of the stream is NULL"):
        zc.convert(Stream(), to="numpy")


@pytest.mark.parametrize("index", [1, 2])
def test_buffers_of_pyarrow_that_are_missing_are_refused(index: int) -> None:
    buffers = [None, *TEXT.buffers()[1:]]
    buffers[index] = None
    try:
        text = pa.Array.from_buffers(pa.string(), 2, buffers)
    except pa.ArrowInvalid:
        return  # pyarrow refuses to build it
    assert_refused(text, "invalid-content", encode=True)


@pytest.mark.parametrize("values", [TEXT, LISTS, VIEWS, RUNS, CODES, LIST_VIEWS, SPARSE], ids=str)
def test_valid_arrays_and_slices_pass_the_checks(values: Any) -> None:
    for part in (values, values[1:], values[:0], values[1:1]):
        assert zc.convert(Changed(part), to="pyarrow").equals(part)
