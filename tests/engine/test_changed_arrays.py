"""Assigning a shape, strides or a dtype to a NumPy array changes no result of another framework."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy import registry

pytest.importorskip("pandas")
from helpers.frameworks import HOST
from helpers.table_cases import TABLES


def _forms() -> Iterator[str]:
    for name in dict.fromkeys([*HOST, *(n for n in TABLES if "cpu" in registry.by_name(n).device_kinds)]):
        yield from (name, *(f"{name}.{form}" for form in registry.by_name(name).forms))


#: Without streams, which can be read once.
FORMS = [form for form in _forms() if not form.endswith(("Stream", "Reader"))]


def _shape(array: Any) -> None:
    array.shape = (2, -1, *array.shape[1:])


def _dtype(array: Any) -> None:
    array.dtype = np.dtype((np.void, 2)) if array.dtype.hasobject else "u1"


def _strides(array: Any) -> None:
    array.strides = (0,) * array.ndim


def _flag(array: Any) -> None:
    array.flags.writeable = False


CHANGES: dict[str, Callable[[Any], None]] = {
    "shape": _shape,
    "dtype": _dtype,
    "strides": _strides,
    "flag": _flag,
}
ARRAYS: dict[str, Callable[[], Any]] = {
    "float64": lambda: np.arange(8.0),
    "matrix": lambda: np.arange(16, dtype="i4").reshape(8, 2),
    "bool": lambda: np.ones(8, bool),
    "swapped": lambda: np.arange(8, dtype=">f8"),
    "dates": lambda: np.arange(8).astype("M8[ns]"),
    "text": lambda: np.array(["aa", "b"] * 4),
    "objects": lambda: np.array(["aa", "b"] * 4, object),
}


def state(result: Any) -> list[Any]:
    """Return the attributes of an object, and its values as other frameworks read them."""
    reads: list[Callable[[], Any]] = [
        lambda: tuple(result.shape),
        lambda: len(result),
        lambda: str(getattr(result, "dtype", getattr(result, "dtypes", None))),
        lambda: str(result),
        lambda: zc.convert(result, "pyarrow.Table").to_pydict(),
    ]
    values = []
    for read in reads:
        try:
            values.append(read())
        except Exception as error:  # noqa: BLE001 - part of the compared state
            values.append(type(error))
    return values


def change(array: Any, name: str) -> bool:
    """Change an array as named; return whether NumPy allows it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy 2.5 deprecates the assignments
        try:
            CHANGES[name](array)
        except (TypeError, ValueError, AttributeError):
            return False
    return True


def results(x: Any, to: str, **options: Any) -> list[Any]:
    """Return the results of a first and a second call, without those that are the array itself."""
    made = []
    for _ in range(2):
        try:
            made.append(zc.convert(x, to, **options))
        except zc.ZeroCopyError:
            return []
    return [r for r in made if r is not x and not (isinstance(r, dict) and any(v is x for v in r.values()))]


@pytest.mark.parametrize("to", FORMS)
@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("name", CHANGES)
def test_results_do_not_change_with_the_callers_array(to: str, kind: str, name: str) -> None:
    for inside in (False, True):
        array = ARRAYS[kind]()
        x = {"a": array} if inside else array
        made = [
            r for r in results(x, to) if not (isinstance(r, dict) and any(v is array for v in r.values()))
        ]
        before = [state(result) for result in made]
        if made and change(array, name):
            assert [state(result) for result in made] == before


@pytest.mark.parametrize("source", FORMS)
@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("name", CHANGES)
def test_sources_do_not_change_with_the_arrays_of_a_result(source: str, kind: str, name: str) -> None:
    for x in results(ARRAYS[kind](), source)[:1]:
        before = state(x)
        for result in results(x, "numpy"):
            for array in result.values() if isinstance(result, dict) else [result]:
                if isinstance(array, np.ndarray):
                    change(array, name)
        assert state(x) == before


@pytest.mark.parametrize("to", ["sparse", "scipy"])
def test_parts_of_compound_arrays_do_not_change(to: str) -> None:
    pytest.importorskip(to)
    scipy = pytest.importorskip("scipy.sparse")
    for _ in range(2):
        x: Any = scipy.csr_array(np.eye(4))
        x = x if to == "sparse" else zc.convert(x, "sparse")
        made = zc.convert(x, to)
        before = str(made)
        for name in ("data", "indices", "indptr"):
            if isinstance(getattr(x, name, None), np.ndarray):
                change(getattr(x, name), "shape")
        assert str(made) == before
