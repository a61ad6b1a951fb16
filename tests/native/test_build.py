"""The build hook: compiled and pure wheels, editable installations and the sdist.

The core in most tests is one small C file, because the hook does not depend on the content of the core.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from helpers.paths import ROOT
from helpers.versions import needs

pytest.importorskip("hatchling")
pytest.importorskip("setuptools")
if not (ROOT / "hatch_build.py").exists():
    pytest.skip("needs a checkout or the sdist: it builds zerocopy", allow_module_level=True)

LIBRARY = "_core" + sysconfig.get_config_var("EXT_SUFFIX")
SMALL_CORE = """
#include <Python.h>
static PyObject *free_locks(PyObject *module, PyObject *nothing) { Py_RETURN_NONE; }
static PyMethodDef methods[] = {{"free_locks", free_locks, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "zerocopy._native._core", .m_methods = methods
};
PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddStringConstant(module, "__sources__", ZEROCOPY_SOURCES) < 0) {
        Py_CLEAR(module);
    }
    return module;
}
"""

numpy_2 = needs("numpy", "2.0", "headers that the core can be compiled with")
gcc = pytest.mark.skipif(
    sys.platform != "linux" or sys.implementation.name != "cpython" or shutil.which("gcc") is None,
    reason="needs gcc, Linux and CPython",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the repository's package whose core is one small C file."""
    return small_tree(tmp_path / "tree")


def small_tree(folder: Path) -> Path:
    """Copy what a build needs to `folder`."""
    shutil.copytree(
        ROOT / "zerocopy", folder / "zerocopy", ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, folder)
    native = folder / "zerocopy" / "_native"
    for source in native.glob("*.c"):
        source.unlink()
    (native / "module.c").write_text(SMALL_CORE, encoding="utf-8")
    return folder


def run(arguments: list[str], cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in `cwd` without the checkout on its path, with ``ZEROCOPY_NATIVE`` only if it is given."""
    dropped = ("ZEROCOPY_NATIVE", "ZEROCOPY_CFLAGS", "PYTHONPATH", "CC")
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=env | variables, capture_output=True, text=True, timeout=300)


def build(tree: Path, target: str = "wheel", **variables: str) -> subprocess.CompletedProcess[str]:
    return run(["-m", "hatchling", "build", "-t", target, "-d", str(tree / "out")], tree, **variables)


def built(tree: Path) -> tuple[str, set[str]]:
    """Return the wheel's file name, and the names of its files under ``zerocopy/_native``."""
    (wheel,) = (tree / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    prefix = "zerocopy/_native/"
    return wheel.name, {name.removeprefix(prefix) for name in names if name.startswith(prefix)}


PURE = {"__init__.py", "sources.py"}


@numpy_2
@gcc
def test_a_compiler_gives_a_wheel_with_the_library_and_without_c_files(tree: Path) -> None:
    (tree / "zerocopy" / "_native" / LIBRARY).write_bytes(b"an old library")
    done = build(tree)
    assert done.returncode == 0, done.stderr
    name, files = built(tree)
    assert "py3-none-any" not in name
    assert files == PURE | {LIBRARY}
    with zipfile.ZipFile(tree / "out" / name) as wheel:
        assert wheel.read(f"zerocopy/_native/{LIBRARY}").startswith(b"\x7fELF")
        assert "Root-Is-Purelib: false" in wheel.read(_wheel_file(wheel)).decode()


def _wheel_file(wheel: zipfile.ZipFile) -> str:
    return next(name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL"))


@numpy_2
@gcc
def test_without_a_compiler_the_wheel_is_pure_and_one_warning_says_so(tree: Path) -> None:
    # An old library in the source tree must not get into the wheel.
    (tree / "zerocopy" / "_native" / LIBRARY).write_bytes(b"an old library")
    done = build(tree, PATH="")
    assert done.returncode == 0, done.stderr
    name, files = built(tree)
    assert name.endswith("-py3-none-any.whl")
    assert files == PURE
    output = done.stdout + done.stderr
    assert output.count("zerocopy is built without its compiled core") == 1
    assert "gcc" in output
    assert "ZEROCOPY_NATIVE=0" in output


@gcc
def test_an_error_of_the_compiler_gives_a_pure_wheel(tree: Path) -> None:
    (tree / "zerocopy" / "_native" / "module.c").write_text("#error no\n", encoding="utf-8")
    assert "zerocopy is built without its compiled core" in (done := build(tree)).stdout + done.stderr
    assert built(tree)[0].endswith("-py3-none-any.whl")


@numpy_2
@gcc
@pytest.mark.parametrize("target", ["wheel", "wheel:editable"])
def test_native_1_fails_without_a_compiler(tree: Path, target: str) -> None:
    done = build(tree, target, PATH="", ZEROCOPY_NATIVE="1")
    assert done.returncode != 0
    assert "ZEROCOPY_NATIVE=1, but the core cannot be compiled: " in done.stderr
    assert "gcc" in done.stderr
    assert not list((tree / "out").glob("*.whl"))


def test_native_0_gives_a_pure_wheel_without_a_warning(tree: Path) -> None:
    done = build(tree, ZEROCOPY_NATIVE="0")
    assert done.returncode == 0, done.stderr
    name, files = built(tree)
    assert name.endswith("-py3-none-any.whl")
    assert files == PURE
    assert "compiled core" not in done.stdout + done.stderr


def test_another_value_of_the_variable_fails(tree: Path) -> None:
    done = build(tree, ZEROCOPY_NATIVE="yes")
    assert done.returncode != 0
    assert "ZEROCOPY_NATIVE is 'yes'; set it to 0 or 1, or unset it" in done.stderr


@pytest.mark.parametrize(
    ("condition", "elsewhere"),
    [('sys.platform == "linux"', "False"), ('sys.implementation.name != "cpython"', "True")],
    ids=["not Linux", "not CPython"],
)
def test_other_platforms_and_interpreters_get_the_pure_wheel(
    tree: Path, condition: str, elsewhere: str
) -> None:
    hook = tree / "hatch_build.py"
    source = hook.read_text(encoding="utf-8")
    assert condition in source
    hook.write_text(source.replace(condition, elsewhere), encoding="utf-8")
    assert build(tree, ZEROCOPY_NATIVE="").returncode == 0
    assert built(tree)[0].endswith("-py3-none-any.whl")


@numpy_2
@gcc
def test_an_editable_installation_has_the_library_in_the_source_tree(tree: Path) -> None:
    done = build(tree, "wheel:editable", ZEROCOPY_NATIVE="1")
    assert done.returncode == 0, done.stderr
    assert built(tree)[1] == set()
    native = tree / "zerocopy" / "_native"
    assert {path.name for path in native.iterdir()} >= {LIBRARY, "module.c"}
    assert not list(native.glob("tmp*"))
    done = run(["-c", "from zerocopy import _native; print(_native.core.__file__)"], tree)
    assert done.stdout.strip() == str(native / LIBRARY), done.stderr


@gcc
@pytest.mark.parametrize(
    "variables", [{"ZEROCOPY_NATIVE": "0"}, {"PATH": ""}], ids=["native 0", "no compiler"]
)
def test_an_old_library_does_not_outlive_a_new_editable_installation(
    tree: Path, variables: dict[str, str]
) -> None:
    library = tree / "zerocopy" / "_native" / LIBRARY
    other = library.with_name("_core.cpython-399-x86_64-linux-gnu.so")
    library.write_bytes(b"an old library")
    other.write_bytes(b"the library of another Python")
    assert build(tree, "wheel:editable", **variables).returncode == 0
    assert not library.exists()
    assert other.exists()


@numpy_2
@gcc
def test_the_core_is_compiled_in_place_without_hatchling(tree: Path) -> None:
    blocked = "import sys; sys.modules['hatchling'] = None; import runpy; "
    done = run(["-c", blocked + "runpy.run_path('hatch_build.py', run_name='__main__')"], tree)
    assert done.returncode == 0, done.stderr
    assert (tree / "zerocopy" / "_native" / LIBRARY).exists()


@gcc
def test_headers_of_numpy_1_are_refused(tree: Path) -> None:
    old = "import runpy, numpy; numpy.__version__ = '1.26.4'; "
    done = run(["-c", old + "runpy.run_path('hatch_build.py', run_name='__main__')"], tree)
    assert "it requires the headers of NumPy 2; this is NumPy 1.26.4" in done.stderr


@pytest.mark.full  # .ci/wheels.py compares the real archives
@gcc
@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_builds_in_two_folders_have_the_same_bytes(tmp_path: Path, target: str) -> None:
    trees = [small_tree(tmp_path / "tree"), small_tree(tmp_path / "another" / "folder")]
    for path in trees[1].rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(0o700 if path.is_dir() else 0o600)
    archives = []
    for each in trees:
        done = build(each, target, ZEROCOPY_NATIVE="1", SOURCE_DATE_EPOCH="1700000000")
        assert done.returncode == 0, done.stderr
        archives += (each / "out").iterdir()
    first, second = archives
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.full
@gcc
def test_the_sdist_builds_a_wheel_with_the_whole_core(tmp_path: Path) -> None:
    """The real core, from the real sdist."""
    done = run(["-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)], ROOT)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (tree,) = (path for path in tmp_path.iterdir() if path.is_dir())
    sources = {path.name for path in (ROOT / "zerocopy" / "_native").glob("*.[ch]")}
    assert {path.name for path in (tree / "zerocopy" / "_native").iterdir()} == PURE | sources
    # -O0 compiles faster, and a warning fails.
    done = build(tree, ZEROCOPY_NATIVE="1", ZEROCOPY_CFLAGS="-O0 -Werror")
    assert done.returncode == 0, done.stderr
    name, files = built(tree)
    assert files == PURE | {LIBRARY}
    installed = tmp_path / "installed"
    with zipfile.ZipFile(tree / "out" / name) as wheel:
        wheel.extractall(installed)
    code = """
import numpy as np, zerocopy as zc
from zerocopy import _native
x = np.arange(4.0)
assert zc.shares_memory(x, zc.convert(x, to="numpy"))
print(_native.core.__file__)
"""
    done = run(["-c", code], installed, ZEROCOPY_NATIVE="1")
    assert done.stdout.strip() == str(installed / "zerocopy" / "_native" / LIBRARY), done.stderr
