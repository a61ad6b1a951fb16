"""Producers whose protocol methods convert other producers, or themselves: calls are counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from helpers.versions import numpy_capsule

import zerocopy as zc
from zerocopy.protocols.exporter_errors import MAX_NESTING

pa = pytest.importorskip("pyarrow")


def _interface(inner: Any, options: dict[str, Any]) -> Any:
    return zc.convert(inner, "numpy").__array_interface__


def _arrow(inner: Any) -> Any:
    return zc.convert(inner, "pyarrow")


#: How each protocol method makes its result from another producer.
METHODS: dict[str, Any] = {
    "__dlpack__": lambda inner, options: numpy_capsule(
        zc.convert(inner, "numpy"),
        **{name: value for name, value in options.items() if name != "dl_device"},
    ),
    "__array__": lambda inner, options: zc.convert(inner, "numpy"),
    "__array_interface__": _interface,
    "__cuda_array_interface__": _interface,
    "__arrow_c_array__": lambda inner, options: _arrow(inner).__arrow_c_array__(),
    "__arrow_c_device_array__": lambda inner, options: _arrow(inner).__arrow_c_device_array__(),
    "__arrow_c_stream__": lambda inner, options: pa.chunked_array([_arrow(inner)]).__arrow_c_stream__(),
}
DEPTHS = range(1, MAX_NESTING)


class Chain:
    """Producers of one protocol, each of which converts the next one; the calls of all are counted."""

    def __init__(self, method: str) -> None:
        self.calls: Counter[str] = Counter()
        self._method = method

    def producer(self, inner: Any) -> Any:
        """Return a producer that converts `inner`, or itself for None."""

        def call(this: Any, *args: Any, **options: Any) -> Any:
            self.calls[self._method] += 1
            assert self.calls.total() < 10_000, "the number of calls is not linear"
            return METHODS[self._method](this if inner is None else inner, options)

        method = property(call) if "interface" in self._method else call
        parts = {self._method: method, "__dlpack_device__": lambda this: (1, 0)}
        if self._method != "__dlpack__":
            del parts["__dlpack_device__"]
        return type("Nested", (), parts)()

    def of(self, depth: int, leaf: Any) -> Any:
        for _ in range(depth):
            leaf = self.producer(leaf)
        return leaf


@pytest.mark.hazard("producers#producers-that-convert")
@pytest.mark.parametrize("to", ["numpy", "torch", "pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("method", METHODS)
def test_calls_grow_linearly_with_the_depth(method: str, to: str) -> None:
    pytest.importorskip(to)
    for leaf in (np.arange(3), "not an array"):
        for depth in DEPTHS:
            chain = Chain(method)
            producer = chain.of(depth, leaf)
            try:
                result = zc.convert(producer, to)
            except zc.ZeroCopyError as error:
                assert isinstance(leaf, str) or method == "__cuda_array_interface__", error  # noqa: PT017
            else:
                assert [int(value) for value in zc.convert(result, "numpy")] == [0, 1, 2]
            assert chain.calls.total() <= 2 * depth


@pytest.mark.hazard("producers#producers-that-convert")
@pytest.mark.parametrize("to", ["numpy", "torch", "pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("method", METHODS)
def test_producer_that_converts_itself_is_refused(method: str, to: str) -> None:
    pytest.importorskip(to)
    chain = Chain(method)
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(chain.producer(None), to)
    assert caught.value.code == "nested-exporters"
    assert len(str(caught.value)) < 500
    assert chain.calls.total() <= 2 * MAX_NESTING


def test_nesting_is_counted_per_thread_and_ends_with_each_call() -> None:
    for _ in range(3):
        for method in METHODS:
            chain = Chain(method)
            with pytest.raises(zc.ZeroCopyError):
                zc.convert(chain.producer(None), "numpy")
    chain = Chain("__dlpack__")
    assert zc.convert(chain.of(MAX_NESTING - 1, np.arange(3)), "numpy").tolist() == [0, 1, 2]


def test_keyword_that_an_older_producer_lacks_is_left_out() -> None:
    class Older:
        def __dlpack__(self, stream: Any = None) -> Any:
            return np.arange(3).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    assert zc.convert(Older(), "numpy").tolist() == [0, 1, 2]
