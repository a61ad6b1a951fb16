"""Run a tier of the tests with each fault of faults.json: ``python -m tests.faults --tier quick``.

Each fault is planted in a copy of the tree, and is found if a test fails, crashes or does not end. The
tests of the fault's package run first, and the others only if these pass. Each result is a line of JSON
on standard output; ``--skip FILE`` continues a run. ``--near`` leaves out the other tests.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.choose import ROOT, Fault

LIST = Path(__file__).with_name("faults.json")
# Longer than a tier takes: a fault can make a loop endless.
_TIMEOUT = {"quick": 1800, "full": 5400}
#: Folders of the tests of a part, where they have other names. Those of a framework are in two.
_FOLDERS = {
    "_engine": ["engine"],
    "_frameworks": ["frameworks", "engine"],
    "_native": ["native"],
    "sparse_ragged": ["engine"],
}


class StaleFault(Exception):
    """The line that a fault changes is no longer in its file."""


def plant(fault: Fault, tree: Path) -> None:
    """Change the line of the fault that is nearest to its number."""
    path = tree / fault.file
    lines = path.read_text().split("\n")
    places = [number for number, line in enumerate(lines, 1) if line == fault.old]
    if not places:
        raise StaleFault(
            f"{fault.file}:{fault.line} is no longer {fault.old.strip()!r}: choose another fault"
        )
    lines[min(places, key=lambda number: abs(number - fault.line)) - 1] = fault.new
    path.write_text("\n".join(lines))


def near_tests(fault: Fault) -> list[str]:
    """Return the folders of tests that probably find the fault, after files that are named like its file."""
    _, name, *inner = Path(fault.file).with_suffix("").parts
    folders = [f"tests/{folder}" for folder in _FOLDERS.get(name, [name])]
    if not (ROOT / folders[0]).is_dir():
        inner, folders = [name], ["tests/engine"]
    words = {word.strip("_") for word in inner} - {"init", ""}
    files = [path for folder in folders for path in sorted((ROOT / folder).glob("test_*.py"))]
    named = [path for path in files if words & {path.stem[5:], *path.stem.split("_")}]
    return [*(str(path.relative_to(ROOT)) for path in named), *folders]


def find(fault: Fault, tier: str, jobs: int, near: bool) -> str | None:
    """Return the test that fails with the fault, or None; `near`: one of the tests of its package."""
    with tempfile.TemporaryDirectory(prefix="zerocopy-fault-") as scratch:
        tree = Path(scratch, "tree")
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__"))
        plant(fault, tree)
        environment = {**os.environ, "PYTHONPATH": str(tree), "TF_CPP_MIN_LOG_LEVEL": "3"}
        if fault.file.startswith("zerocopy/_native"):
            build = [sys.executable, "hatch_build.py"]
            done = subprocess.run(build, cwd=tree, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise StaleFault(f"{fault.file}:{fault.line} does not compile: {done.stderr[-300:]}")
        for folders in (near_tests(fault),) if near else (near_tests(fault), []):
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-x",
                "-q",
                "-n",
                str(jobs),
                "--dist",
                "worksteal",
                *folders,
            ]
            command += ["--full"] if tier == "full" else []
            try:
                done = subprocess.run(
                    command, cwd=tree, env=environment, capture_output=True, text=True, timeout=_TIMEOUT[tier]
                )
            except subprocess.TimeoutExpired:
                return "no end"
            if done.returncode:
                failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return failed[0] if failed else (done.stdout + done.stderr)[-200:]
        return None


def main() -> int:
    """Print which faults a tier finds."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--tier", choices=["quick", "full"], default="quick")
    parser.add_argument("--jobs", type=int, default=2, help="processes of pytest for each fault")
    parser.add_argument("--file", default="", help="only the faults of files whose path contains this text")
    parser.add_argument("--near", action="store_true", help="only the tests of the fault's package")
    parser.add_argument("--part", default="0/1", help="I/N: only each N-th fault, from the I-th on")
    parser.add_argument("--skip", type=Path, help="results of an earlier run, which are not repeated")
    options = parser.parse_args()
    known = (
        {json.loads(line)["new"] for line in options.skip.read_text().splitlines()} if options.skip else set()
    )
    index, number = map(int, options.part.split("/"))
    faults = [Fault(**row) for row in json.loads(LIST.read_text())][index::number]
    detected = stale = 0
    chosen = [fault for fault in faults if options.file in fault.file and fault.new not in known]
    for fault in chosen:
        begin = time.monotonic()
        result = {"file": fault.file, "line": fault.line, "new": fault.new}
        try:
            test = find(fault, options.tier, options.jobs, options.near)
        except StaleFault as error:
            stale += 1
            result["stale"] = str(error)
        else:
            detected += test is not None
            result |= {"test": test, "seconds": round(time.monotonic() - begin)}
        print(json.dumps(result), flush=True)
    print(
        f"{detected} of {len(chosen) - stale} faults make a test fail; {stale} cannot be planted",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
