"""Count the instructions of calls with ``valgrind``, and compare the counts of two trees."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.instructions.calls import CALLS, CALLS_COUNTED, EMPTY, SLOW

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("calls.py")
#: Start and stop Callgrind, so that it counts neither imports nor preparations, and imports run faster.
_SWITCH = """
#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; }
void stop(void) { CALLGRIND_STOP_INSTRUMENTATION; }
"""
#: The part by which a count may grow.
TOLERANCE = 0.02

#: Instructions of one call by name.
Counts = dict[str, float]


class CannotCount(Exception):
    """A program that the counts need is missing, or failed."""


def environment() -> dict[str, str]:
    """Return the versions that counts depend on; counts of two environments are not comparable."""
    for program in ("valgrind", "gcc"):
        if shutil.which(program) is None:
            raise CannotCount(f"{program} is not installed: apt-get install {program}")
    return {
        "machine": platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "pyarrow", "torch")},
        "gcc": _output(["gcc", "-dumpfullversion"]),
        "valgrind": _output(["valgrind", "--version"]).removeprefix("valgrind-"),
    }


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def count(tree: Path, names: Sequence[str] = ()) -> Counts:
    """Return the instructions of each call with the package of a tree."""
    with tempfile.TemporaryDirectory(prefix="zerocopy-instructions-") as scratch:
        folder = Path(scratch)
        counted = [EMPTY, *(name for name in names or CALLS if name != EMPTY)]
        (folder / "switch.c").write_text(_SWITCH, encoding="utf-8")
        library = str(folder / "switch.so")
        _output(["gcc", "-shared", "-fPIC", "-O1", "-o", library, str(folder / "switch.c")])
        # Addresses are the same in each run: hashes of types depend on them.
        command = ["setarch", "-R", "valgrind", "--tool=callgrind", "--instr-atstart=no"]
        command += ["--callgrind-out-file=/dev/null", f"--log-file={folder}/%p", sys.executable]
        command += [str(PROGRAM), library, str(folder / "log"), *counted]
        variables = {
            **os.environ,
            "PYTHONPATH": str(tree),
            "PYTHONHASHSEED": "0",  # the hash of a name decides where a dict keeps it
            "OMP_NUM_THREADS": "1",
            "ZEROCOPY_NATIVE": "1",
        }
        done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise CannotCount(f"the calls failed with the package of {tree}: {done.stderr[-2000:]}")
        logged = json.loads((folder / "log").read_text(encoding="utf-8"))
        if not Path(logged["package"]).is_relative_to(tree):
            raise CannotCount(f"the calls ran with {logged['package']} instead of the package of {tree}")
        totals = {name: _collected(folder / str(logged["calls"][name])) for name in counted}
    empty = totals.pop(EMPTY) / CALLS_COUNTED
    return {name: round(total / _calls(name) - empty, 1) for name, total in totals.items()}


def _calls(name: str) -> int:
    """Return the number of calls that are counted."""
    return CALLS_COUNTED // (10 if name in SLOW else 1)


def _collected(log: Path) -> int:
    """Return the number of instructions in a log of callgrind."""
    match = re.search(r"Collected : (\d+)", log.read_text(encoding="utf-8", errors="replace"))
    if match is None:
        raise CannotCount(f"callgrind counted nothing: {log.read_text(errors='replace')[-1000:]}")
    return int(match[1])


def checkout(commit: str, folder: Path) -> Path:
    """Write a commit's tree into a folder, and compile its core."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True)
    if archive.returncode:
        raise CannotCount(f"git archive {commit}: {archive.stderr.decode(errors='replace').strip()}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    compile_core(folder)
    return folder


def compile_core(tree: Path) -> None:
    """Compile the core of a tree into it."""
    done = subprocess.run([sys.executable, "hatch_build.py"], cwd=tree, capture_output=True, text=True)
    if done.returncode:
        raise CannotCount(f"the core of {tree} cannot be compiled: {done.stderr[-2000:]}")


def slower(before: Counts, after: Counts, tolerance: float = TOLERANCE) -> list[str]:
    """Return the calls that take more instructions than before by more than the tolerance."""
    return [name for name in before.keys() & after.keys() if after[name] > before[name] * (1 + tolerance)]


def table(before: Counts, after: Counts) -> str:
    """Return a line for each call: both counts, and the change."""
    lines = [f"{'call':20} {'before':>10} {'after':>10}  change"]
    for name, now in after.items():
        old = before.get(name)
        shown = f"{old:10,.1f} {now:10,.1f} {now / old - 1:+7.1%}" if old else f"{'':10} {now:10,.1f}"
        lines.append(f"{name:20} {shown}")
    return "\n".join(lines)
