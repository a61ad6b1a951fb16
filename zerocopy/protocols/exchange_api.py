"""DLPack's C exchange API of zerocopy's own types, so that consumers in C need no call of ``__dlpack__``.

The compiled core has the table of functions; without the core, the types have no such attribute. The public
name ``StridedView`` is imported from here, so that its type has the attribute.
"""

from __future__ import annotations

from typing import Any

from zerocopy._native import core
from zerocopy.protocols import dlpack
from zerocopy.strided_view import StridedView as StridedView


def add_to(cls: Any) -> None:
    """Give a type the C exchange API: `StridedView`, or a type with a method ``__zerocopy_view__``."""
    if _API is not None:
        cls.__dlpack_c_exchange_api__ = _API


_API = None if core is None else core.exchange_api(StridedView, dlpack.read)
add_to(StridedView)
