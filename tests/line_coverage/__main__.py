"""Measure which lines the tests reach: ``python -m tests.line_coverage native``, a table of ``floors.toml``.

The package is copied and its core is compiled with ``--coverage``. coverage.py measures all processes that
the tests start, except those that a signal kills. The exit status is 1 below a floor. Tests of time, of
imports and of reference counts can fail because they are measured; the last line of pytest shows how many.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FLOORS = Path(__file__).with_name("floors.toml")
#: A floor is this many points below the coverage, because threads and time decide about a few lines.
MARGIN = 0.5
_COMPILE = """
import sys, hatch_build
from pathlib import Path
print(hatch_build.put_in_place(hatch_build.compile_core(Path(sys.argv[1]))))
"""
#: `sigterm` and `patch`: also for processes that a test ends, and for those that leave by os._exit.
_CONFIGURATION = """
[run]
source = {source}
data_file = {data}
parallel = true
sigterm = true
patch = subprocess, _exit
concurrency = thread, multiprocessing
[report]
exclude_also =
    if TYPE_CHECKING:
    if not TYPE_CHECKING:
"""


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.line_coverage", description=__doc__)
    runs = tomllib.loads(FLOORS.read_text(encoding="utf-8"))
    parser.add_argument("run", choices=runs, help="the tests, a table of floors.toml")
    parser.add_argument("--record", action="store_true", help="raise the floors of the run")
    parser.add_argument("--jobs", type=int, default=2, help="processes of pytest-xdist")
    options = parser.parse_args()
    run = runs[options.run]
    with tempfile.TemporaryDirectory(prefix="zerocopy-coverage-") as scratch:
        measured = measure(run["tests"], run["package"], options.jobs, Path(scratch).resolve())
    low = [kind for kind, share in measured.items() if share < run.get(kind, 0)]
    for kind, share in measured.items():
        print(f"{kind}: {share:.1f}% of lines; the floor of {options.run} is {run.get(kind, 'not recorded')}")
    if options.record:
        record(options.run, measured)
    return 1 if low else 0


def measure(tests: list[str], package: str, jobs: int, scratch: Path) -> dict[str, float]:
    """Return the percentages of lines, by ``"python"`` and ``"c"``, that tests reach."""
    tree, objects = scratch / "tree", scratch / "objects"
    ignored = shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__", "*.so")
    shutil.copytree(ROOT, tree, ignore=ignored)
    objects.mkdir()
    configuration = scratch / "coveragerc"
    configuration.write_text(_CONFIGURATION.format(source=tree / package, data=scratch / "data"))
    # Counters of threads must not lose counts.
    flags = "--coverage -fprofile-update=atomic -O0"
    variables = {**os.environ, "PYTHONPATH": str(tree), "ZEROCOPY_CFLAGS": flags, "ZEROCOPY_NATIVE": "1"}
    variables |= {"TF_CPP_MIN_LOG_LEVEL": "3", "COVERAGE_RCFILE": str(configuration)}

    def python(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tree, env=variables, check=check, stdout=-1, text=True)

    python("-c", _COMPILE, str(objects))
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(jobs), *tests]
    done = python("-m", "coverage", "run", *pytest, check=False)
    print(*done.stdout.splitlines()[-1:])
    python("-m", "coverage", "combine", "-q")
    report = json.loads(python("-m", "coverage", "json", "-q", "-o", "-").stdout)
    measured = {"python": report["totals"]["percent_covered"]}
    if "zerocopy/_native".startswith(package):
        gcovr = ["-m", "gcovr", "-r", str(tree), str(objects), "--json-summary", "-"]
        measured["c"] = json.loads(python(*gcovr).stdout)["line_percent"]
    return measured


def record(name: str, measured: dict[str, Any]) -> None:
    """Raise the floors of a run to the coverage less `MARGIN`."""
    head, start, rest = FLOORS.read_text(encoding="utf-8").partition(f"[{name}]\n")
    table, gap, others = rest.partition("\n\n")
    for kind, share in measured.items():
        floor = math.floor(10 * (share - MARGIN)) / 10
        match = re.search(rf"^{kind} = ([\d.]+)$", table, re.MULTILINE)
        if match is None:
            table = f"{table.rstrip()}\n{kind} = {floor}"
        elif floor > float(match[1]):
            table = table.replace(match[0], f"{kind} = {floor}")
    FLOORS.write_text(f"{head}{start}{table.rstrip()}{gap or chr(10)}{others}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
