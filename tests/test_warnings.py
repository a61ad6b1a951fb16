"""Warnings have the file and the line of the user's code, and a printable text."""

from __future__ import annotations

import ast
import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy.errors.warning import warn
from zerocopy.interpreter import imports
from zerocopy.monitor.session import start_from_environment

PACKAGE = ROOT / "zerocopy"


def test_one_function_emits_all_warnings() -> None:
    callers = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("warn", "warn_explicit", "showwarning"):
                callers.add(path.relative_to(PACKAGE).as_posix())
            if isinstance(node, ast.ImportFrom) and node.module == "warnings":
                callers.add(path.relative_to(PACKAGE).as_posix())
    assert callers == {"errors/warning.py"}


def share(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[[], Any]:
    monkeypatch.setattr("zerocopy.shared.share._configured", None)
    monkeypatch.setenv("ZEROCOPY_BROKER", str(folder / ("a" * 200)))
    return lambda: zc.share(np.zeros(4)).close()


def imported(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[[], Any]:
    def fail() -> None:
        raise ValueError("\x1b[2J")

    (folder / "imported_later.py").touch()
    monkeypatch.syspath_prepend(str(folder))
    imports.when_imported("imported_later", fail)
    return lambda: __import__("imported_later")


def environment(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[[], Any]:
    monkeypatch.setenv("ZEROCOPY_MONITOR", "\x1b[2J")
    return lambda: start_from_environment()


def session(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[[], Any]:
    def fail(*_: Any) -> None:
        raise OSError("\x1b[2J")

    made = zc.monitor.start(directory=folder / "runs")
    monkeypatch.setattr("zerocopy.monitor.session.write", fail)
    monkeypatch.setattr(made, "_warned", set())
    return lambda: zc.monitor.snapshot()


def kernels(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[[], Any]:
    from zerocopy.layout import rows

    monkeypatch.setitem(sys.modules, "zerocopy.layout.numba_kernels", None)  # its import fails
    monkeypatch.delattr("zerocopy.layout.numba_kernels", raising=False)  # another test may have imported it
    monkeypatch.setattr(rows, "find_spec", lambda name: name)
    return lambda: rows._numba_kernels.__wrapped__()


MAKERS = [share, imported, environment, session, kernels]


@pytest.fixture
def monitor_stopped() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(zc.ZeroCopyError):
            zc.monitor.stop()


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_the_line_is_that_of_the_call(
    make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, monitor_stopped: None
) -> None:
    call = make(monkeypatch, tmp_path)
    with pytest.warns(RuntimeWarning) as caught:
        call()
    for warning in caught:
        assert (warning.filename, warning.lineno) == (__file__, call.__code__.co_firstlineno)
        assert str(warning.message).replace("\n", "").isprintable()


def test_a_filter_that_makes_errors(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            warn("text")
        warn("\x1b[2J", raises=False)
    assert capsys.readouterr().err == "zerocopy: \\x1b[2J\n"


def test_a_thread_without_code_of_the_user() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread = threading.Thread(target=warn, args=("text",))
        thread.start()
        thread.join()
    assert [str(warning.message) for warning in caught] == ["text"]


def test_one_line_warns_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            warn("the same line")
        warn("the same line")
    assert len(caught) == 2
