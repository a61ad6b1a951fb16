"""The compiled core, which is optional: ``core`` is its module, or None in a pure Python installation.

The environment variable ``ZEROCOPY_NATIVE`` decides when zerocopy is first used: unset, load the core if it
is installed; ``0``, do not load it; ``1``, raise ``ImportError`` if it cannot be loaded.
``ZEROCOPY_CORE_ISA`` selects the instruction set whose registers copy records.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

_MODULE = f"{__name__}._core"

#: Why `core` is None; empty if it is loaded.
why_not = ""


def _load() -> Any:
    """Import the extension if ``ZEROCOPY_NATIVE`` permits it; otherwise set `why_not` and return None."""
    global why_not
    setting = os.environ.get("ZEROCOPY_NATIVE", "")
    if setting not in ("", "0", "1"):
        raise ImportError(f"ZEROCOPY_NATIVE is {setting!r}; set it to 0 or 1, or unset it")
    if setting == "0":
        why_not = "ZEROCOPY_NATIVE=0 is set"
        return None
    module, cause = None, None
    try:
        module = importlib.import_module(_MODULE)
    except ImportError as error:
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == _MODULE
        cause, why_not = error, _why_absent() if is_absent else str(error)
    else:
        why_not = _why_stale(module)
    if why_not and setting == "1":
        raise ImportError(
            f"ZEROCOPY_NATIVE=1 is set, but the compiled core cannot be loaded: {why_not}"
        ) from cause
    if why_not and module is not None:
        from zerocopy.errors.warning import warn

        warn(f"zerocopy runs without its compiled core: {why_not}")
    if why_not or module is None:
        return None
    if isa := os.environ.get("ZEROCOPY_CORE_ISA", ""):
        if isa not in module.isas:
            allowed = " or ".join(module.isas)
            raise ImportError(
                f"ZEROCOPY_CORE_ISA is {isa!r}; set it to {allowed}, which this processor has, or unset it"
            )
        module.isa(isa)
    return module


def _has_sources() -> bool:
    """Whether this is a source tree; a wheel has no C sources."""
    return os.path.exists(os.path.join(os.path.dirname(__file__), "core.h"))


def _why_absent() -> str:
    """Return why there is no extension. A Python that starts in a source tree imports that tree."""
    if _has_sources():
        why = "it is not compiled in this source tree"
        return f"{why}; run `python hatch_build.py`, or start Python in another folder"
    return "zerocopy was built without it"


def _why_stale(module: Any) -> str:
    """Return why the extension does not match the C sources next to it, or an empty string."""
    if not _has_sources():
        return ""
    from zerocopy._native.sources import digest

    if getattr(module, "__sources__", "") == digest(os.path.dirname(__file__)):
        return ""
    return "it was compiled from other C sources; run `python hatch_build.py` in the source tree"


core = _load()
if core is not None and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=core.free_locks)
