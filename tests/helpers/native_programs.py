"""Programs for a subprocess over the core's process-wide state: the table of routes and ``convert``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HEAD = """
import gc, sys, threading
import numpy as np
from zerocopy._native import core
results, asked = [], []
def python(*args, **keywords):
    asked.append((args, keywords))
    return "python"
def slow(obj, to, options, error):
    asked.append((obj, to, options, error))
    return "slow"
convert = core.make_convert(python, slow, {"__doc__": "doc", "__name__": "convert", "__module__": "zerocopy"})
answer = lambda text: core.CallRoute(lambda obj: text)
class Kind: pass
obj = Kind()
"""


def check(run_python: Callable[..., Any], code: str) -> None:
    """Run a program after `HEAD`; it fails unless it reaches its end."""
    completed = run_python(HEAD + code + '\nprint("done")\n')
    assert completed.stdout == "done\n", completed.stderr
