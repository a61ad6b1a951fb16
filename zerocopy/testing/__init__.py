"""Conformance of producers and consumers of DLPack, Arrow, array interfaces and buffers, for any project.

Import it explicitly: ``import zerocopy.testing``. It needs NumPy alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocopy.interpreter import lazy_names as _lazy_names

if TYPE_CHECKING:
    from zerocopy.testing.check import check_consumer as check_consumer, check_producer as check_producer
    from zerocopy.testing.report import CaseResult as CaseResult, Finding as Finding, Report as Report

if not TYPE_CHECKING:  # with it, a type checker accepts any name
    _NAMES = {"check": "check_consumer check_producer", "report": "CaseResult Finding Report"}
    __getattr__, __dir__, __all__ = _lazy_names(__name__, _NAMES)
