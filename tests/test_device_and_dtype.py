"""Devices, streams and data types; examples in docstrings."""

from __future__ import annotations

import ctypes
import doctest
import importlib
import pkgutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import zerocopy
from zerocopy import dtype as dtypes
from zerocopy.device import (
    CPU,
    CUDA,
    CUDA_HOST,
    CUDA_MANAGED,
    Device,
    parse_device,
    parse_stream,
    same_memory_space,
)
from zerocopy.errors import DeviceError


@pytest.mark.parametrize(
    ("spec", "device"),
    [
        ("cpu", (CPU, 0)),
        ("CUDA", (CUDA, 0)),
        ("cuda:1", (CUDA, 1)),
        ("gpu:2", (CUDA, 2)),
        ((2, 3), (CUDA, 3)),
        ("oneapi", (14, 0)),  # a number of dlpack.h
        (Device(1, 0), (CPU, 0)),
        (object(), None),
        ((1, 2, 3), None),
    ],
)
def test_device_specs_are_parsed(spec: object, device: tuple | None) -> None:
    assert parse_device(spec) == device


def test_gpu_of_apple_is_refused_with_the_call_that_reaches_it() -> None:
    with pytest.raises(
        DeviceError, match=r"Apple's GPU is not a device of convert[^$]*result\.to\('mps:0'\)"
    ):
        parse_device("mps:0")


def test_devices_with_the_same_memory_are_recognised() -> None:
    assert same_memory_space(Device(CPU), Device(CUDA_HOST, 3))
    assert same_memory_space(Device(CUDA, 1), Device(CUDA_MANAGED, 1))
    assert not same_memory_space(Device(CUDA, 1), Device(CUDA, 0))
    assert not same_memory_space(Device(CUDA), Device(CPU))
    assert str(Device(CUDA, 1)) == "cuda:1"
    assert str(Device(99, 1)) == "dlpack99:1"


@pytest.mark.parametrize(
    ("stream", "number"),
    [
        (None, None),
        (1, 1),
        (2, 2),
        (-1, -1),
        (0xBEEF, 0xBEEF),
        (SimpleNamespace(cuda_stream=0), 1),
        (SimpleNamespace(cuda_stream=7), 7),
        (SimpleNamespace(ptr=0), 1),
        (SimpleNamespace(handle=ctypes.c_void_p(9)), 9),
    ],
)
def test_streams_are_parsed(stream: object, number: int | None) -> None:
    assert parse_stream(stream) == number


def test_objects_with_cuda_stream_are_parsed() -> None:
    class Stream:
        def __cuda_stream__(self):
            return (0, 42)

    class Newer:
        def __cuda_stream__(self):
            return (1, 42)

    assert parse_stream(Stream()) == 42
    with pytest.raises(DeviceError, match="version 1"):
        parse_stream(Newer())


def test_dtypes_are_one_object_each() -> None:
    assert len({t.name for t in dtypes.ALL}) == len(dtypes.ALL)
    assert len({(t.code, t.bits, t.lanes) for t in dtypes.ALL}) == len(dtypes.ALL)
    for t in dtypes.ALL:
        assert dtypes.by_name(t.name) is t
        assert dtypes.by_dlpack(t.code, t.bits, t.lanes) is t
        native = dtypes.to_numpy(t)
        assert native is None or dtypes.from_numpy(native) is t
        assert native is None or native.itemsize == t.itemsize == t.storage.itemsize


def test_numpy_dtypes_without_counterpart_are_none() -> None:
    for dtype in (">f4", "M8[s]", "U3", "O", "V4", "g", [("a", "f4")]):
        assert dtypes.from_numpy(np.dtype(dtype)) is None
    assert dtypes.by_dlpack(0, 24, 1) is None


MODULES = [
    m.name
    for m in pkgutil.walk_packages(zerocopy.__path__, "zerocopy.")
    if not m.name.endswith("__main__") and ".data" not in m.name
]


@pytest.mark.parametrize("name", ["zerocopy", *MODULES])
def test_docstring_examples_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(name)
    if name == "zerocopy.plan":
        pytest.importorskip("polars")
    if b">>>" in Path(module.__file__).read_bytes():
        result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
        assert result.failed == 0, capsys.readouterr().out


def test_examples_of_convert_run() -> None:
    finder = doctest.DocTestFinder()
    runner = doctest.DocTestRunner()
    examples = finder.find(zerocopy.convert, "convert", globs={})
    assert any(test.examples for test in examples)
    for test in examples:
        assert runner.run(test).failed == 0
