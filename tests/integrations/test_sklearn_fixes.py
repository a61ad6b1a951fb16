"""The calls of the messages of ``MoveTo`` work when pasted, and those of the next reasons too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted
from helpers.tiers import sampled

import zerocopy as zc

pytest.importorskip("sklearn")
pa, pd, pl = (pytest.importorskip(name) for name in ("pyarrow", "pandas", "polars"))
torch = pytest.importorskip("torch")
fix_cases = pytest.importorskip("helpers.fix_cases")

from zerocopy.integrations.sklearn import MoveTo  # noqa: E402

OBJECTS: dict[str, Callable[[], Any]] = {
    "numbers": lambda: pd.DataFrame({"a": [1.0, 2.0], "b": [1, 2]}),
    "text": lambda: pd.DataFrame({"a": ["x", "y"], "b": [1, 2]}),
    "nulls": lambda: pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [1.0, 2.0]}),
    "booleans": lambda: pd.DataFrame({"a": pd.array([True, None], "boolean"), "b": [1.0, 2.0]}),
    "dates": lambda: pd.DataFrame({"a": pd.to_datetime(["2020", None]), "b": [1.0, 2.0]}),
    "categories": lambda: pd.DataFrame({"a": pd.Categorical(["a", "b"]), "b": [1.0, 2.0]}),
    "twice": lambda: pd.DataFrame(np.ones((2, 2)), columns=["x", "x"]),
    "Arrow's twice": lambda: pa.table([[1.0], [2.0]], names=["x", "x"]),
    "Arrow's lists": lambda: pa.table({"a": [[1], [2]], "b": [1, 2]}),
    "polars' text": lambda: pl.DataFrame({"a": ["x", None], "b": [1, 2]}),
    "grad": lambda: torch.ones(2, 2, requires_grad=True),
    "complex": lambda: torch.ones(2, 2, dtype=torch.complex64),
    "bfloat16": lambda: torch.ones(2, 2, dtype=torch.bfloat16),
    "fortran": lambda: np.ones((2, 3)).T,
    "big-endian": lambda: np.ones((2, 2), ">f4"),
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"copy": False},
    {"dtype": "float32"},
    {"layout": "columns"},
    {"layout": "records"},
    {"encode": True},
    {"nulls": 0},
    {"nulls": "mask"},
    {"columns": ["a"]},
)
TARGETS = ("torch", "numpy", "jax", "polars", "pandas", "duckdb")


def problems_of(make: Callable[[], Any], to: str, options: dict[str, Any]) -> list[str]:
    """Paste each fix of a refusal of a step, and the first fix of each next one; return the problems."""
    step = MoveTo(to, **options)
    error = fix_cases.attempt(lambda: step.fit_transform(make()))
    if error is None:
        return []
    problems = [] if error.calls else [f"no call: {error}"]
    for first in error.calls:
        x, code, seen = make(), first, {(error.code, error.why)}
        for _ in range(4):
            recorder = fix_cases.Recorder()
            names = {"x": x, "zc": recorder}
            then = fix_cases.attempt(lambda code=code, names=names: pasted(code, names))
            if then is None:
                break
            if not then.calls or (then.code, then.why) in seen:
                problems.append(f"{code}\n    did not help: {then}")
                break
            seen.add((then.code, then.why))
            x, code = (x if recorder.obj is None else recorder.obj), then.calls[0]
        if ";" in first:
            fix_cases.restore()
    return [f"{step}: {each}" for each in problems]


@pytest.mark.parametrize("noun", OBJECTS)
def test_the_fixes_of_steps_work_when_pasted(noun: str) -> None:
    pytest.importorskip("duckdb")
    jax = pytest.importorskip("jax")
    x64 = jax.config.jax_enable_x64
    try:
        cases = sampled(9, TARGETS, OPTIONS, first=[*OBJECTS].index(noun))
        problems = [p for to, options in cases for p in problems_of(OBJECTS[noun], to, options)]
    finally:
        jax.config.update("jax_enable_x64", x64)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("to", ["polars", "pandas", "torch", "numpy"])
@pytest.mark.parametrize("method", ["fit", "transform", "fit_transform"])
@pytest.mark.parametrize("noun", ["twice", "Arrow's twice"])
def test_columns_of_one_name_are_refused_with_a_fix(noun: str, method: str, to: str) -> None:
    """scikit-learn reads names by narwhals, which raises an error of its own."""
    x = OBJECTS[noun]()
    with pytest.raises(zc.UnsupportedConversionError, match="requires unique names") as caught:
        getattr(MoveTo(to), method)(x)
    assert caught.value.code == "duplicate-names"
    for call in caught.value.calls:
        fix_cases.paste(call, x, fix_cases.Recorder())
    assert (
        "x_0"
        in fix_cases.paste(
            caught.value.calls[0].replace(f'"{to}"', '"pyarrow"'), x, fix_cases.Recorder()
        ).schema.names
    )


@pytest.mark.parametrize(
    "x", [pd.Series([1.0]), pl.Series("a", [1.0]), pl.LazyFrame({"a": [1.0]}), torch.ones(2)], ids=type
)
def test_the_fix_of_one_column_makes_a_table(x: Any) -> None:
    with pytest.raises(ValueError, match="Expected 2D array") as caught:
        MoveTo("numpy").fit_transform(x)
    code = str(caught.value).partition("Reshape your data: ")[2]
    assert len(eval(code, {"x": x}).shape) == 2
