"""Reasons to copy that several frameworks share: the plan has them, and each route follows the plan."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays import sample

import zerocopy as zc


@pytest.mark.parametrize("target", ["torch", "tvm_ffi", "warp", "paddle"])
def test_misaligned_elements_are_copied(target: str) -> None:
    pytest.importorskip(target)
    x = sample("u1", (41,))[1:].view("f4")
    assert [reason.code for reason in zc.explain(x, target).reasons] == ["misaligned"]
    with pytest.raises(zc.CopyRequiredError, match="not aligned to its item size"):
        zc.convert(x, target, copy=False)
    for _ in range(3):  # later calls take faster paths
        result = zc.convert(x, target)
        assert zc.view(result).is_aligned(4)
        np.testing.assert_array_equal(zc.convert(result, "numpy"), x)
