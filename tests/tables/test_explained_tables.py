"""Plans of tables whose columns differ in type, alignment, access, nulls and chunks, for each framework."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import zerocopy as zc


@pytest.mark.parametrize("to", ["torch", "pyarrow"])
def test_the_plan_of_each_column_converts_that_column(to: str) -> None:
    pytest.importorskip(to)
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]})
    plan = zc.explain(frame, to)
    assert list(plan.leaves) == ["['a']", "['b']", "['c']"]
    values = [leaf.run().tolist() for leaf in plan.leaves.values() if leaf.run is not None]
    assert values in ([], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def test_low_alignment_decides() -> None:
    """A column that is aligned to 8 bytes is copied for JAX, and one that is aligned to 64 is not."""
    pytest.importorskip("jax")
    block = np.zeros(200, "f4")
    start = -block.ctypes.data % 64 // 4
    aligned, other = block[start : start + 16], block[start + 20 : start + 36]
    for pair in itertools.permutations([aligned, other]):
        columns = dict(zip("ab", pair, strict=True))
        plan = zc.explain(columns, "jax")
        assert (plan.aliased_bytes, plan.copied_bytes) == (64, 64)
