"""A pytest plugin that converts the arrays and tables of another project's test suite, there and back.

``PYTHONPATH=$PWD:$PWD/tests python -m pytest -p helpers.hostile.peers --peers-root SUITE SUITE/tests``.
Each argument and result of the suite's own functions is converted to all frameworks, with `explain`
compared, and back to its own framework, with the values compared.
"""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import sys
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from helpers.hostile.case import Built, Case
from helpers.hostile.check import check
from helpers.hostile.generate import TABLES, TENSORS
from helpers.hostile.values import bits
from zerocopy import registry

PER_KIND = 2  #: objects of one type, dtype, shape and strides
_ROOTS = {"numpy", "torch", "jaxlib", "tensorflow", "pyarrow", "pandas", "polars", "duckdb"}
_ROOTS |= {"nanoarrow", "xarray"}


class Peers:
    """The objects that were seen, and the outcomes of their conversions."""

    def __init__(self, root: Path) -> None:
        self.root = str(root.resolve())
        self.seen: collections.Counter[str] = collections.Counter()
        self.counts: collections.Counter[str] = collections.Counter()
        self.findings: dict[str, str] = {}
        self.waiting: list[Any] = []

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(self.root):
            return
        values = [result] if event == "return" else list(frame.f_locals.values())
        for value in values:
            self.take(value)
            if type(value) in (list, tuple, dict):
                for item in list(value.values() if type(value) is dict else value)[:8]:
                    self.take(item)

    def take(self, value: Any) -> None:
        """Keep an object for the end of the test, unless there were enough of its kind."""
        if type(value).__module__.partition(".")[0] not in _ROOTS or isinstance(value, type):
            return
        if hasattr(value, "as_py"):  # a scalar of pyarrow
            return
        with contextlib.suppress(Exception):
            parts = [getattr(value, name, "") for name in ("dtype", "shape", "strides", "type", "schema")]
            parts += [list(getattr(value, "dtypes", ()))]
            kind = f"{type(value)} " + " ".join(str(part)[:200] for part in parts if not callable(part))
            self.seen[kind] += 1
            if self.seen[kind] <= PER_KIND:
                self.waiting.append(value)

    def convert_all(self, test: str) -> None:
        """Convert the objects of one test."""
        waiting, self.waiting = self.waiting, []
        for value in waiting:
            owner = registry.by_type(type(value))
            if owner is None and type(value).__module__.partition(".")[0] != "xarray":
                continue
            self.counts["objects"] += 1
            for target in (*TENSORS, *TABLES, "pyarrow.Tensor"):
                self._convert(test, value, owner, target)

    def _convert(self, test: str, value: Any, owner: Any, target: str) -> None:
        bare = isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)
        plain = value if bare and value.dtype.kind in "iufbc" else None
        built = Built(value, f"{type(value).__name__} of {test}", expected=plain)
        case = Case(0, "peer", lambda: built, target, {}, False)
        try:
            outcome = check(case)
            self.counts[outcome.kind] += 1
            detail = outcome.detail if outcome.kind == "finding" else ""
            if "producer-raised" in detail:  # `explain` does not call __array__, which may raise
                detail = ""
            if outcome.kind == "converted" and owner is not None:
                detail = _difference(value, zc.convert(zc.convert(value, target), owner.name))
                self.counts["there and back"] += 1
        except zc.ZeroCopyError:
            self.counts["not back"] += 1
            return
        except Exception as error:  # noqa: BLE001 - each is a finding
            detail = f"{type(error).__name__}: {error}"
        if detail:
            kind = f"{type(value).__name__} -> {target}: {detail.splitlines()[0][:200]}"
            self.findings.setdefault(kind, f"{test}: {detail}")


def _difference(value: Any, back: Any) -> str:
    """Return how an object differs after the way there and back, or ""."""
    value = np.asarray(value) if isinstance(value, np.generic) else value
    if isinstance(value, np.ndarray) and isinstance(back, np.ndarray) and value.dtype.kind in "mM":
        value = value.astype(back.dtype)  # the unit that the target has
    before, after = bits(value), bits(back)
    if before is not None and after is not None:
        if getattr(value, "shape", 0) != getattr(back, "shape", 0):
            return f"shape {value.shape} came back as {getattr(back, 'shape', None)}"
        return "" if before == after else f"{value!r} came back as {back!r}"
    first, second = (_rows(x) for x in (value, back))
    return "" if first == second else f"{first[:500]} came back as {second[:500]}"


def _rows(table: Any) -> str:
    """Return the rows as text; a table that was an array or a column has rows without names."""
    arrow = zc.convert(table, "pyarrow")
    rows = arrow.to_numpy().tolist() if type(arrow).__name__ == "Tensor" else arrow.to_pylist()
    if not isinstance(rows, list):  # an array without dimensions
        return repr(rows)
    rows = [_plain(row) for row in rows]
    rows = [_values(row) for row in rows if row != []]
    return repr(rows)


def _values(row: Any) -> Any:
    if isinstance(row, dict) and (len(row) == 1 or all(str(name).startswith("column_") for name in row)):
        row = list(row.values())
    return _values(row[0]) if isinstance(row, list) and len(row) == 1 else row


def _plain(value: Any) -> Any:
    """Return a value in the form that all frameworks have: DuckDB has one time zone and no durations."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):  # polars has no date64
        return dt.datetime(value.year, value.month, value.day)
    if type(value).__name__ == "MonthDayNano" and not value.months:
        return dt.timedelta(value.days, microseconds=value.nanoseconds // 1000)
    if isinstance(value, dt.timedelta):  # also of pandas
        return dt.timedelta(value.days, value.seconds, value.microseconds)
    return str(value) if isinstance(value, uuid.UUID) else value


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--peers-root", default=".", help="folder of the suite's own code")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_PEERS] = Peers(Path(config.getoption("--peers-root")))


_PEERS = pytest.StashKey[Peers]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:  # also for unittest
    peers = item.config.stash[_PEERS]
    sys.setprofile(peers)
    try:
        return (yield)
    finally:
        sys.setprofile(None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peers.convert_all(item.nodeid)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    peers = config.stash[_PEERS]
    terminalreporter.section("conversions")
    terminalreporter.write_line(str(dict(peers.counts)))
    for kind, text in peers.findings.items():
        terminalreporter.write_line(f"FINDING {kind}\n    {text[:1500]}")
