"""Errors of conversions name the loader, and their fixes are calls of the loader that work."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import zerocopy as zc

TABLE = pa.table({"n": pa.array([1, None, 3]), "x": [0.5, 1.5, 2.5], "city": ["Bern", "Oslo", "Bern"]})
MATRIX: dict[str, Any] = {"layout": "matrix", "columns": ["n"], "dtype": "float64"}


@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize(
    "options", [{}, {"columns": ["n"]}, {"columns": ["n"], "shuffle": True}, {"columns": ["city"]}, MATRIX]
)
def test_fixes_are_calls_of_the_loader(to: str, options: dict[str, Any]) -> None:
    pytest.importorskip(to)
    with pytest.raises(zc.ZeroCopyError) as caught:
        list(zc.loader(TABLE, to=to, **options))
    assert caught.value.asked.startswith(f"loader(source, to='{to}'")
    assert "convert(" not in str(caught.value)
    assert caught.value.calls
    for code in caught.value.calls:
        source = TABLE.select(options["columns"]) if "columns" in options else TABLE
        names = {"zc": zc, "source": source}
        if len(source.column_names) > 1:
            eval(code, names)  # its batches may need the fix of another column
        else:
            list(eval(code, names))
