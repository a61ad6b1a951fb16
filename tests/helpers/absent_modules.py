"""A pytest plugin that skips a test which fails because a module is not installed.

`.ci/pythons` uses it, because the newest versions of Python lack wheels of some frameworks. Elsewhere such a
test fails: the group `test` installs every module that the tests need.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Generator

import pytest

#: An import that fails, also in the output of a subprocess, and zerocopy's error for a framework.
_ABSENT = re.compile(r"No module named '(\w+)|\b(\w+) is not installed")


def absent_module(error: BaseException | None) -> str:
    """Return a module that is not installed and that an error, or its cause, names."""
    while error is not None:
        for names in _ABSENT.findall(str(error)):
            name = next(filter(None, names))
            if importlib.util.find_spec(name) is None:
                return str(name)
        error = error.__cause__ or error.__context__
    return ""


def _skipping() -> Generator[None, object, object]:
    try:
        return (yield)
    except Exception as error:
        name = absent_module(error)
        if not name:
            raise
        pytest.skip(f"{name} is not installed")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    name = absent_module(ImportError(str(report.longrepr))) if report.failed else ""
    if name:  # a module of tests imports it
        report.outcome, report.result = "skipped", []
        report.longrepr = str(collector.path), 1, f"Skipped: {name} is not installed"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _skipping())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _skipping())
