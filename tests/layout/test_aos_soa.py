"""aos_to_soa and soa_to_aos: what is taken, what comes back, what aliases, and what is refused."""

from __future__ import annotations

import gc
import mmap
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.arrays import aligned, bits
from hypothesis import given as made_up, settings, strategies as st
from hypothesis.extra import numpy as npst
from numpy.lib.stride_tricks import as_strided

import zerocopy as zc
from zerocopy import aos_to_soa, soa_to_aos
from zerocopy.protocols.array_interface import aligned_empty

Unsupported = zc.UnsupportedConversionError
POINT = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])
TREE = np.dtype([("id", "i8"), ("at", [("x", "f4"), ("y", "f4")]), ("v", "f8", (2,)), ("name", "S3")])


def filled(dtype: Any, shape: Any = 6) -> np.ndarray:
    """Records of other bytes everywhere, at a multiple of 64 bytes."""
    records = aligned_empty(shape if isinstance(shape, tuple) else (shape,), np.dtype(dtype))
    raw = records.reshape(-1).view(np.uint8)
    raw[...] = np.arange(raw.size) % 251
    return records


def leaves(columns: Any, path: tuple[str, ...] = ()) -> Any:
    """Each column with its path."""
    for name, column in columns.items():
        if isinstance(column, dict):
            yield from leaves(column, (*path, name))
        else:
            yield (*path, name), column


def at(records: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        records = records[name]
    return records


def agree(records: np.ndarray, columns: dict[str, Any]) -> bool:
    """Whether columns are the fields of records, bit for bit but for the order of bytes."""
    return all(
        bits(at(records, path).astype(column.dtype)) == bits(column)
        and column.shape == at(records, path).shape
        for path, column in leaves(columns)
    )


def refused(
    error: type[Exception],
    match: str,
    call: Callable[..., Any],
    *arguments: Any,
    untouched: Any = (),
    **options: Any,
) -> Exception:
    """Make a call that raises, and see that no byte of some arrays has changed."""
    before = [array.tobytes() for array in untouched]
    with pytest.raises(error, match=match) as caught:
        call(*arguments, **options)
    assert [array.tobytes() for array in untouched] == before
    return caught.value


# -- columns ----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 5, 1000, 20_000])
def test_columns_lie_in_one_allocation(rows: int) -> None:
    for dtype in (POINT, TREE):
        columns = [column for _, column in leaves(aos_to_soa(filled(dtype, rows)))]
        for column in columns:
            assert column.flags.c_contiguous
            assert column.flags.writeable
            assert column.dtype.isnative
            assert column.ctypes.data % 64 == 0
            assert column.base is columns[0].base
        ends = sorted((column.ctypes.data, column.ctypes.data + column.nbytes) for column in columns)
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))


@pytest.mark.parametrize("rows", [1, 5, 16, 1000, 1024, 20_000])
@pytest.mark.parametrize("fields", [["x", "y", "z"], ["z", "x"]])
def test_columns_of_one_type_are_the_rows_of_a_matrix(rows: int, fields: list[str]) -> None:
    records = filled(POINT, rows)
    columns = aos_to_soa(records, fields=fields)
    starts = [column.ctypes.data for column in columns.values()]
    assert len(set(np.diff(starts))) == 1
    for target in ("numpy", "torch"):
        matrix = zc.convert(columns, target, layout="matrix", copy=False)
        assert zc.shares_memory(matrix, columns[fields[0]])
        assert tuple(matrix.shape) == (rows, len(fields))
    for number, name in enumerate(fields):
        assert bits(zc.convert(columns, "numpy", layout="matrix")[:, number]) == bits(records[name])


def test_odd_records() -> None:
    titled = np.array([(1, 2)], [(("Title", "a"), "i4"), ("b", "i2")])
    assert list(aos_to_soa(titled)) == ["a", "b"]
    overlap = np.dtype({"names": ["whole", "low"], "formats": ["<u4", "<u2"], "offsets": [0, 0]})
    both = aos_to_soa(np.array([0x10002], "<u4").view(overlap))
    assert (both["whole"].tolist(), both["low"].tolist()) == ([0x10002], [2])
    assert soa_to_aos(both, overlap)["whole"].tolist() == [0x10002]
    padded = np.zeros(3, np.dtype([("a", "i1"), ("b", "f8")], align=True))
    assert soa_to_aos(aos_to_soa(padded), padded.dtype).tobytes() == padded.tobytes()
    dotted = np.array([(1, (2,))], [("a.b", "i4"), ("a", [("b", "i4")])])
    columns = aos_to_soa(dotted)
    assert (columns["a.b"].tolist(), columns["a"]["b"].tolist()) == ([1], [2])
    assert soa_to_aos(columns).tolist() == dotted.tolist()


def test_fields_without_bytes_and_records_without_fields() -> None:
    records = np.zeros(4, [("s", "S0"), ("v", "V0"), ("u", "U0"), ("n", "f4", (0,)), ("e", []), ("i", "i4")])
    columns = aos_to_soa(records)
    assert list(columns) == ["s", "v", "u", "n", "i"]  # a record without fields has no column
    assert [columns[name].dtype for name in "svu"] == [np.dtype("S0"), np.dtype("V0"), np.dtype("U0")]
    assert columns["n"].shape == (4, 0)
    assert soa_to_aos(columns, records.dtype).tobytes() == records.tobytes()
    assert soa_to_aos(columns).dtype.names == tuple(columns)
    assert aos_to_soa(records.reshape(2, 2))["n"].shape == (2, 2, 0)
    for dtype in (np.dtype([]), np.dtype({"names": [], "formats": [], "itemsize": 8})):
        assert aos_to_soa(np.zeros(4, dtype)) == {}
        assert soa_to_aos({}, dtype).shape == (0,)
    assert soa_to_aos({}).dtype == np.dtype([])
    assert soa_to_aos({"a": np.zeros(3, "S0")}).shape == (3,)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (3, 4), (2, 3, 4), (0, 3), (3, 0, 2)])
def test_records_of_any_shape(shape: tuple[int, ...], order: str) -> None:
    records = np.asarray(filled(TREE, shape), order=order)
    for given in (
        records,
        records[::-1] if shape else records,
        records[..., ::2] if shape else records,
        records.T,
    ):
        columns = aos_to_soa(given)
        assert agree(given, columns)
        assert columns["v"].shape == (*given.shape, 2)
        assert all(column.flags.c_contiguous for _, column in leaves(columns))
        out = {"id": aligned(np.zeros(given.shape, "i8"))}
        assert aos_to_soa(given, fields=["id"], out=out)["id"] is out["id"]
        assert bits(out["id"]) == bits(given["id"])
        views = aos_to_soa(given, copy=False)
        assert agree(given, views)
        assert all(np.shares_memory(view, records) for _, view in leaves(views) if view.size)


def test_a_scalar_is_one_record() -> None:
    records = filled(TREE)
    columns = aos_to_soa(records[2])
    assert columns["id"].shape == ()
    assert columns["id"] == records["id"][2]
    assert np.shares_memory(aos_to_soa(records[2], copy=False)["v"], records)


SCALARS = st.one_of(
    npst.integer_dtypes(), npst.floating_dtypes(sizes=(32, 64)), npst.boolean_dtypes(),
    npst.complex_number_dtypes(), npst.datetime64_dtypes(min_period="ns", max_period="s"),
    npst.byte_string_dtypes(max_len=5), npst.unicode_string_dtypes(max_len=3),
)  # fmt: skip
FIELDS = st.recursive(SCALARS, lambda inner: npst.array_dtypes(inner, min_size=1, max_size=3), max_leaves=4)
RECORDS = FIELDS.filter(lambda dtype: dtype.names is not None)


@made_up(RECORDS.flatmap(lambda d: npst.arrays(d, st.integers(0, 9), fill=st.nothing())))
@settings(max_examples=60, deadline=None)
def test_apart_and_together(records: np.ndarray) -> None:
    """Few records go NumPy's way."""
    columns = aos_to_soa(records)
    together = soa_to_aos(columns, records.dtype, copy=True)
    assert together.dtype == records.dtype
    assert together.tobytes() == records.tobytes()
    assert agree(records, columns)
    native = soa_to_aos(columns)
    assert native.dtype.names == records.dtype.names
    assert aos_to_soa(native).keys() == columns.keys()


# -- sources ----------------------------------------------------------------------------


def test_subclasses_and_files(tmp_path: Path) -> None:
    records = filled(TREE, 3000)
    path = tmp_path / "records.bin"
    records.tofile(path)
    mapped = np.memmap(path, TREE, "r")
    for given in (records.view(np.recarray), np.rec.array(records), mapped):
        columns = aos_to_soa(given)
        assert agree(records, columns)
        assert all(type(column) is np.ndarray for _, column in leaves(columns))
        assert all(column.flags.writeable for _, column in leaves(columns))
    views = aos_to_soa(mapped, copy=False)
    assert np.shares_memory(views["id"], mapped)
    assert not views["id"].flags.writeable
    back = soa_to_aos(views, TREE, copy=False)
    assert np.shares_memory(back, mapped)
    assert not back.flags.writeable


def test_buffers_with_a_type(tmp_path: Path) -> None:
    records = filled(TREE, 3000)
    raw = records.tobytes()
    anonymous = mmap.mmap(-1, len(raw))
    anonymous[:] = raw
    matrix = np.frombuffer(raw, np.uint8).reshape(3000, TREE.itemsize)
    odd = memoryview(b"." + raw)[1:]
    shaped = memoryview(raw).cast("B", (3000, TREE.itemsize))
    for given in (
        raw,
        bytearray(raw),
        memoryview(raw),
        odd,
        anonymous,
        matrix,
        matrix.reshape(-1),
        shaped,
        records,
    ):
        columns = aos_to_soa(given, dtype=TREE)
        assert columns["id"].shape == (3000,)
        assert agree(records, columns)
        assert agree(records, aos_to_soa(given, dtype=list(TREE.descr), fields=["name", "id"]))
    assert aos_to_soa(b"", dtype=TREE)["v"].shape == (0, 2)
    buffer = bytearray(raw)
    aos_to_soa(buffer, dtype=TREE, copy=False)["id"][0] = 77
    assert np.frombuffer(buffer, TREE)["id"][0] == 77
    assert not aos_to_soa(raw, dtype=TREE, copy=False)["id"].flags.writeable


def test_masks() -> None:
    records = filled(TREE)
    whole = np.ma.masked_array(records)
    assert agree(records, aos_to_soa(whole))
    some = np.ma.masked_array(records, mask=np.zeros(6, np.ma.make_mask_descr(TREE)))
    assert agree(records, aos_to_soa(some))
    some["at"]["y"][3] = np.ma.masked
    refused(zc.LossyConversionError, "some values are masked", aos_to_soa, some)
    refused(zc.LossyConversionError, "some values are masked", aos_to_soa, some[3])
    column = np.ma.masked_array([1, 2, 3], [False, True, False])
    refused(zc.LossyConversionError, "column 'a' are masked", soa_to_aos, {"a": column})
    refused(zc.LossyConversionError, "column 'b' are masked", soa_to_aos, {"a": {"b": column}})
    assert soa_to_aos({"a": np.ma.masked_array([1, 2])}).tolist() == [(1,), (2,)]


# -- what aliases -----------------------------------------------------------------------


def test_without_a_copy_columns_are_views() -> None:
    records = filled(TREE)
    for given in (records, records[::2], records[::-1], np.broadcast_to(records[0], (5,))):
        columns = aos_to_soa(given, copy=False)
        for path, column in leaves(columns):
            assert np.shares_memory(column, records)
            assert column.strides[0] == given.strides[0]
            assert column.flags.writeable == given.flags.writeable
            assert bits(column) == bits(at(given, path))
    views = aos_to_soa(records, copy=False)
    views["at"]["y"][1] = 42
    records["v"][2] = 43
    assert records["at"]["y"][1] == 42
    assert views["v"][2].tolist() == [43, 43]
    assert list(aos_to_soa(records, fields=["v", "id"], copy=False)) == ["v", "id"]


def test_the_other_byte_order_needs_a_copy() -> None:
    records = np.zeros(4, [("a", "f4"), ("in", [("b", ">i2"), ("c", "u1")])])
    error = refused(
        zc.CopyRequiredError, "'in.b' is in the other byte order", aos_to_soa, records, copy=False
    )
    assert "copy=False" in error.remedy
    assert np.shares_memory(aos_to_soa(records, fields=["a"], copy=False)["a"], records)


def test_views_are_records_again() -> None:
    records = filled(TREE, 8)
    recarray = np.recarray(8, TREE)
    padded = filled(np.dtype([("a", "u1"), ("b", "f8")], align=True), 8)
    for given in (records, records[::2], records[3:5], records[:1], recarray, padded, padded[1:]):
        back = soa_to_aos(aos_to_soa(given, copy=False), given.dtype, copy=False)
        assert back.ctypes.data == given.ctypes.data
        assert (back.dtype, back.shape, back.strides) == (given.dtype, given.shape, given.strides)
        assert np.shares_memory(soa_to_aos(aos_to_soa(given, copy=False), given.dtype), given)
        assert not np.shares_memory(soa_to_aos(aos_to_soa(given, copy=False), given.dtype, copy=True), given)
    matrix = np.arange(12.0).reshape(4, 3)
    rows = soa_to_aos({"a": matrix[:, 0], "b": matrix[:, 1]}, copy=False)
    rows["b"][2] = 99
    assert (rows.dtype, matrix[2, 1]) == (np.dtype([("a", "f8"), ("b", "f8")]), 99)
    frozen = matrix[:, 1]
    frozen.flags.writeable = False
    assert not soa_to_aos({"a": matrix[:, 0], "b": frozen}, copy=False).flags.writeable


def test_views_keep_the_memory_alive() -> None:
    records = np.zeros(8, TREE)
    watched = weakref.ref(records)
    views = aos_to_soa(records, copy=False)
    del records
    back = soa_to_aos(views, TREE, copy=False)
    del views
    gc.collect()
    back["id"] = 5
    assert watched()["id"].tolist() == [5] * 8
    del back
    gc.collect()
    assert watched() is None


def test_what_is_no_record_yet_needs_a_copy() -> None:
    records = filled(POINT)
    views = aos_to_soa(records, copy=False)
    matrix = np.arange(12.0).reshape(4, 3)
    swapped = POINT.newbyteorder()
    objects = np.zeros(3, [("x", "f4"), ("o", object)])
    apart: list[tuple[Any, Any]] = [
        (aos_to_soa(records), None),  # columns
        ({"y": views["y"], "x": views["x"], "z": views["z"]}, None),  # another order
        ({name: view[::-1] for name, view in views.items()}, None),
        ({**views, "z": views["z"].copy()}, None),
        ({**views, "z": views["x"]}, None),  # one field twice
        (views, swapped),
        (views, [("x", "f8"), ("y", "f4"), ("z", "f4")]),
        # Bytes after the last field that are not the array's any more.
        ({"a": matrix[1:, 2]}, np.dtype({"names": ["a"], "formats": ["f8"], "itemsize": 24})),
        ({"x": objects["x"]}, None),
    ]
    for columns, dtype in apart:
        refused(zc.CopyRequiredError, "no fields of records", soa_to_aos, columns, dtype, copy=False)
        made = soa_to_aos(columns, dtype)
        for name, column in columns.items():
            assert not np.shares_memory(made, column)
            assert np.array_equal(made[name], column)


def test_an_alias_is_taken_where_a_record_is_one_field() -> None:
    one = filled([("x", "f4")], 16)
    deep = filled([("a", [("b", "f4", (2,))])], 16)
    assert np.shares_memory(aos_to_soa(one)["x"], one)
    assert np.shares_memory(aos_to_soa(deep)["a"]["b"], deep)
    assert np.shares_memory(aos_to_soa(one.reshape(4, 4))["x"], one)
    memory = filled("u1", 65)
    copied = [
        one[1:],  # not at a multiple of 64 bytes
        memory[1:].view([("x", "f4")]),
        one[::2],
        one.astype([("x", ">f4")]),
        filled(POINT),
        filled(np.dtype({"names": ["x"], "formats": ["f4"], "itemsize": 8})),
        filled(np.dtype({"names": ["x", "y"], "formats": ["f4", "f4"], "offsets": [0, 0]})),
    ]
    for records in copied:
        for options in ({}, {"copy": True}):
            for column in aos_to_soa(records, **options).values():
                assert not np.shares_memory(column, records)
                assert column.ctypes.data % 64 == 0
    assert not np.shares_memory(aos_to_soa(one, copy=True)["x"], one)
    assert not np.shares_memory(aos_to_soa(one, out={"x": np.empty(16, "f4")})["x"], one)


def test_nothing_is_no_copy() -> None:
    """Without bytes nothing can be shared, and nothing is copied."""
    records = np.zeros(0, TREE)
    views = aos_to_soa(records, copy=False)
    assert soa_to_aos(views, TREE, copy=False).shape == (0,)
    assert soa_to_aos({"a": np.zeros(3, "S0")}, copy=False).shape == (3,)


# -- out= and fields= -------------------------------------------------------------------


def test_memory_of_the_callers_is_written() -> None:
    records = filled(TREE, 3000)
    fresh = aos_to_soa(records)
    out = {
        "id": np.zeros(3000, "i8"),
        "at": {"x": np.zeros((3000, 2), "f4")[:, 1], "y": np.zeros(3000, "f4")},
        "v": np.zeros((3000, 2)),
        "name": np.zeros(3000, "S3"),
    }
    given = aos_to_soa(records, out=out)
    for path, column in leaves(fresh):
        assert at(given, path) is at(out, path)
        assert bits(at(out, path)) == bits(column)
    records = filled(POINT, 3000)
    matrix = np.empty((3, 3000), "f4")
    rows = aos_to_soa(records, out=matrix)
    for number, name in enumerate("xyz"):
        assert np.shares_memory(rows[name], matrix[number])
        assert bits(matrix[number]) == bits(records[name])
    aos_to_soa(records, fields=["z", "x"], out=matrix[:2])
    assert bits(matrix[0]) == bits(records["z"])
    cube = np.empty((3, 30, 100), "f4")
    aos_to_soa(records.reshape(30, 100), out=cube)
    assert bits(cube[1]) == bits(records["y"])


def test_interleaved_memory_is_written_where_it_does_not_overlap() -> None:
    """As rows are, which columns become again."""
    records = filled(POINT, 3000)
    rows = np.empty((3000, 3), "f4")
    aos_to_soa(records, out={name: rows[:, i] for i, name in enumerate("xyz")})
    assert rows.tobytes() == records.tobytes()
    made = np.zeros((3000, 2), POINT)
    columns = {name: np.ascontiguousarray(records[name]) for name in "xyz"}
    assert soa_to_aos(columns, out=made[:, 1]).tobytes() == records.tobytes()
    assert not made[:, 0].view("V12").tobytes().strip(b"\0")


def test_bad_memory_of_the_callers_is_not_written() -> None:
    records = filled(TREE, 100)
    good = aos_to_soa(records)
    memory = filled("u1", 4000)
    eights, whole = memory.view("i8"), good["id"]
    frozen = np.zeros(100, "i8")
    frozen.flags.writeable = False
    bad: list[tuple[Any, str]] = [
        ({**good, "id": np.zeros(99, "i8")}, r"out\['id'\] has the shape \(99,\), not \(100,\)"),
        ({**good, "id": np.zeros(101, "i8")}, "has the shape"),
        ({**good, "v": np.zeros((2, 100))}, r"\(2, 100\), not \(100, 2\)"),
        ({**good, "id": np.zeros(100, "u8")}, "is of uint64, not int64"),
        ({**good, "id": np.zeros(100, ">i8")}, "is of >i8, not int64"),
        ({**good, "at": {**good["at"], "y": np.zeros(100, "f8")}}, r"out\['at.y'\] is of float64"),
        ({**good, "id": frozen}, "is read-only"),
        ({**good, "id": [0] * 100}, "is a list, and no NumPy array"),
        ({**good, "v": np.zeros((100, 3))[:, :2]}, "is not contiguous"),
        ({**good, "id": as_strided(eights, (100,), (0,))}, "overlaps with itself"),
        ({**good, "id": as_strided(eights, (100,), (4,))}, "overlaps with itself"),
        ({**good, "id": records["id"]}, "'id' and 'the source' overlap|'the source' and 'id' overlap"),
        ({**good, "name": records["name"]}, "overlap"),
        ({**good, "id": records.view("u1")[100:900].view("i8")}, "overlap"),
        (
            {**good, "id": eights[:100], "at": {**good["at"], "x": memory[796:1196].view("f4")}},
            "'at.x' overlap",
        ),
        ({**good, "w": np.zeros(100)}, "out has 'w', which is none of the fields"),
        ({**good, "at": {**good["at"], "z": whole}}, "out has 'at.z'"),
        ({**good, "at": whole}, "out has no column 'at.x'"),
        ({name: column for name, column in good.items() if name != "v"}, "out has no column 'v'"),
        ([whole], "out is a list"),
        (np.zeros((4, 100)), "not all of one type"),
    ]
    for out, match in bad:
        there = dict(leaves(out)).values() if isinstance(out, dict) else out
        untouched = [records, memory, *(column for column in there if isinstance(column, np.ndarray))]
        assert refused(Unsupported, match, aos_to_soa, records, out=out, untouched=untouched).remedy
    there = dict(leaves(good)).values()
    refused(
        zc.CopyRequiredError, "memory to copy to", aos_to_soa, records, out=good, copy=False, untouched=there
    )
    points = filled(POINT, 100)
    for matrix in (memory[:800].view("f4").reshape(2, 100), memory[:1200].view("i4").reshape(3, 100)):
        refused(Unsupported, "^[^:]*: out", aos_to_soa, points, out=matrix, untouched=[memory])
    over = points.view("f4").reshape(3, 100)
    refused(Unsupported, "overlap", aos_to_soa, points, out=over, untouched=[points])


def test_bad_memory_for_records_is_not_written() -> None:
    memory = filled(POINT, 300)
    columns = {name: np.arange(100, dtype="f4") for name in "xyz"}
    frozen = memory[:100]
    frozen.flags.writeable = False
    bad: list[tuple[dict[str, Any], Any, str]] = [
        (columns, memory[:99], r"out has the shape \(99,\), not \(100,\)"),
        (columns, memory[:200].reshape(2, 100), "has the shape"),
        (columns, memory[:100].view([("x", "f4"), ("y", "f4"), ("w", "f4")]), "the fields are"),
        (columns, memory[:100].view("f4").reshape(100, 3), "out is of float32"),
        (columns, frozen, "read-only"),
        (columns, [None] * 100, "is a list"),
        (columns, as_strided(memory, (100,), (8,)), "overlaps with itself"),
        ({**columns, "y": memory["y"][100:200]}, memory[50:150], "overlap"),
        (aos_to_soa(memory[:100], copy=False), memory[:100], "overlap"),
    ]
    for given, out, match in bad:
        refused(Unsupported, match, soa_to_aos, given, out=out, untouched=[memory])
    refused(
        zc.CopyRequiredError, "memory to copy to", soa_to_aos, columns, out=memory[:100], copy=False,
        untouched=[memory],
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["<f8", ">f8", "<i4"])
def test_the_type_of_out_is_that_of_the_records(kind: str) -> None:
    out = np.zeros(50, np.dtype([("b", "i1"), ("a", kind)], align=True))
    columns = {"a": np.arange(50, dtype="i4"), "b": np.ones(50, "i1")}
    assert soa_to_aos(columns, out=out) is out
    assert out["a"].tolist() == list(range(50))
    assert out["b"].tolist() == [1] * 50


def test_columns_that_may_have_nulls_are_for_convert() -> None:
    """NumPy makes floats of integers with nulls, and forgets time zones."""
    pa = pytest.importorskip("pyarrow")
    for column in (
        pa.array([2**53 + 1, None]),
        pa.array([1], pa.timestamp("us", "UTC")),
        pa.chunked_array([[1]]),
    ):
        refused(Unsupported, 'layout="records"', soa_to_aos, {"a": column}, untouched=[])
    refused(Unsupported, "a table", soa_to_aos, pa.table({"a": [1]}), untouched=[])
    refused(Unsupported, "columns lie apart already", aos_to_soa, pa.table({"a": [1]}), untouched=[])


def test_columns_that_numpy_does_not_take() -> None:
    class Odd:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            raise RuntimeError("not now")

    error = refused(Unsupported, "RuntimeError: not now", soa_to_aos, {"a": Odd()}, untouched=[])
    assert isinstance(error.__cause__, RuntimeError)
    refused(Unsupported, "fields have strings for names", soa_to_aos, {0: np.zeros(3)}, untouched=[])


def test_a_type_is_not_laid_over_another() -> None:
    for records in (np.ones((4, 3)), np.zeros(4, [("a", ">i4"), ("b", "f4")])):
        refused(
            Unsupported,
            "already",
            aos_to_soa,
            records,
            dtype=[("a", "<i4"), ("b", "f4")],
            untouched=[records],
        )
    same = np.zeros(4, [("a", ">i4")])
    assert list(aos_to_soa(same, dtype=same.dtype)) == ["a"]
    assert len(aos_to_soa(np.zeros(8, "i1"), dtype=[("a", "i4")])["a"]) == 2


def test_fields_are_picked_in_their_order() -> None:
    records = filled(TREE, 3000)
    picks = (
        ["v", "id"],
        ("at",),
        [],
        dict.fromkeys(["name", "at"]),
        (name for name in ("name", "id")),
        ["id", "id"],
    )
    for fields, expected in zip(
        picks, (["v", "id"], ["at"], [], ["name", "at"], ["name", "id"], ["id"]), strict=True
    ):
        columns = aos_to_soa(records, fields=fields)
        assert list(columns) == expected
        assert agree(records, columns)
    objects = np.zeros(3, [("x", "f4"), ("o", object)])
    assert list(aos_to_soa(objects, fields=["x"])) == ["x"]


def test_fields_that_are_none() -> None:
    records = np.zeros(3, [("position", "f4"), ("velocity", "f4"), (("Mass", "m"), "f4")])
    error = refused(Unsupported, "no field 'velocty'", aos_to_soa, records, fields=["m", "velocty"])
    assert error.remedy == "did you mean 'velocity'?"
    for name in ("", "Mass", "position.x", 3, None):
        refused(Unsupported, "there is no field", aos_to_soa, records, fields=[name])
    refused(ValueError, "fields is a list of names, not 'm'", aos_to_soa, records, fields="m")


# -- what is refused --------------------------------------------------------------------


def test_python_objects_are_named() -> None:
    deep = np.zeros(2, [("a", "i4"), ("n", [("b", "f4"), ("o", object, (2,))], (3,))])
    flat = np.zeros(2, [("a", "i4"), ("o", object)])
    for options in ({}, {"copy": False}, {"copy": True}):
        error = refused(Unsupported, r"'n\.o' holds Python objects", aos_to_soa, deep, **options)
        assert "fields=" in error.remedy
        refused(Unsupported, "'o' holds Python objects", aos_to_soa, flat, **options)
    refused(Unsupported, "Python objects", aos_to_soa, b"12345678", dtype=[("o", object)])
    for column in (np.array([{}, 1], object), np.array(["a", "b"], np.dtypes.StringDType())):
        error = refused(Unsupported, r"soa_to_aos.*'n\.o' holds", soa_to_aos, {"n": {"o": column}})
        assert "leave the column out" in error.remedy
    refused(Unsupported, "'a' holds", soa_to_aos, {"a": np.zeros(2)}, [("a", object)])


@pytest.mark.parametrize(
    "given",
    [np.zeros(3), np.float64(1), [(1, 2)], {"x": np.zeros(3)}, None, "text", b"bytes", np.void(b"abc")],
    ids=type,
)
def test_what_has_no_fields(given: Any) -> None:
    error = refused(Unsupported, "has no fields", aos_to_soa, given)
    assert "dtype=" in error.remedy


def test_buffers_that_are_no_records() -> None:
    for dtype in ("f4", np.dtype("V12"), ("f4", (3,))):
        refused(Unsupported, "has no fields", aos_to_soa, bytes(12), dtype=dtype)
        refused(Unsupported, "has no fields", soa_to_aos, {"x": np.zeros(3)}, dtype)
    for size in (1, 11, 13):
        refused(
            Unsupported,
            f"{size} bytes are no whole number",
            aos_to_soa,
            bytes(size),
            dtype=POINT,
        )
    refused(Unsupported, "no whole number", aos_to_soa, bytes(12), dtype=[])
    sliced = memoryview(bytes(48))[::2]
    refused(Unsupported, "no contiguous buffer", aos_to_soa, sliced, dtype=POINT)
    for array in (np.zeros((12, 4), "u1")[:, :2], np.zeros(24, "u1")[::-1], np.zeros((12, 2), "u1", "F")):
        refused(Unsupported, "not contiguous", aos_to_soa, array, dtype=POINT)
    for other in ([1, 2], "text", None, 3):
        refused(Unsupported, "no contiguous buffer", aos_to_soa, other, dtype=POINT)


@pytest.mark.parametrize("most", [0, -1, -100, True, False, 2.0, "2", [2]])
def test_numbers_of_threads_that_are_none(most: Any) -> None:
    records, out = filled(POINT), filled(POINT)
    columns = aos_to_soa(records)
    refused(
        ValueError,
        "threads is a whole number",
        aos_to_soa,
        records,
        out=columns,
        threads=most,
        untouched=columns.values(),
    )
    refused(
        ValueError, "threads is a whole number", soa_to_aos, columns, out=out, threads=most, untouched=[out]
    )


@pytest.mark.parametrize("copy", [5, 0, 1, "no", np.zeros(2)], ids=str)
def test_answers_that_are_none(copy: Any) -> None:
    """0 and 1 too, which are equal to False and True, and not they."""
    records = filled(POINT)
    refused(ValueError, "copy is True, False or None", aos_to_soa, records, copy=copy)
    refused(ValueError, "copy is True, False or None", soa_to_aos, aos_to_soa(records), copy=copy)


def test_streams_are_for_devices() -> None:
    records = filled(POINT)
    refused(Unsupported, "no streams", aos_to_soa, records, stream=1)
    refused(Unsupported, "no streams", soa_to_aos, aos_to_soa(records), stream=1)


def test_columns_that_are_no_records() -> None:
    a, b = np.zeros(3), np.zeros(4)
    bad: list[tuple[Any, Any, str]] = [
        ([a], None, "a list is no mapping"),
        (a, None, "a ndarray is no mapping"),
        ({"a": a, "b": b}, None, "differ in length: 'a' has 3, 'b' has 4"),
        ({"a": a, "n": {"b": b}}, None, "'n.b' has 4"),
        ({"n.b": a, "n": {"b": b}}, None, "differ in length"),  # two names that read the same
        ({"a": a, "b": a[:0]}, None, "differ in length"),
        ({"a": 5.0}, None, "'a' is one value, and no column"),
        ({"a": a}, [("b", "f8")], "the fields are"),
        ({"a": a}, [("a", "f8"), ("b", "f8")], "the fields are"),
        ({"a": a, "b": a}, [("a", "f8")], "the fields are"),
        ({"n": {"a": a}}, [("n", "f8")], "the fields are"),
        ({"n": a}, [("n", [("a", "f8")])], "the fields are"),
        ({"a": a}, [("a", "f8", (2,))], r"'a' has the shape \(2,\), a row of its column \(\)"),
        ({"a": np.zeros((3, 2))}, [("a", "f8", (3,))], r"shape \(3,\), a row of its column \(2,\)"),
    ]
    for columns, dtype, match in bad:
        out = filled(POINT, 3)
        if dtype is not None:  # or it would be that of `out`
            refused(Unsupported, match, soa_to_aos, columns, dtype, untouched=[out], out=out)
        refused(Unsupported, match, soa_to_aos, columns, dtype)


def test_values_that_a_field_does_not_hold() -> None:
    """What NumPy calls a safe cast too, where values are past the reach."""
    lossy: list[tuple[Any, str]] = [
        (np.array([1]), "i4"), (np.array([1.5]), "f4"), (np.array([1j]), "f8"), (np.array([b"abc"]), "S2"),
        (np.array([-1], "i1"), "u8"), (np.array([2**53 + 1]), "f8"), (np.array([-(2**53) - 1]), ">f8"),
        (np.array([2**64 - 1], "u8"), "c16"), (np.array(["2300-01-01"], "M8[s]"), "M8[ns]"),
        (np.array([2**40], "m8[s]"), "m8[ns]"),
    ]  # fmt: skip
    for column, dtype in lossy:
        refused(
            zc.LossyConversionError,
            "'a' is .*, which does not hold",
            soa_to_aos,
            {"a": column},
            [("a", dtype)],
        )
    kept: list[tuple[Any, str]] = [
        (np.array([2**53, -(2**53)]), "f8"), (np.array([1, 255], "u1"), ">i2"),
        (np.array([1.5], "f4"), "c16"),
        (np.array(["NaT", "2262-01-01"], "M8[D]"), "M8[ns]"), (np.array(["2000"], "M8[Y]"), ">M8[s]"),
        (np.array([b"ab"]), "S5"), (np.array(["ab"]), ">U5"), (np.array([1, -2], ">i4"), "i8"),
        (np.zeros(0, "i8"), "f8"),
    ]  # fmt: skip
    for column, dtype in kept:
        made = soa_to_aos({"a": column}, [("a", dtype)])
        assert made.dtype["a"] == dtype
        assert made["a"].tolist() == column.astype(dtype).tolist()


def test_records_are_of_the_type_that_was_asked_for() -> None:
    """Types that are equal and not the same: numpy.record's, and those with metadata."""
    columns = aos_to_soa(filled(POINT))
    for dtype in (np.dtype((np.record, POINT)), POINT, np.dtype(POINT, metadata={"a": 1})):
        made = soa_to_aos(columns, dtype).dtype
        assert (made, made.type, made.metadata) == (dtype, dtype.type, dtype.metadata)
    swapped = soa_to_aos({"a": np.arange(3, dtype=">i2"), "b": [1.5, 2.5, 3.5]})
    assert swapped.dtype == np.dtype([("a", ">i2"), ("b", "f8")])
    assert swapped.tolist() == [(0, 1.5), (1, 2.5), (2, 3.5)]
    assert (
        soa_to_aos(columns, [("z", "f4"), ("x", "f4"), ("y", ">f8")])["y"].tolist() == columns["y"].tolist()
    )
