"""The fixes in docs/errors.md of the codes that a user meets first: each works when it is pasted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers.paths import ROOT

import zerocopy as zc

pa, pl, torch = (pytest.importorskip(name) for name in ("pyarrow", "polars", "torch"))
pytest.importorskip("jax")

PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## The codes that you meet first")[2].partition("\n## ")[0]
#: The fix of each code, in the last column of the tables.
FIXES = dict(re.findall(r"^\| `([a-z-]+)` \|.*\| (.*?) \|$", SECTION, re.MULTILINE))

#: An object, the target and the options that give the code.
EXAMPLES: dict[str, tuple[Callable[[], Any], str, dict[str, Any]]] = {
    "misaligned": (lambda: torch.zeros(65).numpy()[1:], "jax", {}),
    "not-contiguous": (lambda: torch.zeros(64).numpy()[::2], "jax", {}),
    "negative-strides": (lambda: np.arange(4.0)[::-1], "torch", {}),
    "byte-order": (lambda: np.zeros(2, ">f4"), "torch", {}),
    "interleaved": (lambda: np.zeros(3, [("a", "f4"), ("b", "f4")]), "torch", {}),
    "chunks": (lambda: pa.table({"x": pa.chunked_array([[1.0], [2.0]])}), "torch", {}),
    "chunks of polars": (
        lambda: pl.concat([pl.DataFrame({"x": [n]}) for n in (1.0, 2.0)], rechunk=False),
        "torch",
        {},
    ),
    "separate-memory": (lambda: pa.table({"a": [1.0], "b": [2.0]}), "torch", {"layout": "matrix"}),
    "view-layout": (lambda: pa.table({"s": ["a"]}), "polars", {}),
    "packed-bits": (lambda: pa.table({"flag": [True]}), "torch", {}),
    "packed-bits of bytes": (lambda: np.ones(2, bool), "pyarrow", {}),
    "lossy": (lambda: np.arange(3.0), "jax", {}),
    "nulls": (lambda: pa.table({"x": [1, None]}), "torch", {}),
    "nulls of floats": (lambda: pa.table({"x": [1.5, None]}), "torch", {}),
    "no-tensor-type": (lambda: pa.table({"s": ["a"], "d": pa.array([0], pa.timestamp("s"))}), "torch", {}),
    "mixed-types": (lambda: pa.table({"a": [1], "b": [1.5]}), "torch", {"layout": "matrix"}),
    "list-lengths": (lambda: pa.table({"l": [[1], [1, 2]]}), "torch", {}),
    "duplicate-names": (lambda: pa.table([[1], [2]], names=["a", "a"]), "torch", {}),
    "python-objects": (lambda: [[1, 2], [3, 4]], "torch", {}),
    "python-objects in a column": (lambda: {"x": np.array([1, 2], object)}, "torch", {}),
    "requires-grad": (lambda: torch.ones(3, requires_grad=True), "numpy", {}),
    "masked": (lambda: np.ma.masked_array([1.0, 2.0], [True, False]), "torch", {}),
    "lossy-cast": (lambda: np.array([1.5]), "torch", {"dtype": "int32"}),
    "missing-dtype": (lambda: np.zeros(2, "longdouble"), "torch", {}),
    "unread": (lambda: pl.LazyFrame({"a": [1.0]}), "torch", {}),
}
#: Fixes for another object than that of the example.
OTHERS = {
    ("misaligned", 'zc.install_pool(host="aligned")'),
    ("chunks", "x.rechunk()"),
    ("nulls", 'nulls="nan"'),
    ("packed-bits of bytes", 'x["flag"].cast(pyarrow.bool8())'),
    ("packed-bits", 'dtype="bool8"'),
    ("chunks of polars", "x.combine_chunks()"),
    ("python-objects", "encode=True"),
    ("python-objects in a column", "numpy.asarray(x)"),
}


def codes(x: Any, to: str, **options: Any) -> set[str]:
    plan = zc.explain(x, to, **options)
    return {reason.code for part in (plan, *plan.leaves.values()) for reason in part.reasons}


def fragments() -> list[tuple[str, str]]:
    return [
        (name, code)
        for name in EXAMPLES
        for code in re.findall(r"`([^`]+)`", FIXES[name.partition(" ")[0]])
        if re.match(r"x\b|zc\.|numpy\.|\w+=", code) and "..." not in code and (name, code) not in OTHERS
    ]


@pytest.fixture(autouse=True)
def _without_x64() -> Iterator[None]:
    """Run with JAX's default, as a new user does."""
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_has_its_code(name: str) -> None:
    make, to, options = EXAMPLES[name]
    assert name.partition(" ")[0] in codes(make(), to, **options)


@pytest.mark.parametrize(("name", "code"), fragments())
def test_each_fix_works(name: str, code: str) -> None:
    make, to, options = EXAMPLES[name]
    x = make()
    was_refused = not zc.explain(x, to, **options).possible
    names = {"zc": zc, "x": x, "numpy": np, "pyarrow": pa}
    if re.match(r"\w+=", code):
        option, _, value = code.partition("=")
        options = {**options, option: eval(value, names)}
    else:
        x = eval(code, names)
    zc.convert(x, to, **options)
    # An option that a refusal needs may copy for the same reason.
    assert was_refused or name.partition(" ")[0] not in codes(x, to, **options)
