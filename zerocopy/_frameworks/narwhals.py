"""narwhals: data frames and series, converted as the native objects that they wrap; not a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerocopy.framework import Framework


class Narwhals(Framework):
    """``DataFrame``, ``LazyFrame`` and ``Series``, also those of ``narwhals.stable``.

    Their Arrow stream is not read: that of a frame over pandas turns NaN into null.
    """

    name = "narwhals"
    kind = "source"
    kinds: Mapping[str, Any] = {"DataFrame": "table", "LazyFrame": "table", "Series": "column"}
    root_modules = ("narwhals",)
    classes = ("narwhals.dataframe.DataFrame", "narwhals.dataframe.LazyFrame", "narwhals.series.Series")
    distribution = "narwhals"
    unwrap = "{x}.to_native()"

    def unwrapped(self, obj: Any) -> Any:
        return obj.to_native()


FRAMEWORK = Narwhals()
