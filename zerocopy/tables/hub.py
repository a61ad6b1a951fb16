"""The hub: the framework whose Arrow arrays, over any memory, table frameworks exchange."""

from __future__ import annotations

from typing import Any

from zerocopy import registry
from zerocopy.forks import is_imported

_NAME = "pyarrow"


def hub() -> Any:
    """Return the hub's framework, with its module imported."""
    framework = registry.find(_NAME) or registry.by_name(_NAME)
    framework.module()
    return framework


def loaded_hub() -> Any:
    """Return the hub's framework if its module is imported already, else None."""
    return registry.by_name(_NAME) if is_imported(_NAME) else None
