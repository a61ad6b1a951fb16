"""Hazards of NumPy in current versions: each test shows the hazard, or that zerocopy guards against it.

If NumPy fixes a hazard, the test that shows it fails, and the guard can be removed.
"""

from __future__ import annotations

import numpy as np
import pytest

import zerocopy as zc

pytest.importorskip("torch")


@pytest.mark.hazard("numpy#masked-arrays")
def test_masked_elements_are_refused() -> None:
    x = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])
    for target in ("torch", "jax", "tensorflow", "pyarrow"):
        with pytest.raises(zc.LossyConversionError, match="1 of 3 elements are masked"):
            zc.convert(x, to=target)
    assert zc.convert(x, to="numpy") is x
    unmasked = np.ma.masked_array([1.0, 2.0])
    assert zc.shares_memory(unmasked, zc.convert(unmasked, to="torch", copy=False))


@pytest.mark.hazard("numpy#types-without-a-counterpart-and-scalars")
@pytest.mark.parametrize(
    ("x", "hint"),
    [
        (np.array([["2020-01-01"]], "M8[D]"), "int64"),
        (np.array([[1]], "m8[s]"), "int64"),
        (np.array(["text"]), "uint32"),
        (np.array([b"text"]), "bytes"),
        (np.array([1, {}], object), "encode=True"),
        (np.zeros((2, 2), [("a", "f4"), ("b", "i4")]), "fields"),
        (np.zeros(2, np.longdouble), "float64"),
    ],
)
def test_numpy_types_without_counterpart_are_refused(x: np.ndarray, hint: str) -> None:
    for _ in range(2):
        zc.convert(np.arange(3.0), to="torch")
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            zc.convert(x, to="torch")
        assert str(x.dtype) in str(caught.value)
        assert hint in caught.value.remedy


@pytest.mark.hazard("numpy#types-without-a-counterpart-and-scalars")
def test_numpy_dates_are_refused_and_encoded() -> None:
    x = np.array(["2020-01-01", "NaT"], "M8[us]")
    with pytest.raises(zc.UnsupportedConversionError, match=r"timestamp\[us\]") as caught:
        zc.convert(x, to="torch")
    assert "encode=True" in caught.value.remedy
    values = zc.convert(x[:1], to="torch", encode=True).values
    assert values.tolist() == [1577836800000000]
    assert zc.shares_memory(x.view("i8"), values)


@pytest.mark.hazard("numpy#types-without-a-counterpart-and-scalars")
def test_numpy_scalars_are_copied() -> None:
    x = np.float32(3)
    assert zc.convert(x, to="torch").item() == 3
    assert isinstance(zc.convert(x, to="numpy"), np.ndarray)
    with pytest.raises(zc.CopyRequiredError, match="scalar"):
        zc.convert(x, to="torch", copy=False)
