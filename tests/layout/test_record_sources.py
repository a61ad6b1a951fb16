"""Inputs accepted as records: subclasses, files, buffers with a dtype, masked arrays, selected fields."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.records import POINT, TREE, agree, by_path, filled, refused

import zerocopy as zc
from zerocopy import aos_to_soa, soa_to_aos

Unsupported = zc.UnsupportedConversionError


def test_recarrays_and_memmaps_are_records(tmp_path: Path) -> None:
    records = filled(TREE, 3000)
    path = tmp_path / "records.bin"
    records.tofile(path)
    mapped = np.memmap(path, TREE, "r")
    for source in (records.view(np.recarray), np.rec.array(records), mapped):
        columns = aos_to_soa(source)
        assert agree(records, columns)
        assert all(type(column) is np.ndarray for _, column in by_path(columns))
        assert all(column.flags.writeable for _, column in by_path(columns))
    views = aos_to_soa(mapped, copy=False)
    assert np.shares_memory(views["id"], mapped)
    assert not views["id"].flags.writeable
    back = soa_to_aos(views, TREE, copy=False)
    assert np.shares_memory(back, mapped)
    assert not back.flags.writeable


def test_buffers_with_a_dtype_are_records(tmp_path: Path) -> None:
    records = filled(TREE, 3000)
    raw = records.tobytes()
    anonymous = mmap.mmap(-1, len(raw))
    anonymous[:] = raw
    matrix = np.frombuffer(raw, np.uint8).reshape(3000, TREE.itemsize)
    unaligned = memoryview(b"." + raw)[1:]
    shaped = memoryview(raw).cast("B", (3000, TREE.itemsize))
    for buffer_like in (
        raw,
        bytearray(raw),
        memoryview(raw),
        unaligned,
        anonymous,
        matrix,
        matrix.reshape(-1),
        shaped,
        records,
    ):
        columns = aos_to_soa(buffer_like, dtype=TREE)
        assert columns["id"].shape == (3000,)
        assert agree(records, columns)
        assert agree(records, aos_to_soa(buffer_like, dtype=list(TREE.descr), fields=["name", "id"]))
    assert aos_to_soa(b"", dtype=TREE)["v"].shape == (0, 2)
    buffer = bytearray(raw)
    aos_to_soa(buffer, dtype=TREE, copy=False)["id"][0] = 77
    assert np.frombuffer(buffer, TREE)["id"][0] == 77
    assert not aos_to_soa(raw, dtype=TREE, copy=False)["id"].flags.writeable


def test_masked_values_are_refused() -> None:
    records = filled(TREE)
    unmasked = np.ma.masked_array(records)
    assert agree(records, aos_to_soa(unmasked))
    masked = np.ma.masked_array(records, mask=np.zeros(6, np.ma.make_mask_descr(TREE)))
    assert agree(records, aos_to_soa(masked))
    masked["at"]["y"][3] = np.ma.masked
    refused(zc.LossyConversionError, "some values are masked", aos_to_soa, masked)
    refused(zc.LossyConversionError, "some values are masked", aos_to_soa, masked[3])
    column = np.ma.masked_array([1, 2, 3], [False, True, False])
    refused(zc.LossyConversionError, "column 'a' are masked", soa_to_aos, {"a": column})
    refused(zc.LossyConversionError, "column 'b' are masked", soa_to_aos, {"a": {"b": column}})
    assert soa_to_aos({"a": np.ma.masked_array([1, 2])}).tolist() == [(1,), (2,)]


def test_dtype_is_refused_for_arrays_that_have_another() -> None:
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


def test_fields_are_selected_in_the_given_order() -> None:
    records = filled(TREE, 3000)
    selections = (
        ["v", "id"],
        ("at",),
        [],
        dict.fromkeys(["name", "at"]),
        (name for name in ("name", "id")),
        ["id", "id"],
    )
    for fields, expected in zip(
        selections, (["v", "id"], ["at"], [], ["name", "at"], ["name", "id"], ["id"]), strict=True
    ):
        columns = aos_to_soa(records, fields=fields)
        assert list(columns) == expected
        assert agree(records, columns)
    objects = np.zeros(3, [("x", "f4"), ("o", object)])
    assert list(aos_to_soa(objects, fields=["x"])) == ["x"]


def test_unknown_fields_are_refused_with_suggestions() -> None:
    records = np.zeros(3, [("position", "f4"), ("velocity", "f4"), (("Mass", "m"), "f4")])
    error = refused(Unsupported, "no field 'velocty'", aos_to_soa, records, fields=["m", "velocty"])
    assert error.remedy == "did you mean 'velocity'?"
    for name in ("", "Mass", "position.x", 3, None):
        refused(Unsupported, "the records have no field", aos_to_soa, records, fields=[name])
    refused(ValueError, "fields must be a list of names, not 'm'", aos_to_soa, records, fields="m")


@pytest.mark.parametrize(
    "source",
    [np.zeros(3), np.float64(1), [(1, 2)], {"x": np.zeros(3)}, None, "text", b"bytes", np.void(b"abc")],
    ids=type,
)
def test_objects_without_fields_are_refused(source: Any) -> None:
    error = refused(Unsupported, "has no fields", aos_to_soa, source)
    assert "dtype=" in error.remedy


def test_buffers_that_do_not_fit_the_dtype_are_refused() -> None:
    for dtype in ("f4", np.dtype("V12"), ("f4", (3,))):
        refused(Unsupported, "has no fields", aos_to_soa, bytes(12), dtype=dtype)
        refused(Unsupported, "has no fields", soa_to_aos, {"x": np.zeros(3)}, dtype)
    for size in (1, 11, 13):
        refused(
            Unsupported,
            f"{size} bytes are not a whole number",
            aos_to_soa,
            bytes(size),
            dtype=POINT,
        )
    refused(Unsupported, "not a whole number", aos_to_soa, bytes(12), dtype=[])
    sliced = memoryview(bytes(48))[::2]
    refused(Unsupported, "is not a contiguous buffer", aos_to_soa, sliced, dtype=POINT)
    for array in (np.zeros((12, 4), "u1")[:, :2], np.zeros(24, "u1")[::-1], np.zeros((12, 2), "u1", "F")):
        refused(Unsupported, "not contiguous", aos_to_soa, array, dtype=POINT)
    for other in ([1, 2], "text", None, 3):
        refused(Unsupported, "is not a contiguous buffer", aos_to_soa, other, dtype=POINT)
