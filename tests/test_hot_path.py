"""The slow and the fast path of ``convert``: how many files and functions of zerocopy run."""

from __future__ import annotations

import json

import pytest

#: Most files of zerocopy whose functions the first conversion of a process may run. Lower it; never raise it.
#: One of them is `exporter_errors`: the missing route must not hide an exception of a signal handler.
FIRST_CONVERSION_FILES = 11

#: Runs two conversions and prints, for each, the functions of zerocopy that ran. Code that runs
#: because a module is imported does not count, nor do module and class bodies: both lack CO_OPTIMIZED.
TRACED_CONVERSIONS = """
import inspect, json, sys
from pathlib import Path
import numpy as np, torch, zerocopy
from zerocopy import convert  # loads the public name

torch.version.cuda = "13.0"  # a build for CUDA has one importer more
PACKAGE = str(Path(zerocopy.__file__).parent)
array = np.zeros(16, "f4")

def in_package(code):
    return code.co_filename.startswith(PACKAGE)

def is_function(code):
    return bool(code.co_flags & inspect.CO_OPTIMIZED)

def in_import(frame):
    while frame is not None:
        if in_package(frame.f_code) and not is_function(frame.f_code):
            return True
        frame = frame.f_back
    return False

def traced():
    calls = set()
    def record(frame, event, arg):
        code = frame.f_code
        if event == "call" and in_package(code) and is_function(code) and not in_import(frame):
            calls.add((code.co_filename[len(PACKAGE) + 1:], code.co_qualname))
    sys.setprofile(record)
    try:
        convert(array, "torch")
    finally:
        sys.setprofile(None)
    return sorted(calls)

print(json.dumps([traced(), traced()]))
"""


def test_first_conversion_runs_few_files_and_the_second_2_functions(run_python) -> None:
    pytest.importorskip("torch")
    process = run_python(TRACED_CONVERSIONS)
    assert process.returncode == 0, process.stderr
    first, second = json.loads(process.stdout)
    first_files = {file for file, _ in first}
    assert len(first_files) <= FIRST_CONVERSION_FILES, sorted(first_files)
    assert len({file for file, _ in second}) <= 2, second
    assert len(second) <= 2, second
