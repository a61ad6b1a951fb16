"""``validate="full"``, and the checks of Arrow content that are always made."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from helpers import crafted_arrow
from helpers.table_cases import TABLES

import zerocopy as zc
from zerocopy import registry
from zerocopy.errors import FrameworkNotInstalledError

pa = pytest.importorskip("pyarrow")

TARGETS = ["numpy", *(name for name in TABLES if name not in ("cudf", "pylibcudf"))]


def ints(*values: int) -> Any:
    return pa.py_buffer(np.array(values, "i4"))


def of_buffers(kind: Any, length: int, *buffers: Any, children: Any = None) -> Any:
    return pa.Array.from_buffers(kind, length, [None, *buffers], children=children)


def view(size: int, block: int, offset: int) -> Any:
    return pa.py_buffer(struct.pack("<i4sii", size, b"aaaa", block, offset) * 2)


TEXT = pa.py_buffer(b"a" * 30)
NUMBERS = pa.array([1, 2, 3, 4])

#: Arrays that pyarrow builds, because their first and last offset and their buffers' sizes are right.
INVALID = {
    "text offset past the text": of_buffers(pa.string(), 3, ints(0, 1 << 30, 3, 4), TEXT),
    "text offset negative": of_buffers(pa.string(), 3, ints(0, -9, 3, 4), TEXT),
    "text not UTF-8": of_buffers(pa.string(), 2, ints(0, 2, 4), pa.py_buffer(b"\xff\xfe\xfd\xfc")),
    "list offset past the elements": of_buffers(
        pa.list_(pa.int64()), 3, ints(0, 1 << 30, 3, 4), children=[NUMBERS]
    ),
    "view of a missing block": of_buffers(pa.string_view(), 2, view(20, 7, 0), TEXT),
    "view past its block": of_buffers(pa.string_view(), 2, view(20, 0, 1 << 30), TEXT),
    "view at a negative offset": of_buffers(pa.string_view(), 2, view(20, 0, -9), TEXT),
    "view of negative size": of_buffers(pa.string_view(), 2, view(-20, 0, 0), TEXT),
    "list view past the elements": of_buffers(
        pa.list_view(pa.int64()), 2, ints(1 << 30, 0), ints(5, 1), children=[NUMBERS]
    ),
    "code past the dictionary": pa.DictionaryArray.from_arrays(
        pa.array([0, 1 << 30], pa.int32()), pa.array(["a", "b"]), safe=False
    ),
    "code negative": pa.DictionaryArray.from_arrays(
        pa.array([0, -7], pa.int32()), pa.array(["a", "b"]), safe=False
    ),
    "run ends not increasing": pa.Array.from_buffers(
        pa.run_end_encoded(pa.int32(), pa.int64()),
        4,
        [None],
        children=[pa.array([3, 1 << 30, 4], pa.int32()), pa.array([1, 2, 3])],
    ),
}


class Exporter:
    """Exports an array, or the stream of a table, through the Arrow C data interface alone."""

    def __init__(self, values: Any) -> None:
        self.values = values


class ArrayExporter(Exporter):
    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.values.__arrow_c_array__()


class StreamExporter(Exporter):
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.values.__arrow_c_stream__()


def options_for(target: str) -> dict[str, Any]:
    return {"encode": True} if target == "numpy" else {}


@pytest.mark.hazard("untrusted-data#wrong-content-of-arrow-arrays")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("values", INVALID.values(), ids=INVALID)
def test_invalid_content_is_refused(values: Any, target: str) -> None:
    sources = [
        values,
        pa.chunked_array([values, values]),
        pa.table({"x": values}),
        {"x": values},
        ArrayExporter(values),
    ]
    for source in sources:
        options = options_for(target)
        plan = zc.explain(source, target, validate="full", **options)
        assert not plan.possible
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            zc.convert(source, to=target, validate="full", **options)
        assert caught.value.code == "invalid-content", str(caught.value)
        assert "validate='full'" in str(caught.value)
        assert caught.value.remedy


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("values", INVALID.values(), ids=INVALID)
def test_invalid_content_of_a_stream_is_refused_after_it_is_read(values: Any, target: str) -> None:
    table = pa.table({"x": values})
    for source in (StreamExporter(table), table.to_reader()):
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            zc.convert(source, to=target, validate="full", **options_for(target))
        assert caught.value.code in ("invalid-content", "unread", "no-tensor-type", "missing-dtype")


@pytest.mark.hazard("untrusted-data#wrong-content-of-arrow-arrays")
@pytest.mark.parametrize("name", [name for name in INVALID if name.startswith("view")])
def test_views_outside_their_blocks_are_never_read_as_text(name: str) -> None:
    plan = zc.explain(INVALID[name], "numpy", encode=True)
    assert not plan.possible
    with pytest.raises(zc.UnsupportedConversionError, match="view"):
        zc.convert(INVALID[name], to="numpy", encode=True)


VALID = {
    "numbers": pa.array([1.5, None]),
    "text": pa.array(["a", None, "ü"]),
    "views": pa.array([crafted_arrow.LONG, None, "b"], pa.string_view()),
    "lists": pa.array([[1], None, []]),
    "codes": pa.array(["a", None, "b"]).dictionary_encode(),
    "structs": pa.array([{"x": 1, "y": "a"}, {"x": 2, "y": None}]),
    "slices": pa.array(["a", "b", "c"])[1:2],
    "no rows": pa.array(["a", "b"], pa.string_view())[:0],
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("values", VALID.values(), ids=VALID)
def test_validation_does_not_change_the_plan_of_valid_content(values: Any, target: str) -> None:
    options = {"nulls": "mask", "encode": True} if target == "numpy" else {}
    for source in (values, ArrayExporter(values), pa.table({"x": values})):
        plain, full = (
            zc.explain(source, target, **options),
            zc.explain(source, target, validate="full", **options),
        )
        assert (full.possible, full.zero_copy, full.copied_bytes) == (
            plain.possible,
            plain.zero_copy,
            plain.copied_bytes,
        )
        if plain.possible:
            result = zc.convert(source, to=target, validate="full", **options)
            assert type(result) is type(zc.convert(source, to=target, **options))


def test_tables_of_every_framework_are_validated() -> None:
    table = pa.table({"x": ["a", "b"], "n": [1, 2]})
    for name in TABLES:
        source = zc.convert(table, to=name)
        assert zc.convert(source, to="numpy", validate="full", encode=True)["n"].tolist() == [1, 2], name
        if name == "duckdb":  # a relation is a query
            assert zc.explain(source, name, validate="full").reasons[0].code == "unread"
        else:
            assert zc.convert(source, to=name, validate="full") is source


def test_object_returned_unchanged_is_validated() -> None:
    table = pa.table({"x": INVALID["text not UTF-8"]})
    assert zc.convert(table, to="pyarrow") is table
    assert zc.explain(table, "pyarrow", validate="full").reasons[0].code == "invalid-content"
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(table, to="pyarrow", validate="full")
    assert caught.value.code == "invalid-content"


def test_reader_returned_unchanged_cannot_be_validated() -> None:
    reader = pa.table({"x": [1]}).to_reader()
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(reader, to="pyarrow", validate="full")
    assert caught.value.code == "unread"


def test_only_the_chosen_columns_are_validated() -> None:
    table = pa.table({"bad": INVALID["text not UTF-8"], "n": [1, 2]})
    converted = zc.convert(table, to="numpy", columns=["n"], validate="full")
    assert converted["n"].tolist() == [1, 2]
    with pytest.raises(zc.UnsupportedConversionError, match="column 'bad'"):
        zc.convert(table, to="numpy", validate="full", encode=True)


def test_arrays_and_containers_take_the_option() -> None:
    array = np.arange(3.0)
    assert zc.shares_memory(zc.convert(array, to="torch", validate="full", copy=False), array)
    assert zc.convert(array, to="numpy", validate="full") is array
    with pytest.raises(zc.UnsupportedConversionError, match=r"at \[1\]"):
        zc.convert([array, INVALID["text not UTF-8"]], to="pyarrow", validate="full")


@pytest.mark.parametrize("value", ["fast", True, 1, "", []])
@pytest.mark.parametrize("call", [zc.convert, zc.explain])
def test_another_value_is_a_value_error(call: Any, value: Any) -> None:
    with pytest.raises(ValueError, match="validate"):
        call(object(), "numpy", validate=value)


def test_validation_without_pyarrow_is_refused_with_the_command(monkeypatch) -> None:
    pl = pytest.importorskip("polars")

    def absent() -> Any:
        raise FrameworkNotInstalledError("to='pyarrow'", "pyarrow is not installed", "pip install pyarrow")

    series = pl.Series([1, 2])
    assert zc.convert(series, to="numpy", validate="full").tolist() == [1, 2]
    monkeypatch.setattr(registry.by_name("pyarrow"), "module", absent)
    with pytest.raises(FrameworkNotInstalledError, match="validate='full' checks") as caught:
        zc.convert(series, to="numpy", validate="full")
    assert caught.value.remedy == "pip install pyarrow"


# -- what is checked always --------------------------------------------------------


def truncated() -> Any:
    """Return a table whose buffer is shorter than its rows, which pyarrow reads without an error."""
    data = dict(crafted_arrow.metadata())["buffer shorter than its rows"]
    return pa.ipc.open_file(io.BytesIO(data)).read_all()


@pytest.mark.hazard("robustness#buffers-of-a-file")
@pytest.mark.parametrize("target", [*TARGETS, "torch"])
def test_buffers_of_a_file_that_are_too_short_are_refused(target: str) -> None:
    pytest.importorskip(target)
    table = truncated()
    if target == "pyarrow":
        assert zc.convert(table, to=target) is table
        return
    for source in (table, table.to_batches()[0], table["x"]):
        assert not zc.explain(source, target).possible
        for _ in range(2):  # the fast path too
            with pytest.raises(zc.UnsupportedConversionError) as caught:
                zc.convert(source, to=target)
            assert caught.value.code == "invalid-content"


def test_too_short_buffers_are_refused_by_a_composed_route() -> None:
    valid = pa.table({"x": np.arange(7)})
    for target in ("numpy", "polars"):
        pytest.importorskip(target)
        for _ in range(2):
            zc.convert(valid, to=target)
        with pytest.raises(zc.UnsupportedConversionError):
            zc.convert(truncated(), to=target)
