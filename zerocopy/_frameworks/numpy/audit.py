"""Calls of NumPy that copy arrays and tables of other frameworks."""

from __future__ import annotations

from zerocopy import registry
from zerocopy.audit.hook import AuditHook, CopyCall


class Audit(AuditHook):
    """``np.ascontiguousarray`` is not listed: it copies only arrays that are not contiguous."""

    def calls(self) -> list[CopyCall]:
        numpy = registry.by_name("numpy").module()
        keywords = {"array": "object", "asarray": "a", "asanyarray": "a"}
        return [
            CopyCall(numpy, name, f"np.{name}", "numpy", keyword=keyword)
            for name, keyword in keywords.items()
        ]
