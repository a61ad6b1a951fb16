"""The command: output in terminals and pipes, JSON, exit codes, and ``doctor``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.box_framework import Boxes
from helpers.paths import ROOT
from helpers.warm import WarmProcess

import zerocopy
import zerocopy as zc
from zerocopy import _native, registry
from zerocopy.cli import doctor
from zerocopy.errors import DeviceError, Reason
from zerocopy.framework import Framework
from zerocopy.pairs.arrays import ArrayCell

pytest.importorskip("click")
pytest.importorskip("rich")
from click.testing import CliRunner, Result
from packaging.specifiers import SpecifierSet

from zerocopy.cli.main import command

ESCAPE = "\x1b"
ENV = {
    k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "COLUMNS", "NO_COLOR", "TTY_COMPATIBLE")
}


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command(), list(arguments), catch_exceptions=False)


def process(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zerocopy", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        cwd=ROOT,
        env={**ENV, **env},
    )


def rows(text: str) -> dict[str, list[str]]:
    """Return the first grid's cells by source, in the order of the columns."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("from"))
    cells = {}
    for line in lines[start + 2 :]:  # up to the next grid
        match = re.match(r"(\S+)\s+([=+\-!.x] .*)", line)
        if match:
            cells[match[1]] = [part.strip() for part in re.split(r"\s{2,}", match[2])]
        if line.startswith(("= zero-copy the", "- refused   an", "from")):
            break
    return cells


class Copying(Boxes):
    def copy_reasons(self, view: Any) -> list[Reason]:
        return [Reason("boxes need contiguous memory", "use bigger boxes")]


class Liar(Boxes):
    def from_host(self, array: np.ndarray, dtype: Any, device: Any, stream: int | None) -> Any:
        return super().from_host(array.copy(), dtype, device, stream)


# -- matrix -------------------------------------------------------------------------


def test_grid_in_pipe_is_plain_ascii(warm_process: WarmProcess) -> None:
    pytest.importorskip("torch")
    completed = warm_process.run_module("zerocopy", "matrix", "--full", "--frameworks", "numpy,torch")
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr == ""
    assert ESCAPE not in completed.stdout
    assert completed.stdout.isascii()
    assert max(map(len, completed.stdout.splitlines())) <= 80
    assert "iris: 150 x 4, float32" in completed.stdout
    assert rows(completed.stdout) == {
        "numpy": ["= zero-copy", "= zero-copy"],
        "torch": ["= zero-copy", "= zero-copy"],
    }
    assert re.search(r"\d+ ns|[\d.]+ us", completed.stdout)
    assert "+ Every promise held in 14 conversions: 9 zero-copy, 5 refused." in completed.stdout


@pytest.mark.full
def test_all_frameworks_write_nothing_to_stderr() -> None:
    """TensorFlow logs nothing, and each missing framework is listed with its fix."""
    completed = process("matrix", "--repeat", "1")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert completed.stderr == ""
    assert ESCAPE not in completed.stdout
    assert max(map(len, completed.stdout.splitlines())) <= 80
    for name, info in registry.frameworks().items():
        if info.kind == "tensor":
            assert name in completed.stdout
        if not info.installed:
            assert info.install in " ".join(completed.stdout.split())


def test_copies_are_numbered_and_explained(add: Callable[[Framework], None]) -> None:
    add(Copying())
    completed = invoke("matrix", "--full", "--frameworks", "numpy,boxes")
    assert completed.exit_code == 0
    assert rows(completed.stdout)["numpy"] == ["= zero-copy", "+ copy"]
    assert re.search(r"(ns|us) \[1\]", completed.stdout)
    assert (
        "Why it copies\n [1] boxes need contiguous memory\n     fix: use bigger boxes\n" in completed.stdout
    )


def test_broken_promise_is_reported_and_exits_1(add: Callable[[Framework], None]) -> None:
    add(Liar())
    completed = invoke("matrix", "--full", "--frameworks", "numpy,boxes")
    assert completed.exit_code == 1
    assert rows(completed.stdout)["numpy"] == ["= zero-copy", "! BROKEN"]
    assert "Broken promises" in completed.stdout
    assert "copy=False copies" in completed.stdout
    assert "! 6 of 24 conversions broke a promise: 18 zero-copy, 6 BROKEN." in completed.stdout
    completed = invoke("matrix", "--full", "--frameworks", "numpy,boxes", "--json")
    assert completed.exit_code == 1
    assert json.loads(completed.stdout)["broken"] == 6  # iris, and the types with fewer than 8 bits


def test_framework_without_device_is_listed_with_fix(add: Callable[[Framework], None]) -> None:
    class OnGpu(Boxes):
        def check_device(self, device: Any) -> None:
            raise DeviceError("", "no device is here", "plug one in")

    add(OnGpu())
    completed = invoke("matrix", "--full", "--frameworks", "numpy,boxes")
    assert completed.exit_code == 0
    assert list(rows(completed.stdout)) == ["numpy"]
    assert (
        "Installed, and not usable here\n boxes no device is here\n       fix: plug one in\n"
        in completed.stdout
    )
    completed = invoke("matrix", "--full", "--frameworks", "boxes")
    assert completed.exit_code == 2
    assert "nothing was converted" in completed.stdout


def test_json_has_the_cells_of_the_grid(tmp_path: Path, warm_process: WarmProcess) -> None:
    pytest.importorskip("torch")
    np.save(tmp_path / "x.npy", np.arange(6, dtype="i2").reshape(2, 3))
    arguments = ["matrix", "--full", "--frameworks", "numpy,torch", "--input", str(tmp_path / "x.npy")]
    completed = warm_process.run_module("zerocopy", *arguments, "--json", "--repeat", "3")
    assert completed.stderr == ""
    document = json.loads(completed.stdout)
    assert document["zerocopy"] == zc.__version__
    assert document["versions"]["numpy"] == np.__version__
    assert document["machine"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert document["input"]["arrays"] == {"x": {"dtype": "int16", "shape": [2, 3], "bytes": 12}}
    cells = document["cells"]
    assert [(c["source"], c["target"]) for c in cells] == [
        (a, b) for a in ("numpy", "torch") for b in ("numpy", "torch")
    ]
    assert {f.name for f in ArrayCell.__dataclass_fields__.values()} == set(cells[0])
    for c in cells:
        assert (c["outcome"], c["zero_copy"], c["copied_bytes"]) == ("zero-copy", True, 0)
        assert (c["dtype"], c["shape"], c["samples"]) == ("int16", [2, 3], 3)
        assert c["median_ns"] > 0
        assert (c["reasons"], c["warnings"], c["broken"]) == ([], [], [])
    shown = rows(invoke(*arguments).stdout)
    assert [cell for row in shown.values() for cell in row] == [f"= {c['outcome']}" for c in cells]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "nowhere.npy"], "nowhere.npy: no such file"),
        (["--input", "nowhere.xyz"], "unknown suffix '.xyz'"),
        (["--frameworks", "nunpy"], "did you mean 'numpy'"),
        (["--frameworks", ","], "names none"),
        (["--frameworks", "absent"], "absent is not installed: pip install boxes-for-arrays"),
        (["--repeat", "0"], "--repeat"),
        (["--repeat", "many"], "--repeat"),
        (["--wrong"], "--wrong"),
    ],
    ids=" ".join,
)
def test_wrong_input_exits_2(
    add: Callable[[Framework], None],
    arguments: list[str],
    message: str,
) -> None:
    class Absent(Boxes):
        name = "absent"

        def installed(self) -> bool:
            return False

    add(Absent())
    completed = invoke("matrix", *arguments)
    assert completed.exit_code == 2
    assert completed.stdout == ""
    assert message in completed.stderr
    if not arguments[0].startswith(("--repeat", "--wrong")):  # click's own have a line on usage
        assert completed.stderr.count("\n") == 1


@pytest.mark.hazard("untrusted-data#python-objects-in-npy")
def test_object_arrays_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([print], object), allow_pickle=True)
    completed = invoke("matrix", "--input", str(path))
    assert completed.exit_code == 2
    assert "has Python objects" in completed.stderr


# -- doctor ----------------------------------------------------------------------------


def test_doctor_imports_no_framework(run_python: Callable[..., Any]) -> None:
    completed = run_python(
        """
        import sys
        before = {*sys.modules}  # a .pth file of cuda-bindings makes the namespace package cuda
        from zerocopy import registry
        from zerocopy.cli.main import command
        command()(["doctor", "--json"], standalone_mode=False)
        roots = {r for n in registry.frameworks() for r in registry.by_name(n).root_modules} - {"numpy"}
        assert not roots & (set(sys.modules) - before), roots & (set(sys.modules) - before)
        """
    )
    assert completed.returncode == 0, completed.stderr
    frameworks = {f["name"]: f for f in json.loads(completed.stdout)["frameworks"]}
    assert set(frameworks) == set(registry.frameworks())
    assert frameworks["numpy"]["devices"] == ["cpu"]
    assert all(f["devices"] is None for name, f in frameworks.items() if name != "numpy")


@pytest.mark.full
def test_doctor_import_option_imports_frameworks(add: Callable[[Framework], None]) -> None:
    class Failing(Boxes):
        def module(self) -> Any:
            raise OSError("libgomp.so.1: cannot open\nshared object file")

    add(Failing())
    completed = invoke("doctor", "--import")
    assert completed.exit_code == 0
    lines = completed.stdout.splitlines()
    assert any(re.match(r"\+\s+numpy\s+tensor\s+\S+\s+\S+\s+cpu", line) for line in lines)
    assert any(re.match(r"!\s+boxes\s+tensor\s+\?\s+-\s+OSError: libgomp", line) for line in lines)
    if registry.frameworks()["torch"].installed:
        assert any(re.match(r"\+\s+torch\s+tensor\s+\S+\s+\S+\s+cpu", line) for line in lines)


def test_doctor_shows_pool_report(monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocopy.pool import install
    from zerocopy.pool.attachments import framework_names
    from zerocopy.pool.gpus import GPU

    monkeypatch.setattr(install, "visible_gpus", lambda: ([GPU(0, "stand-in", 80 << 30)], None))
    monkeypatch.setenv("ZEROCOPY_POOL", "driver,initial=1GiB")
    text = invoke("doctor", "--all").stdout
    assert "the effect of zerocopy.install_pool()" in text
    assert re.search(r"device\s+0, stand-in, 80 GiB; no limit", text)
    assert re.search(r"[-+]\s+cupy\s+(absent|pending_import)", text)
    assert install.installed_pool() is None
    pool_report = doctor.report()["pool"]
    assert (pool_report["installed"], pool_report["kind"], pool_report["options"]) == (
        False,
        "driver",
        "driver,initial=1073741824",
    )
    assert [row["framework"] for row in pool_report["frameworks"]] == framework_names()
    monkeypatch.setenv("ZEROCOPY_POOL", "rrm")
    assert "did you mean 'rmm'" in invoke("doctor").stdout
    monkeypatch.delenv("ZEROCOPY_POOL")
    monkeypatch.undo()
    pool = zerocopy.install_pool()
    try:
        assert doctor.report()["pool"]["installed"]
        assert re.search(r"Pool\s+installed", invoke("doctor").stdout)
    finally:
        pool.close()


#: The core, if there is one, under another path: the report's conversions may compose routes with it.
COMPILED = SimpleNamespace(
    **(vars(_native.core) if _native.core else {}) | {"__file__": "/lib/_core.so", "isa": lambda: "avx2"}
)


@pytest.mark.parametrize("core", [None, COMPILED], ids=["pure", "compiled"])
def test_doctor_shows_whether_the_core_is_compiled(monkeypatch: pytest.MonkeyPatch, core: Any) -> None:
    monkeypatch.setattr(_native, "core", core)
    monkeypatch.setattr(_native, "why_not", "" if core else "undefined symbol\x1b[2J")
    if core is None:
        expected: dict[str, Any] = {"compiled": False, "why": _native.why_not}
        line = r"^ Core +pure Python: undefined symbol\\x1b\[2J$"
    else:
        expected = {"compiled": True, "file": "/lib/_core.so", "isa": "avx2"}
        line = "^ Core +compiled, records with avx2$"
    assert doctor.report()["core"] == expected
    assert re.search(line, invoke("doctor").stdout, re.MULTILINE)


def test_doctor_reports_the_variable_that_turns_the_core_off() -> None:
    assert re.search(
        "^ Core +pure Python: ZEROCOPY_NATIVE=0 is set$",
        process("doctor", ZEROCOPY_NATIVE="0").stdout,
        re.MULTILINE,
    )


def test_doctor_reports_wrong_pool_variable() -> None:
    """The command reports the error; importing zerocopy does not raise it."""
    completed = process("doctor", ZEROCOPY_POOL="rms")
    assert completed.returncode == 0, completed.stderr
    assert "ZEROCOPY_POOL" in completed.stdout
    assert "did you mean 'rmm'" in " ".join(completed.stdout.split())


def test_doctor_fits_one_screen() -> None:
    completed = process("doctor")
    assert completed.returncode == 0, completed.stderr
    lines = completed.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) + 1 <= 40  # with the command
    assert "numpy " + np.__version__ in " ".join(completed.stdout.split())
    for hidden in ("pip install", "test-small", "gates", "memfd"):
        assert hidden not in completed.stdout
    assert "--all: each framework, check and extra" in completed.stdout


def test_pool_is_the_command_of_the_module(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys; print(sys.argv[1:])")
    arguments = ["--host", "aligned", "--", str(tmp_path / "program.py"), "--flag", "--", "x"]
    completed = process("pool", *arguments)
    assert (completed.returncode, completed.stdout) == (0, "['--flag', '--', 'x']\n"), completed.stderr
    assert process("pool", "--help").stdout.startswith("usage: zerocopy pool [options]")
    wrong = process("pool", "--kind", "x")
    assert wrong.returncode == 2
    assert "zerocopy pool: error: kind='x'" in wrong.stderr


def test_doctor_in_pipe_is_plain_ascii() -> None:
    completed = process("doctor", "--all")
    assert completed.returncode == 0, completed.stderr
    assert ESCAPE not in completed.stdout
    assert completed.stdout.isascii()
    assert max(map(len, completed.stdout.splitlines())) <= 80
    assert f"zerocopy {zc.__version__}" in completed.stdout
    for word in ("Core", "Python", "Platform", "CPU", "Memory", "NVIDIA", "Frameworks", "Extras"):
        assert word in completed.stdout
    for info in registry.frameworks().values():
        if not info.installed:
            assert info.install in " ".join(completed.stdout.split())


def test_missing_driver_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor.cuda_driver, "missing", lambda: Reason("no NVIDIA driver is installed", "install it")
    )
    assert doctor.nvidia() == {
        "driver": False,
        "why": "no NVIDIA driver is installed",
        "fix": "install it",
        "devices": [],
    }
    assert "no NVIDIA driver" in invoke("doctor").stdout


REQUIRES = [
    "numpy>=1.23",
    "click>=8.1; extra == 'cli'",
    "not-a-thing>=1.0 ; extra == 'arrow'",
    "zerocopy-interchange[arrow,cli]; extra == 'all'",
    "numpy[dev] (<1) ; extra == 'old'",
    "zerocopy-interchange[loop]; extra == 'loop'",
]


_real = metadata.distribution


def _distribution(name: str) -> Any:
    if name != doctor.DISTRIBUTION:
        return _real(name)
    names = ["cli", "arrow", "all", "old", "none", "loop"]
    return SimpleNamespace(requires=REQUIRES, metadata=SimpleNamespace(get_all=lambda key: names))


def test_extras_list_missing_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "distribution", _distribution)
    listed = doctor.extras()["extras"]
    assert {name: extra["complete"] for name, extra in listed.items()} == {
        "all": False,
        "arrow": False,
        "cli": True,
        "loop": True,
        "none": True,
        "old": False,
    }
    assert [p["name"] for p in listed["all"]["parts"]] == ["not-a-thing", "click"]
    assert listed["old"]["parts"] == [
        {"name": "numpy[dev]", "wanted": "<1", "version": np.__version__, "fits": False}
    ]
    completed = invoke("doctor", "--all")
    assert "not-a-thing>=1.0" in completed.stdout
    assert "pip install 'not-a-thing>=1.0'" in completed.stdout
    assert f"numpy[dev]<1 (here: {np.__version__})" in completed.stdout


def test_extras_report_missing_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    assert "source tree" in doctor.extras()["why"]
    assert "source tree" in invoke("doctor").stdout


@pytest.mark.parametrize(
    ("version", "clause", "fits"),
    [
        ("2.13.0+cpu", "==2.13.0", True),
        ("2.13.1", "==2.13.0", False),
        ("0.17.5", "==0.17.*", True),
        ("0.18.0", "==0.17.*", False),
        ("0.18.0", "!=0.17.*", True),
        ("1.9", ">=1.10", False),
        ("1.10.0", ">=1.10", True),
        ("15", ">=15.0.0", True),
        ("3.0rc1", ">=3", True),
        ("1.4.5", "~=1.4.2", True),
        ("1.5.0", "~=1.4.2", False),
        ("1.5.0", "<1.5", False),
        ("1.5.1", ">1.5", True),
        ("1.5", "<=1.5.0", True),
        ("1.5", "!=1.5.0", False),
        ("anything", "", True),
    ],
)
def test_version_satisfies_specifier(version: str, clause: str, fits: bool) -> None:
    assert doctor._fits(version, SpecifierSet(clause)) is fits


# -- the command itself -------------------------------------------------------------------


def test_version_and_help_are_printed() -> None:
    assert process("--version").stdout == f"zerocopy {zc.__version__}\n"
    text = invoke("--help").stdout
    assert "matrix" in text
    assert "doctor" in text


@pytest.mark.parametrize("absent", ["click", "rich"])
def test_missing_click_or_rich_is_reported(run_python: Callable[..., Any], absent: str) -> None:
    completed = run_python(
        f"""
        import sys
        sys.modules[{absent!r}] = None
        from zerocopy.cli.main import main
        main()
        """
    )
    assert completed.returncode == 1
    assert (
        completed.stderr == "zerocopy: the command needs click and rich: pip install click rich packaging\n"
    )
    assert completed.stdout == ""


def test_arrays_with_different_outcomes_have_separate_grids(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", full=np.ones(3), none=np.ones(0), more=np.ones((2, 2), "i1"))
    completed = invoke(
        "matrix", "--full", "--frameworks", "numpy", "--repeat", "1", "--input", str(tmp_path / "x.npz")
    )
    assert completed.stdout.count("from \\ to") == 2
    assert "2 arrays (1 float64, 1 int8): full, more" in completed.stdout
    assert "none: 0 values, float64" in completed.stdout
    assert "1 empty" in completed.stdout
