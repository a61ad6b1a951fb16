"""awkward: dense arrays, and types that other frameworks lack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted
from helpers.versions import needs

import zerocopy as zc

ak = pytest.importorskip("awkward")
needs_from_arrow = needs("awkward", "2.8.6", "from_arrow for pyarrow 21 and later")


def test_dense_arrays_are_aliased() -> None:
    x = np.arange(6.0).reshape(2, 3)
    y = zc.convert(x, "awkward", copy=False)
    assert zc.shares_memory(x, y)
    x[0, 0] = 9
    assert y.tolist() == x.tolist()
    regular = ak.Array(ak.contents.RegularArray(ak.contents.NumpyArray(np.arange(6.0)), 3))
    back = zc.convert(regular, "numpy", copy=False)
    assert back.shape == (2, 3)
    assert zc.shares_memory(regular, back)
    strided = x[:, ::2]
    assert zc.convert(zc.convert(strided, "awkward", copy=False), "numpy").tolist() == strided.tolist()


@needs_from_arrow
def test_arrays_without_missing_values_are_aliased() -> None:
    pa = pytest.importorskip("pyarrow")
    x = ak.from_arrow(pa.array([[1.0, 2.0], [3.0]]))  # its type allows missing values
    y = zc.convert(x, "pyarrow", copy=False)
    assert y.to_pylist() == [[1, 2], [3]]
    assert zc.shares_memory(x, y)


@pytest.mark.parametrize("select", [lambda x: x[[2, 0]], lambda x: x[[True, False, True]]])
def test_filtered_arrays_are_copied_in_order(select: Any) -> None:
    pytest.importorskip("pyarrow")
    x = select(ak.Array([[1.0, 2.0], [], [3.0]]))
    plan = zc.explain(x, "pyarrow")
    y = zc.convert(x, "pyarrow")
    assert y.to_pylist() == x.tolist()
    assert not plan.zero_copy
    assert not zc.shares_memory(x, y)
    assert plan.copied_bytes == 3 * 8 + 3 * 8
    with pytest.raises(zc.CopyRequiredError, match="filtered"):
        zc.convert(x, "pyarrow", copy=False)
    assert zc.explain(ak.to_packed(x), "pyarrow").zero_copy


def test_outer_regular_dimensions_get_offsets() -> None:
    pytest.importorskip("pyarrow")
    x = ak.to_regular(ak.Array([[[1.0], [2.0, 3.0]], [[], [4.0]]]), axis=1)
    assert zc.convert(x, "pyarrow").to_pylist() == x.tolist()
    assert zc.explain(x, "pyarrow").reasons[0].code == "regular"
    assert zc.explain(ak.from_regular(x, axis=None), "pyarrow").zero_copy


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: ak.Array([[1, None], [2]]), "nulls"),
        (lambda: ak.Array([1, None]), "nulls"),
        (lambda: ak.Array([{"a": 1}]), "records"),
        (lambda: ak.Array([{"a": 1}])[0], "not-an-array"),
        (lambda: ak.Array([1, [2]]), "union"),
        (lambda: ak.Array(["a", "b"]), "missing-dtype"),
        (lambda: ak.Array([["a"], []]), "missing-dtype"),
        pytest.param(
            lambda: ak.str.to_categorical(ak.Array(["a", "a"])), "missing-dtype", marks=needs_from_arrow
        ),
        (lambda: ak.Array([[1], []], backend="typetracer"), "traced"),
        (lambda: ak.Array(np.array(["2020-01-01"], "M8[D]")), "missing-dtype"),
        (ak.ArrayBuilder, "not-an-array"),
    ],
)
@pytest.mark.parametrize("target", ["numpy", "torch", "pyarrow"])
def test_types_that_others_lack_are_refused(make: Any, code: str, target: str) -> None:
    pytest.importorskip(target)
    pytest.importorskip("pyarrow")
    x = make()
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(x, target)
    assert caught.value.code in (code, "dictionary-encoding")
    assert not zc.explain(x, target).possible
    assert caught.value.remedy


@pytest.mark.parametrize("make", [lambda: ak.Array([[1, None], [2]]), lambda: ak.Array([{"a": 1}, {"a": 2}])])
def test_fixes_run(make: Any) -> None:
    pytest.importorskip("pyarrow")
    x = make()
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(x, "pyarrow")
    assert caught.value.calls
    for call in caught.value.calls:
        assert pasted(call[: call.rindex(")") + 1], {"x": x, "zc": zc, "awkward": ak}) is not None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "complex32", "float16", "bool", "uint16"])
def test_explain_agrees_for_the_dtypes_of_nested_tensors(name: str) -> None:
    torch = pytest.importorskip("torch")
    rows = [torch.ones(3).to(getattr(torch, name)), torch.ones(2).to(getattr(torch, name))]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged)
    plan = zc.explain(x, "awkward")
    if name in ("float16", "bool", "uint16"):
        assert plan.shares_memory is zc.shares_memory(x, zc.convert(x, "awkward")) is True
        return
    with pytest.raises(zc.UnsupportedConversionError, match=f"awkward has no {name}") as caught:
        zc.convert(x, "awkward")
    assert str(plan.error) == str(caught.value)
    assert caught.value.code == "missing-dtype"
    assert caught.value.calls
    for call in caught.value.calls:
        result = pasted(call, {"x": x, "zc": zc, "torch": torch})
        assert ak.to_list(result) == [[1, 1, 1], [1, 1]]


@pytest.mark.parametrize("target", ["torch", "tensorflow", "pyarrow"])
def test_lists_of_dates_are_refused_with_a_call_that_works(target: str) -> None:
    pytest.importorskip(target)
    numbers = ak.Array([[1, 2], [3]])
    x = ak.values_astype(numbers, "datetime64[s]")
    for _ in range(2):
        zc.convert(numbers, target)  # keeps a route for awkward's type
    with pytest.raises(zc.UnsupportedConversionError, match="datetime64") as caught:
        zc.convert(x, target)
    assert str(zc.explain(x, target).error) == str(caught.value)
    (call,) = caught.value.calls
    result = pasted(call, {"x": x, "zc": zc, "awkward": ak})
    assert ak.to_list(zc.convert(result, "awkward")) == [[1, 2], [3]]
