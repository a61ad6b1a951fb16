"""Lance: data sets, which only the loader reads, in ranges of rows; Lance is not a target."""

from __future__ import annotations

from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.errors import Fix, Reason
from zerocopy.framework import Framework
from zerocopy.source import Source

_NAME = "lance.LanceDataset"


class Lance(Framework):
    """``lance.LanceDataset``."""

    name = "lance"
    kind = "source"
    root_modules = ("lance",)
    distribution = "pylance"

    def owns(self, cls: type) -> bool:
        return any((b.__module__, b.__name__) == ("lance.dataset", "LanceDataset") for b in cls.__mro__)

    def source(self, obj: Any) -> Source:
        why = "it is in files, which are not read yet"
        fixes = [Fix("{x}.to_table()", "reads all of it")]
        raise obstacles.refuse_source(_NAME, Reason(why, code="unread", fixes=fixes))


FRAMEWORK = Lance()
