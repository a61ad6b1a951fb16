"""Fixtures that replace the suites of the benchmarks."""

import sys
import types

import pytest


@pytest.fixture
def registered(monkeypatch):
    """Return a function that replaces all suites with the given ones."""
    pytest.importorskip("psutil", reason="the benchmarks need it")
    from benchmarks import cli

    def register(*suites):
        names = {}
        for one in suites:
            module = types.ModuleType(f"temporary_{one.name}")
            module.SUITE = one
            monkeypatch.setitem(sys.modules, module.__name__, module)
            names[one.name] = module.__name__
        monkeypatch.setattr(cli, "SUITES", names)
        monkeypatch.setattr("benchmarks.suite.SUITES", names)
        return names

    return register


@pytest.fixture
def tiny(registered):
    """Register a suite of two sections."""
    from helpers.benchmark_suites import section, suite, task

    from benchmarks.suite import Goal

    goals = lambda cases: [Goal("fast", c.name, 1.0, 2.0, "x") for c in cases]  # noqa: E731
    registered(suite(section("pairs", task("a"), task("b"), goals=goals), section("sizes", task("c"))))
