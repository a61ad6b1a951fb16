"""Property tests over shapes, strides, dtypes and options (P1, P2, P3)."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays import bits
from helpers.frameworks import HOST
from helpers.tiers import sample_size
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import zerocopy as zc
from zerocopy.describe import describe_array
from zerocopy.dtype import NATIVE_NAMES
from zerocopy.protocols.array_interface import aligned_empty
from zerocopy.strided_view import StridedView

SETTINGS = settings(
    max_examples=sample_size(150, 60),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@st.composite
def strided(draw: st.DrawFn) -> np.ndarray:
    """Draw an array of a native dtype: sliced, stepped, transposed, broadcast, offset or read-only."""
    dtype = np.dtype(draw(st.sampled_from(sorted(NATIVE_NAMES))))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    base = aligned_empty(tuple(2 * n + 1 for n in shape), dtype)
    raw = np.frombuffer(draw(st.binary(min_size=8, max_size=8)), np.uint8)
    flat = base.reshape(-1).view(np.uint8)
    flat[:] = np.resize(raw & 1 if dtype.kind == "b" else raw, flat.shape)
    index = []
    for n in shape:
        step = draw(st.sampled_from([1, 1, 2, -1, -2]))
        start = draw(st.integers(0, 1)) if step > 0 else 2 * n
        index.append(slice(start, None, step) if n else slice(0, 0))
    array = base[(*index, ...)]  # with the ellipsis a 0-d result is an array, not a scalar
    array = array[(*(slice(0, n) for n in shape), ...)]
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    if draw(st.booleans()) and array.ndim < 4:
        array = np.broadcast_to(array, (draw(st.integers(1, 3)), *array.shape))
    if draw(st.booleans()):
        array = array.view()
        array.flags.writeable = False
    return array


@pytest.mark.parametrize("target", HOST)
@pytest.mark.filterwarnings("ignore:Numpy built-in array:DeprecationWarning")
@SETTINGS
@given(x=strided(), copy=st.sampled_from([None, True, False]), writable=st.sampled_from([None, True, False]))
def test_any_array_with_any_option_keeps_the_promises(
    target: str, x: np.ndarray, copy: bool | None, writable: bool | None
) -> None:
    before = bits(x)
    options = {k: v for k, v in {"copy": copy, "writable": writable}.items() if v is not None}
    plan = zc.explain(x, target, **options)
    if not plan.possible:
        with pytest.raises(type(plan.error)):
            zc.convert(x, to=target, **options)
        return
    for _ in range(2):
        result = zc.convert(x, to=target, **options)
        assert plan.zero_copy == zc.shares_memory(x, result)
        assert not (copy is True and zc.shares_memory(x, result))
        assert not (copy is False and x.size and not zc.shares_memory(x, result))
        assert describe_array(result).view.shape == x.shape
        back = zc.convert(result, to="numpy")
        assert back.dtype == x.dtype
        assert bits(back) == before
    assert bits(x) == before


@SETTINGS
@given(x=strided(), y=strided())
def test_views_agree_with_numpy(x: np.ndarray, y: np.ndarray) -> None:
    view = zc.view(x)
    assert (view.ptr, view.shape, view.strides) == (x.ctypes.data, x.shape, x.strides)
    assert view.nbytes == x.nbytes
    assert view.c_contiguous == (x.flags.c_contiguous or x.size == 0)
    assert view.readonly == (not x.flags.writeable)
    assert bits(view.numpy()) == bits(x)
    if x.size:
        assert view.bounds == np.lib.array_utils.byte_bounds(x) if hasattr(np.lib, "array_utils") else True
    assert zc.shares_memory(x, y) == np.shares_memory(x, y)
    part = x[..., ::2] if x.ndim else x
    assert zc.shares_memory(x, part) == np.shares_memory(x, part)


@SETTINGS
@given(x=strided())
def test_compact_means_some_order_is_contiguous(x: np.ndarray) -> None:
    order = sorted(range(x.ndim), key=lambda i: (-x.strides[i], -x.shape[i]))
    ordered = x.transpose(order)
    view: StridedView = zc.view(x)
    assert view.compact == (ordered.flags.c_contiguous or x.size == 0)
