"""`require`: import a package of the extra ``monitor``, or raise the error with the command to install it."""

from __future__ import annotations

import importlib
from typing import Any

from zerocopy.errors import FrameworkNotInstalledError

#: The distributions whose names differ from those of their modules.
_DISTRIBUTIONS = {"prometheus_client": "prometheus-client"}


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
