"""Modes of host memory: their names, refusals, and restoring."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from helpers.paths import ROOT
from hypothesis import given, settings, strategies as st

from zerocopy._native import core
from zerocopy.errors import OptionError, PoolUnavailableError, Reason
from zerocopy.pool.host import MODES, c_library, parse

pytestmark = pytest.mark.skipif(c_library.refusal() is not None, reason=str(c_library.refusal()))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("off", []),
        ("aligned", ["aligned"]),
        (" Recycle ", ["recycle"]),
        ("pinned + aligned", ["aligned", "pinned"]),
        ("aligned+aligned", ["aligned"]),
        ("aligned+recycle+pinned", ["aligned", "recycle", "pinned"]),
    ],
)
def test_mode_names_are_parsed(text, names):
    assert [mode.name for mode in parse(text)] == names


def test_modes_are_singletons():
    assert parse("aligned")[0] is parse("aligned+pinned")[0]


@pytest.mark.parametrize("text", ["", "alligned", "aligned+", "aligned,pinned", "off+aligned", "on", None, 1])
def test_invalid_mode_names_are_refused(text):
    with pytest.raises(OptionError) as refused:
        parse(text)
    assert refused.value.remedy
    assert repr(text) in str(refused.value)


def test_similar_mode_is_suggested():
    with pytest.raises(OptionError, match="did you mean 'aligned'"):
        parse("alligned")


@settings(deadline=None)
@given(st.text(alphabet="aligned+ofcyrp ", max_size=20))
def test_any_text_is_parsed_or_refused(text):
    try:
        modes = parse(text)
    except OptionError:
        return
    assert "+".join(mode.name for mode in modes) or text.strip() == "off"


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_uninstalled_mode_describes_itself(mode):
    assert mode.about in mode.describe()
    assert mode.restore() == ""


REFUSED = """
    import sys
    {before}
    from zerocopy.errors import PoolUnavailableError
    from zerocopy.pool.host import parse
    import numpy as np
    for mode in parse("aligned+recycle"):
        reason = mode.check()
        print(reason.why, "|", reason.remedy)
        try:
            mode.install()
        except PoolUnavailableError as error:
            assert error.why == reason.why and error.remedy == reason.remedy
        else:
            raise SystemExit("it was installed")
        assert not mode.installed and mode.about in mode.describe()
    print(np.ones(10_000).sum())
"""


@pytest.mark.hazard("robustness#blocks-of-another-allocator")
@pytest.mark.parametrize(
    ("env", "before", "reason", "remedy"),
    [
        ({"PYTHONMALLOC": "debug"}, "", "debugging allocator", "PYTHONMALLOC"),
        ({"PYTHONMALLOC": "malloc_debug"}, "", "debugging allocator", "PYTHONMALLOC"),
        ({"PYTHONDEVMODE": "1"}, "", "debugging allocator", "-X dev"),
        ({"PYTHONTRACEMALLOC": "1"}, "", "tracemalloc", "tracemalloc.stop()"),
        ({}, "import tracemalloc; tracemalloc.start()", "tracemalloc", "tracemalloc.stop()"),
    ],
)
def test_debugging_allocator_is_refused(run_python, env, before, reason, remedy):
    if env.get("PYTHONMALLOC") == "malloc_debug" and sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("free-threaded builds refuse this value of PYTHONMALLOC: their objects need mimalloc")
    completed = run_python(REFUSED.format(before=before), **env)
    assert completed.returncode == 0, completed.stderr
    for line in completed.stdout.splitlines()[:2]:
        why, _, fix = line.partition(" | ")
        assert reason in why
        assert remedy in fix
    assert completed.stdout.endswith("10000.0\n")


@pytest.mark.hazard("robustness#blocks-of-another-allocator")
def test_preloaded_allocator_is_refused(run_python, tmp_path):
    """A preloaded library with its own malloc, such as jemalloc and tcmalloc."""
    if shutil.which("gcc") is None:
        pytest.skip("the test compiles a library")
    source, library = tmp_path / "own.c", tmp_path / "own.so"
    source.write_text(
        "#include <stddef.h>\nextern void *__libc_malloc(size_t);\n"
        "void *malloc(size_t size) { return __libc_malloc(size); }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    completed = run_python(REFUSED.format(before=""), LD_PRELOAD=str(library))
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.count(f"malloc comes from {library}") == 2
    assert "LD_PRELOAD" in completed.stdout


def test_unsupported_systems_are_refused(monkeypatch):
    """Simulated systems: Windows, Alpine, another Python implementation."""

    class Musl:
        pass

    def refused() -> Reason:
        reason = c_library.refusal()
        assert reason is not None
        assert reason.remedy
        return reason

    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        assert "win32" in refused().why
    with monkeypatch.context() as patch:
        patch.setattr(c_library, "library", Musl)
        assert "musl" in refused().why
    with monkeypatch.context() as patch:
        patch.setattr(c_library, "_OWN", ())
        patch.setattr(c_library, "_OBJECTS_ONLY", None)
        assert "not the C library's" in refused().why


@pytest.mark.parametrize("native", ["0", "1"])
def test_free_threaded_builds_need_the_core_for_aligned_arrays(run_python, native):
    """A simulated build: NumPy's function and its argument cannot be replaced at once."""
    if native == "1" and core is None:
        pytest.skip("needs the compiled core")
    completed = run_python(
        """
        from zerocopy.pool.host import parse, data_handler
        data_handler.sysconfig.get_config_var = {"Py_GIL_DISABLED": 1}.get
        import numpy as np
        aligned, recycle = parse("aligned+recycle")
        recycle.install()
        reason = aligned.check()
        if reason is None:
            aligned.install()
            assert np.empty(10_000).ctypes.data % 64 == 0
            aligned.restore()
        else:
            print(reason.code, reason.why)
        recycle.restore()
        """,
        ZEROCOPY_NATIVE=native,
    )
    assert completed.returncode == 0, completed.stderr
    expected = "" if native == "1" else "free-threaded this is a free-threaded build"
    assert completed.stdout[: len(expected)] == expected
    assert bool(completed.stdout) == bool(expected)


@pytest.mark.hazard("robustness#replaced-allocator")
def test_replaced_numpy_allocator_is_refused(run_python):
    """Another package has replaced NumPy's functions first."""
    completed = run_python("""
        import ctypes
        from zerocopy.pool.host import parse, data_handler
        handler = data_handler._handler()
        before = handler.allocator.malloc
        handler.allocator.malloc = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value
        (mode,) = parse("aligned")
        reason = mode.check()
        print(reason)
        handler.allocator.malloc = before
        assert mode.check() is None
        handler.version = 2
        print(mode.check())
        handler.version = 1
        mode.install()
        ours, other = handler.allocator.malloc, ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value
        handler.allocator.malloc = other
        print(mode.restore())
        assert handler.allocator.malloc == other and "another package" in mode.check().why
        handler.allocator.malloc = ours
        mode.install()
        mode.restore()
        assert handler.allocator.malloc == before
    """)
    assert completed.returncode == 0, completed.stderr
    assert "the malloc of NumPy's default allocator is not NumPy's own" in completed.stdout
    assert "version 2" in completed.stdout
    assert "since: it is not changed; glibc no longer" in completed.stdout


def test_missing_driver_has_a_remedy():
    from zerocopy.protocols import cuda_driver

    if cuda_driver.missing() is None:
        pytest.skip("there is a driver")
    (mode,) = parse("pinned")
    with pytest.raises(PoolUnavailableError) as refused:
        mode.install()
    assert "host='pinned'" in str(refused.value)
    assert refused.value.remedy
    assert mode.trim() == 0


def test_initial_malloc_settings_are_parsed(monkeypatch):
    ask = c_library.at_start
    assert ask("MALLOC_TOP_PAD_", "top_pad", 7) == 7
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.top_pad=0x10:glibc.malloc.hugetlb=2")
    assert ask("MALLOC_TOP_PAD_", "top_pad", 7) == 16
    assert c_library.huge_heap()
    monkeypatch.setenv("MALLOC_TOP_PAD_", "12")
    assert ask("MALLOC_TOP_PAD_", "top_pad", 7) == 12
    monkeypatch.setenv("MALLOC_TOP_PAD_", "much")
    assert ask("MALLOC_TOP_PAD_", "top_pad", 7) == 7


def test_system_python_uses_glibc_malloc():
    """Debian's and Ubuntu's Python is linked to fixed addresses, and has a stub for malloc."""
    system = Path("/usr/bin/python3")
    if not system.exists():
        pytest.skip("no such Python")
    code = (
        "from zerocopy.pool.host import c_library as c; print(c._is_stub(c.address('malloc')), c._replaced())"
    )
    completed = subprocess.run([system, "-c", code], capture_output=True, text=True, cwd=ROOT, env={})
    if completed.stdout.startswith("False"):
        pytest.skip("this Python is linked differently")
    assert completed.stdout == "True None\n", completed.stderr
