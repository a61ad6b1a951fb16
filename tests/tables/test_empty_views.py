"""Empty slices of views convert: pyarrow 26 imports them as arrays that it refuses in a table."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
from helpers.table_cases import TABLES

import zerocopy as zc

pa = pytest.importorskip("pyarrow")

TARGETS = [
    *(name for name in TABLES if name not in ("cudf", "pylibcudf")),
    "pyarrow.Table",
    "pyarrow.Array",
    "pyarrow.RecordBatch",
    *(["nanoarrow.ArrayStream"] if find_spec("nanoarrow") else []),
]


class Exporter:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.array.__arrow_c_array__()


class StreamExporter:
    def __init__(self, array: Any) -> None:
        self.chunks = pa.chunked_array([array])

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.chunks.__arrow_c_stream__()


SOURCES: dict[str, Callable[[Any], Any]] = {
    "array exporter": Exporter,
    "stream exporter": StreamExporter,
    "imported array": lambda array: pa.array(Exporter(array)),
    "imported chunks": lambda array: pa.chunked_array(StreamExporter(array)),
}


@pytest.mark.hazard("pyarrow#empty-views")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("kind", ["string_view", "binary_view"])
@pytest.mark.parametrize("nested", [False, True])
def test_empty_slice_of_views_converts_as_explain_says(
    nested: bool, kind: str, source: Callable[[Any], Any], target: str
) -> None:
    views = pa.array(["a text of more than twelve bytes", "b"], getattr(pa, kind)())
    array = pa.StructArray.from_arrays([views], ["a"]) if nested else views
    for start in (1, 2):
        slice_ = array.slice(start, 0)
        assert zc.explain(source(slice_), target).possible
        table = zc.convert(zc.convert(source(slice_), target), "pyarrow.Table")
        assert table.num_rows == 0
