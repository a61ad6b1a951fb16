"""Exceptions that do not derive from ``Exception``, and containers whose memory is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import HOST

import zerocopy as zc
from zerocopy._engine import routes
from zerocopy.protocols.exporter_errors import is_error

#: PyO3's class for a panic of a Rust extension has this name and this base.
PanicException = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})


class Raises:
    """A producer whose export raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise self.error

    def __arrow_c_schema__(self) -> object:
        raise self.error


@pytest.mark.parametrize("target", HOST)
def test_panic_of_a_rust_extension_is_translated(target: str) -> None:
    panic = PanicException("not implemented")
    with pytest.raises(zc.UnsupportedConversionError, match="PanicException: not implemented") as caught:
        zc.convert(Raises(panic), to=target)
    assert caught.value.__cause__ is panic
    assert not zc.explain(Raises(panic), target).possible


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()], ids=repr)
def test_requests_to_end_are_not_translated(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        zc.convert(Raises(error), to="numpy")
    assert caught.value is error
    assert not is_error(error)


def test_panic_on_the_fast_path_leads_to_the_slow_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def route(_: object) -> object:
        raise PanicException("not implemented")

    x = sample("f4")
    monkeypatch.setitem(routes.TABLE, "numpy", {np.ndarray: route})
    assert zc.convert(x, to="numpy") is x


def test_empty_containers_share_no_memory() -> None:
    for empty in ((), [], {}, ((), []), [np.zeros(0)]):
        assert not zc.shares_memory(empty, empty)
    x = [np.zeros(3)]
    assert zc.shares_memory(x, x)


def test_memory_of_a_container_that_holds_itself_is_refused() -> None:
    cyclic: list = [np.zeros(2)]
    cyclic.append(cyclic)
    with pytest.raises(zc.UnsupportedConversionError, match="holds itself"):
        zc.shares_memory(cyclic, np.zeros(2))
    assert zc.shares_memory(cyclic, cyclic)
