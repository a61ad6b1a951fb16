"""The parameters of a decorated function: which of its arguments are converted, and their names."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from inspect import Parameter
from typing import Any

#: Names of the first parameter of methods, by convention (PEP 8).
_BOUND = ("self", "cls")


class Parameters:
    """Which arguments of a function are converted.

    Attributes
    ----------
    skipped, skipped_names : frozenset
        Positions and names of parameters that are not converted.
    complete : bool
        Whether these two sets decide; if not, arguments of ``*args`` or ``**kwargs`` are skipped too.
    """

    def __init__(self, function: Any, chosen: tuple[str, ...] | None) -> None:
        every = _parameters(function)
        known = [parameter.name for parameter in every or ()]
        if chosen is not None:
            _check_names(function, chosen, None if every is None else known)
        positional = [p for p in every or () if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        bound = known[:1] if chosen is None and known and known[0] in _BOUND and positional else []
        skipped = {name for name in known if name in bound or (chosen is not None and name not in chosen)}
        self._names = [parameter.name for parameter in positional]
        self._rest = next((p.name for p in every or () if p.kind is Parameter.VAR_POSITIONAL), None)
        self._others = next((p.name for p in every or () if p.kind is Parameter.VAR_KEYWORD), None)
        self._skips_rest, self._skips_others = self._rest in skipped, self._others in skipped
        self.complete = not (self._skips_rest or self._skips_others)
        self.skipped = frozenset(i for i, name in enumerate(self._names) if name in skipped)
        # A keyword of **kwargs may have the name of a positional-only parameter.
        self.skipped_names = frozenset(
            p.name for p in every or () if p.name in skipped and p.kind is not p.POSITIONAL_ONLY
        )
        self._keywords = {p.name for p in every or () if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}

    def selected(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[tuple[str | None, Any]]:
        """Yield the name and the value of each argument; the name is None if it is not converted."""
        for position, value in enumerate(args):
            if position < len(self._names):
                yield None if position in self.skipped else self._names[position], value
            else:
                name = f"{self._rest or 'args'}[{position - len(self._names)}]"
                yield None if self._skips_rest else name, value
        for name, value in named.items():
            skips = name in self.skipped_names if name in self._keywords else self._skips_others
            yield None if skips else name, value


def _parameters(function: Any) -> list[Parameter] | None:
    """Return the parameters of a function; None for builtin functions without a signature."""
    # Annotations can name modules that are imported for type checkers only.
    options: Any = {} if sys.version_info < (3, 14) else {"annotation_format": _strings()}
    try:
        return [*inspect.signature(function, **options).parameters.values()]
    except (ValueError, TypeError):
        return None


def _strings() -> Any:
    import annotationlib  # type: ignore[import-not-found]

    return annotationlib.Format.STRING


def _check_names(function: Any, chosen: tuple[str, ...], known: list[str] | None) -> None:
    shown = getattr(function, "__qualname__", None) or type(function).__qualname__
    if known is None:
        raise ValueError(f"arguments={chosen!r}: the parameters of {shown} are not known; leave it out")
    for name in chosen:
        if name not in known:
            raise ValueError(f"arguments={chosen!r}: {shown} has no parameter {name!r}; it has {known}")
