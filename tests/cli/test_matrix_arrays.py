"""Arrays in the matrix: outcomes, proofs, every kind of broken promise, and data files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.box_framework import Box, Boxes
from helpers.paths import ROOT
from helpers.versions import VERSIONED_CAPSULES

import zerocopy as zc
from zerocopy import registry
from zerocopy.cli import datasets
from zerocopy.device import Device
from zerocopy.errors import FrameworkNotInstalledError, Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.pairs import arrays, samples
from zerocopy.strided_view import StridedView


def cell(result: arrays.ArrayMatrix, source: str, target: str) -> arrays.ArrayCell:
    (match,) = [c for c in result.cells if (c.source, c.target) == (source, target)]
    return match


def grid(*names: str, data: np.ndarray | None = None) -> arrays.ArrayMatrix:
    return arrays.measure({"x": sample("float32") if data is None else data}, names, samples=1)


# -- kept promises ---------------------------------------------------------------------


def test_numpy_and_torch_alias_with_proof() -> None:
    pytest.importorskip("torch")
    result = arrays.measure(samples.iris().arrays, ["numpy", "torch"])
    assert [c.outcome for c in result.cells] == ["zero-copy"] * 4
    writes = ["write"] if VERSIONED_CAPSULES else []  # see _write_seen
    assert all(c.proof == ["shares_memory", "address", *writes] for c in result.cells)
    there = cell(result, "numpy", "torch")
    assert there.zero_copy
    assert (there.protocol, there.copied_bytes, there.dtype, there.shape) == (
        "buffer",
        0,
        "float32",
        (150, 4),
    )
    assert there.median_ns is not None
    assert 10 < there.median_ns < 10_000_000
    assert there.samples >= 3
    assert not result.broken


def test_refusal_is_not_a_broken_promise(add: Callable[[Framework], None]) -> None:
    class Narrow(Boxes):
        def copy_reasons(self, view: StridedView) -> list[Reason]:
            if view.dtype.name == "float64":
                raise UnsupportedConversionError("", "boxes are too small for float64", "cast it")
            return []

    add(Narrow())
    result = grid("numpy", "boxes", data=sample("float64"))
    reasons = [Reason("boxes are too small for float64", "cast it", code="unsupported")]
    assert not result.broken
    assert cell(result, "numpy", "boxes").outcome == "refused"
    assert cell(result, "numpy", "boxes").median_ns is None
    assert cell(result, "numpy", "boxes").reasons == reasons
    for target in ("numpy", "boxes"):
        assert cell(result, "boxes", target).outcome == "no source"
        assert cell(result, "boxes", target).reasons == reasons
    assert not grid("numpy", "boxes").broken


# -- broken promises --------------------------------------------------------------------


def _wrong(array: np.ndarray) -> Any:
    fresh = array.copy()
    fresh.flat[-1] += 1
    return Box(fresh)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda a: Box(a.copy()),
            "explain reports zero_copy=True, and the result is not all in the source's memory",
        ),
        (lambda a: Box(a.copy()), "copy=False copies"),
        (_wrong, "1 of 12 values differ"),
        (lambda a: Box(a.astype("f8")), "the dtype is float64, not float32"),
        (lambda a: Box(a.reshape(-1)), "the shape is (12,), not (4, 3)"),
        (lambda a: Box(a[::-1]), "values differ"),
        (lambda a: a, "the result is a ndarray, which is not a type of boxes"),
    ],
    ids=["copies", "copies-false", "value", "dtype", "shape", "reversed", "type"],
)
def test_wrong_results_are_reported(
    add: Callable[[Framework], None], make: Callable[[np.ndarray], Any], message: str
) -> None:
    class Broken(Boxes):
        def from_host(self, array: np.ndarray, dtype: Any, device: Device, stream: int | None) -> Any:
            return make(array)

    add(Broken())
    result = grid("numpy", "boxes")
    assert any(message in text for text in cell(result, "numpy", "boxes").broken)
    assert cell(result, "numpy", "boxes").outcome == "broken"
    assert cell(result, "numpy", "numpy").outcome == "zero-copy"


@pytest.mark.parametrize("where", ["copy_reasons", "source"])
def test_foreign_exceptions_are_reported(add: Callable[[Framework], None], where: str) -> None:
    def fail(*args: Any) -> Any:
        raise ZeroDivisionError("first line\nsecond line")

    add(type("Bomb", (Boxes,), {where: fail})())
    result = grid("numpy", "boxes")
    assert cell(result, "numpy", "boxes").broken == [
        "raises ZeroDivisionError instead of a ZeroCopyError: first line"
    ]
    # convert() turns an exception of source() into a ZeroCopyError (P9).
    assert cell(result, "boxes", "numpy").outcome == ("no source" if where == "source" else "broken")
    assert cell(result, "numpy", "numpy").outcome == "zero-copy"


def test_a_copy_that_the_framework_keeps_is_reported(add: Callable[[Framework], None]) -> None:
    """JAX 0.11.2 keeps the unpacked values of int4, and returned them for each call of numpy.asarray."""

    class Keeping(Boxes):
        def __init__(self) -> None:
            self.kept: dict[bytes, Box] = {}

        def copy_reasons(self, view: StridedView) -> list[Reason]:
            return [Reason("boxes are packed", "unpack them", code="packed")]

        def from_host(self, array: np.ndarray, dtype: Any, device: Device, stream: int | None) -> Any:
            return Box(self.kept.setdefault(array.tobytes(), Box(array.copy())).array[...])

    add(Keeping())
    assert cell(grid("numpy", "boxes"), "numpy", "boxes").broken == [
        "two calls copy, and return the same memory",
        "calls with copy=True return the same memory",
    ]


# -- frameworks that are not usable ---------------------------------------------------------------


def test_failing_and_absent_frameworks_are_listed(add: Callable[[Framework], None]) -> None:
    class Failing(Boxes):
        def module(self) -> Any:
            raise FrameworkNotInstalledError("", "importing it failed: no libgomp", "apt install it")

    class Absent(Boxes):
        name = "absent"

        def installed(self) -> bool:
            return False

    add(Failing())
    add(Absent())
    result = grid("numpy", "boxes", "absent")
    assert result.not_usable["boxes"].why == "importing it failed: no libgomp"
    assert result.not_installed == {"absent": "pip install boxes-for-arrays"}
    with pytest.raises(zc.errors.UnknownFrameworkError, match="did you mean 'numpy'"):
        grid("nunpy")


#: Arrow is the reference for columns and the format of some files; terminal.py sets TensorFlow's variables.
EXCEPTIONS = {"samples.py", "columns.py", "datasets.py", "terminal.py"}
FILES = sorted(p for part in ("cli", "pairs") for p in (ROOT / "zerocopy" / part).rglob("*.py"))


@pytest.mark.parametrize("path", [p for p in FILES if p.name not in EXCEPTIONS], ids=lambda path: path.stem)
def test_command_names_no_framework(path: Path) -> None:
    text = path.read_text().lower().replace("cli.datasets", "").replace("import datasets", "")
    text = re.sub(r"\bdatasets\.", "", text)  # the command's own module
    assert not [name for name in registry.frameworks() if name != "numpy" and name in text]


# -- data -----------------------------------------------------------------------------------


def test_numpy_files_become_arrays(tmp_path: Path) -> None:
    fortran = np.asfortranarray(sample(">i4", (5, 3)))
    np.save(tmp_path / "one.npy", fortran)
    one = datasets.read(tmp_path / "one.npy").arrays["one"]
    assert (one == fortran).all()
    assert one.dtype == np.dtype("i4")
    assert one.flags.c_contiguous
    assert one.ctypes.data % 64 == 0
    np.savez(tmp_path / "many.npz", a=np.arange(3), b=np.ones((2, 2), "f4"), text=np.array(["x"]))
    many = datasets.load(str(tmp_path / "many.npz"))
    assert {k: (v.dtype.name, v.shape) for k, v in many.arrays.items()} == {
        "a": ("int64", (3,)),
        "b": ("float32", (2, 2)),
    }
    assert many.left_out == {"text": "<U1 is not a numeric type"}
    np.savez(tmp_path / "some.npz", a=np.arange(3), objects=np.array([{}], object))
    some = datasets.read(tmp_path / "some.npz")
    assert list(some.arrays) == ["a"]
    assert "has Python objects" in some.left_out["objects"]


def test_csv_columns_become_arrays(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.csv"
    path.write_text('id,"name, full",score,gap\n1,ann,2.5,1\n2,bob,3,\n3,cy,4.5,4\n')
    data = datasets.read(path)
    assert data.arrays["id"].tolist() == [1, 2, 3]
    assert data.arrays["id"].dtype == np.int64
    assert data.arrays["score"].dtype == np.float64
    assert data.left_out == {
        "name, full": "not numeric: string",
        "gap": "1 of 3 values are null",
    }
    path.write_text("a,b\n1,2\n3,4\n")
    assert datasets.read(path).arrays["t"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("suffix", ["parquet", "feather", "arrow", "stream.arrow"])
def test_arrow_files_become_arrays(tmp_path: Path, suffix: str) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.feather
    import pyarrow.parquet

    path = tmp_path / f"t.{suffix}"

    def write(table: Any) -> None:
        if suffix == "parquet":
            pyarrow.parquet.write_table(table, path)
        elif suffix == "stream.arrow":
            with pa.ipc.new_stream(path, table.schema) as file:
                file.write_table(table)
        else:
            with pa.ipc.new_file(path, table.schema) as file:
                file.write_table(table)

    columns = {
        "i": pa.array([1, 2, 3], "int16"),
        "f": pa.array([1.0, float("nan"), 3.0]),
        "b": pa.array([True, False, True]),
        "s": pa.array(["a", "b", "c"]),
        "n": pa.array([1, None, 3]),
    }
    write(pa.table(columns))
    data = datasets.read(path)
    assert {k: v.dtype.name for k, v in data.arrays.items()} == {"i": "int16", "f": "float64", "b": "bool"}
    assert data.arrays["b"].tolist() == [True, False, True]
    assert data.left_out == {"s": "not numeric: string", "n": "1 of 3 values are null"}
    write(pa.table({"x": [1.0, 2.0], "y": [3.0, 4.0], "s": ["a", "b"]}))
    ((_, array),) = datasets.read(path).arrays.items()
    assert array.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    whole = path.read_bytes()
    for part in (whole[: len(whole) // 2], b"garbage" * 20, b""):
        path.write_bytes(part)
        with pytest.raises(datasets.DataError, match=r"raised Arrow|the file is empty"):
            datasets.read(path)


BAD = [
    ("absent.npy", lambda p: None, "no such file"),
    ("absent.parquet", lambda p: None, "no such file"),
    ("folder.npy", Path.mkdir, "it is a directory"),
    ("folder.csv", Path.mkdir, "it is a directory"),
    ("x.txt", lambda p: p.write_text("1"), "unknown suffix '.txt'"),
    ("x", lambda p: p.write_text("1"), "unknown suffix"),
    ("x.npy", lambda p: p.write_bytes(b""), "the file is empty"),
    ("x.npy", lambda p: p.write_bytes(b"hello there"), "it is not a .npy file"),
    ("x.npz", lambda p: p.write_bytes(b"PK\x03\x04 hello there"), "it is a zip archive without its end"),
    ("x.npz", lambda p: p.write_bytes(b"hello there"), "it is not a .npz file"),
    ("x.npy", lambda p: np.save(p, np.zeros(2, [("a", "i4")])), "structured"),
    ("x.npy", lambda p: np.save(p, np.array(["2020"], "M8[D]")), "not a numeric type"),
    ("x.csv", lambda p: p.write_text(""), "the file is empty"),
    ("x.csv", lambda p: p.write_text("a,b\n1,2\n3\n"), "Expected 2 columns, got 1"),
    ("x.npz", lambda p: np.savez(p, text=np.array(["x"])), "no array of numbers"),
    ("x.csv", lambda p: p.write_bytes("grö\n".encode("latin-1")), "'utf-8' codec can't decode byte 0xf6"),
]


@pytest.mark.parametrize(("name", "make", "message"), BAD, ids=[f"{n}-{m}" for n, _, m in BAD])
def test_bad_file_is_reported_in_one_line(
    tmp_path: Path, name: str, make: Callable[[Path], Any], message: str
) -> None:
    path = tmp_path / name
    if path.suffix in (".parquet", ".csv"):
        pytest.importorskip("pyarrow")
    make(path)
    with pytest.raises(datasets.DataError) as caught:
        datasets.load(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# -- all columns of a file --------------------------------------------------------------


def test_csv_keeps_its_columns(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.csv"
    path.write_text('id,name,day,score\n1,"a\nb",2020-01-02,1.5\n2,,2020-01-03,\n')
    data = datasets.read(path)
    assert list(data.arrays) == ["id"]
    assert {name: str(column.type) for name, column in data.columns.items()} == {
        "id": "int64",
        "name": "string",
        "day": "date32[day]",
        "score": "double",
    }
    assert data.columns["name"].to_pylist() == ["a\nb", ""]
    assert data.columns["score"].to_pylist() == [1.5, None]
    path.write_text("a,b\nx,y\n")
    only = datasets.read(path)
    assert only.arrays == {}
    assert only.columns["b"].to_pylist() == ["y"]
