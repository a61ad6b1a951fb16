"""Columns in the matrix: the outcome of each type, and every kind of broken promise."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy import registry
from zerocopy.framework import Framework
from zerocopy.pairs import arrays, columns, samples
from zerocopy.pairs.columns import ColumnCell
from zerocopy.tables.column import Table

pa = pytest.importorskip("pyarrow")

#: All frameworks in the table of NVIDIA's series on interoperability.
NINE = ("pandas", "numpy", "cudf", "cupy", "numba", "jax", "torch", "tensorflow", "mxnet")

USABLE = [
    name
    for name, info in registry.frameworks().items()
    if info.installed and "cpu" in registry.by_name(name).device_kinds
]
TABLES = [name for name in USABLE if registry.by_name(name).tables]


class Crate:
    """A table of `Crates`."""

    def __init__(self, table: Any) -> None:
        self.table = table


class Crates(Framework):
    """A framework of tables that keeps every promise; tests override methods to break one."""

    name = "crates"
    kind = "table"
    root_modules = (__name__.partition(".")[0],)
    mutable = False

    def module(self) -> Any:
        return sys.modules[__name__]

    def installed(self) -> bool:
        return True

    def owns(self, cls: type) -> bool:
        return issubclass(cls, Crate)

    def table(self, obj: Any, index: bool | None = None) -> Table | None:
        described = registry.by_name("pyarrow").table(obj.table)
        assert described is not None
        return replace(described, name="crates.Crate", obj=obj)

    def from_table(self, table: Table) -> Any:
        return Crate(registry.by_name("pyarrow").from_table(table))

    def from_column(self, table: Table) -> Any:
        return self.from_table(replace(table, labels=["x"]))


def tried(
    sources: Iterable[str], targets: Iterable[str], *names: str
) -> dict[tuple[str, str, str], ColumnCell]:
    """Return the cells of some of the samples."""
    every = samples.samples()
    some = {name: every[name] for name in names} if names else every
    matrix = columns.measure(some, targets, sources)
    return {(c.source, c.target, c.column): c for c in matrix.cells}


def crated(name: str = "int64") -> ColumnCell:
    return tried(["pyarrow"], ["crates"], name)["pyarrow", "crates", name]


# -- kept promises ---------------------------------------------------------------------


def test_every_pair_of_nine_frameworks_has_a_cell_or_a_reason() -> None:
    """Each framework is in the grid, or has a reason why it is not."""
    result = arrays.measure(samples.iris().arrays, samples=1)
    for name in NINE:
        where = (name in result.frameworks, name in result.not_usable, name in result.not_installed)
        assert sum(where) == 1, name
        assert name in result.frameworks or (result.not_usable.get(name) or result.not_installed[name])
    pairs = {(cell.source, cell.target) for cell in result.cells}
    assert pairs >= {(a, b) for a in NINE for b in NINE if {a, b} <= set(result.frameworks)}
    assert {name: cell.broken for cell in result.broken for name in [(cell.source, cell.target)]} == {}


@pytest.mark.full
@pytest.mark.parametrize("source", TABLES)
def test_installed_frameworks_keep_every_promise(source: str) -> None:
    targets = [target for (target,) in sampled(5, USABLE, first=TABLES.index(source))]
    cells = tried([source], targets)
    assert {key: cell.broken for key, cell in cells.items() if cell.broken} == {}
    assert len(cells) == len(samples.samples()) * len(targets)
    for cell in cells.values():
        assert bool(cell.options) == (cell.outcome in ("encoded", "masked"))
        assert bool(cell.refusals) == (cell.outcome in ("encoded", "masked", "refused", "no source"))
        assert not (cell.outcome == "copy" and not cell.reasons), cell
        assert cell.zero_copy <= (cell.copied_bytes == 0)


def test_each_type_has_its_outcome_in_torch() -> None:
    pytest.importorskip("torch")
    cells = {name: cell for (_, _, name), cell in tried(["pyarrow"], ["torch"]).items()}
    outcomes = {name: (cell.outcome, cell.zero_copy, cell.options) for name, cell in cells.items()}
    encoded, masked = {"encode": "bytes"}, {"nulls": "mask"}
    assert outcomes == {
        "int64": ("zero-copy", True, {}),
        "int64 nulls": ("masked", False, masked),
        "int64 chunks": ("copy", False, {}),
        "float32": ("zero-copy", True, {}),
        "bool": ("copy", False, {}),
        "bool nulls": ("masked", False, masked),
        **dict.fromkeys(
            ("date", "timestamp", "timestamp zone", "time", "duration", "decimal", "string", "binary"),
            ("encoded", True, encoded),
        ),
        **dict.fromkeys(("categorical", "list", "struct"), ("encoded", True, encoded)),
        "string nulls": ("encoded", False, encoded | masked),
        "fixed-size list": ("zero-copy", True, {}),
    }
    assert cells["int64"].proof == ["shares_memory"]
    assert "3 chunks" in cells["int64 chunks"].reasons[0].why
    assert cells["int64 chunks"].copied_bytes == 96 * 8
    assert "14 nulls in 96 rows" in cells["int64 nulls"].refusals[0].why
    assert not cells["int64 nulls"].refusals[0].why.startswith("column")


# -- broken promises --------------------------------------------------------------------


@pytest.fixture
def add() -> Callable[[Framework], None]:
    """Register frameworks for one test; a fixture of tests/conftest.py removes them."""
    return zc.register


def _changed(table: Any, change: Callable[[Any], Any]) -> Any:
    return pa.table({name: change(table[name]) for name in table.column_names})


def _fresh(column: Any) -> Any:
    return column.take(pa.array(range(len(column))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_fresh, "explain reports zero_copy=True, and the result is not all in the source's memory"),
        (_fresh, "copy=False copies"),
        (lambda c: pa.chunked_array([pa.array([0, *c.to_pylist()[1:]])]), "1 of 96 values differ"),
        (lambda c: c.cast("int32"), "the type is int32, not int64, and the plan does not report it"),
        (lambda c: c.slice(1), "it has 95 rows, not 96"),
        (lambda c: c.cast("string"), "the type is string, not int64, and the plan does not report it"),
    ],
    ids=["copies", "copies-false", "value", "narrow", "short", "type"],
)
def test_wrong_results_are_reported(add: Callable[[Framework], None], change: Any, message: str) -> None:
    class Broken(Crates):
        def from_table(self, table: Table) -> Any:
            return Crate(_changed(super().from_table(table).table, change))

    add(Crates())
    assert crated().outcome == "zero-copy"
    add(Broken())
    cell = crated()
    assert cell.outcome == "broken"
    assert any(message in text for text in cell.broken), cell.broken


# -- comparing ----------------------------------------------------------------------


def _column(values: Any, kind: Any = None) -> Any:
    return pa.chunked_array([pa.array(values, kind)])


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        (_column([0.0]), _column([-0.0]), "1 of 1 values differ"),
        (_column([1, None]), _column([1, 0]), "1 of 2 values differ"),
        (
            _column([1]),
            _column([1], pa.int32()),
            "the type is int32, not int64, and the plan does not report it",
        ),
        (
            _column([1], pa.timestamp("us")),
            _column([1], pa.timestamp("us", "UTC")),
            "the plan does not report it",
        ),
        (_column([[1, 2]]), _column([[2, 1]]), "1 of 1 values differ"),
        (_column(["a"]), _column(["a", "b"]), "it has 2 rows, not 1"),
    ],
    ids=["zero", "null", "narrow", "zone", "list", "rows"],
)
def test_differences_of_columns_are_reported(ours: Any, theirs: Any, message: str) -> None:
    assert any(message in text for text in columns.column_differences(ours, theirs, allow_type_change=False))


# -- the command --------------------------------------------------------------------


def test_each_source_has_a_grid(invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("COLUMNS", "110")
    arguments = ("matrix", "--full", "--frameworks", "numpy,torch,pyarrow", "--repeat", "1")
    completed = invoke(*arguments)
    assert completed.exit_code == 0, completed.stdout
    lines = completed.stdout.splitlines()
    assert max(map(len, lines)) <= 110
    start = lines.index("Columns by type, 96 rows, each as the column 'x' of a table")
    assert [line.split() for line in lines[start:] if line.startswith("from ")] == [
        ["from", "pyarrow", "numpy", "torch", "pyarrow"]
    ]
    cells = {line[:16].strip(): line[16:].split() for line in lines[start + 4 : start + 23]}
    assert cells["int64"] == ["=", "=", "="]
    assert cells["string"] == ["e=", "e=", "="]
    assert cells["bool"][0] == "+"
    assert cells["string nulls"][:3:2] == ["em+", "em+"]
    assert list(cells) == list(samples.samples())
    number = cells["bool"][1]
    assert f" [{number}] Arrow packs booleans into bits" in lines
    assert any(line.startswith("e ") and "encode=" in line for line in lines)


def test_json_has_the_columns(invoke: Callable[..., Any]) -> None:
    arguments = ("matrix", "--full", "--frameworks", "numpy,pyarrow", "--repeat", "1", "--json")
    document = json.loads(invoke(*arguments, "--types", "date,int64 nulls").stdout)
    assert document["columns"] == {
        "int64 nulls": {"type": "int64", "rows": 96},
        "date": {"type": "date32[day]", "rows": 96},
    }
    cells = document["column_cells"]
    assert set(ColumnCell.__dataclass_fields__) == set(cells[0])
    assert [(c["column"], c["target"]) for c in cells] == [
        (column, target) for column in ("int64 nulls", "date") for target in ("numpy", "pyarrow")
    ]
    assert cells[0]["outcome"] == "masked"
    assert cells[0]["options"] == {"nulls": "mask"}
    assert "nulls=" in cells[0]["refusals"][0]["remedy"]
    # Four pairs of the array, and five types of less than a byte from NumPy.
    assert len(document["cells"]) == 4 + 5 * 2
    only = json.loads(invoke(*arguments, "--only", "arrays").stdout)
    assert (only["columns"], only["column_cells"]) == ({}, [])
    rest = json.loads(invoke(*arguments, "--only", "columns", "--from", "numpy").stdout)
    assert rest["cells"] == []
    assert {cell["source"] for cell in rest["column_cells"]} == {"numpy"}


def test_files_keep_text_dates_and_nulls_as_columns(tmp_path: Path, invoke: Callable[..., Any]) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "id,year,name,day\n" + "".join(f"{i},2020,{'n' * (i % 3)},2020-01-0{i}\n" for i in range(1, 8))
    )
    completed = invoke(
        "matrix", "--full", "--frameworks", "numpy,pyarrow", "--repeat", "1", "--input", str(path)
    )
    assert completed.exit_code == 0, completed.stdout
    assert "Left out" not in completed.stdout
    for row in ("id, year int64", "name string", "day date32[day]"):
        assert f"\n{row} " in completed.stdout
    assert "7 rows, each as the column 'x' of a table" in completed.stdout
    completed = invoke("matrix", "--full", "--frameworks", "numpy", "--repeat", "1", "--input", str(path))
    assert "Columns by type" not in completed.stdout
    assert "Left out of t.csv" in completed.stdout
    path.write_text("a,b\nx,y\n")
    completed = invoke(
        "matrix", "--full", "--frameworks", "numpy,pyarrow", "--input", str(path), "--types", "b"
    )
    assert completed.exit_code == 0
    assert "\nb string " in completed.stdout
    completed = invoke("matrix", "--full", "--frameworks", "numpy", "--input", str(path))
    assert completed.exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--types", "strin"], "--types: no column or type is called 'strin'; did you mean 'string'"),
        (["--types", ","], "--types names none"),
        (["--from", "nunpy"], "--from: 'nunpy'"),
        (["--only", "both"], "--only"),
        (["--input", "x.npy", "--only", "columns"], "x.npy has no columns of a table"),
        (["--input", "x.npy", "--types", "int64"], "x.npy has no columns of a table"),
    ],
    ids=" ".join,
)
def test_wrong_input_exits_2(
    arguments: list[str],
    message: str,
    invoke: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    monkeypatch.chdir(tmp_path)
    completed = invoke("matrix", *arguments)
    assert completed.exit_code == 2
    assert message in completed.stderr


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command in this process, as if its output were a pipe."""
    pytest.importorskip("click")
    pytest.importorskip("rich")
    from click.testing import CliRunner

    from zerocopy.cli.main import command

    for name in ("FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments: CliRunner().invoke(command(), list(arguments), catch_exceptions=False)
