"""``array_namespace``: the namespaces of array-api-compat, and the errors of objects without one."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import zerocopy as zc

compat = pytest.importorskip("array_api_compat")


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_the_namespace_is_that_of_array_api_compat(name: str) -> None:
    pytest.importorskip(name)
    x = zc.convert(np.arange(4, dtype=np.float32), name)
    xp = zc.array_namespace(x)
    assert xp is compat.array_namespace(x)
    assert type(xp.sum(x)) is type(x) or name == "numpy"
    assert zc.array_namespace(x, 1.0, None, x) is xp


def test_arrays_of_several_namespaces_are_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(zc.UnsupportedConversionError, match=r"numpy.*, and the second .*torch") as raised:
        zc.array_namespace(np.zeros(1), 2, torch.zeros(1))
    assert raised.value.code == "several-namespaces"
    assert 'zc.convert(x, "numpy")' in raised.value.remedy


@pytest.mark.parametrize("name", ["pandas", "polars", "pyarrow", "tensorflow"])
def test_the_fix_of_an_object_without_a_namespace_works(name: str) -> None:
    pytest.importorskip(name)
    x: Any = zc.convert(np.arange(4.0), name)
    with pytest.raises(zc.UnsupportedConversionError, match="has no array API namespace") as raised:
        zc.array_namespace(x)
    assert raised.value.code == "no-namespace"
    assert eval(raised.value.remedy, {"zc": zc, "x": x}) is compat.array_namespace(np.zeros(1))


@pytest.mark.parametrize("x", [[1.0], "text", None, 3])
def test_objects_that_are_not_arrays_are_refused(x: Any) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="has no array API namespace"):
        zc.array_namespace(x)


def test_without_array_api_compat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    with pytest.raises(zc.FrameworkNotInstalledError, match="pip install array-api-compat"):
        zc.array_namespace(np.zeros(1))
