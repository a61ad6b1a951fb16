"""narwhals: data frames and series, converted as the native objects that they wrap; not a target."""

from __future__ import annotations

from typing import Any

from zerocopy.framework import Framework

_CLASSES = {
    ("narwhals.dataframe", "DataFrame"),
    ("narwhals.dataframe", "LazyFrame"),
    ("narwhals.series", "Series"),
}


class Narwhals(Framework):
    """``DataFrame``, ``LazyFrame`` and ``Series``, also those of ``narwhals.stable``.

    Their Arrow stream is not read: that of a frame over pandas turns NaN into null.
    """

    name = "narwhals"
    kind = "source"
    root_modules = ("narwhals",)
    distribution = "narwhals"
    unwrap = "{x}.to_native()"

    def owns(self, cls: type) -> bool:
        return any((base.__module__, base.__name__) in _CLASSES for base in cls.__mro__)

    def unwrapped(self, obj: Any) -> Any:
        return obj.to_native()


FRAMEWORK = Narwhals()
