"""Runs a check in a forked child."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable


def in_child(check: Callable[[], bool]) -> int:
    """Return the exit status of a forked child: 0 if `check` is true, 1 if not, 2 if it raises."""
    child = os.fork()
    if not child:
        signal.alarm(60)  # ends a child that hangs
        try:
            os._exit(0 if check() else 1)
        except BaseException:  # noqa: BLE001 - the child must not run the parent's code
            traceback.print_exc()
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
