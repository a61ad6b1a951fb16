"""A run directory for one program, within that of the user."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

from zerocopy.monitor.errors import MonitorFileError, RunDirectoryError
from zerocopy.monitor.run_directory import VARIABLE, FileName, default_directory, opened

_PREFIX = "run-"


@contextlib.contextmanager
def private_directory() -> Iterator[str]:
    """Create a directory, and remove it at the end, with those of monitors that were killed."""
    parent = default_directory()
    try:
        path = _create(parent)
    except RunDirectoryError:
        raise
    except OSError as error:
        why = f"it cannot be created: {error.strerror or error}"
        fix = f"set {VARIABLE}, or --directory, to a directory where you may write"
        raise MonitorFileError(f"the run directory {parent}", why, fix) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _create(parent: str) -> str:
    """Return a new directory in the user's, without those of monitors that have ended."""
    with opened(parent, create=True) as folder:
        for name in os.listdir(folder):
            owner = FileName.read(f"{name.removeprefix(_PREFIX)}.json") if name.startswith(_PREFIX) else None
            if owner is not None and not owner.is_alive:
                shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
    stem = str(FileName.of_this_process()).removesuffix(".json")
    path = os.path.join(parent, _PREFIX + stem)
    with opened(path, create=True):
        return path
