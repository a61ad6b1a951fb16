"""Lance: data sets, which only the loader reads, in ranges of rows; Lance is not a target."""

from __future__ import annotations

from collections.abc import Mapping
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
    kinds: Mapping[str, Any] = {"LanceDataset": "table"}
    root_modules = ("lance",)
    classes = ("lance.dataset.LanceDataset",)
    distribution = "pylance"

    def source(self, obj: Any) -> Source:
        why = "it is in files, which are not read yet"
        fixes = [Fix("{x}.to_table()", "reads all of it")]
        raise obstacles.refuse_source(_NAME, Reason(why, code="unread", fixes=fixes))


FRAMEWORK = Lance()
