"""The plugin for pytest: the mark ``zero_copy``, ``--zerocopy-copies``, and options of `zerocopy.testing`.

Each pytest run imports it, and projects have options such as ``--copies``: all names have a prefix. It
imports NumPy only for a test with the mark, or with ``--zerocopy-copies``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

#: The key of the rows in the output of a worker of pytest-xdist.
_KEY = "zerocopy_copies"


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("zerocopy", "conformance: pytest --pyargs zerocopy.testing")
    group.addoption("--zerocopy-producer", metavar="MODULE:NAME", help="returns a new array or table")
    group.addoption("--zerocopy-consumer", metavar="MODULE:NAME", help="imports an array or a table")
    group.addoption("--zerocopy-allow", metavar="FILE", help="TOML or JSON: cases left out, with reasons")
    group = parser.getgroup("zerocopy copies", "copies by zerocopy")
    group.addoption("--zerocopy-copies", action="store_true", help="list the lines that copy, with fixes")


def pytest_configure(config: Any) -> None:
    text = "zero_copy(max_bytes=0, also=()): fail at a line that copies more, see zerocopy.forbid_copies"
    config.addinivalue_line("markers", text)
    if config.getoption("zerocopy_copies"):
        config.pluginmanager.register(_Copies(config))


@pytest.hookimpl(hookwrapper=True)  # wrapper=True needs pytest 8
def pytest_runtest_call(item: Any) -> Iterator[None]:
    mark = item.get_closest_marker("zero_copy")
    bases = getattr(getattr(item, "cls", None), "__mro__", ())
    if mark is None:
        yield
    elif any(each.__name__ == "IsolatedAsyncioTestCase" for each in bases):  # its context is another
        text = "the mark zero_copy does not guard tests of IsolatedAsyncioTestCase"
        pytest.fail(f"{text}.\n  To fix: write zc.forbid_copies() within the test", pytrace=False)
    else:  # the fixtures may copy
        from zerocopy.audit.forbid import guard_of_mark

        with guard_of_mark(*mark.args, **mark.kwargs):
            yield


class _Copies:
    """The conversions of a run that copied; the controller of pytest-xdist adds up those of its workers."""

    def __init__(self, config: Any) -> None:
        from zerocopy.monitor.recorder import Recorder

        self._output = getattr(config, "workeroutput", {})
        self._records: list[Any] = []
        self._recorder = Recorder()
        self._recorder.start()

    def pytest_sessionfinish(self) -> None:
        from zerocopy.monitor.conversion import as_dict

        self._recorder.stop()
        self._output[_KEY] = [as_dict(row) for row in self._recorder.rows() if row.copied_bytes]
        self._records.append({"conversions": self._output[_KEY]})

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})  # a worker that crashed has none
        self._records.append({"conversions": output.get(_KEY, [])})

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        from zerocopy.monitor.conversion import merged_rows
        from zerocopy.monitor.report import summary, text_table

        rows = merged_rows(self._records)
        terminalreporter.section("copies")
        terminalreporter.write_line(summary(rows) if rows else "No conversion copied.")
        for line in text_table(rows).replace(": see .rows", "").splitlines():
            terminalreporter.write_line(line)
