"""Inputs and options that are refused, each with its reason."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.records import POINT, filled, refused
from helpers.versions import text_of_numpy_2

import zerocopy as zc
from zerocopy import aos_to_soa, soa_to_aos

Unsupported = zc.UnsupportedConversionError


def test_the_error_for_a_table_names_soa_to_aos_and_its_fixes_work() -> None:
    """``soa_to_aos`` has no nulls=: the fixes call ``convert``, which returns the records too."""
    pa = pytest.importorskip("pyarrow")
    x = pa.table({"a": [1, None], "b": [0.5, 1.5]})
    with pytest.raises(zc.LossyConversionError, match="'a' has 1 null") as raised:
        soa_to_aos(x)
    assert raised.value.asked == "soa_to_aos(pyarrow.Table (2, 2))"
    for call in raised.value.calls:
        records = eval(call, {"zc": zc, "x": x})
        assert (records.dtype.names, records["b"].tolist()) == (("a", "b"), [0.5, 1.5])
    with pytest.raises(zc.LossyConversionError) as raised:
        soa_to_aos(x, [("a", "i4"), ("b", "f8")])
    assert raised.value.asked == "soa_to_aos(pyarrow.Table (2, 2), dtype=[('a', 'i4'), ('b', 'f8')])"


def test_arrow_columns_that_records_cannot_hold_are_refused() -> None:
    """NumPy would convert integers with nulls to floats, and drop time zones."""
    pa = pytest.importorskip("pyarrow")
    nulls, zoned = pa.array([2**53 + 1, None]), pa.array([1], pa.timestamp("us", "UTC"))
    refused(zc.LossyConversionError, "1 null", soa_to_aos, {"a": nulls}, untouched=[])
    refused(Unsupported, "no time zone", soa_to_aos, {"a": zoned}, untouched=[])
    assert soa_to_aos({"a": pa.chunked_array([[1]])}).tolist() == [(1,)]
    assert soa_to_aos(pa.table({"a": [1]})).tolist() == [(1,)]
    refused(
        Unsupported, "a Table has separate columns already", aos_to_soa, pa.table({"a": [1]}), untouched=[]
    )


def test_columns_that_numpy_cannot_convert_are_refused() -> None:
    class Unconvertible:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            raise RuntimeError("failed")

    error = refused(Unsupported, "RuntimeError: failed", soa_to_aos, {"a": Unconvertible()}, untouched=[])
    assert isinstance(error.__cause__, RuntimeError)
    refused(Unsupported, "names of fields must be strings", soa_to_aos, {0: np.zeros(3)}, untouched=[])


def test_fields_of_python_objects_are_refused_by_name() -> None:
    nested = np.zeros(2, [("a", "i4"), ("n", [("b", "f4"), ("o", object, (2,))], (3,))])
    flat = np.zeros(2, [("a", "i4"), ("o", object)])
    for options in ({}, {"copy": False}, {"copy": True}):
        error = refused(Unsupported, r"'n\.o' holds Python objects", aos_to_soa, nested, **options)
        assert "fields=" in error.remedy
        refused(Unsupported, "'o' holds Python objects", aos_to_soa, flat, **options)
    refused(Unsupported, "Python objects", aos_to_soa, b"12345678", dtype=[("o", object)])
    for column in (np.array([{}, 1], object), *text_of_numpy_2(["a", "b"])):
        error = refused(Unsupported, r"soa_to_aos.*'n\.o' holds", soa_to_aos, {"n": {"o": column}})
        assert "leave the column out" in error.remedy
    refused(Unsupported, "'a' holds", soa_to_aos, {"a": np.zeros(2)}, [("a", object)])


@pytest.mark.parametrize("threads", [0, -1, -100, True, False, 2.0, "2", [2]])
def test_invalid_thread_counts_are_refused(threads: Any) -> None:
    records, out = filled(POINT), filled(POINT)
    columns = aos_to_soa(records)
    refused(
        ValueError,
        "threads must be an integer of at least 1",
        aos_to_soa,
        records,
        out=columns,
        threads=threads,
        untouched=columns.values(),
    )
    refused(
        ValueError,
        "threads must be an integer of at least 1",
        soa_to_aos,
        columns,
        out=out,
        threads=threads,
        untouched=[out],
    )


@pytest.mark.parametrize("copy", [5, 0, 1, "no", np.zeros(2)], ids=str)
def test_invalid_copy_options_are_refused(copy: Any) -> None:
    """0 and 1 are refused too, although they are equal to False and True."""
    records = filled(POINT)
    refused(ValueError, "copy must be True, False or None", aos_to_soa, records, copy=copy)
    refused(ValueError, "copy must be True, False or None", soa_to_aos, aos_to_soa(records), copy=copy)


def test_streams_are_refused_for_host_memory() -> None:
    records = filled(POINT)
    refused(Unsupported, "host memory, which has no streams", aos_to_soa, records, stream=1)
    refused(Unsupported, "host memory, which has no streams", soa_to_aos, aos_to_soa(records), stream=1)


def test_columns_that_do_not_match_the_fields_are_refused() -> None:
    a, b = np.zeros(3), np.zeros(4)
    cases: list[tuple[Any, Any, str]] = [
        ([a], None, "a list is not a mapping"),
        (a, None, "a ndarray is not a mapping"),
        ({"a": a, "b": b}, None, "differ in length: 'a' has 3, 'b' has 4"),
        ({"a": a, "n": {"b": b}}, None, "'n.b' has 4"),
        ({"n.b": a, "n": {"b": b}}, None, "differ in length"),  # two names that read the same
        ({"a": a, "b": a[:0]}, None, "differ in length"),
        ({"a": 5.0}, None, "'a' is a scalar, not a column"),
        ({"a": a}, [("b", "f8")], "the fields are"),
        ({"a": a}, [("a", "f8"), ("b", "f8")], "the fields are"),
        ({"a": a, "b": a}, [("a", "f8")], "the fields are"),
        ({"n": {"a": a}}, [("n", "f8")], "the fields are"),
        ({"n": a}, [("n", [("a", "f8")])], "the fields are"),
        ({"a": a}, [("a", "f8", (2,))], r"'a' has the shape \(2,\), a row of its column \(\)"),
        ({"a": np.zeros((3, 2))}, [("a", "f8", (3,))], r"shape \(3,\), a row of its column \(2,\)"),
    ]
    for columns, dtype, match in cases:
        out = filled(POINT, 3)
        if dtype is not None:  # or it would be that of `out`
            refused(Unsupported, match, soa_to_aos, columns, dtype, untouched=[out], out=out)
        refused(Unsupported, match, soa_to_aos, columns, dtype)


def test_lossy_casts_are_refused() -> None:
    """Casts that NumPy calls safe are refused too if a value does not fit."""
    lossy: list[tuple[Any, str]] = [
        (np.array([1]), "i4"), (np.array([1.5]), "f4"), (np.array([1j]), "f8"), (np.array([b"abc"]), "S2"),
        (np.array([-1], "i1"), "u8"), (np.array([2**53 + 1]), "f8"), (np.array([-(2**53) - 1]), ">f8"),
        (np.array([2**64 - 1], "u8"), "c16"), (np.array(["2300-01-01"], "M8[s]"), "M8[ns]"),
        (np.array([2**40], "m8[s]"), "m8[ns]"),
    ]  # fmt: skip
    for column, dtype in lossy:
        refused(
            zc.LossyConversionError,
            "'a' is .*, which cannot hold|'a' cannot be",
            soa_to_aos,
            {"a": column},
            [("a", dtype)],
        )
    exact: list[tuple[Any, str]] = [
        (np.array([2**53, -(2**53)]), "f8"), (np.array([1, 255], "u1"), ">i2"),
        (np.array([1.5], "f4"), "c16"),
        (np.array(["NaT", "2262-01-01"], "M8[D]"), "M8[ns]"), (np.array(["2000"], "M8[Y]"), ">M8[s]"),
        (np.array([b"ab"]), "S5"), (np.array(["ab"]), ">U5"), (np.array([1, -2], ">i4"), "i8"),
        (np.zeros(0, "i8"), "f8"),
    ]  # fmt: skip
    for column, dtype in exact:
        records = soa_to_aos({"a": column}, [("a", dtype)])
        assert records.dtype["a"] == dtype
        assert records["a"].tolist() == column.astype(dtype).tolist()


@pytest.mark.hazard("other-frameworks#numba-cuda-without-row-stack")
def test_numba_cuda_without_support_of_this_numpy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba-cuda 0.30.4 reads ``numpy.row_stack``, which NumPy 2.5 lacks, before its first kernel."""
    from zerocopy.layout import on_device

    def load(name: str) -> Any:
        raise AttributeError("module 'numpy' has no attribute 'row_stack'")

    monkeypatch.setitem(sys.modules, "zerocopy.layout.cuda", SimpleNamespace(transposition=None))
    monkeypatch.setattr(on_device, "import_module", load)
    on_device._kernels.cache_clear()
    interface = {"shape": (2,), "typestr": "|V8", "data": (64, False), "version": 3}
    records = SimpleNamespace(dtype=np.dtype([("a", "f4"), ("b", "f4")]), __cuda_array_interface__=interface)
    error = refused(Unsupported, "does not support NumPy", aos_to_soa, records)
    assert "numpy<2.5" in str(error)
