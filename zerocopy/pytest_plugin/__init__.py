"""The plugin for pytest: options of ``pytest --pyargs zerocopy.testing``. Each pytest run imports it."""

from __future__ import annotations

from typing import Any


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("zerocopy", "conformance: pytest --pyargs zerocopy.testing")
    group.addoption("--producer", metavar="MODULE:NAME", help="a function that returns a new array or table")
    group.addoption("--consumer", metavar="MODULE:NAME", help="a function that imports an array or a table")
    group.addoption("--allow", metavar="FILE", help="a TOML or JSON file of cases with reasons, left out")
