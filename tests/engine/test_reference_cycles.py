"""Conversions leave no reference cycles: memory is free when its last user drops it."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
import pytest
from helpers.arrays import sample

import zerocopy as zc
from zerocopy import registry

TARGETS = [name for name, info in registry.frameworks().items() if info.installed]
OPTIONS: list[dict[str, Any]] = [{}, {"copy": True}, {"copy": False, "layout": "matrix"}, {"dtype": "int8"}]


class Producer:
    """A producer of one array, which raises `error` instead if it is set."""

    def __init__(self, array: np.ndarray, error: Exception | None = None) -> None:
        self.array, self.error = array, error

    def __dlpack__(self, **options: Any) -> Any:
        if self.error is not None:
            raise type(self.error)("refused")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def sources() -> Iterator[Any]:
    """Yield objects that are aliased, copied and refused."""
    array = sample("f8", (6,))
    yield from (array, array[::-1], sample("?"), np.array([object()]), np.array(["text"]))
    yield from (sample("c16"), Producer(array), Producer(array, ValueError()), bytearray(8), object())
    yield from ({"x": [array, (array[::-1],)]}, [array, object()], {"x": array, "y": object()})
    yield np.zeros(3, [("a", "i4"), ("b", "f8")])
    if registry.frameworks()["pandas"].installed:
        import pandas as pd

        yield pd.DataFrame({"a": [1.0, 2.0], "b": ["x", None]})
    if registry.frameworks()["pyarrow"].installed:
        import pyarrow as pa

        yield from (pa.table({"a": [1, None], "b": ["x", "y"]}), pa.array([1.0, 2.0]))
    if registry.frameworks()["torch"].installed:
        import torch

        yield from (torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.complex64).conj())


def is_own(obj: Any) -> bool:
    """Whether zerocopy made an object: of its classes, its functions, or their frames."""
    if isinstance(obj, types.FrameType):
        return str(obj.f_globals.get("__name__")).startswith("zerocopy")
    if isinstance(obj, types.FunctionType):
        return str(obj.__module__).startswith("zerocopy")
    return str(type(obj).__module__).startswith("zerocopy")


def garbage_of(call: Callable[[], Any]) -> set[str]:
    """Return the types of zerocopy's objects that only the garbage collector would free after a call."""
    with suppress(Exception):  # imports and caches
        call()
    gc.collect()
    gc.freeze()  # a collection then looks at the objects of the next call only
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        with suppress(Exception):
            call()
        gc.collect()
        return {type(obj).__name__ for obj in gc.garbage if is_own(obj)}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("function", [zc.convert, zc.explain])
def test_a_call_leaves_no_cycles(function: Callable[..., Any], to: str) -> None:
    every = to == "numpy"  # the code of refusals and options is the same for all targets

    def calls() -> None:
        for obj in sources() if every else islice(sources(), 8):
            for options in OPTIONS if every else OPTIONS[:2]:
                with suppress(zc.ZeroCopyError, TypeError, ValueError):
                    function(obj, to, **options)

    assert garbage_of(calls) == set()
