"""The compiled core, which is optional: ``core`` is its module, or None in a pure Python installation."""

from __future__ import annotations

import os
from typing import Any

#: Why `core` is None; empty if it is loaded.
why_not = ""


def _load() -> Any:
    """Import the extension; ``ZEROCOPY_NATIVE=0`` forbids it and ``1`` requires it."""
    global why_not
    setting = os.environ.get("ZEROCOPY_NATIVE", "")
    if setting == "0":
        why_not = "ZEROCOPY_NATIVE=0 is set"
        return None
    try:
        from zerocopy._native import _core  # type: ignore[attr-defined, unused-ignore]
    except ImportError as error:
        if setting == "1":
            raise
        why_not = str(error)
        return None
    return _core


core = _load()
