"""The warning about aliases whose layout makes each read by the target slower than a copy would be."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.frameworks import HOST

import zerocopy as zc
from zerocopy import registry
from zerocopy.plan import STRIDED_ALIAS


def aligned(shape: tuple[int, ...], dtype: str = "f4") -> np.ndarray:
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def warned(plan: zc.Plan) -> bool:
    return any(text.startswith(STRIDED_ALIAS) for text in plan.warnings)


#: Layout, with whether it has short runs between gaps.
LAYOUTS = {
    "row-major": (aligned((64, 64)), False),
    "transposed": (aligned((64, 64)).T, False),
    "channels last": (aligned((4, 64, 16)).transpose(1, 2, 0), False),
    "one column": (aligned((2048, 2))[:, 0], True),
    "every second": (aligned((64, 64))[:, ::2], True),
    "pixels of 4 bytes": (aligned((64, 64, 4), "u1")[..., :3], True),
    "rows of 1 KiB": (aligned((64, 512))[:, :256], False),
    "every second row": (aligned((64, 256))[::2], False),
    "repeated": (np.broadcast_to(aligned((16,)), (256, 16)), False),
    "below a page": (aligned((16, 16)).T[::2], False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("to", HOST)
def test_explain_warns_of_slow_aliases_and_not_of_copies(to: str, layout: str) -> None:
    """The advice is checked too: the copy is contiguous."""
    pytest.importorskip(to)
    x, has_gaps = LAYOUTS[layout]
    slow = registry.by_name(to).slow_reads
    plan = zc.explain(x, to)
    if not plan.possible:
        pytest.skip("the target does not have these arrays")
    is_slow = has_gaps if slow == "gaps" else bool(slow) and not x.flags.c_contiguous and x.nbytes >= 4096
    is_alias = plan.zero_copy and "the object itself" not in plan.steps
    assert warned(plan) == (is_slow and is_alias)
    assert not warned(zc.explain(x, to, copy=True))
    if warned(plan):
        assert zc.view(zc.convert(x, to, copy=True)).c_contiguous


def test_a_transposed_tensor_in_jax() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("jax")
    plan = zc.explain(torch.from_numpy(aligned((64, 64))).T, "jax")
    assert plan.zero_copy
    assert "pass copy=True if it is read more than once" in str(plan)


def test_explain_warns_of_leaves_and_columns() -> None:
    pytest.importorskip("torch")
    x = aligned((2048, 2))[:, 0]
    assert warned(zc.explain({"x": x}, "torch").leaves["['x']"])
    assert warned(zc.explain({"x": x}, "torch", nulls="mask"))


def test_explain_does_not_warn_of_an_object_of_the_target() -> None:
    assert not warned(zc.explain(aligned((64, 64))[:, ::2], "numpy"))
