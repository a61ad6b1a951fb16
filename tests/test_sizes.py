"""What an installation costs: the wheel, its files with bytecode, and the modules of a first conversion."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest
from helpers.paths import ROOT

from zerocopy._native import core

#: In bytes: limits that fall, and rise for a feature only, the last time for the conformance kit,
#: `forbid_copies`, `zc.dataset` and writes to immutable memory. The goal for the wheel is 1,000,000, for
#: users who weigh a dependency.
WHEEL = 1_340_000  # with the compiled core for x86-64; .ci/wheels.py checks those of a release
#: CPython 3.11 stores the inline caches of instructions as zeros in its bytecode, later versions do not.
INSTALLED = 9_660_000 if sys.version_info < (3, 12) else 9_120_000
#: Modules of zerocopy in the process after the first conversion of an array.
MODULES = 45


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the pure wheel, in a second; the compiled core would take ten."""
    pytest.importorskip("hatchling")
    if not (ROOT / "hatch_build.py").exists():
        pytest.skip("needs a checkout or the sdist: it builds zerocopy")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT, env={**os.environ, "ZEROCOPY_NATIVE": "0"}, check=True, capture_output=True,
    )  # fmt: skip
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def library() -> bytes:
    """Return the compiled core without symbols, as in a wheel; empty without one."""
    return b"" if core is None else Path(core.__file__).read_bytes()


def test_the_wheel_is_small(wheel: zipfile.ZipFile) -> None:
    size = Path(wheel.filename or "").stat().st_size + len(zlib.compress(library()))
    assert size <= WHEEL


def test_the_installed_files_with_bytecode_are_small(wheel: zipfile.ZipFile) -> None:
    files = {name: wheel.read(name) for name in wheel.namelist()}
    programs = [data for name, data in files.items() if name.endswith(".py")]
    bytecode = sum(16 + len(marshal.dumps(compile(data, "", "exec", dont_inherit=True))) for data in programs)
    assert len(programs) > 300
    assert sum(map(len, files.values())) + len(library()) + bytecode <= INSTALLED


def test_a_first_conversion_loads_few_modules(run_warm) -> None:
    pytest.importorskip("torch")
    process = run_warm(
        """
        import sys, numpy, torch, zerocopy as zc
        zc.convert(numpy.ones(3), to="torch")
        sys.modules.pop("zerocopy._native.sources", None)  # only a source tree loads it
        print(*sorted(name for name in sys.modules if name.partition(".")[0] == "zerocopy"))
        """
    )
    assert process.returncode == 0, process.stderr
    modules = process.stdout.split()
    assert len(modules) <= MODULES, modules
