"""The package in pure Python without POSIX: its modules and functions are removed before the import.

This shows that names of Linux are not needed where a feature does not depend on them. It does not show how
files, threads and frameworks behave on another system.
"""

from __future__ import annotations

import pytest

#: Removes the modules and functions that Windows lacks. Packages for this system are imported first.
WITHOUT_POSIX = """
import os, shutil, signal, subprocess, sys, sysconfig
from importlib import import_module
import numpy as np
for name in ("pyarrow", "click", "rich.console", "rich.progress", "rich.table"):
    try: import_module(name)
    except ImportError: pass
pa = sys.modules.get("pyarrow")
for name in ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp"):
    sys.modules[name] = None
for name in (
    "fork", "register_at_fork", "memfd_create", "geteuid", "getuid", "sched_getaffinity", "sysconf",
    "killpg", "pread", "pwrite", "posix_fadvise", "WNOHANG",
    "O_CLOEXEC", "O_PATH", "O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK",
):
    vars(os).pop(name, None)
for name in ("SIGHUP", "SIGKILL", "SIGALRM", "pthread_sigmask", "setitimer"):
    vars(signal).pop(name, None)
sysconfig.get_paths()  # is computed once, for this system
sys.platform = "win32"
shutil.which = lambda *args, **options: None  # on Windows it calls a module of Windows
import zerocopy as zc
"""


@pytest.fixture
def run(run_python):
    def run_without_posix(code: str) -> str:
        completed = run_python(WITHOUT_POSIX + code, ZEROCOPY_NATIVE="0")
        assert completed.returncode == 0, completed.stderr
        return completed.stdout.strip()

    return run_without_posix


def test_conversions_layouts_and_pickles(run) -> None:
    run(
        """
import zerocopy.pickling
x = np.arange(24.0).reshape(4, 6)
assert zc.explain(x, "numpy").zero_copy and zc.shares_memory(x, zc.convert(x, "numpy"))
assert zc.convert(x, "numpy", copy=True, dtype="float32").dtype == np.float32
records = np.zeros(5, [("a", "i4"), ("b", "f8")])
columns = zc.aos_to_soa(records)
assert (zc.soa_to_aos(columns) == records).all()
assert (zerocopy.pickling.loads(zerocopy.pickling.dumps(x)) == x).all()
if pa is not None:
    assert zc.convert(pa.table({"x": [1.0, 2.0]}), "numpy")["x"].tolist() == [1.0, 2.0]
zc.frameworks(), zc.converter(x, "numpy")(x), zc.view(x)
"""
    )


def test_the_loader(run) -> None:
    pytest.importorskip("pyarrow")
    run(
        """
batches = list(zc.loader({"x": np.arange(10)}, "numpy", batch_size=4))
assert [len(batch["x"]) for batch in batches] == [4, 4, 2]
"""
    )


def test_each_public_name_is_there_or_says_what_it_needs(run) -> None:
    printed = run(
        """
for name in zc.__all__:
    try: getattr(zc, name)
    except ImportError as error: print(name, str(error).partition(",")[0])
"""
    )
    why = "zerocopy.share: the Python of this process has no memfd_create(2)"
    names = ("Channel", "Shared", "channel", "share", "shared_empty")
    assert printed.splitlines() == [f"{name} {why}" for name in names]


def test_the_commands_that_the_wheels_run(run) -> None:
    pytest.importorskip("click")
    printed = run(
        """
from zerocopy.cli.main import main
for command in (["doctor"], ["matrix", "--frameworks", "numpy"]):
    sys.argv = ["zerocopy", *command]
    try: main()
    except SystemExit as end: assert not end.code, (command, end.code)
"""
    )
    assert "share() needs Linux" in printed
