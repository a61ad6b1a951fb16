"""Fixes whose composition fails leave the refusal as it is, and none is the call that failed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine.call_text import arguments
from zerocopy.errors import Fix, UnsupportedConversionError

pytest.importorskip("pyarrow")
fix_cases = pytest.importorskip("helpers.fix_cases")  # it needs pyarrow


class Refusing(zc.Framework):
    """It refuses each array, with fixes that a test chooses."""

    name, root_modules = "refusing", ("refusing",)
    fixes: tuple[Fix, ...] = ()

    def module(self) -> Any:
        return itertools

    def copy_reasons(self, view: Any) -> list[zc.Reason]:
        raise UnsupportedConversionError("", "the array is refused", fixes=self.fixes)


class RaisingAttribute(np.ndarray):
    @property
    def broken(self) -> Any:
        raise RuntimeError("the property raised")


def error_of(x: Any, fixes: tuple[Fix, ...], **options: Any) -> zc.ZeroCopyError:
    framework = Refusing()
    framework.fixes = fixes
    zc.register(framework)
    with pytest.raises(zc.ZeroCopyError, match="the array is refused") as caught:
        zc.convert(x, "refusing", **options)
    plan = zc.explain(x, "refusing", **options)
    assert plan.error is not None
    assert plan.error.calls == caught.value.calls
    return caught.value


@pytest.mark.parametrize(
    "fix",
    [Fix(options={"dtype": "int129"}), Fix(to="absent.form"), Fix(options={"lists": 3}), Fix("{x}.broken")],
    ids=str,
)
def test_an_error_while_fixes_are_composed_does_not_replace_the_refusal(fix: Fix) -> None:
    x = np.zeros(3).view(RaisingAttribute)
    assert isinstance(error_of(x, (fix,)), UnsupportedConversionError)


@pytest.mark.parametrize(
    "options",
    [{"dtype": "float32"}, {"copy": True}, {"dtype": np.dtype("f4"), "copy": None}, {"writable": False}],
    ids=str,
)
def test_the_call_that_failed_is_no_fix(options: dict[str, Any]) -> None:
    x = np.zeros(3)
    assert error_of(x, (Fix(options=options),), **options).calls == ()
    calls = error_of(x, (Fix(options=options), Fix("{x}.copy()")), **options).calls
    assert all("x.copy()" in call for call in calls)


@pytest.mark.parametrize(
    "to", [f.name for f in registry.known() if f.installed() and "cpu" in f.device_kinds]
)
def test_no_fix_of_a_frame_is_the_call_that_failed(to: str) -> None:
    frames = [{"x": [["a"], ["b"]], "n": [1, None]}, {"x": ["a", None], "n": [{"k": 1}, {"k": 2}]}]
    import pyarrow as pa

    lists, encode, layout = (
        (None, "pad", "dense", "ragged"),
        (None, True, "bytes"),
        (None, "matrix", "records"),
    )
    names = ("lists", "encode", "layout")
    for frame, *values in itertools.product(frames, lists, encode, layout):
        options = {n: v for n, v in zip(names, values, strict=True) if v is not None}
        error = fix_cases.attempt(lambda f=frame, o=options: zc.convert(pa.table(f), to, **o))
        assert error is None or f'zc.convert(x, "{to}"{arguments(options)})' not in error.calls
