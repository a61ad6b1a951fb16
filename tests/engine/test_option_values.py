"""An invalid value of an option is an `OptionError`, also a ValueError, with the nearest valid value."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import numpy as np
import pytest

import zerocopy as zc

#: Values of each option that are misspelled, and what the message suggests.
MISSPELLED = [
    ({"layout": "matix"}, 'layout="matrix"'),
    ({"layout": "Record"}, 'layout="records"'),
    ({"lists": "padd"}, 'lists="pad"'),
    ({"nulls": "nans"}, 'nulls="nan"'),
    ({"nulls": {"x": "msk"}}, 'nulls="mask"'),
    ({"encode": "byte"}, 'encode="bytes"'),
    ({"leaves": "kep"}, 'leaves="keep"'),
    ({"validate": "ful"}, 'validate="full"'),
    ({"dtype": "flot32"}, "'float32'"),
    ({"device": "cdua"}, 'device="cuda"'),
]
#: Values of another type.
INVALID = [
    {"layout": ["matrix"]},
    {"layout": "matrix:F"},
    {"order": "F"},
    {"order": "F", "layout": "columns"},
    {"order": "c", "layout": "matrix"},
    {"lists": 3},
    {"nulls": print},
    {"encode": 2},
    {"leaves": np.zeros(2)},
    {"validate": True},
    {"copy": 0},
    {"writable": "no"},
    {"pad_value": 1},
    {"pad_value": "0", "lists": "pad"},
    {"max_length": -1, "lists": "pad"},
    {"index": "x"},
    {"columns": "x"},
    {"names": "x"},
    {"dtype": print},
    {"device": print},
    {"stream": "a"},
    {"stream": 0},
]


def entry_points() -> dict[str, Callable[..., Any]]:
    x = np.zeros((2, 2))

    def refused(**options: Any) -> Any:
        plan = zc.explain(x, "numpy", **options)
        raise plan.error or AssertionError(plan)

    return {
        "convert": lambda **options: zc.convert(x, "numpy", **options),
        "explain": refused,
        "convert a dict": lambda **options: zc.convert({"x": x[0]}, "numpy", **options),
        "converter": lambda **options: zc.converter(x, "numpy", **options),
        "accepts": lambda **options: zc.accepts("numpy", **options)(lambda x: x)(x),
    }


@pytest.mark.parametrize("entry", entry_points())
@pytest.mark.parametrize(("options", "suggested"), MISSPELLED, ids=str)
def test_a_misspelled_value_names_the_nearest_one(
    entry: str, options: dict[str, Any], suggested: str
) -> None:
    with pytest.raises(zc.errors.OptionError) as caught:
        entry_points()[entry](**options)
    assert isinstance(caught.value, ValueError)
    assert f"did you mean {suggested}" in caught.value.remedy


@pytest.mark.parametrize("entry", entry_points())
@pytest.mark.parametrize("options", INVALID, ids=str)
def test_a_value_of_another_type_is_an_option_error(entry: str, options: dict[str, Any]) -> None:
    with pytest.raises(zc.errors.OptionError) as caught:
        entry_points()[entry](**options)
    assert isinstance(caught.value, ValueError)
    assert next(iter(options)) in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "call",
    [
        lambda: zc.loader({"x": np.zeros(2)}, "numpy", batch_size=1, layout="matix"),
        lambda: zc.loader({"x": np.zeros(2)}, "numpy", batch_size=0),
        lambda: zc.aos_to_soa(np.zeros(2, [("x", "f4")]), copy=0),
        lambda: zc.aos_to_soa(np.zeros(2, [("x", "f4")]), threads=0),
        lambda: zc.soa_to_aos({"x": np.zeros(2)}, threads="2"),
        lambda: zc.aos_to_soa(np.zeros(2, [("x", "f4")]), fields="x"),
        lambda: zc.shared_empty(-1, "f4"),
        lambda: zc.shared.set_limit(-1),
    ],
)
def test_other_functions_raise_it_too(call: Callable[[], Any]) -> None:
    with pytest.raises(zc.errors.OptionError) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert caught.value.remedy


@pytest.mark.parametrize("x", [np.zeros(2), {"x": np.zeros(2), "n": np.zeros(2)}], ids=["array", "columns"])
def test_an_unknown_key_of_dtype_has_calls_that_work(x: Any) -> None:
    options = {"dtype": {"flot64": "float32"}, "layout": "columns"}
    with pytest.raises(zc.errors.OptionError) as caught:
        zc.convert(x, "numpy", **options)
    assert '"float32"' in caught.value.calls[0]
    for call in caught.value.calls:
        eval(call, {"x": x, "zc": zc})


class Layout(StrEnum):
    MATRIX = "matrix"


@pytest.mark.parametrize(
    "layout", [np.str_("matrix"), Layout.MATRIX], ids=lambda layout: type(layout).__name__
)
def test_the_layout_may_be_a_subclass_of_str(layout: str) -> None:
    data = {"x": np.ones(2), "y": np.ones(2)}
    for _ in range(2):  # before and after the route is made
        assert zc.convert(data, "numpy", layout=layout).shape == (2, 2)
        assert zc.convert(data, "numpy", layout=layout, order="F").flags.f_contiguous
    assert type(zc.converter(data, "numpy", layout=layout).options["layout"]) is str
    assert next(iter(zc.loader(data, "numpy", layout=layout))).shape == (2, 2)


@pytest.mark.parametrize("name", ["pad", "max"])
def test_an_unknown_option_names_those_that_begin_with_it(name: str) -> None:
    for function in (zc.convert, zc.loader):
        with pytest.raises(TypeError, match=f"'{name}'; did you mean '{name}_"):
            function({"x": np.ones(2)}, "numpy", **{name: 1})


@pytest.mark.parametrize("options", [{"columns": [["x"]]}, {"columns": [("x", [])]}, {"names": [{}, {}]}])
def test_a_name_that_is_a_list_is_a_fault_of_the_option(options: dict[str, Any]) -> None:
    (name,) = options
    for function in (zc.convert, zc.explain):
        with pytest.raises(zc.errors.OptionError, match=f"^{name}=<list>: {name} must be a list of names"):
            function({"x": np.ones(2)}, "numpy", **options)
