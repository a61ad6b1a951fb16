"""What a recorder counts agrees with ``explain`` and ``shares_memory``, for all pairs on the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.cuda_stubs import Machine
from helpers.frameworks import HOST
from helpers.recorded_calls import check_agrees, recording

import zerocopy as zc
from zerocopy._engine import routes

#: Calls of one case: by the slow path, which composes the route, then by the route.
TIMES = 2


@pytest.fixture(autouse=True)
def _recorded() -> Iterator[None]:
    """Keep the routes between the recorders of a test, which are started inside this one."""
    with recording():
        yield


def agrees(x: Any, warm: Any, to: str, options: dict[str, Any]) -> None:
    """Check the slow path, the route of `warm`, and the object's own route."""
    routes.clear()
    for each in (x, warm, x):
        result = check_agrees(each, to, options)
        if isinstance(result, Exception) or result is each or options.get("copy") is True:
            continue
        plan = zc.explain(each, to, **options)
        if not plan.unread:
            assert plan.shares_memory in (None, zc.shares_memory(each, result))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("to", HOST)
def test_containers_are_counted_as_the_sum_of_their_leaves(to: str) -> None:
    torch = pytest.importorskip("torch")
    strided = sample("f4", (64,))[::-2]
    other = torch.arange(8.0) if to != "torch" else memoryview(bytes(8))
    for options in ({}, {"copy": True}, {"copy": False}):
        for leaves in ([strided, other], {"a": other, "b": [strided, (other,)]}, (other, other), [], {}):
            # Leaves that are returned themselves add no bytes.
            if to == "numpy" and not options.get("copy") and leaves and type(leaves) is not tuple:
                continue
            agrees(leaves, [other], to, options)


def test_a_container_of_unchanged_leaves_is_unchanged() -> None:
    array = np.arange(3)
    for leaves in ([array], {"a": array}, [array, [array]]):
        for _ in range(TIMES):
            with recording() as recorder:
                zc.convert(leaves, "numpy")
            assert [row.unchanged_calls for row in recorder.rows()] == [1]


@pytest.mark.parametrize("to", ["cupy", "numpy", "torch", "numba"])
def test_device_memory_is_counted_as_explained(machine: Machine, to: str) -> None:
    array = sample("f4", (16,))
    on_device = zc.convert(array, "cupy")
    for x in (array, on_device, on_device[::2], on_device[:0]):
        for options in ({}, {"copy": True}, {"copy": False}):
            for _ in range(TIMES):
                check_agrees(x, to, options)
