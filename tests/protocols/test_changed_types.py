"""A class that gains, loses or replaces a protocol after its first conversion, as patches at run time do."""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.versions import numpy_capsule

import zerocopy as zc
from zerocopy._native import core

pa = pytest.importorskip("pyarrow")

OPTIONS: list[dict[str, Any]] = [{}, {"copy": False}, {"copy": True}, {"writable": True}]
#: Values by what exports them: results show which protocol was read.
VALUES = {name: np.arange(i, i + 3, dtype="f4") for i, name in enumerate("abcdefghi")}


def dlpack_of(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {
        "__dlpack__": lambda self, **options: numpy_capsule(array, **options),
        "__dlpack_device__": lambda self: (1, 0),
    }


#: The attributes of each protocol. "other DLPack" replaces DLPack's methods.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "DLPack": dlpack_of(VALUES["a"]),
    "other DLPack": dlpack_of(VALUES["b"]),
    "array interface": {"__array_interface__": property(lambda self: VALUES["c"].__array_interface__)},
    "CUDA array interface": {
        "__cuda_array_interface__": property(lambda self: VALUES["d"].__array_interface__)
    },
    "Arrow array": {
        "__arrow_c_array__": lambda self, schema=None: pa.array(VALUES["e"]).__arrow_c_array__(schema)
    },
    "Arrow stream": {
        "__arrow_c_stream__": lambda self, schema=None: pa.chunked_array(
            [pa.array(VALUES["f"])]
        ).__arrow_c_stream__(schema)
    },
    "handle": {"__zerocopy_open__": lambda self, target: VALUES["g"]},
    "__array__": {
        "__array__": lambda self, dtype=None, copy=None: VALUES["h"].copy(),
        "shape": (3,),
        "dtype": np.dtype("f4"),
        "ndim": 1,
    },
}
if sys.version_info >= (3, 12):
    PROTOCOLS["buffer"] = {"__buffer__": lambda self, flags: memoryview(VALUES["i"])}

#: What a class is before it changes. The last two have a buffer from C, and no attributes of instances.
BEFORE = ["DLPack", "array interface", "Arrow array", "__array__", "bytearray", "ctypes"]


def new_class(before: str, *protocols: str) -> type:
    """Return a class with the protocol `before` and others."""
    attributes: dict[str, Any] = {}
    if before == "bytearray":
        base: type = bytearray
    elif before == "ctypes":
        base, attributes = ctypes.Array, {"_type_": ctypes.c_int16, "_length_": 4}
    else:
        base, protocols = object, (before, *protocols)
    slots = {"__slots__": ()} if base is bytearray else {}
    cls = type("Changing", (base,), attributes | slots)
    for name in protocols:
        add(cls, name)
    return cls


def add(cls: type, protocol: str) -> None:
    for name, value in PROTOCOLS[protocol].items():
        setattr(cls, name, value)


def remove(cls: type, protocol: str) -> None:
    for name in PROTOCOLS[protocol]:
        if name in vars(cls):
            delattr(cls, name)


def new_object(cls: type) -> Any:
    return cls(b"\x01\x02\x03\x04") if issubclass(cls, bytearray) else cls()


def outcome(call: Callable[[], Any]) -> Any:
    """Return a result's values, or the code of the error."""
    try:
        result = call()
    except zc.ZeroCopyError as error:
        return type(error).__name__, error.code
    values = zc.convert(result, "numpy")
    return type(result), values.dtype, values.tolist()


def outcomes(cls: type, to: str) -> list[Any]:
    """Return what each call makes of an object: `convert` twice, with options, in a list, and `explain`."""
    obj, converted = new_object(cls), outcome(lambda: zc.converter(cls, to)(new_object(cls)))
    results = [outcome(lambda options=options: zc.convert(obj, to, **options)) for options in OPTIONS * 2]
    leaf = outcome(lambda: zc.convert([obj], to)[0])
    try:
        plan = zc.explain(obj, to)
        explained: Any = plan.zero_copy, plan.protocol
    except zc.ZeroCopyError as error:
        explained = error.code
    return [*results, leaf, converted, explained]


@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize("change", PROTOCOLS)
@pytest.mark.parametrize("before", BEFORE)
def test_a_class_that_gains_a_protocol_is_read_by_it(before: str, change: str, to: str) -> None:
    pytest.importorskip(to)
    cls = new_class(before)
    outcomes(cls, to)
    add(cls, change)
    assert outcomes(cls, to) == outcomes(new_class(before, change), to)


@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize("other", ["array interface", "Arrow array", "__array__", "bytearray", "ctypes"])
@pytest.mark.parametrize("lost", ["DLPack", "array interface", "CUDA array interface", "handle"])
def test_a_class_that_loses_a_protocol_is_read_by_the_others(lost: str, other: str, to: str) -> None:
    pytest.importorskip(to)
    cls = new_class(other, lost)
    outcomes(cls, to)
    remove(cls, lost)
    expected = new_class(other)
    if lost == other:
        remove(expected, lost)
    assert outcomes(cls, to) == outcomes(expected, to)


def test_the_base_of_a_class_changes() -> None:
    base = new_class("array interface")
    cls = type("Derived", (base,), {})
    outcomes(cls, "numpy")
    add(base, "DLPack")
    assert zc.convert(cls(), "numpy").tolist() == VALUES["a"].tolist()


@pytest.mark.parametrize("seed", range(6))
def test_protocols_come_and_go(seed: int) -> None:
    print("seed", seed)
    draw = random.Random(seed)
    before = BEFORE[seed % len(BEFORE)]
    names = [name for name in PROTOCOLS if name not in (before, "other DLPack")]
    cls, present = new_class(before), set[str]()
    for _ in range(12):
        name = draw.choice(names)
        (remove if name in present else add)(cls, name)
        present ^= {name}
        if draw.random() < 0.7:
            assert outcomes(cls, "numpy") == outcomes(new_class(before, *present), "numpy"), present


@pytest.mark.skipif(core is None, reason="needs the compiled core")
def test_other_attributes_of_a_class_do_not_end_its_route() -> None:
    cls = new_class("bytearray")
    obj = new_object(cls)
    zc.convert(obj, "numpy")
    route = core.Routes("numpy")[cls]
    for name in ("count", "__repr__", "data"):
        setattr(cls, name, lambda self: "")
        assert route(obj).tolist() == [1, 2, 3, 4]
    add(cls, "DLPack")
    zc.convert(obj, "numpy")
    remove(cls, "DLPack")
    assert zc.convert(obj, "numpy").tolist() == [1, 2, 3, 4]
