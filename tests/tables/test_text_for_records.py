"""The fix of text for ``layout="records"`` has a dtype with the bytes of the longest value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted

import zerocopy as zc

pa = pytest.importorskip("pyarrow")

COLUMNS: dict[str, dict[str, Any]] = {
    "text": {"s": ["a", "b\u00e7b"], "n": [1, 2]},
    "nulls": {"s": ["a", None], "n": [1, 2]},
    "two": {"s": ["a", "bb"], "t": ["long text", ""], "n": [0.5, 1.5]},
    "empty text": {"s": ["", ""], "n": [1, 2]},
    "dates": {"s": ["a", "bb"], "when": np.arange(2).astype("M8[s]")},
    "no rows": {"s": pa.array([], pa.string()), "n": pa.array([], pa.int8())},
    "lists": {"s": ["a", "bb"], "v": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2))},
    "views": {"s": pa.array(["a", "a text longer than a view"], pa.string_view()), "n": [1, 2]},
}


@pytest.mark.parametrize("source", ["pyarrow", "pandas", "polars", "dict"])
@pytest.mark.parametrize("name", [*COLUMNS])
@pytest.mark.parametrize("options", [{}, {"columns": ["s"]}, {"encode": True}], ids=str)
def test_the_first_fix_of_text_is_a_dtype_of_records(source: str, name: str, options: dict[str, Any]) -> None:
    table = pa.table(COLUMNS[name])
    columns = dict(zip(table.column_names, table.columns, strict=True))
    if source != "dict":
        pytest.importorskip(source)
    x = columns if source == "dict" else zc.convert(table, source)
    with pytest.raises(zc.ZeroCopyError) as caught:
        zc.convert(x, "numpy", layout="records", **options)
    code = caught.value.calls[0]
    assert "dtype=[" in code
    records = pasted(code, {"x": x, "zc": zc})
    texts = [text for text in table["s"].to_pylist() if text is not None]
    assert [text.decode() for text in records["s"].tolist()] == texts
    assert records.dtype["s"].itemsize == max([len(text.encode()) for text in texts if text], default=1)


def test_a_record_inside_a_record_has_no_literal_and_keeps_the_other_fixes() -> None:
    table = pa.table({"s": ["a"], "r": [{"k": 1}]})
    with pytest.raises(zc.ZeroCopyError) as caught:
        zc.convert(table, "numpy", layout="records")
    assert caught.value.calls
    assert not any("dtype=" in code for code in caught.value.calls)


@pytest.mark.parametrize("kind", ["S3", "U3"])
def test_nulls_of_text_are_no_empty_text(kind: str) -> None:
    with pytest.raises(zc.LossyConversionError, match="None is not text"):
        zc.convert(pa.table({"s": ["a", None]}), "numpy", layout="records", dtype=[("s", kind)], nulls="mask")
