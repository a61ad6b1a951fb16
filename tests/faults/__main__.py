"""Run a tier of the tests with each fault of faults.json: ``python -m tests.faults --tier quick``.

Each fault is planted in a copy of the tree, and is found if a test fails, crashes or does not end. The
tests near its file run first: those named like it, then those that import it, then the folder of its part.
The others run only if these pass; ``--near`` leaves them out. Each result is a line of JSON on standard
output; ``--skip FILE`` continues a run.

A fault of a framework that this environment lacks runs in the one that has it:
``--python tests/cuda=PATH --python tests/frameworks=PATH --python tests/mxnet=PATH`` name the interpreters
with the requirements of these folders.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.faults.choose import ROOT, Fault

LIST = Path(__file__).with_name("faults.json")
# Seconds for all tests of a tier and for the near ones.
_TIMEOUT = {"quick": 1800, "full": 5400}
_NEAR_TIMEOUT = 300
# Seconds for one test: a fault can make a loop endless.
_TEST_TIMEOUT = 120
#: Imported once, because the tests run in forks: that takes longer than most tests.
_IMPORTED = "numpy torch jax.numpy tensorflow pandas polars pyarrow.parquet duckdb scipy.sparse numba"
#: Folders of the tests of a part, where they have other names.
_FOLDERS = {
    "_engine": ["engine"],
    "_frameworks": ["frameworks", "engine"],
    "_native": ["native", "layout"],
    "pairs": ["cli", "tables"],
}
#: Folders whose tests need an environment of their own, and the folder of a part that has one.
_SEPARATE = {"cuda", "docs", "gpu", "mxnet", "simulator"}
_SIMULATED = "zerocopy/layout/cuda"
_VARIABLES = {"simulator": {"NUMBA_ENABLE_CUDASIM": "1"}}


#: It fails with every fault: the list names the line that a fault replaces.
_OF_THE_LIST = "tests/test_source_laws.py::test_the_lines_of_planted_faults_exist"


class StaleFault(Exception):
    """The line that a fault changes is no longer in its file."""


@contextmanager
def planted(fault: Fault, tree: Path) -> Iterator[None]:
    """Change the line of the fault that is nearest to its number, and restore the file and the core."""
    path = tree / fault.file
    before = {each: each.read_bytes() for each in [path, *tree.glob("zerocopy/_native/_core*")]}
    lines = path.read_text().split("\n")
    places = [number for number, line in enumerate(lines, 1) if line == fault.old]
    if not places:
        raise StaleFault(
            f"{fault.file}:{fault.line} is no longer {fault.old.strip()!r}: choose another fault"
        )
    lines[min(places, key=lambda number: abs(number - fault.line)) - 1] = fault.new
    path.write_text("\n".join(lines))
    try:
        yield
    finally:
        for each, content in before.items():
            each.unlink()  # a process that has loaded the core keeps its own
            each.write_bytes(content)


def near_tests(fault: Fault, environment: str) -> list[list[str]]:
    """Return the likely test files, the others of the folders, and those of another environment."""
    _, part, *inner = names = Path(fault.file).with_suffix("").parts
    folders = _FOLDERS.get(part, [part] if (ROOT / "tests" / part).is_dir() else ["engine", "tables"])
    words = _words("_".join(inner or [part]))
    package, _, module = ".".join(names).removesuffix(".__init__").rpartition(".")
    imports = re.compile(rf"{package}\.{module}\b|from {package} import [^#\n]*\b{module}\b")
    ranked: list[list[tuple[int, int, str]]] = [[], [], []]
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        folder, text = path.relative_to(ROOT / "tests").parts[0], path.read_text("utf-8")
        named, near = len(words & _words(path.stem)), folder in folders
        rank = named + 2 * near + 2 * bool(imports.search(text))
        row = (-rank, -sum(map(text.count, words)), str(path.relative_to(ROOT)))
        if folder == environment and (named or folder in _SEPARATE):
            ranked[2].append(row)
        elif rank and folder not in _SEPARATE:
            ranked[rank < 2 or (near and rank == 2)].append(row)
    return [[row[-1] for row in sorted(rows)] for rows in ranked]


def _words(name: str) -> set[str]:
    """Return the words of a file's name, in the singular."""
    return {word.rstrip("s") for word in name.split("_")} - {"", "init", "test"}


def other_environment(fault: Fault) -> str:
    """Return the folder of tests whose environment has the fault's framework, or an empty text."""
    if fault.file.startswith(_SIMULATED):
        return "simulator"
    _, part, *inner = Path(fault.file).with_suffix("").parts
    if part != "_frameworks" or importlib.util.find_spec(inner[0]) is not None:
        return ""
    for path in sorted((ROOT / "tests").glob("*/requirements.txt")):
        if re.search(rf"^{inner[0]}", path.read_text("utf-8"), re.MULTILINE):
            return path.parent.name
    return ""


def _child(arguments: list[str], python: str, tree: Path, environment: dict[str, str]) -> None:
    """Run pytest in this fork, or in another interpreter that takes its place."""
    os.chdir(tree)
    os.environ.update(environment)
    if python != sys.executable or "NUMBA_ENABLE_CUDASIM" in environment:
        os.execv(python, [python, "-m", "pytest", *arguments])
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    code = pytest.main(arguments)
    sys.stdout.flush()
    os._exit(code)


def run_tests(
    arguments: list[str], python: str, tree: Path, environment: dict[str, str], end: float
) -> str | None:
    """Return the test that fails, or None if all pass or the time is over."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        pid = os.fork()
        if not pid:
            os.setsid()
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                _child(arguments, python, tree, environment)
            except Exception:  # noqa: BLE001 - it must not leave the fork
                traceback.print_exc()
            finally:
                os._exit(pytest.ExitCode.USAGE_ERROR)
        ended = status = 0
        while not ended and time.monotonic() < end:
            time.sleep(0.1)
            ended, status = os.waitpid(pid, os.WNOHANG)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # also the processes that a test has left
        if not ended:
            os.kill(pid, signal.SIGKILL)  # a fork that has no group yet
            os.waitpid(pid, 0)
            return None
        log.seek(0)
        output = log.read()
    code = os.waitstatus_to_exitcode(status)
    if code == pytest.ExitCode.USAGE_ERROR:
        raise StaleFault(output[-300:])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return None
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else output[-300:]


def find(fault: Fault, tree: Path, options: argparse.Namespace) -> str | None:
    """Return the test that fails with the fault planted in `tree`, or None."""
    other = other_environment(fault)
    environment = {"PYTHONPATH": str(tree), "TF_CPP_MIN_LOG_LEVEL": "3"}
    if fault.file.startswith("zerocopy/_native"):
        environment["ZEROCOPY_NATIVE"] = "1"
        build = [sys.executable, "hatch_build.py"]
        done = subprocess.run(
            build, cwd=tree, env={**os.environ, **environment}, capture_output=True, text=True
        )
        if done.returncode:
            raise StaleFault(f"{fault.file}:{fault.line} does not compile: {done.stderr[-300:]}")
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-o", f"faulthandler_timeout={_TEST_TIMEOUT}"]
    arguments += ["-o", "faulthandler_exit_on_timeout=true", "--deselect", _OF_THE_LIST]
    arguments += ["--full"] if options.tier == "full" else []
    jobs = ["-n", str(options.jobs), "--dist", "worksteal"] if options.jobs > 1 else []
    end = time.monotonic() + (_NEAR_TIMEOUT if options.near else _TIMEOUT[options.tier])
    likely, rest, own = near_tests(fault, other)
    failed = None
    if own:
        python = options.python.get(f"tests/{other}", sys.executable)
        if other != "simulator" and python == sys.executable:
            raise StaleFault(f"{fault.file} needs --python tests/{other}=PATH")
        failed = run_tests([*arguments, *own], python, tree, environment | _VARIABLES.get(other, {}), end)
    for files in (likely, rest) if options.near else (likely, rest, ["tests"]):
        if files and not failed and time.monotonic() < end:
            failed = run_tests([*arguments, *jobs, *files], sys.executable, tree, environment, end)
    return failed


def main() -> int:
    """Print which faults a tier finds."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--tier", choices=["quick", "full"], default="quick")
    parser.add_argument("--jobs", type=int, default=2, help="processes of pytest for each fault")
    parser.add_argument("--file", default="", help="only the faults of files whose path contains this text")
    parser.add_argument("--near", action="store_true", help="only the tests of the fault's package")
    parser.add_argument("--part", default="0/1", help="I/N: only each N-th fault, from the I-th on")
    parser.add_argument("--skip", type=Path, help="results of an earlier run, which are not repeated")
    parser.add_argument("--python", action="append", default=[], help="FOLDER=PATH of an interpreter")
    options = parser.parse_args()
    options.python = dict(text.split("=", 1) for text in options.python)
    rows = map(json.loads, options.skip.read_text().splitlines() if options.skip else ())
    known = {(row["file"], row["line"], row["new"]) for row in rows}
    index, number = map(int, options.part.split("/"))
    faults = [Fault(**row) for row in json.loads(LIST.read_text())][index::number]
    detected = stale = 0
    chosen = [
        fault
        for fault in faults
        if options.file in fault.file and (fault.file, fault.line, fault.new) not in known
    ]
    with tempfile.TemporaryDirectory(prefix="zerocopy-fault-") as scratch:
        tree = Path(scratch, "tree")
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__"))
        for name in _IMPORTED.split():
            with suppress(ImportError):
                importlib.import_module(name)
        for fault in chosen:
            begin = time.monotonic()
            result = {"file": fault.file, "line": fault.line, "new": fault.new}
            try:
                with planted(fault, tree):
                    test = find(fault, tree, options)
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
