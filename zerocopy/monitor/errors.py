"""Errors of the monitor's functions and files. A monitored program gets warnings instead."""

from __future__ import annotations

import importlib
from typing import Any

from zerocopy.errors import FrameworkNotInstalledError, ZeroCopyError

#: The distributions whose names differ from those of their modules.
_DISTRIBUTIONS = {"prometheus_client": "prometheus-client"}


class MonitorStateError(ZeroCopyError, RuntimeError):
    """The monitor of this process is running already, or was not started.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.monitor.snapshot()
    Traceback (most recent call last):
        ...
    zerocopy.monitor.errors.MonitorStateError: monitor.snapshot(): the monitor was not started.
      To fix: call zc.monitor.start() first
    """

    code = "monitor-not-started"


class MonitorFileError(ZeroCopyError, OSError):
    """The monitor cannot use its run directory, a file or the address of its page.

    Examples
    --------
    >>> import zerocopy as zc
    >>> error = zc.MonitorFileError("--csv a.csv", "the file exists")
    >>> isinstance(error, OSError), error.code
    (True, 'monitor-file')
    """

    code = "monitor-file"


def require(module: str, purpose: str) -> Any:
    """Import and return a module of the extra ``monitor``; errors name the `purpose`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        absent = error.name in (package, module)
        why = f"{package} is not installed" if absent else f"importing it failed: {error}"
        install = f"pip install {_DISTRIBUTIONS.get(package, package)}"
        raise FrameworkNotInstalledError(purpose, why, install) from error
