"""Calls of polars that copy: its constructors, ``from_*`` functions, and ``to_*`` methods."""

from __future__ import annotations

from typing import Any

from zerocopy import registry
from zerocopy.audit.hook import AuditHook, CopyCall

#: Methods of DataFrame and Series, with the framework of their results.
_METHODS = {
    "to_numpy": "numpy",
    "to_torch": "torch",
    "to_jax": "jax",
    "to_pandas": "pandas",
    "to_arrow": "pyarrow",
}


class Audit(AuditHook):
    """The classes stay the same objects; their methods are wrapped."""

    def calls(self) -> list[CopyCall]:
        pl = registry.by_name("polars").module()
        calls = [
            CopyCall(pl, name, f"pl.{name}", "polars", keyword="data")
            for name in ("from_pandas", "from_numpy", "from_arrow", "from_torch")
        ]
        calls += [
            CopyCall(pl.DataFrame, "__init__", "pl.DataFrame", "polars", "constructor", "data", 1),
            # pl.Series(name, values): `SeriesCall` takes the first argument if it is the only one.
            SeriesCall(pl.Series, "__init__", "pl.Series", "polars", "constructor", "values", 2),
        ]
        for cls in (pl.DataFrame, pl.Series):
            for name, target in _METHODS.items():
                calls.append(CopyCall(cls, name, f"pl.{cls.__name__}.{name}", target, "method"))
        return calls

    def traits(self, obj: Any) -> dict[str, str]:
        traits = super().traits(obj)
        if hasattr(obj, "schema"):
            traits["schema"] = str(dict(obj.schema))
        elif hasattr(obj, "name"):
            traits["name"] = repr(obj.name)
        return traits


class SeriesCall(CopyCall):
    """``pl.Series(values)`` and ``pl.Series(name, values)``."""

    __slots__ = ()

    def source(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        values = super().source(args, options)
        return args[1] if values is None and len(args) == 2 and not isinstance(args[1], str) else values
