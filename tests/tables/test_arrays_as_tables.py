"""Arrays that become tables: their number of columns is bounded."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.table_cases import TABLES

import zerocopy as zc
from zerocopy import registry

#: Frameworks that have arrays too make an array of it.
TARGETS = [n for n in TABLES if n not in ("cudf", "pylibcudf") and registry.by_name(n).kind == "table"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns", [2**24 + 1, 2**62])
def test_empty_array_of_too_many_columns_is_refused(target: str, columns: int) -> None:
    zc.convert(np.zeros((2, 3), np.uint8), to=target)  # keeps a route
    x = np.empty((0, columns), np.uint8)
    with pytest.raises(zc.UnsupportedConversionError, match="columns") as caught:
        zc.convert(x, to=target)
    assert caught.value.code == "too-many-elements"
    assert not zc.explain(x, target).possible
