"""Which results alias their source, and which conversions need a copy."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
from helpers.arrays import bits
from helpers.records import POINT, TREE, at, by_path, filled, refused

import zerocopy as zc
from zerocopy import aos_to_soa, soa_to_aos


def test_copy_false_returns_views() -> None:
    records = filled(TREE)
    for source in (records, records[::2], records[::-1], np.broadcast_to(records[0], (5,))):
        columns = aos_to_soa(source, copy=False)
        for path, column in by_path(columns):
            assert np.shares_memory(column, records)
            assert column.strides[0] == source.strides[0]
            assert column.flags.writeable == source.flags.writeable
            assert bits(column) == bits(at(source, path))
    views = aos_to_soa(records, copy=False)
    views["at"]["y"][1] = 42
    records["v"][2] = 43
    assert records["at"]["y"][1] == 42
    assert views["v"][2].tolist() == [43, 43]
    assert list(aos_to_soa(records, fields=["v", "id"], copy=False)) == ["v", "id"]


def test_swapped_fields_need_a_copy() -> None:
    records = np.zeros(4, [("a", "f4"), ("in", [("b", ">i2"), ("c", "u1")])])
    error = refused(
        zc.CopyRequiredError, "'in.b' is not in native byte order", aos_to_soa, records, copy=False
    )
    assert "copy=False" in error.remedy
    assert np.shares_memory(aos_to_soa(records, fields=["a"], copy=False)["a"], records)


def test_views_of_fields_convert_back_without_a_copy() -> None:
    records = filled(TREE, 8)
    recarray = np.recarray(8, TREE)
    padded = filled(np.dtype([("a", "u1"), ("b", "f8")], align=True), 8)
    for source in (records, records[::2], records[3:5], records[:1], recarray, padded, padded[1:]):
        back = soa_to_aos(aos_to_soa(source, copy=False), source.dtype, copy=False)
        assert back.ctypes.data == source.ctypes.data
        assert (back.dtype, back.shape, back.strides) == (source.dtype, source.shape, source.strides)
        assert np.shares_memory(soa_to_aos(aos_to_soa(source, copy=False), source.dtype), source)
        assert not np.shares_memory(
            soa_to_aos(aos_to_soa(source, copy=False), source.dtype, copy=True), source
        )
    matrix = np.arange(12.0).reshape(4, 3)
    rows = soa_to_aos({"a": matrix[:, 0], "b": matrix[:, 1]}, copy=False)
    rows["b"][2] = 99
    assert (rows.dtype, matrix[2, 1]) == (np.dtype([("a", "f8"), ("b", "f8")]), 99)
    frozen = matrix[:, 1]
    frozen.flags.writeable = False
    assert not soa_to_aos({"a": matrix[:, 0], "b": frozen}, copy=False).flags.writeable


def test_views_keep_the_records_alive() -> None:
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


def test_columns_of_no_existing_records_need_a_copy() -> None:
    records = filled(POINT)
    views = aos_to_soa(records, copy=False)
    matrix = np.arange(12.0).reshape(4, 3)
    swapped = POINT.newbyteorder()
    objects = np.zeros(3, [("x", "f4"), ("o", object)])
    cases: list[tuple[Any, Any]] = [
        (aos_to_soa(records), None),  # columns
        ({"y": views["y"], "x": views["x"], "z": views["z"]}, None),  # another order
        ({name: view[::-1] for name, view in views.items()}, None),
        ({**views, "z": views["z"].copy()}, None),
        ({**views, "z": views["x"]}, None),  # one field twice
        (views, swapped),
        (views, [("x", "f8"), ("y", "f4"), ("z", "f4")]),
        # The padding after the last field would end past the array.
        ({"a": matrix[1:, 2]}, np.dtype({"names": ["a"], "formats": ["f8"], "itemsize": 24})),
        ({"x": objects["x"]}, None),
    ]
    for columns, dtype in cases:
        refused(
            zc.CopyRequiredError, "not the fields of existing records", soa_to_aos, columns, dtype, copy=False
        )
        copied = soa_to_aos(columns, dtype)
        for name, column in columns.items():
            assert not np.shares_memory(copied, column)
            assert np.array_equal(copied[name], column)


def test_records_of_one_field_are_aliased() -> None:
    one = filled([("x", "f4")], 16)
    nested = filled([("a", [("b", "f4", (2,))])], 16)
    assert np.shares_memory(aos_to_soa(one)["x"], one)
    assert np.shares_memory(aos_to_soa(nested)["a"]["b"], nested)
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


def test_empty_data_needs_no_copy() -> None:
    records = np.zeros(0, TREE)
    views = aos_to_soa(records, copy=False)
    assert soa_to_aos(views, TREE, copy=False).shape == (0,)
    assert soa_to_aos({"a": np.zeros(3, "S0")}, copy=False).shape == (3,)
