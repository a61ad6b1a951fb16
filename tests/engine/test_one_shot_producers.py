"""Producers that have one capsule only: each conversion asks once, and a description consumes nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.tiers import sampled
from helpers.versions import needs_versioned_capsules

import zerocopy as zc
from zerocopy import registry

TARGETS = [name for name, info in registry.frameworks().items() if info.installed]
DTYPES = ["?", "i8", "u2", "f4", "c8"]
_KEYWORDS: dict[str, dict[str, Any]] = {
    "legacy": {},
    "versioned": {"max_version": (1, 0)},
    "copied": {"max_version": (1, 0), "copy": True},
}
KEYWORDS = [
    pytest.param(options, id=name, marks=[needs_versioned_capsules] if options else [])
    for name, options in _KEYWORDS.items()
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"copy": True},
    {"copy": False},
    {"writable": True},
    {"device": "cpu"},
    {"dtype": "float32"},
    {"validate": "full"},
    {"layout": "matrix"},
]


class Once:
    """A producer whose first call exports a capsule; later calls return the same one or raise."""

    def __init__(self, array: np.ndarray, keywords: dict[str, Any], raises: bool) -> None:
        self.export, self.raises = lambda: array.__dlpack__(**keywords), raises
        self.capsule: Any = None
        self.calls = 0

    def __dlpack__(self, **options: Any) -> Any:
        self.calls += 1
        if self.capsule is None:
            self.capsule = self.export()
        elif self.raises:
            raise BufferError("exported already")
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def arrays() -> list[np.ndarray]:
    """Arrays of each dtype, also booleans of other bytes."""
    other = np.array([0, 2, 255], np.uint8).view(np.bool_)
    return [*(sample(dtype, (3,)) for dtype in DTYPES), sample("?", (2, 3)), sample("?", ()), other]


def calls(to: str) -> dict[str, Callable[[Any], Any]]:
    """Return ways to convert an object, each of which converts it once."""
    given = {f"convert{options}": lambda x, o=options: zc.convert(x, to, **o) for options in OPTIONS}
    return {
        **given,
        "list": lambda x: zc.convert([x], to),
        "dict": lambda x: zc.convert({"a": x}, to),
        "tree": lambda x: zc.convert([{"b": (x,)}], to),
        "accepts": lambda x: zc.accepts(to)(lambda y: y)(x),
        "bridge": lambda x: zc.bridge(lambda y: y, to=to)(x),
        "share": lambda x: zc.share(x),
    }


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("keywords", KEYWORDS)
def test_a_conversion_asks_once(to: str, keywords: dict[str, Any]) -> None:
    named = [*calls(to).items()]
    for (name, call), array in sampled(3, named, arrays(), first=TARGETS.index(to) + len(keywords)):
        obj, code = Once(array, keywords, raises=True), ""
        try:
            call(obj)
        except zc.ZeroCopyError as error:
            code = error.code
        assert (code in ("producer-raised", "consumed"), obj.calls > 1) == (False, False), (name, array)


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("keywords", KEYWORDS)
def test_descriptions_consume_nothing(to: str, keywords: dict[str, Any]) -> None:
    for options, array in sampled(3, OPTIONS, arrays(), first=TARGETS.index(to) + len(keywords)):
        if "copy" in keywords and "dtype" in options:
            continue  # the check of a cast reads the producer's copy
        obj = Once(array, keywords, raises=False)
        plan = zc.explain(obj, to, **options)
        with suppress(zc.CopyRequiredError):  # a copy of the producer, or booleans of other bytes
            zc.view(obj)
        zc.shares_memory(obj, array)
        result, code = None, ""
        try:
            result = zc.convert(obj, to, **options)
        except zc.ZeroCopyError as error:
            code = error.code
        assert (code == "") == plan.possible, (options, array, code)
        if to == "numpy" and plan.possible and "dtype" not in options:
            assert np.array_equal(result, array.view("u1") != 0 if array.dtype == bool else array)


class OneArrowArray:
    """A producer whose first call exports a pair of Arrow capsules."""

    def __init__(self) -> None:
        pa = pytest.importorskip("pyarrow")
        self.capsules = [pa.array([1.0, 2.0]).__arrow_c_array__()]

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.capsules.pop()


class OneArrowStream(OneArrowArray):
    """A producer whose first call exports a stream."""

    def __init__(self) -> None:
        pa = pytest.importorskip("pyarrow")
        self.capsules = [pa.chunked_array([[1.0], [2.0]]).__arrow_c_stream__()]

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.capsules.pop()


@pytest.mark.parametrize("make", [OneArrowArray, OneArrowStream])
def test_arguments_of_functions_are_exported_once(make: Callable[[], Any]) -> None:
    assert zc.accepts("numpy")(lambda x: x)(make()).tolist() == [1.0, 2.0]
