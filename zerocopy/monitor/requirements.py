"""Packages of the extra ``monitor``, which readers import and monitored processes do not."""

from __future__ import annotations

import importlib
from typing import Any

from zerocopy.errors import ZeroCopyError

INSTALL = "pip install 'zerocopy-interchange[monitor]'"


class MonitorPackageError(ZeroCopyError, ImportError):
    """A package that the monitor needs to read or display figures is not installed.

    Examples
    --------
    >>> require("absent_package", "the page")
    Traceback (most recent call last):
        ...
    zerocopy.monitor.requirements.MonitorPackageError: the page: absent_package is not installed.
      To fix: pip install 'zerocopy-interchange[monitor]'
    """

    code = "not-installed"


def require(module: str, purpose: str) -> Any:
    """Import and return a module of the extra ``monitor``; errors name the `purpose`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        absent = error.name in (package, module)
        why = f"{package} is not installed" if absent else f"importing it failed: {error}"
        raise MonitorPackageError(purpose, why, INSTALL) from error
