"""Streams whose arrays violate their schema are refused before a framework reads them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from helpers.table_cases import TABLES

import zerocopy as zc

pa = pytest.importorskip("pyarrow")

from helpers.hostile.arrow_structs import StreamExporter, Structs, stream  # noqa: E402 - imports pyarrow's C structs

from zerocopy.protocols.arrow_c import ArrowArray, ArrowArrayStream  # noqa: E402
from zerocopy.protocols.arrow_schema import pointer  # noqa: E402

TARGETS = [*(name for name in TABLES if name not in ("cudf", "pylibcudf")), "numpy", "torch"]


def exporter(change: Callable[[Any], None], batches: int = 2) -> StreamExporter:
    """Return a stream of structs whose arrays are changed."""

    def make() -> Structs:
        structs = Structs(pa.array([{"x": 1}, {"x": None}, {"x": 3}]))
        change(structs.array)
        return structs

    # The first seed whose stream has working callbacks.
    seed = next(i for i in range(100) if not stream(Random(i), make, 0)[1])
    return StreamExporter(lambda: stream(Random(seed), make, batches)[0])


def child(array: Any) -> Any:
    return array.children[0].contents


def null_children(array: Any) -> None:
    array.children = ctypes.POINTER(ctypes.POINTER(ArrowArray))()


WRONG = {
    "children": null_children,
    "child count": lambda array: setattr(array, "n_children", 0),
    "length": lambda array: setattr(array, "length", 2**40),
    "child length": lambda array: setattr(child(array), "length", 2),
    "negative length": lambda array: setattr(child(array), "length", -1),
    "buffers": lambda array: setattr(child(array), "buffers", ctypes.POINTER(ctypes.c_void_p)()),
    "buffer": lambda array: child(array).buffers.__setitem__(1, None),
    "bitmap": lambda array: child(array).buffers.__setitem__(0, None),
    "buffer count": lambda array: setattr(child(array), "n_buffers", 7),
    "released child": lambda array: setattr(child(array), "release", None),
    "null count": lambda array: setattr(child(array), "null_count", 9),
}


@pytest.mark.hazard("pyarrow#streams-of-invalid-arrays")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_stream_with_a_wrong_array_is_refused(change: Callable[[Any], None], target: str) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(exporter(change), to=target)
    assert caught.value.code == "invalid-producer"
    assert "__arrow_c_stream__" in str(caught.value)


@pytest.mark.parametrize("target", ["pyarrow", "polars", "pandas"])
def test_valid_stream_is_read_through_the_check(target: str) -> None:
    result = zc.convert(exporter(lambda array: None), to=target)
    assert zc.convert(result, "pyarrow").to_pydict()["x"] == pytest.approx([1, None, 3] * 2, nan_ok=True)


@pytest.mark.hazard("pyarrow#streams-of-invalid-arrays")
def test_stream_without_functions_is_refused() -> None:
    kept = []
    for name in ("get_schema", "get_next"):
        source = exporter(lambda array: None)
        capsule = source.make()
        setattr(ArrowArrayStream.from_address(pointer(capsule, b"arrow_array_stream")), name, None)
        kept.append(capsule)
        with pytest.raises(zc.UnsupportedConversionError, match="NULL"):
            zc.convert(StreamExporter(lambda capsule=capsule: capsule), to="numpy")


@pytest.mark.hazard("pyarrow#streams-of-invalid-arrays")
@pytest.mark.parametrize("target", TARGETS)
def test_stream_without_a_function_for_its_error_message_is_refused(target: str) -> None:
    source = exporter(WRONG["negative length"])
    capsule = source.make()
    ArrowArrayStream.from_address(pointer(capsule, b"arrow_array_stream")).get_last_error = None
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(StreamExporter(lambda: capsule), to=target)
    assert caught.value.code == "invalid-producer"
