"""Calls of pandas that copy: its constructors, and ``to_numpy`` and ``values``."""

from __future__ import annotations

from typing import Any

from zerocopy import registry
from zerocopy.audit.hook import AuditHook, CopyCall


class Audit(AuditHook):
    """The classes stay the same objects; their methods are wrapped."""

    def calls(self) -> list[CopyCall]:
        pd = registry.by_name("pandas").module()
        calls = []
        for cls in (pd.DataFrame, pd.Series):
            name = f"pd.{cls.__name__}"
            calls += [
                CopyCall(cls, "__init__", name, "pandas", "constructor", "data", 1),
                CopyCall(cls, "to_numpy", f"{name}.to_numpy", "numpy", "method"),
                CopyCall(cls, "values", f"{name}.values", "numpy", "property"),
            ]
        return calls

    def traits(self, obj: Any) -> dict[str, str]:
        traits = super().traits(obj)
        if hasattr(obj, "dtypes") and obj.ndim == 2:
            traits["columns"] = repr(list(obj.columns))
            traits["dtypes"] = ", ".join(map(str, obj.dtypes))
        elif hasattr(obj, "name"):
            traits["name"] = repr(obj.name)
        if hasattr(obj, "index"):
            index = obj.index  # convert returns a RangeIndex, whose repr is short
            traits["index"] = repr(index) if hasattr(index, "start") else type(index).__name__
        return traits
