"""Every pair of registered frameworks: values, dtype, shape and pointer (P1, P2, P3).

No test here names a framework, so a new framework is tested without a change.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays import aligned, bits, sample
from helpers.frameworks import ALIASING, HOST, PAIRS

import zerocopy as zc
from zerocopy import registry
from zerocopy.describe import describe_array
from zerocopy.dtype import ALL, NATIVE_NAMES, to_numpy

DTYPES = [t.name for t in ALL if to_numpy(t) is not None]

SHAPES = {
    "0-d": lambda: sample("f4", ()),
    "empty": lambda: sample("f4", (0,)),
    "empty 2-d": lambda: sample("f4", (3, 0, 2)),
    "one": lambda: sample("f4", (1,)),
    "contiguous": lambda: sample("f4", (4, 3)),
    "fortran": lambda: sample("f4", (3, 4)).T,
    "permuted": lambda: sample("f4", (2, 3, 4)).transpose(1, 2, 0),
    "every other": lambda: sample("f4", (32,))[::2],
    "column": lambda: sample("f4", (4, 16))[:, 3],
    "reversed": lambda: sample("f4", (12,))[::-1],
    "reversed rows": lambda: sample("f4", (4, 3))[::-1],
    "broadcast": lambda: np.broadcast_to(sample("f4", (3,)), (4, 3)),
    "size-1 with odd strides": lambda: np.lib.stride_tricks.as_strided(
        sample("f4", (16,)), (1, 16, 1), (12345, 4, 7)
    ),
    "reversed size-1": lambda: sample("f4", (1, 4))[::-1],
    "window": lambda: np.lib.stride_tricks.sliding_window_view(sample("f4", (10,)), 3),
    "offset 4": lambda: sample("f4", (17,))[1:],
    "misaligned": lambda: sample("u1", (41,))[1:].view("f4"),
    "packed field": lambda: np.zeros(5, np.dtype([("a", "u1"), ("b", "f4")]))["b"],
    "aligned field": lambda: aligned(np.zeros(5, np.dtype([("a", "f4"), ("b", "f4")])))["b"],
    "big-endian": lambda: sample("f4", (6,)).astype(">f4"),
    "read-only": lambda: _readonly(sample("f4", (6,))),
    "32 dimensions": lambda: sample("f4", (1,) * 31 + (2,)),
}


def _readonly(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _source_array(source: str, array: np.ndarray) -> object:
    """Return the array as an object of the source framework, an alias if possible."""
    try:
        return zc.convert(array, to=source)
    except zc.ZeroCopyError as error:
        pytest.skip(f"{source} cannot hold it: {error.why}")


def check(x: object, target: str, expected: np.ndarray, **options: object) -> object | None:
    """Convert, check P1, P2 and P3 by pointer, and return the result; None if it is refused."""
    plan = zc.explain(x, target, **options)
    if not plan.possible:
        with pytest.raises(type(plan.error)) as caught:
            zc.convert(x, to=target, **options)
        assert plan.reasons
        assert caught.value.why
        assert caught.value.remedy
        assert str(plan.error) == str(caught.value)
        return None
    # Twice: the first call takes the slow path; the second, with default options, the fast path.
    for result in (zc.convert(x, to=target, **options), zc.convert(x, to=target, **options)):
        assert registry.by_type(type(result)).name == target
        shared = zc.shares_memory(x, result)
        assert shared == plan.zero_copy, f"plan: {plan}; shares_memory: {shared}"
        if options.get("copy") is True:
            assert not shared
        if options.get("copy") is False:
            assert shared or expected.size == 0
        view = describe_array(result).view
        if plan.copied_bytes and registry.by_name(target).mutable:
            assert not view.readonly, "a copy must be writable"
        assert view.shape == expected.shape
        assert view.dtype.itemsize == expected.dtype.itemsize
        back = zc.convert(result, to="numpy")
        assert back.dtype in (expected.dtype, expected.dtype.newbyteorder("="))
        assert bits(back) == bits(expected.astype(back.dtype, copy=False))
    assert (plan.copied_bytes == 0) == (plan.zero_copy or expected.size == 0)
    return result


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_keeps_its_values(source: str, target: str, dtype: str, copy: bool | None) -> None:
    name = next(t for t in ALL if t.name == dtype)
    values = sample(to_numpy(name), (12,))
    x = _source_array(source, values)
    result = check(x, target, values, copy=copy)
    if result is None and copy is None:
        # With copy=None only a missing dtype is refused, and every framework has these.
        assert dtype not in {"int32", "float32", "float64", "uint8", "int64"}


@pytest.mark.every_pair
@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_keeps_its_values(source: str, target: str, shape: str, copy: bool | None) -> None:
    values = SHAPES[shape]()
    before = bits(values), values.flags.writeable, values.strides
    check(_source_array(source, values), target, values, copy=copy)
    assert before == (bits(values), values.flags.writeable, values.strides), "the source has changed"


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_write_to_the_source_changes_aliases_only(source: str, target: str) -> None:
    """A write to the source's memory changes an alias and does not change a copy."""
    if not {source, target} <= {*ALIASING}:
        pytest.skip("one of them copies host memory")
    memory = sample("f4", (1000,))
    x = zc.convert(memory, to=source)
    assert zc.shares_memory(memory, x), "the test needs a source that aliases writable memory"
    for _ in range(2):  # the slow path, then the fast path
        memory[7] = 1
        alias, copy = zc.convert(x, to=target), zc.convert(x, to=target, copy=True)
        assert zc.explain(x, target).zero_copy
        memory[7] = 2
        assert zc.convert(alias, to="numpy")[7] == 2
        assert zc.convert(copy, to="numpy")[7] == 1


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("writable", [None, True, False])
@pytest.mark.parametrize("readonly", [False, True])
def test_writable_result_never_aliases_immutable_memory(
    source: str, target: str, writable: bool | None, readonly: bool
) -> None:
    """A result with writable=True never aliases immutable memory."""
    memory = sample("f4", (64,))
    if readonly:
        memory.flags.writeable = False
    x = zc.convert(memory, to=source)
    framework = registry.by_name(target)
    immutable = zc.view(x).readonly
    plan = zc.explain(x, target, writable=writable)
    result = zc.convert(x, to=target, writable=writable)
    assert plan.zero_copy == zc.shares_memory(x, result)
    if writable and immutable and framework.mutable:
        assert not plan.zero_copy
        assert "immutable" in plan.reasons[0].why
    if plan.zero_copy and immutable and framework.mutable:
        # Either it is marked read-only, or the plan warns of writes to it.
        assert zc.view(result).readonly if framework.marks_readonly else plan.warnings or result is x
    if writable is True and framework.mutable:
        assert not zc.view(result).readonly
    if writable is False and framework.marks_readonly:
        assert zc.view(result).readonly


@pytest.mark.parametrize("framework", HOST)
def test_objects_of_the_target_are_returned_unchanged(framework: str) -> None:
    x = zc.convert(sample("f4"), to=framework)
    assert zc.convert(x, to=framework) is x
    assert zc.convert(x, to=framework, copy=False) is x
    assert zc.convert(x, to=framework, device="cpu") is x
    assert zc.explain(x, framework).zero_copy
    fresh = zc.convert(x, to=framework, copy=True)
    assert fresh is not x
    assert not zc.shares_memory(x, fresh)


@pytest.mark.parametrize("dtype", sorted(NATIVE_NAMES))
@pytest.mark.parametrize("target", HOST)
def test_extreme_values_are_kept(target: str, dtype: str) -> None:
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        extremes = [np.iinfo(kind).min, np.iinfo(kind).max, 1]
    elif kind.kind == "b":
        extremes = [True, False, True]
    else:
        info = np.finfo(kind)
        extremes = [np.nan, -0.0, np.inf, -np.inf, info.max, info.smallest_subnormal]
    values = aligned(np.array(extremes, dtype=kind))
    try:
        result = zc.convert(values, to=target)
    except zc.UnsupportedConversionError:
        return
    assert bits(zc.convert(result, to="numpy")) == bits(values)


def test_module_is_a_valid_target() -> None:
    assert isinstance(zc.convert(b"abc", to=np), np.ndarray)


def test_signature_is_the_documented_one() -> None:
    import inspect

    parameters = inspect.signature(zc.convert).parameters
    tensors = ["device", "copy", "stream", "writable", "dtype", "leaves", "validate", "out"]
    tables = ["layout", "order", "columns", "nulls", "encode", "lists", "pad_value", "max_length"]
    assert list(parameters) == ["obj", "to", *tensors, *tables, "names", "index", "connection"]
    assert list(parameters) == list(inspect.signature(zc.explain).parameters)
    assert all(parameters[n].kind is inspect.Parameter.KEYWORD_ONLY for n in list(parameters)[2:])
    with pytest.raises(TypeError):
        zc.convert(b"abc", "numpy", coppy=True)


def test_repr_of_plan_is_one_line() -> None:
    assert repr(zc.explain(np.zeros(2), "numpy", copy=True)) == (
        "<zerocopy.Plan: numpy.ndarray float64 (2,) -> numpy: copies 16 bytes>"
    )
    container = {"a": np.zeros(2), "b": [np.zeros(3)]}
    assert "\n" not in repr(zc.explain(container, "numpy"))
