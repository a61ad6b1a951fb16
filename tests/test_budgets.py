"""The size of the project, in numbers that may only fall."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from helpers.paths import ROOT
from helpers.source_files import FILES, PACKAGE, parse, relative

from zerocopy import source

#: Lower a number when a change makes room. To raise one, write on its line which user needs what was added.
BUDGETS = {
    # Python and C rose for casts, padded lists, text fields and small records by compiled routes (users of
    # small tables with options), registers of AVX2 (users of processors without AVX-512), routes of arrays on
    # GPUs (users of CuPy, torch, JAX and Numba), and schemas that are kept (users of wide tables
    # of polars, nanoarrow and DuckDB). Then for results that other libraries read (users of `Masked`,
    # `Encoded`, loaders and shared tables), for series of nanoarrow and tensors to tables, and for the
    # variable EAGER_IMPORT (tests of programs that depend on zerocopy).
    # Then for shards of older saves, compressed sources and errors with the right path (users of `save`), and
    # for blocks that overlap (users of `aligned_numpy`).
    # Then for queues that deliver an item once, and exact limits of rows (users of channels).
    # Then for channels, a conformance kit (authors of producers and consumers), `forbid_copies` and the
    # plugin of pytest (teams that keep code free of copies), writes to immutable memory (users of pandas),
    # and `zc.dataset` (users of torch's DataLoader).
    "lines of Python in zerocopy/": 80669,
    "files of Python in zerocopy/": 406,
    "lines of C in zerocopy/": 9876,
    # The first page shows calls that go wrong, each with a test, and all contenders of its picture; phrases
    # test the search (readers who decide in a minute).
    "lines of Python in tests/": 109418,  # tests of these, of planted faults that no test found, and of names
    "lines of Python in benchmarks/": 16729,  # tables with options, a recommender's table, the age of results
    "lines of Markdown in docs/": 13530,  # the rules of save in a list: users who write weights
    "words in docs/how-it-works.md": 3228,  # channels: who changes them
    # Copies to and from a device are two, and NumPy's text, dates and objects are one, for the same users.
    "forms in which memory passes": 12,
    "private names of other packages": 31,  # the schema of nanoarrow: users of its wide tables
    "Any in _engine/ and tables/": 199,
}

#: Names with an underscore that are documented: by the standard library, nanoarrow and pyarrow.
DOCUMENTED = {"_replace", "_asdict", "_exit", "_getframe", "_addr", "_export_to_c"}


def lines(paths: Iterable[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


@cache
def own_names() -> frozenset[str]:
    """Return the names that zerocopy itself defines, assigns or imports."""
    names = set()
    for path in FILES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                names.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.alias):
                names.update([*node.name.split("."), node.asname or ""])
    return frozenset(names)


def private_names(path: Path) -> set[str]:
    """Return the private attributes of other packages that a file reads by name, without special names."""
    read = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Attribute):
            read.add(node.attr)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr"):
            read |= {each.value for each in node.args[1:2] if isinstance(each, ast.Constant)}
    private = {name for name in read if name.startswith("_") and not name.endswith("__")}
    return private - own_names() - DOCUMENTED


def count_any(path: Path) -> int:
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(parse(path)))


@cache
def measured() -> dict[str, int]:
    native = [*PACKAGE.rglob("*.c"), *PACKAGE.rglob("*.h")]
    typed = [path for path in FILES if relative(path).startswith(("_engine/", "tables/"))]
    return {
        "lines of Python in zerocopy/": lines(FILES),
        "files of Python in zerocopy/": len(FILES),
        "lines of C in zerocopy/": lines(native),
        "lines of Python in tests/": lines((ROOT / "tests").rglob("*.py")),
        "lines of Python in benchmarks/": lines((ROOT / "benchmarks").rglob("*.py")),
        "lines of Markdown in docs/": lines((ROOT / "docs").rglob("*.md")),
        "words in docs/how-it-works.md": len((ROOT / "docs" / "how-it-works.md").read_text("utf-8").split()),
        "forms in which memory passes": len(source.FORMS),
        "private names of other packages": sum(len(private_names(path)) for path in FILES),
        "Any in _engine/ and tables/": sum(map(count_any, typed)),
    }


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_project_stays_within_its_budgets(budget: str) -> None:
    assert measured()[budget] <= BUDGETS[budget], "remove as much as the change adds, or say who needs it"


def test_private_names_are_those_of_other_packages(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(
        "x._mgr.blocks; getattr(x, '_other', None); x.public; x.__array__; x._request; x._replace()"
    )
    assert private_names(path) == {"_mgr", "_other"}
