"""Subclasses of frameworks' arrays whose methods or attributes raise: each error is zerocopy's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import zerocopy as zc


class BoomError(Exception):
    """An exception that no framework raises."""


def _boom(*args: Any, **options: Any) -> Any:
    raise BoomError("boom")


#: Attributes and methods that frameworks' files and protocols read.
ATTRIBUTES = (
    *("dtype", "shape", "strides", "stride", "device", "data_ptr", "requires_grad", "is_cuda", "layout"),
    *("__dlpack__", "__dlpack_device__", "__array_interface__", "__array__", "flags", "untyped_storage"),
    *("is_conj", "values", "columns", "index", "array", "to_numpy", "get_columns", "schema", "__len__"),
    *("__arrow_c_stream__", "__array_function__", "__array_ufunc__", "__getattribute__", "__class__"),
    *("numpy", "size", "ndim", "numel", "view", "mask", "name", "width", "height", "n_chunks", "dtypes"),
)


def _arrays() -> dict[str, Callable[[type], Any]]:
    return {
        "numpy.ndarray": lambda cls: np.zeros(3).view(cls),
        "numpy.ma.MaskedArray": lambda cls: np.zeros(3).view(cls),
        "torch.Tensor": lambda cls: pytest.importorskip("torch").zeros(3).as_subclass(cls),
        "pandas.Series": lambda cls: cls([1.0, 2.0]),
        "pandas.DataFrame": lambda cls: cls({"a": [1.0, 2.0]}),
        "polars.Series": lambda cls: cls("a", [1.0, 2.0]),
        "polars.DataFrame": lambda cls: cls({"a": [1.0, 2.0]}),
    }


def _base(name: str) -> type:
    module, _, attribute = name.rpartition(".")
    base: type = getattr(pytest.importorskip(module), attribute)
    return base


def _raising(name: str) -> Iterator[tuple[str, Any]]:
    """Yield instances of subclasses, each with one attribute that raises."""
    base, make = _base(name), _arrays()[name]
    for attribute in ATTRIBUTES:
        if not hasattr(base, attribute):
            continue
        for value in (property(_boom), _boom):
            cls = type("Raising", (base,), {})
            instance = make(cls)
            try:
                setattr(cls, attribute, value)
            except TypeError:
                continue
            yield f"{attribute} as {type(value).__name__}", instance


def _check(call: Callable[[], Any], case: Any) -> None:
    try:
        call()
    except zc.ZeroCopyError as error:
        assert error.asked, case  # noqa: PT017
    except BoomError:
        pytest.fail(f"{case}: a raw exception")


@pytest.mark.hazard("producers#errors-of-subclasses")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("to", ["numpy", "torch", "pandas", "polars", "polars.Series", "pyarrow"])
@pytest.mark.parametrize("name", list(_arrays()))
def test_errors_of_subclasses_are_translated(name: str, to: str) -> None:
    pytest.importorskip(to.partition(".")[0])
    for attribute, x in _raising(name):
        for options in ({}, {"copy": True}):
            _check(lambda x=x, o=options: zc.convert(x, to, **o), (attribute, options))
            _check(lambda x=x, o=options: zc.explain(x, to, **o), (attribute, options))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(_arrays()))
def test_view_and_shares_memory_translate_errors_of_subclasses(name: str) -> None:
    other = np.zeros(3)
    for attribute, x in _raising(name):
        _check(lambda x=x: zc.view(x), attribute)
        _check(lambda x=x: zc.shares_memory(x, other), attribute)
        _check(lambda x=x: zc.shares_memory(x, x), attribute)


@pytest.mark.parametrize("to", ["numpy", "pandas", "pyarrow"])
@pytest.mark.parametrize("method", ["__torch_function__", "__torch_dispatch__"])
def test_torch_overrides_that_raise_are_translated(method: str, to: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip(to)
    cls = type("Raising", (torch.Tensor,), {method: classmethod(_boom)})
    with torch._C.DisableTorchFunctionSubclass():
        x = torch.Tensor._make_subclass(cls, torch.zeros(3))
    for call in (zc.view, lambda x: zc.shares_memory(x, torch.zeros(3)), lambda x: zc.convert(x, to)):
        if method == "__torch_dispatch__":
            _check(lambda call=call: call(x), method)
            continue
        with pytest.raises(zc.UnsupportedConversionError, match="boom") as caught:
            call(x)
        assert isinstance(caught.value.__cause__, BoomError)


@pytest.mark.hazard("torch#an-error-of-a-subclass-disables-functorch")
@pytest.mark.filterwarnings("ignore")  # of the first torch.func.jvp
def test_errors_of_subclasses_leave_functorch_on() -> None:
    """The frames of torch's functions that make text keep it off, and an error keeps its frames."""
    torch = pytest.importorskip("torch")
    wrapped = []

    def function(x: Any) -> Any:
        wrapped.append(torch._C._functorch.is_functorch_wrapped_tensor(x))
        return x * 2

    plans = []  # keeps the errors
    for _, x in _raising("torch.Tensor"):
        plans.append(zc.explain(x, "numpy"))
        torch.func.jvp(function, (torch.ones(2),), (torch.ones(2),))
    assert wrapped == [True] * len(plans)
