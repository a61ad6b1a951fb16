"""``Request``: what was asked of a table's conversion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zerocopy.framework import Framework
from zerocopy.plan import Plan
from zerocopy.source import Source
from zerocopy.tables.options import Options

#: ``between(source, copy) -> Plan`` for one tensor, with all else that was asked in it.
Between = Callable[[Source, bool | None], Plan]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of a table's conversion.

    Attributes
    ----------
    target : Framework
    options : Options
    copy, writable : bool or None
    between : callable
        Plans one tensor.
    """

    target: Framework
    options: Options
    copy: bool | None
    writable: bool | None
    between: Between
