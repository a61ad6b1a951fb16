"""Fuzz the readers of foreign bytes and structs: ``python -m tests.fuzz --seconds 600``, before a release.

The core is compiled with clang, AddressSanitizer and the coverage that guides libFuzzer, in a copy of the
tree; Atheris instruments the Python code. Each target runs in a process of its own, one after the other. A
finding is an input in a file: ``python -m tests.fuzz TARGET --repeat FILE`` reads it again.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
_CFLAGS = "-fsanitize=address,fuzzer-no-link -fno-omit-frame-pointer -g -O1 -UNDEBUG"
#: Python and its frameworks keep memory until they end; an array of a wrong size raises MemoryError.
_ASAN = "detect_leaks=0:allocator_may_return_null=1"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=int, default=600, help="time of each target")
    parser.add_argument("--findings", type=Path, default=Path("findings"), help="folder of the findings")
    parser.add_argument("--corpus", type=Path, help="folder that keeps the inputs that reach new code")
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="read one input, without the fuzzer")
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    if unknown := set(names) - TARGETS.keys():
        parser.error(f"the targets {sorted(unknown)} do not exist; choose from {', '.join(TARGETS)}")
    if options.repeat:
        TARGETS[names[0]]().read(options.repeat.read_bytes())
        return 0
    if importlib.util.find_spec("atheris") is None or shutil.which("clang") is None:
        parser.error("it needs Atheris and clang: pip install atheris, apt-get install clang")
    options.findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="zerocopy-fuzz-") as scratch:
        tree = _instrumented_copy(Path(scratch, "tree"))
        corpus = options.corpus or Path(scratch, "corpus")
        failed = [name for name in names if _fuzz(name, tree, corpus / name, options)]
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def _instrumented_copy(tree: Path) -> Path:
    """Copy the package and the tests, and compile the core with what the fuzzer needs."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for name in ("zerocopy", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for name in ("hatch_build.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tree)
    variables = {**os.environ, "CC": "clang", "LDSHARED": "clang -shared", "ZEROCOPY_CFLAGS": _CFLAGS}
    subprocess.run([sys.executable, "hatch_build.py"], cwd=tree, env=variables, check=True)
    return tree


def _fuzz(name: str, tree: Path, corpus: Path, options: argparse.Namespace) -> bool:
    """Run one target; return whether it has a finding."""
    corpus.mkdir(parents=True, exist_ok=True)
    library = Path(importlib.util.find_spec("atheris").origin).parents[1] / "asan_with_fuzzer.so"
    variables = {
        **os.environ,
        "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'tests'}",
        "PYTHONMALLOC": "malloc",  # the sanitizer sees each object of Python
        "LD_PRELOAD": str(library),
        "ASAN_OPTIONS": _ASAN,
        "ZEROCOPY_NATIVE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    command = [sys.executable, str(tree / "tests" / "fuzz" / "program.py"), name, str(corpus)]
    command += [
        f"-max_total_time={options.seconds}",
        f"-artifact_prefix={options.findings.resolve()}/{name}-",
    ]
    command += ["-max_len=4096", "-rss_limit_mb=8192", "-timeout=60", "-print_final_stats=1"]
    print(f"== {name}", flush=True)
    return subprocess.run(command, cwd=tree, env=variables).returncode != 0


if __name__ == "__main__":
    sys.exit(main())
