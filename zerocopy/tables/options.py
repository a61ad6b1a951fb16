"""``Options``: what ``convert`` was asked beyond what every tensor knows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from zerocopy.tables import nulls

#: The names that ``convert`` takes for tables.
NAMES = ("layout", "columns", "nulls", "encode", "names", "index")
_LAYOUTS = ("columns", "matrix", "matrix:C", "matrix:F", "records")


@dataclass(frozen=True, slots=True)
class Options:
    """The options that concern tables; None stands for what was not said.

    Attributes
    ----------
    layout : str or None
        ``"columns"``, ``"matrix"`` (with ``":C"`` or ``":F"`` for its order) or ``"records"``.
    columns : sequence or None
        Which columns, in that order.
    nulls : object
        See :mod:`zerocopy.tables.nulls`.
    encode : bool or None
    names : sequence of str or None
        For the columns that a 2-D tensor becomes.
    index : bool or None
        Whether pandas' index travels.
    """

    layout: str | None = None
    columns: Sequence[Hashable] | None = None
    nulls: Any = None
    encode: bool | None = None
    names: Sequence[str] | None = None
    index: bool | None = None

    def __post_init__(self) -> None:
        if self.layout is not None and self.layout not in _LAYOUTS:
            raise ValueError(f"layout is one of {', '.join(map(repr, _LAYOUTS))}, not {self.layout!r}")
        for name in ("columns", "names"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, (str, bytes)) or not hasattr(value, "__iter__")):
                raise ValueError(f"{name} is a list of names, not {value!r}")
            if value is not None:
                object.__setattr__(self, name, tuple(value))
        for name in ("encode", "index"):
            if getattr(self, name) not in (None, True, False):
                raise ValueError(f"{name} is True, False or None, not {getattr(self, name)!r}")
        for value in self.nulls.values() if isinstance(self.nulls, dict) else [self.nulls]:
            nulls.parse(value, None)

    @property
    def said(self) -> dict[str, Any]:
        """What was said, by name."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}


#: What is asked for where nothing is: made once, for to check nothing takes time too.
NOTHING = Options()
