"""zarr: arrays, which are read into memory; the loader reads them by chunks. zarr is not a target."""

from __future__ import annotations

from typing import Any

from zerocopy.framework import Framework
from zerocopy.protocols import array_method
from zerocopy.source import Source


class Zarr(Framework):
    """``zarr.Array`` of versions 2 and 3."""

    name = "zarr"
    kind = "source"
    root_modules = ("zarr",)
    classes = ("zarr.core.array.Array", "zarr.core.Array")
    distribution = "zarr"

    def source(self, obj: Any) -> Source:
        return array_method.describe(obj)


FRAMEWORK = Zarr()
