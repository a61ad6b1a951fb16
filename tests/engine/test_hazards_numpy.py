"""Hazards of NumPy in current versions: each test shows the hazard, or that zerocopy guards against it.

If NumPy fixes a hazard, the test that shows it fails, and the guard can be removed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.tiers import sampled

import zerocopy as zc

pytest.importorskip("torch")


@pytest.mark.hazard("producers#masks-and-units")
@pytest.mark.parametrize("shape", [0, (0, 2)])
@pytest.mark.parametrize("fields", [[("a", "i4"), ("b", "f8")], [("a", [("b", "i4")])]])
def test_masked_records_without_rows_are_records(fields: list[tuple[str, Any]], shape: Any) -> None:
    records = np.zeros(shape, fields)
    masked = np.ma.masked_array(records)
    for obj, plain in ((masked, records), ({"r": masked}, {"r": records})):
        expected = zc.explain(plain, "numpy", copy=True)
        assert zc.explain(obj, "numpy", copy=True).possible is expected.possible
        if expected.possible:
            result = zc.convert(obj, "numpy", copy=True)
            assert (result["r"] if isinstance(result, dict) else result).dtype == records.dtype


@pytest.mark.hazard("producers#masks-and-units")
def test_masked_elements_are_refused() -> None:
    x = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])
    for target in ("torch", "jax", "tensorflow", "pyarrow"):
        with pytest.raises(zc.LossyConversionError, match="1 of 3 elements are masked"):
            zc.convert(x, to=target)
    assert zc.convert(x, to="numpy") is x
    unmasked = np.ma.masked_array([1.0, 2.0])
    assert zc.shares_memory(unmasked, zc.convert(unmasked, to="torch", copy=False))


class Interface:
    """A producer of NumPy's array interface with a mask."""

    def __init__(self, array, mask) -> None:
        self.array, self.__array_interface__ = array, {**array.__array_interface__, "mask": mask}


class Veiled(np.ndarray):
    """A subclass whose mask lies outside its data."""

    mask = False

    def __array_finalize__(self, other) -> None:
        self.mask = getattr(other, "mask", False)


def veiled(values, hidden):
    array = np.array(values).view(Veiled)
    array.mask = np.array(hidden)
    return array


def records(count=3):
    return np.ones(count, [("a", "f8"), ("b", "i4"), ("c", [("d", "u1", 2)])])


def of_astropy(hidden, make):
    astropy_masked = pytest.importorskip("astropy.utils.masked").Masked
    return make(astropy_masked, pytest.importorskip("astropy.units"), pytest.importorskip("astropy.table"))


#: Arrays of three elements with masks, by how they are made; some elements are hidden or none is.
MASKED = {
    "numpy.ma": lambda hidden: np.ma.array(np.arange(3.0), mask=hidden),
    "numpy.ma, dates": lambda hidden: np.ma.array(np.arange(3).astype("M8[s]"), mask=hidden),
    "numpy.ma, text": lambda hidden: np.ma.array(["a", "b", "c"], mask=hidden),
    "numpy.ma, records": lambda hidden: np.ma.array(records(), mask=hidden),
    "numpy.ma, matrix": lambda hidden: np.ma.array(np.ones((3, 2)), mask=np.transpose([hidden] * 2)),
    "subclass": lambda hidden: veiled(np.arange(3), hidden),
    "Masked": lambda hidden: of_astropy(hidden, lambda cls, u, t: cls(np.arange(3.0), mask=hidden)),
    "Masked, records": lambda hidden: of_astropy(hidden, lambda cls, u, t: cls(records(), mask=_all(hidden))),
    "MaskedQuantity": lambda hidden: of_astropy(
        hidden, lambda cls, u, t: cls(np.arange(3.0) * u.m, mask=hidden)
    ),
    "MaskedColumn": lambda hidden: of_astropy(
        hidden, lambda cls, u, t: t.MaskedColumn([1, 2, 3], mask=hidden)
    ),
}


def _all(hidden):
    """Return a mask of records whose fields are all hidden or not."""
    return np.array([(one, one, ((one, one),)) for one in hidden], np.ma.make_mask_descr(records().dtype))


@pytest.mark.hazard("producers#masks-and-units")
@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("to", ["torch", "pyarrow", "pandas", "jax", "polars"])
def test_masks_outside_the_data_are_refused(to: str, name: str) -> None:
    calls = [{}, {"copy": True}, {"encode": True}]
    for hidden in ([False, True, False], [True] * 3):
        x = MASKED[name](hidden)
        objects = [x, {"a": x}, [x], x.reshape(3, -1)]
        for obj, options in sampled(2, objects, calls, first=sum(hidden) + len(name + to)):
            plan = zc.explain(obj, to, **options)
            assert not plan.possible
            with pytest.raises(zc.LossyConversionError, match="masked") as error:
                zc.convert(obj, to, **options)
            assert error.value.code == "masked"
        for call in (
            zc.view,
            zc.share,
            lambda x: zc.soa_to_aos({"a": x}),
            lambda x: zc.convert(x, "numpy", copy=True),
        ):
            with pytest.raises(zc.ZeroCopyError):
                call(x)


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.hazard("producers#masks-and-units")
def test_an_array_whose_mask_hides_nothing_is_converted_and_fixes_work(name: str) -> None:
    x = MASKED[name]([False] * 3)
    assert zc.explain(x, "pandas").possible
    assert len(zc.convert(x, "pandas")) == 3
    hidden = MASKED[name]([False, True, False])
    with pytest.raises(zc.LossyConversionError) as error:
        zc.convert(hidden, "pandas")
    calls = error.value.calls
    assert calls
    for call in calls:
        if "filled(0)" in call and ("dates" in name or "text" in name):
            continue  # NumPy's own rules for the value
        names = {"zc": zc, "x": hidden, "numpy": np}
        exec(call.replace("import numpy; ", ""), names)


@pytest.mark.hazard("producers#masks-and-units")
@pytest.mark.parametrize(
    "mask", [np.array([True, False, True]), np.ones(3, bool), b"\0\1\0", np.True_], ids=repr
)
@pytest.mark.parametrize("dtype", ["f8", "?", ">i4", [("a", "f4"), ("b", "u1")]], ids=repr)
def test_the_mask_of_an_array_interface_is_refused(dtype, mask) -> None:
    """NumPy ignores it; its elements are those that are valid."""
    memory = np.ones(3, dtype)
    assert len(zc.convert(Interface(memory, None), "numpy")) == 3
    for _ in range(2):
        x = Interface(memory, mask)
        for to in ("numpy", "torch", "pyarrow"):
            for obj in (x, {"a": x}):
                assert not zc.explain(obj, to).possible
                with pytest.raises(zc.LossyConversionError, match="mask"):
                    zc.convert(obj, to)
        with pytest.raises(zc.LossyConversionError):
            zc.view(x)


class Measured(np.ndarray):
    """A subclass with a unit, as those of unyt and other libraries."""

    units = "km"


@pytest.mark.hazard("producers#masks-and-units")
@pytest.mark.parametrize("to", ["torch", "pyarrow", "pandas", "jax", "polars", "xarray"])
def test_plans_list_units_that_are_lost(to: str) -> None:
    units, table = pytest.importorskip("astropy.units"), pytest.importorskip("astropy.table")

    class Protocol:
        unit = units.s

        def __init__(self) -> None:
            self.array = np.arange(3.0)
            self.__array_interface__ = self.array.__array_interface__

    sources = {
        "km": np.arange(3.0).view(Measured),
        "m": np.arange(3.0) * units.m,
        "m / s2": np.ones((3, 2)) * units.m / units.s**2,
        "kg": table.Column([1, 2, 3], unit="kg"),
        "s": Protocol(),
    }
    for unit, x in sources.items():
        plan = zc.explain(x, to)
        assert [text for text in plan.warnings if repr(unit) in text and "lost" in text], (unit, plan)
        plan = zc.explain({"a": x}, to)
        texts = [*plan.warnings, *(text for leaf in (plan.leaves or {}).values() for text in leaf.warnings)]
        assert [text for text in texts if repr(unit) in text], (unit, plan)
    for x in (np.arange(3.0), np.arange(3.0) * units.dimensionless_unscaled, table.Column([1, 2, 3])):
        assert not [text for text in zc.explain(x, to).warnings if "unit" in text]
    assert not zc.explain(sources["m"], "numpy").warnings, "it is returned itself"


@pytest.mark.hazard("producers#types-without-a-counterpart-and-scalars")
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


@pytest.mark.hazard("producers#types-without-a-counterpart-and-scalars")
def test_numpy_dates_are_refused_and_encoded() -> None:
    x = np.array(["2020-01-01", "NaT"], "M8[us]")
    with pytest.raises(zc.UnsupportedConversionError, match=r"timestamp\[us\]") as caught:
        zc.convert(x, to="torch")
    assert "encode=True" in caught.value.remedy
    values = zc.convert(x[:1], to="torch", encode=True).values
    assert values.tolist() == [1577836800000000]
    assert zc.shares_memory(x.view("i8"), values)


@pytest.mark.hazard("producers#types-without-a-counterpart-and-scalars")
def test_numpy_scalars_are_copied() -> None:
    x = np.float32(3)
    assert zc.convert(x, to="torch").item() == 3
    assert isinstance(zc.convert(x, to="numpy"), np.ndarray)
    with pytest.raises(zc.CopyRequiredError, match="scalar"):
        zc.convert(x, to="torch", copy=False)
