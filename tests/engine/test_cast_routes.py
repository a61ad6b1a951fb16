"""Arrays and columns that ``dtype=`` casts have routes; the plan gives the same values and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy._engine.options import check_options
from zerocopy._engine.planner import Call, make_plan
from zerocopy._engine.routes import NO_ROUTE, routes_of
from zerocopy._native import core

OPTIONS = {"layout": "matrix", "dtype": "float32"}
COLUMNS = {"a": np.arange(3000.0), "b": np.arange(3000), "c": np.arange(6000, dtype="i2")[::2]}


def planned(obj: Any, to: str, **options: Any) -> Any:
    """Convert by the plan alone."""
    return make_plan(Call(obj, to, options)).run()


@pytest.mark.parametrize("order", [None, "C", "F"])
@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "tensorflow"])
def test_a_dict_of_arrays_is_cast_to_a_matrix(to: str, order: str | None) -> None:
    pytest.importorskip(to)
    options = check_options("convert", OPTIONS | {"order": order})
    for _ in range(3):
        matrix = zc.convert(COLUMNS, to, order=order, **OPTIONS)
        expected = planned(COLUMNS, to, **options)
        assert type(matrix) is type(expected)
        np.testing.assert_array_equal(zc.convert(matrix, "numpy"), zc.convert(expected, "numpy"))
        assert zc.convert(matrix, "numpy").strides == zc.convert(expected, "numpy").strides
    assert core is None or routes_of(to, options)[dict] is not NO_ROUTE


def test_columns_select_the_keys_of_a_dict_in_their_order() -> None:
    for _ in range(3):
        matrix = zc.convert(COLUMNS, "numpy", columns=["b", "a"], **OPTIONS)
        np.testing.assert_array_equal(matrix, np.stack([COLUMNS["b"], COLUMNS["a"]], 1).astype("f4"))
        with pytest.raises(zc.UnsupportedConversionError, match="called 'd'"):
            zc.convert(COLUMNS, "numpy", columns=["b", "d"], **OPTIONS)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_block_of_a_frame_is_cast_to_either_order(order: str) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(np.arange(12.0).reshape(4, 3, order=order), columns=list("abc"))
    for wanted in (None, "C", "F"):
        for _ in range(3):
            matrix = zc.convert(frame, "numpy", order=wanted, **OPTIONS)
            np.testing.assert_array_equal(matrix, frame.to_numpy("f4"))
            assert matrix.dtype == np.float32
            assert matrix.flags.writeable
            assert wanted is None or matrix.flags[f"{wanted}_CONTIGUOUS"]


@pytest.mark.parametrize(
    "options", [{}, {"copy": True}, {"columns": ["b", "a"]}, {"writable": True}], ids=str
)
@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_the_plan_keeps_the_order_of_the_block_of_a_frame(dtype: str, options: dict[str, Any]) -> None:
    pd = pytest.importorskip("pandas")
    options = {"layout": "matrix", "dtype": dtype} | options
    for order in "CF":
        values = (np.arange(12.0) % 2).reshape(4, 3).copy(order)
        for array in (values, values != 0):
            frame = pd.DataFrame(array, columns=list("abc"), copy=False)
            expected = planned(frame, "numpy", **options)
            for _ in range(3):
                matrix = zc.convert(frame, "numpy", **options)
                assert matrix.strides == expected.strides
                assert zc.shares_memory(matrix, array) == zc.shares_memory(expected, array)


def test_a_frame_of_several_blocks_is_cast_by_columns() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.arange(4.0), "b": np.arange(4), "c": np.arange(4, dtype="i1")})
    for _ in range(3):
        np.testing.assert_array_equal(zc.convert(frame, "numpy", **OPTIONS), frame.to_numpy("f4"))


def test_refusals_are_those_of_the_plan() -> None:
    too_large = COLUMNS | {"a": np.full(3000, 1e300)}
    masked = COLUMNS | {"a": np.ma.masked_less(np.arange(3000.0), 5)}
    shorter = COLUMNS | {"a": np.arange(5.0)}
    text = COLUMNS | {"a": np.array(["x"] * 3000)}
    for _ in range(2):
        zc.convert(COLUMNS, "numpy", **OPTIONS)
        for columns in (too_large, masked, shorter, text):
            with pytest.raises(zc.ZeroCopyError) as planned_error:
                planned(columns, "numpy", **OPTIONS)
            with pytest.raises(type(planned_error.value)) as error:
                zc.convert(columns, "numpy", **OPTIONS)
            assert error.value.why == planned_error.value.why
        with pytest.raises(zc.CopyRequiredError):
            zc.convert(COLUMNS, "numpy", copy=False, **OPTIONS)


def test_columns_of_one_array_that_have_the_type_are_aliased() -> None:
    whole = np.arange(30.0).reshape(10, 3)
    for _ in range(3):
        columns = dict(zip("abc", whole.T, strict=True))
        assert zc.shares_memory(zc.convert(columns, "numpy", layout="matrix", dtype="float64"), whole)


@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("shape", [(3000,), (30, 100), (2, 3, 4), (1,), (0,), ()])
def test_arrays_are_cast_by_their_route(to: str, shape: tuple[int, ...]) -> None:
    pytest.importorskip(to)
    for order in "CF":
        array = np.arange(np.prod(shape, dtype=int), dtype="f8").reshape(shape, order=order)
        for _ in range(3):
            result = zc.convert(array, to, dtype="float32")
            host = np.asarray(result)
            assert host.dtype == np.float32
            np.testing.assert_array_equal(host, array)
            assert host.flags.c_contiguous
        if array.size:
            with pytest.raises(zc.CopyRequiredError):
                zc.convert(array, to, dtype="float32", copy=False)
            with pytest.raises(zc.LossyConversionError, match="1e"):
                zc.convert(array * 0 + 1e300, to, dtype="float32")


def test_a_cast_array_does_not_keep_its_source() -> None:
    import sys

    array = np.arange(100.0)
    zc.convert(array, "numpy", dtype="float32")
    before = sys.getrefcount(array)
    result = zc.convert(array, "numpy", dtype="float32")
    assert sys.getrefcount(array) == before
    result[0] = 5
    assert array[0] == 0
