"""P6 and the laws on imports: shown by subprocesses and by reading the source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.frameworks import HOST
from helpers.paths import ROOT

from zerocopy import registry

PACKAGE = ROOT / "zerocopy"
FILES = sorted(PACKAGE.rglob("*.py"))
HOMES = PACKAGE / "_frameworks"
FRAMEWORK_FILES = sorted(p for p in HOMES.rglob("*.py") if p != HOMES / "__init__.py")
ROOTS = {root for name in registry.frameworks() for root in registry.by_name(name).root_modules}
OPTIONAL = (ROOTS | {"ml_dtypes", "rmm"}) - {"numpy"}
#: The rooms that put RMM's resources together; RMM is no framework, but what a pool is made of.
RMM = [PACKAGE / "pool" / "rmm_chain.py", PACKAGE / "pool" / "rmm_pool.py", PACKAGE / "pool" / "rmm_hook.py"]
#: Rooms that are written in Numba, and so import it: see ``test_kernels_are_imported_late``.
KERNELS = [PACKAGE / "layout" / "kernels", PACKAGE / "layout" / "cuda"]


def _foreign(path: Path) -> set[str]:
    """What a file must not import: in the kernels' rooms Numba is no framework, but the language."""
    own = {"numba"} if set(KERNELS) & set(path.parents) else set()
    return OPTIONAL - own - ({"rmm"} if path in RMM else set())


LOADED = """
import sys
def loaded(): return {m.partition(".")[0] for m in sys.modules}
"""


def test_import_zerocopy_imports_the_standard_library_alone(run_python) -> None:
    done = run_python(
        LOADED + "before = loaded()\nimport zerocopy\nprint(*sorted(loaded() - before - {'zerocopy'}))"
    )
    extra = set(done.stdout.split()) - set(sys.stdlib_module_names)
    assert not extra, extra


@pytest.mark.parametrize("target", HOST)
def test_convert_imports_the_target_and_nothing_else(run_python, target: str) -> None:
    """What the target itself imports is its own affair: it is the yardstick."""
    alone = run_python(LOADED + f"import numpy, {target}\nprint(*loaded())")
    done = run_python(
        LOADED
        + "import numpy, zerocopy as zc\n"
        + f"zc.convert(numpy.ones(3, 'f4'), to={target!r})\nprint(*loaded())"
    )
    assert done.returncode == 0, done.stderr
    extra = (set(done.stdout.split()) - set(alone.stdout.split())) & OPTIONAL
    assert not extra, extra


def test_looking_imports_nothing(run_python) -> None:
    done = run_python(
        LOADED
        + """
import numpy, zerocopy as zc
before = loaded()
zc.view(b"abc"); zc.frameworks(); zc.shares_memory(numpy.ones(3), memoryview(b"abc"))
try: zc.view(object())
except zc.ZeroCopyError: pass
print(*sorted(loaded() - before))
"""
    )
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout.split()) & OPTIONAL


def test_every_public_name_loads(run_python) -> None:
    done = run_python(
        """
        import zerocopy as zc
        for name in zc.__all__: assert getattr(zc, name) is not None
        assert callable(zc.view) and callable(zc.frameworks) and callable(zc.convert)
        assert set(dir(zc)) == set(zc.__all__)
        from zerocopy import *
        """
    )
    assert done.returncode == 0, done.stderr


def _imports(path: Path, *, top_level_only: bool) -> set[str]:
    tree = ast.parse(path.read_text())
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        is_typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if is_typing or (top_level_only and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))):
            body = node.body if is_typing else [node]
            skipped |= {child for part in body for child in ast.walk(part) if child is not node}
    names: set[str] = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_framework_is_imported_at_module_level(path: Path) -> None:
    tops = {name.partition(".")[0] for name in _imports(path, top_level_only=True)}
    assert not tops & (_foreign(path) | {"rmm"})


def test_kernels_are_imported_late() -> None:
    """No file outside of them imports the kernels, and so Numba, when it is imported itself."""
    for path in FILES:
        if not set(KERNELS) & set(path.parents):
            early = _imports(path, top_level_only=True)
            assert not {n for n in early if n.startswith(("zerocopy.layout.kernels", "zerocopy.layout.cuda"))}


@pytest.mark.parametrize("path", FRAMEWORK_FILES, ids=lambda p: str(p.relative_to(HOMES)))
def test_frameworks_never_import_each_other(path: Path) -> None:
    allowed = (
        "registry",
        "framework",
        "protocols",
        "device",
        "dtype",
        "errors",
        "source",
        "strided_view",
        "layout",
        "tables",
        "pool",
    )
    own = {name for name in _imports(path, top_level_only=False) if name.startswith("zerocopy")}
    home = "zerocopy._frameworks." + path.relative_to(HOMES).parts[0].removesuffix(".py")
    for name in own - {"zerocopy"}:
        if name in (home, "zerocopy._frameworks", "zerocopy._frameworks._obstacles"):
            continue
        if name.startswith(home + "."):
            continue  # a framework that has a folder
        assert name.split(".")[1] in allowed, name


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if HOMES not in p.parents and PACKAGE / "cli" not in p.parents],
    ids=lambda p: str(p.relative_to(PACKAGE)),
)
def test_nothing_else_names_a_framework_module(path: Path) -> None:
    """Only the registry reaches the framework files, and by name; nobody imports a framework."""
    names = _imports(path, top_level_only=False)
    inner = {n for n in names if n.startswith("zerocopy._frameworks")}
    assert not inner or path.stem == "registry", inner
    assert not {n.partition(".")[0] for n in names} & (_foreign(path) - {"ml_dtypes"})


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "pool").rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_no_text_of_the_pool_names_a_framework(path: Path) -> None:
    """What is to be said of one is said by its hook; but for NumPy, whose memory the host modes are about."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)
    }
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    words = {
        word
        for text in texts - docstrings
        if isinstance(text, str)
        for word in re.findall(r"\w+", text.lower())
    }
    assert not words & (set(registry.frameworks()) - {"numpy"})


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_exception_is_swallowed(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or "Exception" in ast.dump(node.type)
            silent = all(isinstance(line, (ast.Pass, ast.Continue)) for line in node.body)
            assert not (broad and silent), f"{path.name}:{node.lineno}"


def test_rooms_stay_small() -> None:
    long = {p.name: n for p in FILES if (n := len(p.read_text().splitlines())) > 440}
    assert not long


def test_the_package_does_without_typing() -> None:
    """It takes longer to import than all the rest of what ``import zerocopy`` does; -S: site may have it."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import zerocopy; print('typing' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
