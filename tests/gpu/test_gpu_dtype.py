"""``dtype=`` on the GPU: values are cast on their device, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.gpu_arrays import DEVICE, MARKS, side

import zerocopy as zc

pytestmark = MARKS

#: Frameworks that cast; Numba has arrays and no casts, so another one casts for it.
CASTING = ["torch", "jax", "cupy"]
PAIRS = [(source, target) for source in (*CASTING, "numba") for target in (*CASTING, "numba")]
TYPES = [
    ("float32", "float16"),
    ("int32", "float32"),
    ("float32", "int8"),
    ("int32", "uint8"),
    ("bool", "int32"),
]


@pytest.mark.parametrize(("old", "new"), TYPES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_values_are_cast_on_their_device(source: str, target: str, old: str, new: str) -> None:
    source, target = side(source), side(target)
    values = np.array([[0, 1, 1], [1, 0, 1]], old)
    x = source.make(values)
    plan = zc.explain(x, target.name, dtype=new)
    assert plan.possible, plan
    assert (plan.zero_copy, plan.copied_bytes) == (False, 6 * np.dtype(new).itemsize)
    result = zc.convert(x, to=target.name, dtype=new)
    assert str(zc.view(result).device) == DEVICE
    assert str(zc.view(result).dtype) == new
    np.testing.assert_array_equal(zc.convert(result, "numpy"), values.astype(new))
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(x, to=target.name, dtype=new, copy=False)
    same = zc.convert(x, to=target.name, dtype=old)
    assert zc.shares_memory(x, same) == zc.explain(x, target.name).zero_copy


@pytest.mark.parametrize("target", [*CASTING, "numpy"])
@pytest.mark.parametrize("source", [*CASTING, "numba"])
@pytest.mark.parametrize(
    ("old", "new", "value"),
    [("int32", "uint8", 300), ("float32", "int8", 0.5), ("float32", "float16", 1e30),
     ("int32", "float16", 2049), ("float32", "int32", np.nan), ("float32", "bool", 2)],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(
    source: str, target: str, old: str, new: str, value: float
) -> None:
    source = side(source)
    x = source.make(np.array([1, value, 0], old))
    if target != "numpy":
        side(target)
    plan = zc.explain(x, target, dtype=new)
    with pytest.raises(zc.LossyConversionError, match=r"cannot hold the value \S+ at \[1\]") as error:
        zc.convert(x, to=target, dtype=new)
    assert plan.error is not None
    assert plan.error.why == error.value.why


@pytest.mark.parametrize("source", CASTING)
def test_integers_beyond_the_exact_range_of_floats_are_checked_on_the_host(source: str) -> None:
    x = side(source).make(np.array([2**25, 1], "int32"))  # a power of two is exact
    np.testing.assert_array_equal(zc.convert(zc.convert(x, source, dtype="float32"), "numpy"), [2**25, 1])
