"""Loading of the compiled core: the variable ``ZEROCOPY_NATIVE``, and libraries that cannot be loaded."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from zerocopy import _native
from zerocopy._native.sources import digest

RunPython = Callable[..., subprocess.CompletedProcess[str]]

#: Replaces the import of the core by `core`, and imports the package anew.
RELOAD = """
import importlib, sys, types
real = importlib.import_module
def import_module(name, package=None):
    if name != "zerocopy._native._core":
        return real(name, package)
    {body}
importlib.import_module = import_module
"""
ABSENT = 'raise ModuleNotFoundError(f"No module named {name!r}", name=name)'
BROKEN = 'raise ImportError("undefined symbol: PyArray_New")'
OLD = 'return types.SimpleNamespace(__sources__="00000000")'
UNMARKED = "return types.SimpleNamespace()"

#: An extension is compared with the C sources next to it.
needs_sources = pytest.mark.skipif(
    not Path(_native.__file__).with_name("core.h").exists(),
    reason="needs C sources, and zerocopy is installed from a wheel, which has none",
)

PRINT = "from zerocopy import _native; print(_native.core, '|', _native.why_not)"


def script(body: str) -> str:
    return RELOAD.format(body=body) + PRINT


def test_core_and_why_not_exclude_each_other() -> None:
    assert (_native.core is None) == bool(_native.why_not)


def test_native_0_loads_nothing(run_python: RunPython) -> None:
    code = PRINT + "\nimport sys; assert 'zerocopy._native._core' not in sys.modules"
    assert run_python(code, ZEROCOPY_NATIVE="0").stdout.strip() == "None | ZEROCOPY_NATIVE=0 is set"


@pytest.mark.parametrize(
    ("body", "why"), [(ABSENT, _native._why_absent()), (BROKEN, "undefined symbol: PyArray_New")]
)
def test_a_library_that_is_absent_or_broken_is_not_used(run_python: RunPython, body: str, why: str) -> None:
    completed = run_python(script(body), ZEROCOPY_NATIVE="")
    assert (completed.stdout.strip(), completed.stderr) == (f"None | {why}", "")
    assert (
        run_python(
            RELOAD.format(body=body) + "import zerocopy as zc; zc.convert", ZEROCOPY_NATIVE=""
        ).returncode
        == 0
    )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (ABSENT, _native._why_absent()),
        (BROKEN, "symbol"),
        pytest.param(OLD, "other C sources", marks=needs_sources),
    ],
)
def test_native_1_requires_the_library(run_python: RunPython, body: str, why: str) -> None:
    completed = run_python(script(body), ZEROCOPY_NATIVE="1")
    assert completed.returncode == 1
    message = completed.stderr.strip().splitlines()[-1]
    assert message.startswith(
        "ImportError: ZEROCOPY_NATIVE=1 is set, but the compiled core cannot be loaded: "
    )
    assert why in message


def test_another_value_of_the_variable_is_refused(run_python: RunPython) -> None:
    completed = run_python("import zerocopy._native", ZEROCOPY_NATIVE="yes")
    assert "ImportError: ZEROCOPY_NATIVE is 'yes'; set it to 0 or 1, or unset it" in completed.stderr


@pytest.mark.skipif(_native.core is None, reason="needs the compiled core")
def test_the_instruction_set_is_that_of_the_variable(run_python: RunPython) -> None:
    code = "from zerocopy._native import core; print(core.isa())"
    for isa in ("", *_native.core.isas):
        completed = run_python(code, ZEROCOPY_CORE_ISA=isa, ZEROCOPY_NATIVE="1")
        assert completed.stdout.strip() == (isa or _native.core.isas[0])
    completed = run_python(code, ZEROCOPY_CORE_ISA="mmx", ZEROCOPY_NATIVE="1")
    allowed = " or ".join(_native.core.isas)
    message = f"ImportError: ZEROCOPY_CORE_ISA is 'mmx'; set it to {allowed}, which this processor has"
    assert message in completed.stderr


@pytest.mark.hazard("robustness#library-of-other-sources")
@needs_sources
@pytest.mark.parametrize("body", [OLD, UNMARKED])
def test_a_library_of_other_sources_is_not_used_and_a_warning_says_so(
    run_python: RunPython, body: str
) -> None:
    completed = run_python(script(body), ZEROCOPY_NATIVE="")
    why = "it was compiled from other C sources; run `python hatch_build.py` in the source tree"
    assert completed.stdout.strip() == f"None | {why}"
    assert f"RuntimeWarning: zerocopy runs without its compiled core: {why}" in completed.stderr


def test_without_c_sources_any_library_fits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installation from a wheel has no C sources, and its Python files come from the same build."""
    monkeypatch.setattr(_native, "__file__", str(tmp_path / "__init__.py"))
    assert _native._why_stale(SimpleNamespace(__sources__="00000000")) == ""
    assert _native._why_absent() == "zerocopy was built without it"


@needs_sources
def test_a_source_tree_names_another_folder() -> None:
    """Python started in a clone imports the clone, also after `pip install .`."""
    assert "start Python in another folder" in _native._why_absent()


def test_the_digest_changes_with_each_name_and_byte(tmp_path: Path) -> None:
    for name in ("core.h", "module.c"):
        (tmp_path / name).write_text(f"/* {name} */", encoding="utf-8")
    first = digest(tmp_path)
    module = tmp_path / "module.c"
    seen = {first}
    module.write_bytes(module.read_bytes() + b"\n")
    seen.add(digest(tmp_path))
    module.rename(tmp_path / "other.c")
    seen.add(digest(tmp_path))
    (tmp_path / "core.h").unlink()
    seen.add(digest(tmp_path))
    (tmp_path / "notes.txt").write_text("not a source", encoding="utf-8")
    assert len(seen) == 4
    assert digest(tmp_path) in seen


@pytest.mark.skipif(_native.core is None, reason="needs the compiled core")
def test_a_second_import_shares_the_first_one(run_python: RunPython) -> None:
    """The core keeps its tables in static variables, which belong to the first module."""
    code = """
import gc, importlib, sys
import numpy as np
import zerocopy as zc
from zerocopy._native import core
x = np.arange(3.0)
zc.convert(x, "numpy")
for _ in range(2):
    del sys.modules["zerocopy._native._core"]
    second = importlib.import_module("zerocopy._native._core")
    assert second is not core
    assert second.Routes is core.Routes and second.__sources__ == core.__sources__
    assert core.Routes("numpy").get(np.ndarray) is not None, "the routes stay"
    del second, sys.modules["zerocopy._native._core"]
    gc.collect()
    assert zc.convert(x, "numpy") is x
    importlib.import_module("zerocopy._native._core")
print("done")
"""
    assert run_python(code).stdout.split() == ["done"]
