"""Run the tests of other projects with zerocopy in place of their conversions: ``python -m tests.adopters``.

The tests of scikit-learn's array API support are in its wheel. Those of narwhals are in its source archive,
which pip downloads, with array-api-strict, into a temporary folder. ``--own`` runs the same tests without
zerocopy. Other arguments are pytest's.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Installed backends of narwhals.
BACKENDS = "pandas,pandas[pyarrow],polars[eager],pyarrow,duckdb"


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments, "-q", "--no-deps"], check=True)


def files_with(folder: Path, pattern: str, text: str) -> list[str]:
    """Return the files below a folder whose text has a match."""
    return [str(file) for file in sorted(folder.rglob(pattern)) if re.search(text, file.read_text("utf-8"))]


def sklearn(scratch: Path) -> tuple[Path, list[str]]:
    """Return the folder of the tests, and arguments of pytest."""
    pip("install", "array-api-strict", "--target", str(scratch))
    spec = importlib.util.find_spec("sklearn")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    return package, ["-k", "array_api or move_to", *files_with(package, "test_*.py", r"array_api|move_to\b")]


def narwhals(scratch: Path) -> tuple[Path, list[str]]:
    """Return the folder of the tests, and arguments of pytest; the archive has no other files of narwhals."""
    version = importlib.metadata.version("narwhals")
    pip("download", f"narwhals=={version}", "--no-binary", "narwhals", "-d", str(scratch))
    folder = scratch / f"narwhals-{version}"
    with tarfile.open(f"{folder}.tar.gz") as archive:
        files = [file for file in archive.getmembers() if not file.name.startswith(f"{folder.name}/src/")]
        archive.extractall(scratch, files, filter="data")
    calls = "to_numpy|to_pandas|to_polars|to_arrow|__array__"
    options = ["-W", "ignore::pytest.PytestConfigWarning", "--constructors", BACKENDS]
    return folder, [*options, *files_with(folder / "tests", "*_test.py", calls)]


PROJECTS: dict[str, Callable[[Path], tuple[Path, list[str]]]] = {"sklearn": sklearn, "narwhals": narwhals}


def run(name: str, own: bool, arguments: list[str]) -> bool:
    """Run the tests of one project and return whether they passed."""
    with tempfile.TemporaryDirectory(prefix=f"zerocopy-adopters-{name}-") as scratch:
        folder, tests = PROJECTS[name](Path(scratch))
        paths = f"{scratch}:{ROOT}:{ROOT / 'tests'}"
        variables = {**os.environ, "PYTHONPATH": paths, "SCIPY_ARRAY_API": "1", "TZ": "UTC"}
        plugin = [] if own else ["-p", "helpers.adopters_plugin"]
        options = ["-q", "--tb=short", "-p", "no:cacheprovider", f"--rootdir={folder}", *plugin]
        print(f"\n== {name}", flush=True)
        command = [sys.executable, "-m", "pytest", *options, *tests, *arguments]
        return subprocess.run(command, cwd=folder, env=variables).returncode == 0


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.adopters", description=__doc__)
    parser.add_argument(
        "projects", nargs="*", metavar="PROJECT", help=f"of {', '.join(PROJECTS)}; default: all"
    )
    parser.add_argument("--own", action="store_true", help="with the project's own conversions")
    options, arguments = parser.parse_known_args()
    names = options.projects or list(PROJECTS)
    if unknown := set(names) - PROJECTS.keys():
        parser.error(f"there are no tests of {sorted(unknown)}; choose from {', '.join(PROJECTS)}")
    failed = [name for name in names if not run(name, options.own, arguments)]
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
