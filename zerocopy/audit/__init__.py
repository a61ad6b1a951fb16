"""Which calls of the frameworks copy where ``convert`` would alias: the command ``zerocopy audit``.

Import it explicitly: ``import zerocopy.audit``. The frameworks' own files list the calls
(`hook.AuditHook`); this package names no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zerocopy.audit.recorder import AuditRow as AuditRow
    from zerocopy.audit.report import Audit as Audit, audit as audit

__all__ = ["Audit", "AuditRow", "audit"]
_MODULES = {"Audit": "report", "AuditRow": "recorder", "audit": "report"}


def __getattr__(name: str) -> Any:
    # The frameworks' files import zerocopy.audit.hook: the report would import the engine with it.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"zerocopy.audit.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
