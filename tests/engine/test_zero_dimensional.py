"""0-d arrays of every dtype between every pair of frameworks: the right value, or explain has the refusal."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from helpers.frameworks import HOST, PAIRS

import zerocopy as zc
from zerocopy.dtype import NATIVE_NAMES

FOREIGN = [name for name in dir(ml_dtypes) if name.startswith(("bfloat", "float", "int", "uint"))]
DTYPES = [
    np.dtype(getattr(ml_dtypes, name)) for name in FOREIGN if isinstance(getattr(ml_dtypes, name), type)
]
DTYPES = [np.dtype(name) for name in NATIVE_NAMES] + DTYPES
# Their arrays have at least one dimension.
WITHOUT_SCALARS = {"awkward", "warp"}
OPTIONS: list[dict] = [{}, {"copy": True}, {"copy": False}, {"copy": None, "writable": None}]


def attempt(x: object, to: str, options: dict) -> object:
    """Return the result, or None if the conversion is refused."""
    try:
        return zc.convert(x, to=to, **options)
    except zc.ZeroCopyError:
        return None


def check(x: object, to: str, options: dict) -> None:
    plan = zc.explain(x, to, **options)
    for _ in range(2):  # the second conversion takes the fast path
        result = attempt(x, to, options)
        assert (result is not None) == plan.possible
        if result is not None:
            assert zc.shares_memory(x, result) == plan.zero_copy
            assert np.asarray(zc.convert(result, to="numpy")).astype(complex) == 1


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_scalars_have_their_value_or_are_refused(source: str, target: str) -> None:
    checked = 0
    for dtype in DTYPES:
        x = attempt(np.ones((), dtype), source, {"copy": True})
        if x is None:
            continue
        for options in OPTIONS:
            check(x, target, options)
            checked += 1
    assert bool(checked) == (source not in WITHOUT_SCALARS)


@pytest.mark.parametrize("target", HOST)
def test_numpy_scalars_have_their_value_or_are_refused(target: str) -> None:
    for dtype in DTYPES:
        for options in OPTIONS:
            check(np.ones(1, dtype)[0], target, options)


@pytest.mark.skipif("tensorflow" not in HOST, reason="TensorFlow is not installed")
def test_bfloat16_scalars_of_tensorflow_are_aliased() -> None:
    import tensorflow as tf

    x = tf.constant(1.5, tf.bfloat16)
    for target in HOST:
        if zc.explain(x, target).possible:
            assert zc.explain(x, target).zero_copy
            assert float(zc.convert(zc.convert(x, to=target), to="numpy")) == 1.5
