"""``LoadingHook``: what the loader asks a framework for."""

from __future__ import annotations

import pkgutil
from functools import cache
from typing import Any

from zerocopy.framework import Framework
from zerocopy.loading.dataset import Dataset, Stream


class LoadingHook:
    """Base class of the hooks that `Framework.loading_hook` names."""

    def open(self, obj: Any, columns: Any) -> Dataset | Stream | None:
        """Return an object of the framework as rows to read; None if its Arrow stream serves.

        `columns` are the labels of the columns to read, in this order; None for all.
        """
        return None

    def bases(self) -> tuple[type, ...]:
        """Return base classes that the framework requires of an iterable data set."""
        return ()

    def worker(self) -> tuple[int, int]:
        """Return the number of this worker process of the framework, and the number of all."""
        return 0, 1


def hook_of(framework: Framework | None) -> LoadingHook:
    """Return the hook of a framework; the base class's methods if it has none."""
    return _hook(framework.loading_hook if framework is not None else "")


@cache
def _hook(location: str) -> LoadingHook:
    hook: LoadingHook = pkgutil.resolve_name(location)() if location else LoadingHook()
    return hook
