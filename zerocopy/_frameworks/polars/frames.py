"""DataFrame and Series of polars as frames of bytes, with the flags of sorted columns."""

from __future__ import annotations

from typing import Any

from zerocopy._frameworks.polars.series import columns_of
from zerocopy.frames.hook import FramesHook

_SORTED = {"-": None, "<": False, ">": True}  # the option `descending` of set_sorted()


class Frames(FramesHook):
    """DataFrame and Series; polars pickles those with objects or categories itself."""

    def types(self) -> tuple[type, ...]:
        import polars as pl

        return (pl.DataFrame, pl.Series)

    def keeps_all(self, obj: Any) -> bool:
        # Series of one process can share named categories (pl.Categories); Arrow has no such names.
        text = str(obj.schema if hasattr(obj, "schema") else obj.dtype)
        return not any(name in text for name in ("Categorical", "Object", "Unknown"))

    def flatten(self, obj: Any) -> tuple[Any, str]:
        if not hasattr(obj, "rechunk"):  # a LazyFrame, which is refused later
            return obj, ""
        columns = columns_of(obj) if hasattr(obj, "get_columns") else [obj]
        marks = "".join(map(_mark, columns))
        return obj, marks if marks.strip("-") else ""

    def finish(self, obj: Any, note: str) -> Any:
        if hasattr(obj, "get_columns"):
            columns = [_marked(s, mark) for s, mark in zip(columns_of(obj), note, strict=True)]
            return obj.with_columns(columns)
        return _marked(obj, note)


def _mark(series: Any) -> str:
    flags = series.flags
    return "<" if flags["SORTED_ASC"] else ">" if flags["SORTED_DESC"] else "-"


def _marked(series: Any, mark: str) -> Any:
    descending = _SORTED[mark]
    return series if descending is None else series.set_sorted(descending=descending)
