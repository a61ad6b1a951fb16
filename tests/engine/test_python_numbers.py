"""Lists of Python numbers are one array; numbers among arrays are kept."""

from __future__ import annotations

import enum
import random
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted

import zerocopy as zc
from zerocopy._engine import convert as engine
from zerocopy.protocols import python_numbers


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a.dtype == b.dtype and np.array_equal(a, b)


@pytest.mark.parametrize(
    "numbers",
    [
        [1.0, 2.0],
        [[1, 2], [3, 4]],
        ((1, 2), (3, 4)),
        [(1, 2.5), [-3.0, 4]],
        [True, False],
        [[[1j], [2]], [[3.5], [4]]],
        [float("nan"), float("inf"), 2**53],
        [2**63 - 1, -(2**63)],
        [2.0**60, 2**60],
    ],
    ids=str,
)
def test_lists_of_numbers_are_the_array_that_numpy_makes(numbers: Any) -> None:
    expected = np.array(numbers)
    plan = zc.explain(numbers, "numpy")
    result = zc.convert(numbers, "numpy")
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
    assert (plan.zero_copy, plan.copied_bytes, len(plan.reasons)) == (False, expected.nbytes, 1)
    assert not zc.shares_memory(numbers, result)
    assert not zc.shares_memory(result, zc.convert(numbers, "numpy"))


def test_generated_lists_are_the_array_that_numpy_makes() -> None:
    generator = random.Random(7)
    leaves = [lambda: generator.randint(-9, 9), generator.random, lambda: generator.random() < 0.5]

    def nested(shape: tuple[int, ...], leaf: Any) -> Any:
        items = [nested(shape[1:], leaf) if shape[1:] else leaf() for _ in range(shape[0])]
        return items if generator.random() < 0.5 else tuple(items)

    for _ in range(200):
        shape = tuple(generator.randint(1, 4) for _ in range(generator.randint(1, 4)))
        shape += (100,) * (generator.random() < 0.2)  # filled row by row
        numbers = nested(shape, generator.choice(leaves))
        assert same(zc.convert(numbers, "numpy"), np.array(numbers))


@pytest.mark.parametrize("target", ["torch", "tensorflow", "pyarrow.Tensor"])
def test_targets_get_lists_of_numbers(target: str) -> None:
    pytest.importorskip(target.partition(".")[0])
    numbers = [[1, 2], [3, 4]]
    result = zc.convert(numbers, target)
    assert zc.convert(result, "numpy").tolist() == numbers
    assert zc.converter(numbers, target)(numbers).shape == result.shape


def test_jax_without_64_bits_names_the_switch_and_a_dtype() -> None:
    jax = pytest.importorskip("jax")
    if jax.config.jax_enable_x64:
        pytest.skip("x64 mode is on")
    with pytest.raises(zc.LossyConversionError, match="jax_enable_x64") as caught:
        zc.convert([1, 2], "jax")
    assert pasted(caught.value.calls[1], {"zc": zc, "x": [1, 2]}).dtype == np.int32


def test_options_apply_to_lists_of_numbers() -> None:
    assert same(zc.convert([1, 2], "numpy", dtype="float32"), np.array([1, 2], "f4"))
    with pytest.raises(zc.LossyConversionError, match="300"):
        zc.convert([1, 300], "numpy", dtype="uint8")
    with pytest.raises(zc.CopyRequiredError, match="Python numbers are objects"):
        zc.convert([1, 2], "numpy", copy=False)
    assert not zc.explain([1, 2], "numpy", copy=False).possible
    assert not zc.convert([1, 2], "numpy", writable=False).flags.writeable
    out = np.empty(2)
    assert zc.convert([1.5, 2.5], "numpy", out=out) is out
    assert out.tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("numbers", "error", "why"),
    [
        ([[1, 2], [3]], zc.UnsupportedConversionError, r"\[0\] has 2, and \[1\] has 1"),
        (
            [[[1], [2]], [[3], [4, 5]]],
            zc.UnsupportedConversionError,
            r"\[0\]\[0\] has 1, and \[1\]\[1\] has 2",
        ),
        ([[1], []], zc.UnsupportedConversionError, r"\[1\] has 0"),
        ([[1, 2], 3], zc.UnsupportedConversionError, r"\[1\] is a number, and \[0\] a list"),
        ([True, 2], zc.UnsupportedConversionError, "booleans among numbers"),
        ([2**63], zc.LossyConversionError, "9223372036854775808, which int64 cannot hold"),
        ([-(2**63) - 1], zc.LossyConversionError, "int64 cannot hold"),
        ([2**64, 1], zc.LossyConversionError, "int64 cannot hold"),
        ([1.5, 2**53 + 1], zc.LossyConversionError, "float64 would round"),
        ([1.5, 10**400], zc.LossyConversionError, "a float cannot hold"),
    ],
    ids=lambda value: str(value)[:30],
)
@pytest.mark.parametrize("inside", [False, True])
def test_lists_that_are_not_one_array_are_refused(
    numbers: Any, error: type[zc.ZeroCopyError], why: str, inside: bool
) -> None:
    source = {"a": np.ones(2), "b": numbers} if inside else numbers
    with pytest.raises(error, match=why) as caught:
        zc.convert(source, "torch")
    plan = zc.explain(source, "torch")
    assert plan.error is not None
    assert plan.error.calls == caught.value.calls
    assert ("['b']" in caught.value.why) is inside
    for call in caught.value.calls:
        pasted(call, {"zc": zc, "x": source})


def test_empty_lists_inside_containers_stay_containers() -> None:
    for empty in ([[], []], {"a": []}, {}):
        assert zc.convert(empty, "numpy") == empty


@pytest.mark.parametrize("empty", [[], ()])
@pytest.mark.parametrize("convert", [zc.convert, engine.convert_in_python], ids=["core", "python"])
def test_an_empty_list_has_no_dtype(empty: Any, convert: Any) -> None:
    convert([np.ones(2)], "numpy"), convert((np.ones(2),), "numpy")  # keep routes for lists and tuples
    with pytest.raises(zc.UnsupportedConversionError, match="no dtype") as caught:
        convert(empty, "numpy")
    assert zc.explain(empty, "numpy").error.calls == caught.value.calls
    array, kept = (pasted(call, {"zc": zc, "x": empty}) for call in caught.value.calls)
    assert (array.shape, array.dtype.name, kept) == ((0,), "float32", empty)


@pytest.mark.parametrize("target", ["pyarrow", "polars", "pandas"])
def test_a_list_of_text_in_a_dict_is_a_column(target: str) -> None:
    pytest.importorskip(target)
    columns = {"a": ["x", None, "y\0"], "b": (1, 2, 3)}
    assert zc.explain(columns, target).possible
    table = zc.convert(zc.convert(columns, target), "pyarrow")
    assert table["a"].to_pylist() == ["x", None, "y\0"]
    assert table["b"].to_pylist() == [1, 2, 3]


def test_anything_with_a_dtype_is_a_leaf() -> None:
    arrays = zc.convert([np.float32(1), np.float32(2)], "numpy")
    assert [array.dtype.name for array in arrays] == ["float32", "float32"]
    assert [array.shape for array in zc.convert([np.ones(2), np.ones(2)], "numpy")] == [(2,), (2,)]
    pair = namedtuple("pair", "a b")
    assert zc.convert(pair([1, 2], 3), "numpy").b == 3
    assert type(zc.convert(pair(1, 2), "numpy")) is pair
    colour = enum.IntEnum("colour", "red")
    with pytest.raises(zc.UnsupportedConversionError, match="colour"):
        zc.convert([colour.red], "numpy")


@pytest.mark.parametrize("convert", [zc.convert, engine.convert_in_python], ids=["core", "python"])
@pytest.mark.parametrize(
    "container",
    [
        {"image": np.ones(2), "reward": 1.5, "done": False, "action": [1, 2]},
        (np.ones(2), 1, True, 2j, {"steps": 3}),
        [{"a": 1}, 2],
        {"only": 1},
    ],
    ids=str,
)
def test_numbers_among_arrays_are_kept(convert: Any, container: Any) -> None:
    for _ in range(3):  # the second conversion has a route
        result = convert(container, "torch")
        assert type(result) is type(container)
        plan = zc.explain(container, "torch")
        pairs = container.items() if type(container) is dict else enumerate(container)
        for key, value in pairs:
            if type(value) in (bool, int, float, complex):
                assert result[key] is value
                assert plan.leaves[f"[{key!r}]"].kept
            else:
                assert result[key] is not value


def test_leaves_keep_keeps_lists_of_numbers() -> None:
    source = {"x": np.ones(2), "losses": [0.5, 0.25], "name": "run"}
    kept = zc.convert(source, "torch", leaves="keep")
    assert kept["losses"] == [0.5, 0.25]
    assert zc.convert([1, 2], "torch", leaves="keep") == [1, 2]


def test_a_mixture_takes_the_slow_path_as_the_first_time() -> None:
    for _ in range(3):
        assert [type(x).__name__ for x in zc.convert([[np.ones(1)], [1, 2]], "numpy")] == ["list", "ndarray"]
        with pytest.raises(zc.UnsupportedConversionError, match="one depth"):
            zc.convert([1, []], "numpy")


def test_tables_take_lists_of_numbers_as_columns() -> None:
    polars = pytest.importorskip("polars")
    columns = {"a": [1, 2], "b": [3.5, 4.5], "c": [[1, 2], [3, 4]]}
    frame = zc.convert(columns, "polars")
    assert frame.to_dict(as_series=False) == columns
    flat = {"a": [1, 2], "b": [3.5, 4.5]}
    assert zc.convert(flat, "pandas").to_dict("list") == flat
    assert zc.convert([1, 2], "polars").to_list() == [1, 2]
    assert zc.explain(columns, "polars").copied_bytes == 64
    matrix = zc.convert({"a": [1, 2], "b": [3, 4]}, "numpy", layout="matrix")
    assert matrix.tolist() == [[1, 3], [2, 4]]
    with pytest.raises(zc.UnsupportedConversionError, match="column 'a': its lists differ") as caught:
        zc.convert({"a": [[1], [2, 3]]}, "polars")
    (call,) = caught.value.calls
    assert pasted(call, {"zc": zc, "x": {"a": [[1], [2, 3]]}})["a"].to_list() == [[1], [2, 3]]
    assert isinstance(frame, polars.DataFrame)
    assert zc.convert(columns, "pyarrow")["c"].to_pylist() == [[1, 2], [3, 4]]


def test_functions_get_numbers_and_lists_of_them_as_they_are() -> None:
    @zc.accepts("torch")
    def function(x: Any, shape: Any, scale: float) -> Any:
        assert (shape, scale) == ([2, 1], 0.5)
        return x.reshape(shape) * scale, [1, 2]

    result, sizes = function(np.ones(2), [2, 1], 0.5)
    assert (result.tolist(), sizes) == ([[0.5], [0.5]], [1, 2])


def test_types_of_items_are_those_of_each_item() -> None:
    """With the core and without it."""
    generator = random.Random(1)
    for _ in range(100):
        items: Any = [generator.choice([1, 2.5, True, "a", None, []]) for _ in range(generator.randint(0, 9))]
        for sequence in (items, tuple(items)):
            assert python_numbers.item_types(sequence) == set(map(type, items))


def test_a_list_that_changes_while_its_types_are_read() -> None:
    class Meta(type):
        def __hash__(cls) -> int:
            items.clear()
            return 1

    items: list[Any] = [Meta("leaf", (), {})(), 1, 2]
    python_numbers.item_types(items)
    assert items == []
