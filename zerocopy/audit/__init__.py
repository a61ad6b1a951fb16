"""Which calls of the frameworks copy where ``convert`` would alias: the command ``zerocopy audit``.

Import it explicitly: ``import zerocopy.audit``. The frameworks' own files list the calls
(`hook.AuditHook`); this package names no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocopy.interpreter import lazy_names as _lazy_names

if TYPE_CHECKING:
    from zerocopy.audit.recorder import AuditRow as AuditRow
    from zerocopy.audit.report import Audit as Audit, audit as audit

if not TYPE_CHECKING:  # with it, a type checker accepts any name
    # The frameworks' files import zerocopy.audit.hook: the report would import the engine with it.
    __getattr__, __dir__, __all__ = _lazy_names(__name__, {"report": "Audit audit", "recorder": "AuditRow"})
