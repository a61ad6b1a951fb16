"""The caller's ``out=``: memory that fits is written, and memory that does not is left unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.arrays import bits
from helpers.records import POINT, TREE, at, by_path, filled, refused
from numpy.lib.stride_tricks import as_strided

import zerocopy as zc
from zerocopy import aos_to_soa, soa_to_aos

Unsupported = zc.UnsupportedConversionError


def test_aos_to_soa_writes_to_out() -> None:
    records = filled(TREE, 3000)
    expected = aos_to_soa(records)
    out = {
        "id": np.zeros(3000, "i8"),
        "at": {"x": np.zeros((3000, 2), "f4")[:, 1], "y": np.zeros(3000, "f4")},
        "v": np.zeros((3000, 2)),
        "name": np.zeros(3000, "S3"),
    }
    result = aos_to_soa(records, out=out)
    for path, column in by_path(expected):
        assert at(result, path) is at(out, path)
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


def test_interleaved_out_is_allowed_if_it_does_not_overlap() -> None:
    """The columns of a row-major matrix, and every other record."""
    records = filled(POINT, 3000)
    rows = np.empty((3000, 3), "f4")
    aos_to_soa(records, out={name: rows[:, i] for i, name in enumerate("xyz")})
    assert rows.tobytes() == records.tobytes()
    pairs = np.zeros((3000, 2), POINT)
    columns = {name: np.ascontiguousarray(records[name]) for name in "xyz"}
    assert soa_to_aos(columns, out=pairs[:, 1]).tobytes() == records.tobytes()
    assert not pairs[:, 0].view("V12").tobytes().strip(b"\0")


def test_aos_to_soa_leaves_unsuitable_out_unchanged() -> None:
    records = filled(TREE, 100)
    good = aos_to_soa(records)
    memory = filled("u1", 4000)
    eights, ids = memory.view("i8"), good["id"]
    frozen = np.zeros(100, "i8")
    frozen.flags.writeable = False
    cases: list[tuple[Any, str]] = [
        ({**good, "id": np.zeros(99, "i8")}, r"out\['id'\] has the shape \(99,\), not \(100,\)"),
        ({**good, "id": np.zeros(101, "i8")}, "has the shape"),
        ({**good, "v": np.zeros((2, 100))}, r"\(2, 100\), not \(100, 2\)"),
        ({**good, "id": np.zeros(100, "u8")}, "has the dtype uint64, not int64"),
        ({**good, "id": np.zeros(100, ">i8")}, "has the dtype >i8, not int64"),
        ({**good, "at": {**good["at"], "y": np.zeros(100, "f8")}}, r"out\['at.y'\] has the dtype float64"),
        ({**good, "id": frozen}, "is read-only"),
        ({**good, "id": [0] * 100}, "is a list, not a NumPy array"),
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
        ({**good, "w": np.zeros(100)}, "out has 'w', which is not a field of the records"),
        ({**good, "at": {**good["at"], "z": ids}}, "out has 'at.z'"),
        ({**good, "at": ids}, "out has no column 'at.x'"),
        ({name: column for name, column in good.items() if name != "v"}, "out has no column 'v'"),
        ([ids], "out is a list"),
        (np.zeros((4, 100)), "not all of one type"),
    ]
    for out, match in cases:
        arrays = dict(by_path(out)).values() if isinstance(out, dict) else out
        untouched = [records, memory, *(column for column in arrays if isinstance(column, np.ndarray))]
        assert refused(Unsupported, match, aos_to_soa, records, out=out, untouched=untouched).remedy
    arrays = dict(by_path(good)).values()
    refused(
        zc.CopyRequiredError,
        "out= requests a copy",
        aos_to_soa,
        records,
        out=good,
        copy=False,
        untouched=arrays,
    )
    points = filled(POINT, 100)
    for matrix in (memory[:800].view("f4").reshape(2, 100), memory[:1200].view("i4").reshape(3, 100)):
        refused(Unsupported, "^[^:]*: out", aos_to_soa, points, out=matrix, untouched=[memory])
    overlapping = points.view("f4").reshape(3, 100)
    refused(Unsupported, "overlap", aos_to_soa, points, out=overlapping, untouched=[points])


def test_soa_to_aos_leaves_unsuitable_out_unchanged() -> None:
    memory = filled(POINT, 300)
    columns = {name: np.arange(100, dtype="f4") for name in "xyz"}
    frozen = memory[:100]
    frozen.flags.writeable = False
    cases: list[tuple[dict[str, Any], Any, str]] = [
        (columns, memory[:99], r"out has the shape \(99,\), not \(100,\)"),
        (columns, memory[:200].reshape(2, 100), "has the shape"),
        (columns, memory[:100].view([("x", "f4"), ("y", "f4"), ("w", "f4")]), "the fields are"),
        (columns, memory[:100].view("f4").reshape(100, 3), "out has the dtype float32"),
        (columns, frozen, "read-only"),
        (columns, [None] * 100, "is a list"),
        (columns, as_strided(memory, (100,), (8,)), "overlaps with itself"),
        ({**columns, "y": memory["y"][100:200]}, memory[50:150], "overlap"),
        (aos_to_soa(memory[:100], copy=False), memory[:100], "overlap"),
    ]
    for sources, out, match in cases:
        refused(Unsupported, match, soa_to_aos, sources, out=out, untouched=[memory])
    refused(
        zc.CopyRequiredError, "out= requests a copy", soa_to_aos, columns, out=memory[:100], copy=False,
        untouched=[memory],
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["<f8", ">f8", "<i4"])
def test_out_determines_the_dtype_of_records(kind: str) -> None:
    out = np.zeros(50, np.dtype([("b", "i1"), ("a", kind)], align=True))
    columns = {"a": np.arange(50, dtype="i4"), "b": np.ones(50, "i1")}
    assert soa_to_aos(columns, out=out) is out
    assert out["a"].tolist() == list(range(50))
    assert out["b"].tolist() == [1] * 50
