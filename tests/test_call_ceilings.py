"""How many functions and files of zerocopy one call runs: ceilings that may only fall."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest


class Ceilings(NamedTuple):
    """The most that one call may run.

    Attributes
    ----------
    calls : int
        Calls of functions of zerocopy, without those of module and class bodies.
    files : int
        Files that hold these functions.
    upward : int
        Calls from a function in ``tables/`` of a function in ``_engine/``, which is above it.
    """

    calls: int
    files: int
    upward: int


#: For each path: the frameworks that it needs, code before it, the call, and its ceilings. Lower them.
PATHS = {
    "array, first": (
        ("torch",),
        "x = np.zeros(16, 'f4')",
        "zc.convert(x, 'torch')",
        Ceilings(58, 10, 0),
    ),
    "array, explained": (
        ("torch",),
        "x = np.zeros(16, 'f4'); str(zc.explain(x, to='torch'))",
        "str(zc.explain(x, to='torch'))",
        Ceilings(71, 18, 0),
    ),
    "pandas to a matrix, first": (
        ("pandas", "torch"),
        "x = pd.DataFrame({'a': [1.0, 2.0], 'b': [3.0, 4.0]})",
        "zc.convert(x, 'torch', layout='matrix')",
        Ceilings(259, 33, 0),  # the version of pandas is compared once: others have other matrices
    ),
    "polars with options, second": (
        ("polars", "jax"),
        "x = pl.DataFrame({'a': [1.0, None], 'b': [3.0, 4.0], 'c': [1, 2]})\n"
        "options = dict(columns=['a', 'b'], nulls=0.0, dtype='float32')\n"
        "zc.convert(x, 'jax', **options)",
        "zc.convert(x, 'jax', **options)",
        Ceilings(5, 2, 0),  # one counts the chunks by a private name: 170 us less for 300 columns
    ),
    "frame, explained": (
        ("polars", "torch"),
        "x = pl.DataFrame({'a': [1.0], 'b': [2.0], 'c': [3], 'd': [4]})\nstr(zc.explain(x, to='torch'))",
        "str(zc.explain(x, to='torch'))",
        Ceilings(346, 31, 0),  # columns are described when they are read: columns= takes few of many
    ),
    "frame, refused": (
        ("polars", "torch"),
        "x = pl.DataFrame({'a': [1.0], 't': ['x']})\nstr(zc.explain(x, to='torch'))",
        "str(zc.explain(x, to='torch'))",
        Ceilings(780, 39, 0),  # messages plan their calls with a sample, for fixes that work
    ),
}

#: Runs the call and prints its numbers, without functions that run while a module is imported: module and
#: class bodies lack CO_OPTIMIZED.
TRACED = """
import inspect, json, sys
from pathlib import Path
import numpy as np
import zerocopy as zc
{imports}
zc.convert, zc.explain  # loads the public names
PACKAGE = str(Path(zc.__file__).parent) + "/"
{before}

def file_of(frame):
    name = frame.f_code.co_filename
    is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
    return name[len(PACKAGE):] if is_function and name.startswith(PACKAGE) else ""

def in_import(frame):
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE) and not code.co_flags & inspect.CO_OPTIMIZED:
            return True
        frame = frame.f_back
    return False

calls, upward = [], []
def record(frame, event, arg):
    if event != "call" or not (file := file_of(frame)) or in_import(frame):
        return
    calls.append(file)
    caller = file_of(frame.f_back) if frame.f_back else ""
    if file.startswith("_engine/") and caller.startswith("tables/"):
        upward.append(f"{{caller}}:{{frame.f_back.f_code.co_name}} -> {{file}}:{{frame.f_code.co_name}}")

sys.setprofile(record)
try:
    {call}
finally:
    sys.setprofile(None)
print(json.dumps([len(calls), sorted(set(calls)), upward]))
"""
ALIASES = {"pandas": "pandas as pd", "polars": "polars as pl"}


@pytest.mark.parametrize("path", PATHS)
def test_a_call_runs_few_functions_of_few_files(path: str, run_warm) -> None:
    """Other calls in the same process keep routes, so each path has a process of its own."""
    frameworks, before, call, ceilings = PATHS[path]
    for name in frameworks:
        pytest.importorskip(name)
    imports = "\n".join(f"import {ALIASES.get(name, name)}" for name in frameworks)
    process = run_warm(TRACED.format(imports=imports, before=before, call=call))
    assert process.returncode == 0, process.stderr
    calls, files, upward = json.loads(process.stdout)
    measured = Ceilings(calls, len(files), len(upward))
    assert all(map(int.__le__, measured, ceilings)), (measured, upward, files)
