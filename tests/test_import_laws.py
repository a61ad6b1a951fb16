"""Imports: promise P6 in subprocesses, the layers of the package by reading its source."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.frameworks import HOST
from helpers.paths import ROOT
from helpers.source_files import (
    FILES,
    MODULES,
    PACKAGE,
    imported_modules,
    imported_names,
    parse,
    place_of_import,
    relative,
    string_constants,
)

import zerocopy
from zerocopy import registry

FRAMEWORKS = PACKAGE / "_frameworks"
FRAMEWORK_FILES = sorted(p for p in FRAMEWORKS.rglob("*.py") if p != FRAMEWORKS / "__init__.py")
OPTIONAL = {root for name in registry.frameworks() for root in registry.by_name(name).root_modules}
OPTIONAL -= {"cuda"}  # a namespace package: cuda.bindings is the driver's API, which the pool uses too
OPTIONAL = (OPTIONAL | {"ml_dtypes", "rmm"}) - {"numpy"}
#: Files that may import RMM, inside functions: they build a pool from its memory resources.
RMM_FILES = {PACKAGE / "pool" / name for name in ("rmm_pool.py", "attachments.py")}
#: Files and folders of Numba kernels, which import Numba at module level.
KERNELS = {PACKAGE / "layout" / "numba_kernels.py", PACKAGE / "layout" / "cuda"}

NOUNS = {"device", "dtype", "errors", "plan", "source", "strided_view"}

#: Each part of the package, with the other parts that it may import, in functions too (DESIGN section 5).
LAYERS: dict[str, set[str]] = {
    **dict.fromkeys(NOUNS, NOUNS | {"formatting"}),
    # The compiled core and its loader.
    "_native": {"errors"},
    # Lazy names, in a module that `import zerocopy` executes.
    "forks": {"interpreter"},
    "_version": set(),
    # Sizes, times, counts and names as text, and tables of HTML.
    "formatting": set(),
    "protocols": NOUNS | {"_native"},
    "layout": NOUNS | {"_native", "forks", "protocols"},
    # Callbacks at the end of an import, and programs that run in this process.
    "interpreter": {"errors", "forks", "formatting", "protocols"},
    "pool": NOUNS
    | {
        "formatting",
        "_native",
        "forks",
        "framework",
        "interpreter",
        "protocols",
        "registry",
    },
    "framework": NOUNS | {"forks", "protocols"},
    # It loads a framework's file when an object or a target needs it.
    "registry": NOUNS | {"_frameworks", "forks", "formatting", "framework", "protocols"},
    "casting": NOUNS | {"protocols", "registry"},
    # The options of one call, parsed.
    "request": {"casting", "framework"},
    # The plan of one array for one target, which plans of tables are made of.
    "handover": NOUNS | {"framework", "protocols", "registry", "request"},
    # Arrays of several buffers: sparse, ragged.
    "sparse_ragged": NOUNS | {"describe", "framework", "protocols", "registry"},
    "tables": NOUNS
    | {"_native", "casting", "forks", "formatting", "framework", "handover", "layout", "protocols"}
    | {"registry", "request"},
    "describe": NOUNS | {"framework", "protocols", "registry", "tables"},
    "_frameworks": NOUNS
    | {
        "_native",
        "_version",
        "audit",
        "forks",
        "interpreter",
        "casting",
        "sparse_ragged",
        "frames",
        "framework",
        "functions",
        "layout",
        "loading",
    }
    | {"pool", "protocols", "registry", "tables"},
    "_engine": NOUNS
    | {"_native", "casting", "sparse_ragged", "describe", "formatting", "framework", "handover", "layout"}
    | {"protocols", "registry", "request", "tables"},
    "shared": NOUNS
    | {"_engine", "describe", "forks", "formatting", "frames", "framework", "interpreter", "protocols"}
    | {"registry", "tables"},
    "channels": NOUNS | {"_engine", "describe", "forks", "formatting", "frames", "shared", "tables"},
    # One object as a header and frames; it names no framework.
    "frames": NOUNS | {"_engine", "describe", "framework", "protocols", "registry", "tables"},
    "pickling": {"errors", "frames", "framework", "registry"},
    # Files to batches. It names no framework but pyarrow, which reads the files.
    "loading": NOUNS
    | {
        "_engine",
        "describe",
        "forks",
        "formatting",
        "framework",
        "layout",
        "pool",
        "protocols",
        "registry",
        "request",
        "tables",
        "weights",
    },
    # Files of weights: a lazy mapping of their tensors, and the writer.
    "weights": NOUNS
    | {"_engine", "describe", "forks", "formatting", "loading", "pool", "protocols", "registry"},
    # What was copied, and what the memory does. It asks the pool, shared memory and the loader for figures.
    "monitor": NOUNS
    | {
        "interpreter",
        "formatting",
        "_engine",
        "_native",
        "_version",
        "describe",
        "forks",
        "framework",
        "handover",
        "loading",
        "pool",
        "protocols",
        "registry",
    }
    | {"shared", "tables", "zerocopy"},
    # Which calls of the frameworks copy where `convert` would alias.
    "audit": NOUNS
    | {
        "formatting",
        "_engine",
        "describe",
        "forks",
        "interpreter",
        "framework",
        "monitor",
        "pool",
        "protocols",
        "registry",
        "tables",
    },
    # Functions of one framework for the arrays of another.
    "functions": NOUNS
    | {"_engine", "describe", "forks", "framework", "protocols", "registry", "request", "zerocopy"},
    "integrations": NOUNS
    | {
        "_engine",
        "describe",
        "forks",
        "interpreter",
        "frames",
        "framework",
        "pickling",
        "pool",
        "protocols",
        "registry",
        "request",
        "shared",
        "tables",
    },
    # The matrix: conversions between every pair of frameworks.
    "pairs": NOUNS
    | {
        "formatting",
        "_engine",
        "describe",
        "framework",
        "protocols",
        "registry",
        "tables",
        "zerocopy",
    },
    # Conformance of other projects; it needs NumPy alone.
    "testing": {"errors", "formatting", "interpreter", "protocols"},
    "pytest_plugin": {"audit", "monitor"},
    "cli": NOUNS
    | {
        "pairs",
        "loading",
        "formatting",
        "_engine",
        "_native",
        "describe",
        "forks",
        "framework",
        "audit",
        "integrations",
        "monitor",
        "pool",
        "interpreter",
        "protocols",
        "registry",
        # `doctor` tries it.
        "shared",
        "tables",
        "testing",
        "weights",
        "zerocopy",
    },
    "__main__": {"cli"},
    # The public names that do not change.
    "stable": NOUNS | {"zerocopy"},
    # The public names, loaded on first use.
    "zerocopy": NOUNS
    | {
        "interpreter",
        "_engine",
        "_version",
        "audit",
        "channels",
        "forks",
        "framework",
        "functions",
        "layout",
        "loading",
        "monitor",
        "pairs",
        "pool",
    }
    | {"registry", "shared", "tables", "weights"},
}

#: Modules that a part may import for type checkers only.
FOR_TYPE_CHECKERS = {"framework": {"zerocopy.tables.column"}}

#: Imports against `LAYERS`: module and part. Remove pairs; never add one.
EXCEPTIONS = {
    ("zerocopy.tables.result", "zerocopy"),
}


def part_of(module: str) -> str:
    """Return the part of the package that a module belongs to: ``pool`` for ``zerocopy.pool.host``."""
    return module.split(".")[1] if "." in module else module


def forbidden_roots(path: Path) -> set[str]:
    """Return the top-level modules that a file must not import; kernels are written in Numba."""
    allowed = {"numba"} if KERNELS & {path, *path.parents} else set()
    return OPTIONAL - allowed - ({"rmm"} if path in RMM_FILES else set())


def roots(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


# -- what is loaded (P6) --------------------------------------------------------------

#: The targets of the quick tier: the others take up to 7 s, and the tests of layers find most faults.
FEW = ("numpy", "pyarrow", "torch", "jax")

LOADED = """
import sys
def loaded(): return {m.partition(".")[0] for m in sys.modules}
"""


#: All modules that ``import zerocopy`` loads into an interpreter that has executed its site module.
IMPORTED = {"zerocopy", "zerocopy.interpreter", "_operator", "_thread", "time"}


def test_import_zerocopy_loads_few_modules() -> None:
    """With -S, because the site module may load more modules; it always loads os."""
    code = f"import os, sys; sys.path.insert(0, {str(ROOT)!r}); before = {{*sys.modules}}; import zerocopy; "
    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{code}print(*{{*sys.modules}} - before)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(process.stdout.split()) <= IMPORTED


@pytest.mark.parametrize(
    "target",
    [name if name in FEW else pytest.param(name, marks=pytest.mark.full) for name in HOST],
)
def test_convert_loads_no_framework_but_the_target(run_python, target: str) -> None:
    """Modules that the target loads by itself do not count."""
    converted = run_python(
        LOADED
        + f"import numpy, {target}, zerocopy as zc\nalone = loaded()\n"
        + f"zc.convert(numpy.ones(3, 'f4'), to={target!r})\nprint(*loaded() - alone)"
    )
    assert converted.returncode == 0, converted.stderr
    extra = set(converted.stdout.split()) & OPTIONAL
    assert not extra, extra


def test_view_frameworks_and_shares_memory_load_no_framework(run_python) -> None:
    process = run_python(
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
    assert process.returncode == 0, process.stderr
    assert not set(process.stdout.split()) & OPTIONAL


def test_every_public_name_loads(run_python) -> None:
    process = run_python(
        """
        import zerocopy as zc
        for name in zc.__all__: assert getattr(zc, name) is not None
        assert callable(zc.view) and callable(zc.frameworks) and callable(zc.convert)
        assert set(dir(zc)) == set(zc.__all__)
        from zerocopy import *
        """
    )
    assert process.returncode == 0, process.stderr


def test_eager_import_imports_every_public_name_without_frameworks(run_python) -> None:
    process = run_python(
        f"""
        import sys
        sys.modules.update(dict.fromkeys({sorted(OPTIONAL)}))  # None: an import raises ImportError
        import zerocopy
        for module in (zerocopy, vars(zerocopy)["monitor"], vars(zerocopy)["shared"]):
            assert set(module.__all__) <= set(vars(module)), module
        """,
        EAGER_IMPORT="1",
    )
    assert process.returncode == 0, process.stderr


#: Most modules of zerocopy that the first use of `convert` may import. Lower it; never raise it.
CONVERT_MODULES = 60

#: Prints a line for each public name: the modules of zerocopy after its first use in a process.
FIRST_USES = """
import os, sys
import numpy, zerocopy
homes = {name: home for home, names in zerocopy._NAMES.items() for name in names.split()}
for name in zerocopy.__all__:
    sys.stdout.flush()
    if not os.fork():
        getattr(zerocopy, name)
        modules = [each for each in sys.modules if each.startswith("zerocopy.")]
        print(name, homes.get(name, name), *modules)
        sys.stdout.flush()
        os._exit(0)
    assert os.wait()[1] == 0, name
"""


def below(part: str) -> set[str]:
    """Return the parts that a part may import, themselves or through others; no file of a framework."""
    parts, new = {"_version", "interpreter", "forks"}, {part}  # imported before any name
    while new:
        parts |= new
        new = {each for above in new - {"_frameworks", "zerocopy"} for each in LAYERS[above]} - parts
    return parts


def parts_of(modules: list[str]) -> set[str]:
    """Return the parts of modules; a framework's file is a part of its own."""
    files = {name for name in modules if name.startswith("zerocopy._frameworks.")}
    return {part_of(name) for name in modules} | {name for name in files if name.split(".")[2][0] != "_"}


@pytest.fixture(scope="module")
def first_uses() -> dict[str, tuple[str, list[str]]]:
    """The home of each public name, and the modules of zerocopy that its first use imports."""
    process = subprocess.run(
        [sys.executable, "-c", FIRST_USES], capture_output=True, text=True, cwd=ROOT, check=True
    )
    lines = [line.split() for line in process.stdout.splitlines()]
    return {name: (home, modules) for name, home, *modules in lines}


@pytest.mark.parametrize("name", sorted({*zerocopy.__all__} - {"__version__"}))
def test_first_use_of_a_name_imports_what_is_below_its_part(
    name: str, first_uses: dict[str, tuple[str, list[str]]]
) -> None:
    home, modules = first_uses[name]
    assert parts_of(modules) <= below(part_of(f"zerocopy.{home}"))


def test_first_use_of_convert_imports_few_modules(first_uses: dict[str, tuple[str, list[str]]]) -> None:
    assert len(first_uses["convert"][1]) <= CONVERT_MODULES


@pytest.mark.parametrize(
    ("source", "options", "most"),
    [
        ("numpy.ones(3)", "", CONVERT_MODULES),
        ("pandas.Series([1.0])", "", 98),
        ("pandas.DataFrame({'a': [1.0]})", "", 95),
        ("pandas.DataFrame({'a': [1.0], 'b': [2.0]})", ", layout='matrix'", 100),
    ],
)
def test_first_conversion_imports_what_is_below_the_engine(
    run_warm, source: str, options: str, most: int
) -> None:
    for name in ("pandas", "torch"):
        pytest.importorskip(name)
    process = run_warm(
        f"""
        import sys, numpy, pandas, torch, zerocopy
        zerocopy.convert({source}, "torch"{options})
        print(*(name for name in sys.modules if name.startswith("zerocopy.")))
        """
    )
    assert process.returncode == 0, process.stderr
    modules = process.stdout.split()
    # The exporters of pandas also make Arrow's arrays, which pandas has imported.
    files = {f"zerocopy._frameworks.{name}" for name in ("_private", "numpy", "pandas", "torch", "pyarrow")}
    others = [name for name in modules if ".".join(name.split(".")[:3]) not in files]
    assert parts_of(others) <= below("_engine")
    assert len(modules) <= most


# -- layers -----------------------------------------------------------------------------


def test_every_part_of_the_package_is_in_the_table_of_layers() -> None:
    assert {part_of(module) for module in MODULES} == LAYERS.keys()


def upward_imports(module: str, path: Path) -> dict[tuple[str, str], str]:
    """Return the imports of a file against `LAYERS`, by module and part, with line and remedy."""
    part = part_of(module)
    for_types = FOR_TYPE_CHECKERS.get(part, set())
    imported = imported_modules(path, for_types=False) | (imported_modules(path) - for_types)
    return {
        (module, part_of(name)): f"{place_of_import(path, name)} imports {name}: {part} may import only "
        f"{', '.join(sorted(LAYERS[part])) or 'the standard library'}; move what both need to one of "
        "these, or pass its result as an argument"
        for name in sorted(imported)
        if part_of(name) not in {part, *LAYERS[part]}
    }


def test_imports_point_down_the_layers() -> None:
    violations: dict[tuple[str, str], str] = {}
    for module, path in MODULES.items():
        violations |= upward_imports(module, path)
    new = [message for pair, message in violations.items() if pair not in EXCEPTIONS]
    assert not new, "\n".join(new)
    assert violations.keys() == EXCEPTIONS, "remove the pair of an import that no longer exists"


def test_frameworks_never_import_each_other() -> None:
    shared = {f"zerocopy._frameworks{name}" for name in ("", "._obstacles", "._private")}
    for path in FRAMEWORK_FILES:
        home = "zerocopy._frameworks." + path.relative_to(FRAMEWORKS).parts[0].removesuffix(".py")
        others = {name for name in imported_modules(path) if name.startswith("zerocopy._frameworks")}
        wrong = {name for name in others - {home} - shared if not name.startswith(home + ".")}
        assert not wrong, relative(path)


# -- frameworks and kernels ---------------------------------------------------------------


def test_no_framework_is_imported_at_module_level() -> None:
    for path in FILES:
        imported = roots(imported_names(path, at_import=True, for_types=False))
        assert not imported & (forbidden_roots(path) | {"rmm"}), relative(path)


def test_core_imports_no_framework() -> None:
    """Only the registry loads the files of ``_frameworks/``, by name. pyarrow reads the loader's files."""
    for path in FILES:
        if FRAMEWORKS in path.parents or PACKAGE / "cli" in path.parents:
            continue
        names = imported_names(path, for_types=False)
        framework_files = {name for name in names if name.startswith("zerocopy._frameworks")}
        assert not framework_files or path.stem == "registry", (relative(path), framework_files)
        allowed = {"ml_dtypes"} | ({"pyarrow"} if PACKAGE / "loading" in path.parents else set())
        assert not roots(names) & (forbidden_roots(path) - allowed), relative(path)


def test_kernels_are_imported_inside_functions_only() -> None:
    """Importing them loads Numba."""
    for path in FILES:
        if not KERNELS & {path, *path.parents}:
            names = imported_names(path, at_import=True, for_types=False)
            kernels = ("zerocopy.layout.numba_kernels", "zerocopy.layout.cuda")
            assert not {name for name in names if name.startswith(kernels)}


def test_no_text_of_the_pool_names_a_framework() -> None:
    """A framework's pool hook has its texts. NumPy is exempt: the host modes serve its memory.

    The name of PyData's sparse is an English word too.
    """
    names = {framework.name for framework in registry.known()} - {"numpy", "sparse"}
    for path in sorted((PACKAGE / "pool").rglob("*.py")):
        words = {word for text in string_constants(parse(path)) for word in re.findall(r"\w+", text.lower())}
        assert not words & names, relative(path)


LAZY = [
    name
    for name, path in MODULES.items()
    if re.search(r"def __getattr__\(name|^    __getattr__, ", path.read_text("utf-8"), re.M)
]


@pytest.mark.parametrize("name", LAZY)
def test_dir_lists_the_names_that_are_imported_when_used(name: str) -> None:
    module = importlib.import_module(name)
    assert set(getattr(module, "__all__", ())) <= set(dir(module))
