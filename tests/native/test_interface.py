"""The compiled exporter of NumPy's array interface gives the slow path's results, or leaves objects to it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from helpers.option_cases import outcome

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine import routes
from zerocopy._native import core

if core is None:
    pytest.skip("needs the compiled core", allow_module_level=True)

BLOCK = np.arange(512, dtype="u1")
START = BLOCK.ctypes.data + -BLOCK.ctypes.data % 64 + 256  # negative strides stay in the block too
PLAIN: dict[str, Any] = {"shape": (2, 3), "typestr": "<f4", "data": (START, False), "version": 3}


class Producer:
    def __init__(self, interface: Any) -> None:
        self.__array_interface__ = interface
        self.block = BLOCK


#: Changes of the interface that the exporter takes.
TAKEN: list[dict[str, Any]] = [
    {},
    {"strides": None},
    {"strides": (12, 4)},
    {"strides": (4, 8)},
    {"strides": (0, 4)},
    {"shape": ()},
    {"shape": (1, 3), "strides": (-7, 8)},
    {"data": (START, True)},
    {"data": (START + 4, False)},
    {"descr": [("", "<f4")]},
    *({"typestr": text} for text in ("<i2", "<u8", "|i1", "|u1", "<f2", "<f8", "<c8", "<c16")),
]
#: Changes with which the exporter leaves the interface to the slow path.
LEFT: list[dict[str, Any]] = [
    {"shape": [2, 3]},
    {"shape": (np.int64(2), 3)},
    {"shape": (True, 3)},
    {"shape": (0, 3)},
    {"shape": (-1, 3)},
    {"shape": (1,) * 65},
    {"shape": (1 << 62, 1 << 62)},
    {"shape": (1 << 70,)},
    {"shape": None},
    {"strides": (12,)},
    {"strides": (-12, 4)},
    {"strides": (13, 4)},
    {"strides": (1 << 61, 4)},
    {"strides": [12, 4]},
    {"typestr": ">f4"},
    {"typestr": "|b1"},
    {"typestr": "|V4"},
    {"typestr": "<M8[s]"},
    {"typestr": "<f16"},
    {"typestr": "<c4"},
    {"typestr": "<i16"},
    {"typestr": "|f4"},
    {"typestr": "=f4"},
    {"typestr": "<f\u0664"},
    {"typestr": b"<f4"},
    {"typestr": None},
    {"data": (0, False)},
    {"data": (-1, False)},
    {"data": (1 << 70, False)},
    {"data": ((1 << 64) - 8, False)},
    {"data": (START + 1, False)},
    {"data": (START, 0)},
    {"data": (START,)},
    {"data": BLOCK.data},
    {"data": None},
    {"mask": BLOCK},
    {"offset": 4},
]


def route_to(target: str) -> Any:
    framework = registry.by_name(target)
    framework.module()
    return core.MemoryRoute(
        core.InterfaceExporter(),
        framework.fast_importers()["native"],
        framework.mutable,
        framework.marks_readonly,
    )


@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize("change", TAKEN)
def test_the_result_is_that_of_the_slow_path(change: dict[str, Any], to: str) -> None:
    pytest.importorskip(to)
    producer = Producer({**PLAIN, **change})
    routes.clear()
    cold = outcome(producer, to, {})
    assert outcome(producer, to, {}, lambda x, to: route_to(to)(x)) == cold
    assert outcome(producer, to, {}) == cold


@pytest.mark.parametrize("change", LEFT)
def test_other_objects_are_left_to_the_slow_path(change: dict[str, Any]) -> None:
    producer = Producer({**PLAIN, **change})
    if change.get("data", (START,)) is None:
        producer.__array_interface__.pop("data")
    with pytest.raises((BufferError, OverflowError)):
        route_to("numpy")(producer)
    routes.clear()
    cold = outcome(producer, "numpy", {})
    zc.convert(Producer(PLAIN), "numpy")  # now the type has a route
    assert outcome(producer, "numpy", {}) == cold


@pytest.mark.parametrize("interface", [None, [], "text", {}, 3])
def test_other_interfaces_are_left_to_the_slow_path(interface: Any) -> None:
    with pytest.raises(BufferError):
        route_to("numpy")(Producer(interface))


def test_an_interface_of_a_device_comes_first() -> None:
    producer = Producer(PLAIN)
    producer.__cuda_array_interface__ = {}  # type: ignore[attr-defined]
    with pytest.raises(BufferError):
        route_to("numpy")(producer)


def test_errors_of_properties_reach_the_caller() -> None:
    class Raising:
        @property
        def __array_interface__(self) -> Any:
            raise KeyboardInterrupt

    class OnDevice(Producer):
        @property
        def __cuda_array_interface__(self) -> Any:
            raise KeyboardInterrupt

    for producer in (Raising(), OnDevice(PLAIN)):
        with pytest.raises(KeyboardInterrupt):
            route_to("numpy")(producer)


def test_the_result_keeps_the_object_and_its_interface() -> None:
    class Held(dict[str, Any]):
        pass

    producer, held = Producer({**PLAIN}), Held()
    producer.__array_interface__["held"] = held
    alive = weakref.ref(producer), weakref.ref(held)
    result = route_to("numpy")(producer)
    producer.__array_interface__ = None
    del producer, held
    gc.collect()
    assert all(reference() is not None for reference in alive)
    del result
    gc.collect()
    assert all(reference() is None for reference in alive)


def test_keys_that_compare_in_python_may_change_the_dict() -> None:
    class Key:
        def __hash__(self) -> int:
            return hash("data")

        def __eq__(self, other: object) -> bool:
            interface.clear()
            return False

    interface: dict[Any, Any] = {}
    interface.update({Key(): 1, "shape": (2, 3), "typestr": "<f4"})
    with pytest.raises(BufferError):
        route_to("numpy")(Producer(interface))
