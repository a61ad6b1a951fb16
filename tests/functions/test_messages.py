"""Fixes of functions that `accepts` decorates name the argument, and work when pasted."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.pasting import pasted
from helpers.tiers import sampled

import zerocopy as zc

pytest.importorskip("torch")
fix_cases = pytest.importorskip("helpers.fix_cases")  # it needs pyarrow


_settings = pytest.fixture(autouse=True)(fix_cases.default_settings)


@pytest.mark.parametrize("module", ["numpy", "torch", "pyarrow", "pandas", "polars"])
def test_the_fixes_of_an_argument_work_when_pasted(module: str) -> None:
    cases = list(fix_cases.object_cases(module, ("torch", "polars")))
    for (case,) in sampled(max(len(cases) // 24, 1), cases, first=len(module)):

        @zc.accepts(case.to, returns=None, **case.options)
        def function(data: Any) -> Any:
            return data

        error = fix_cases.attempt(lambda case=case, f=function: f(case.make()))
        if error is None or not error.asked.startswith("argument"):
            continue
        for code in error.calls:
            recorder = fix_cases.Recorder()
            names = {"data": case.make(), "zc": recorder}
            then = fix_cases.attempt(lambda code=code, names=names: pasted(code, names))
            assert then is None or then.why != error.why, (case, code)


def test_the_argument_is_named_in_a_container_too() -> None:
    @zc.accepts("torch")
    def function(first: Any, *rest: Any) -> Any:
        return first

    import numpy as np

    masked = np.ma.masked_equal(np.arange(3), 1)
    with pytest.raises(zc.ZeroCopyError) as caught:
        function(np.ones(2), {"a": [masked]})
    (code, *_) = caught.value.calls
    result = pasted(code, {"rest": ({"a": [masked]},), "zc": zc})
    assert result.tolist() == [0, 0, 2]
