"""Tables in the matrix: columns of every type, what they become, and each way to break a promise."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy import registry
from zerocopy.cli import datasets
from zerocopy.cli.matrix import (
    arrays as matrix,
    checks as evidence,
    columns as column_matrix,
    samples as columns,
)
from zerocopy.cli.matrix.columns import ColumnCell
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.tables.column import Column, Table

pa = pytest.importorskip("pyarrow")

#: The table of NVIDIA's series on interoperability: all of its rows and columns.
NINE = ("pandas", "numpy", "cudf", "cupy", "numba", "jax", "torch", "tensorflow", "mxnet")

USABLE = [
    name
    for name, info in registry.frameworks().items()
    if info.installed and "cpu" in registry.by_name(name).device_kinds
]
TABLES = [name for name in USABLE if registry.by_name(name).tables]


class Crate:
    """The tables of the framework that is made up here."""

    def __init__(self, table: Any) -> None:
        self.table = table


class Crates(Framework):
    """A framework of tables that keeps every promise; what a test wants broken, it overrides."""

    name = "crates"
    kind = "table"
    root_modules = (__name__,)
    mutable = False

    def module(self) -> Any:
        return sys.modules[__name__]

    def installed(self) -> bool:
        return True

    def owns(self, cls: type) -> bool:
        return issubclass(cls, Crate)

    def table(self, obj: Any, index: bool | None = None) -> Table | None:
        found = registry.by_name("pyarrow").table(obj.table)
        assert found is not None
        return replace(found, name="crates.Crate", obj=obj)

    def from_table(self, table: Table) -> Any:
        return Crate(registry.by_name("pyarrow").from_table(table))

    def from_column(self, table: Table) -> Any:
        return self.from_table(replace(table, labels=["x"]))


def tried(
    sources: Iterable[str], targets: Iterable[str], *names: str
) -> dict[tuple[str, str, str], ColumnCell]:
    """Return the cells of some of the samples."""
    every = columns.samples()
    some = {name: every[name] for name in names} if names else every
    found = column_matrix.measure(some, targets, sources)
    return {(c.source, c.target, c.column): c for c in found.cells}


def crated(name: str = "int64") -> ColumnCell:
    return tried(["pyarrow"], ["crates"], name)["pyarrow", "crates", name]


# -- what holds ---------------------------------------------------------------------


def test_the_nine_by_nine_is_accounted_for() -> None:
    """Each is in the grid, or has a reason why it is not; and so has each pair."""
    result = matrix.measure(datasets.iris().arrays, repeat=1)
    for name in NINE:
        where = (name in result.frameworks, name in result.not_usable, name in result.not_installed)
        assert sum(where) == 1, name
        assert name in result.frameworks or (result.not_usable.get(name) or result.not_installed[name])
    pairs = {(cell.source, cell.target) for cell in result.cells}
    assert pairs >= {(a, b) for a in NINE for b in NINE if {a, b} <= set(result.frameworks)}
    assert {name: cell.broken for cell in result.broken for name in [(cell.source, cell.target)]} == {}


@pytest.mark.parametrize("source", TABLES)
def test_no_framework_here_breaks_a_promise(source: str) -> None:
    cells = tried([source], USABLE)
    assert {key: cell.broken for key, cell in cells.items() if cell.broken} == {}
    assert len(cells) == len(columns.samples()) * len(USABLE)
    for cell in cells.values():
        assert bool(cell.options) == (cell.outcome in ("encoded", "masked"))
        assert bool(cell.refusals) == (cell.outcome in ("encoded", "masked", "refused", "no source"))
        assert not (cell.outcome == "copy" and not cell.reasons), cell
        assert cell.zero_copy <= (cell.copied_bytes == 0)


def test_tensors_as_sources() -> None:
    pytest.importorskip("torch")
    cells = tried(["torch"], ["numpy", "pyarrow"], "float32", "bool", "string", "int64 nulls")
    assert cells["torch", "pyarrow", "float32"].outcome == "zero-copy"
    assert cells["torch", "numpy", "bool"].outcome == "zero-copy"
    for name in ("string", "int64 nulls"):
        cell = cells["torch", "numpy", name]
        assert (cell.outcome, cell.broken) == ("no source", [])
    assert "tensors do not have" in cell.refusals[0].why or "nulls" in cell.refusals[0].why


def test_what_comes_of_each_type_in_torch() -> None:
    pytest.importorskip("torch")
    cells = {name: cell for (_, _, name), cell in tried(["pyarrow"], ["torch"]).items()}
    found = {name: (cell.outcome, cell.zero_copy, cell.options) for name, cell in cells.items()}
    encoded, masked = {"encode": True}, {"nulls": "mask"}
    assert found == {
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


def test_arrays_are_tables_of_columns(add: Callable[[Framework], None]) -> None:
    """A 2-D array in a framework of tables: a column for each of its own, and back."""
    add(Crates())
    result = matrix.measure(datasets.iris().arrays, ["numpy", "crates"], repeat=1)
    assert not result.broken
    found = {(c.source, c.target): (c.outcome, c.copied_bytes) for c in result.cells}
    assert found["crates", "numpy"] == ("zero-copy", 0)
    assert found["numpy", "crates"] == ("copy", 2400)  # a column of a row-major array has gaps
    (back,) = [c for c in result.cells if (c.source, c.target) == ("crates", "numpy")]
    assert back.proof == ["shares_memory", "address"]
    assert back.median_ns is not None


def test_sources_can_be_picked(add: Callable[[Framework], None]) -> None:
    add(Crates())
    result = matrix.measure(datasets.iris().arrays, ["numpy", "crates"], 1, sources=["crates"])
    assert {cell.source for cell in result.cells} == {"crates"}
    assert [cell.target for cell in result.cells] == ["numpy", "crates"]


# -- what is found --------------------------------------------------------------------


@pytest.fixture
def add() -> Callable[[Framework], None]:
    """Register frameworks for one test; conftest takes them away again."""
    return zc.register


def _changed(table: Any, change: Callable[[Any], Any]) -> Any:
    return pa.table({name: change(table[name]) for name in table.column_names})


def _fresh(column: Any) -> Any:
    return column.take(pa.array(range(len(column))))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (_fresh, "explain says zero_copy=True, and the result is not all in the source's memory"),
        (_fresh, "copy=False copies"),
        (lambda c: pa.chunked_array([pa.array([0, *c.to_pylist()[1:]])]), "1 of 96 values differ"),
        (lambda c: c.cast("int32"), "the type is int32, not int64, and no plan says so"),
        (lambda c: c.slice(1), "it has 95 rows, not 96"),
        (lambda c: c.cast("string"), "the type is string, not int64, and no plan says so"),
    ],
    ids=["copies", "copies-false", "value", "narrow", "short", "type"],
)
def test_wrong_results_are_found(add: Callable[[Framework], None], change: Any, found: str) -> None:
    class Broken(Crates):
        def from_table(self, table: Table) -> Any:
            return Crate(_changed(super().from_table(table).table, change))

    add(Crates())
    assert crated().outcome == "zero-copy"
    add(Broken())
    cell = crated()
    assert cell.outcome == "broken"
    assert any(found in text for text in cell.broken), cell.broken


def test_a_column_that_is_called_otherwise_is_found(add: Callable[[Framework], None]) -> None:
    class Renaming(Crates):
        def from_table(self, table: Table) -> Any:
            return Crate(super().from_table(table).table.rename_columns(["y"]))

    add(Renaming())
    assert "it comes back as a table of the columns y" in " ".join(crated().broken)


def test_a_type_that_a_plan_speaks_of_may_change(add: Callable[[Framework], None]) -> None:
    class Narrowing(Crates):
        def column_reasons(self, column: Column) -> list[Reason]:
            return [Reason("crates have integers of 32 bits", "cast it first")]

        def from_table(self, table: Table) -> Any:
            return Crate(_changed(super().from_table(table).table, lambda c: c.cast("int32")))

    add(Narrowing())
    cell = crated()
    assert (cell.outcome, cell.broken) == ("copy", [])
    assert cell.reasons == [Reason("crates have integers of 32 bits", "cast it first")]


def test_copy_true_that_aliases_is_found(add: Callable[[Framework], None]) -> None:
    kept: list[Any] = []

    class Lazy(Crates):
        def column_reasons(self, column: Column) -> list[Reason]:
            kept[:] = [column]
            return []

        def from_table(self, table: Table) -> Any:
            return Crate(pa.table({"x": kept[0].arrow()}))

    add(Lazy())
    assert crated().broken == [
        "explain with copy=True says zero_copy=False, and the result is all in the source's memory",
        "copy=True aliases",
    ]


def test_a_source_that_is_changed_in_place_is_found(add: Callable[[Framework], None]) -> None:
    """As polars' exporters join the chunks of the data frame itself."""

    class Joining(Crates):
        def table(self, obj: Any, index: bool | None = None) -> Table | None:
            if len(obj.table["x"].chunks) > 1:
                obj.table = obj.table.combine_chunks()
            return super().table(obj)

    class Aside(Crates):
        name = "aside"
        root_modules = ("aside",)

        def from_table(self, table: Table) -> Any:
            crate.table = crate.table.combine_chunks()
            return super().from_table(table)

    add(Crates())
    add(Aside())
    table = columns.made_of(columns.samples()["int64 chunks"])
    crate = Crate(table)
    cell = ColumnCell("crates", "aside", "int64 chunks", "int64")
    column_matrix._check(cell, table["x"], crate)
    assert "the source lies elsewhere afterwards" in cell.broken


def test_a_refusal_is_no_broken_promise(add: Callable[[Framework], None]) -> None:
    class Narrow(Crates):
        def column_reasons(self, column: Column) -> list[Reason]:
            raise UnsupportedConversionError("", f"is {column.field}, which crates lack", "leave it")

    add(Narrow())
    cells = tried(["pyarrow", "crates"], ["crates", "numpy"], "date")
    refused = cells["pyarrow", "crates", "date"]
    assert (refused.outcome, refused.broken) == ("refused", [])
    assert refused.refusals == [Reason("is date32[day], which crates lack", "leave it")]
    assert cells["crates", "numpy", "date"].outcome == "no source"


def test_refusals_with_options_are_told(add: Callable[[Framework], None], run_python: Any) -> None:
    pytest.importorskip("jax")
    done = run_python(
        """
        from zerocopy.cli.matrix import columns as column_matrix
        from zerocopy.cli.matrix import samples as columns
        every = columns.samples()
        found = column_matrix.measure({"time": every["time"]}, ["jax"], ["pyarrow"])
        (cell,) = found.cells
        assert (cell.outcome, cell.options) == ("refused", {})
        assert "tensors do not have" in cell.refusals[0].why
        assert "x64" in cell.refusals[1].why
        assert len(cell.refusals) == 2
        """
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("where", ["from_table", "table"])
def test_foreign_exceptions_are_found(add: Callable[[Framework], None], where: str) -> None:
    def fail(*args: Any) -> Any:
        raise ZeroDivisionError("first line\nsecond line")

    add(type("Bomb", (Crates,), {where: fail})())
    (text, *_) = crated().broken
    assert "ZeroDivisionError" in text
    assert "second line" not in text


def test_python_warnings_are_told_and_memory_errors_are_not_broken(add: Callable[[Framework], None]) -> None:
    class Grumbling(Crates):
        def from_table(self, table: Table) -> Any:
            warnings.warn("grumble", UserWarning, stacklevel=1)
            return super().from_table(table)

    class Hungry(Crates):
        def from_table(self, table: Table) -> Any:
            raise MemoryError

    add(Grumbling())
    assert "UserWarning: grumble" in crated().warnings
    add(Hungry())
    with pytest.raises(MemoryError):
        crated()


# -- comparing ----------------------------------------------------------------------


def _column(values: Any, kind: Any = None) -> Any:
    return pa.chunked_array([pa.array(values, kind)])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (_column([1.5, float("nan")]), pa.chunked_array([[1.5], [float("nan")]])),
        (_column(["a", None]), _column(["a", None], pa.large_string())),
        (_column(["a", None]), _column(["a", None], pa.string_view())),
        (_column([[1], None]), _column([[1], None], pa.large_list(pa.int64()))),
        (_column(["a", "b"]).dictionary_encode(), _column(["b", "a", "b"]).dictionary_encode().slice(1)),
        (_column([True, False]), _column([1, 0], pa.int8()).cast(pa.bool8())),
        (_column([{"a": float("nan")}]), _column([{"a": float("nan")}])),
    ],
    ids=["nan", "wide", "view", "list", "codes", "bool8", "nested"],
)
def test_columns_that_say_the_same(ours: Any, theirs: Any) -> None:
    assert columns.compare(ours, theirs, told=False) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (_column([0.0]), _column([-0.0]), "1 of 1 values differ"),
        (_column([1, None]), _column([1, 0]), "1 of 2 values differ"),
        (_column([1]), _column([1], pa.int32()), "the type is int32, not int64, and no plan says so"),
        (_column([1], pa.timestamp("us")), _column([1], pa.timestamp("us", "UTC")), "no plan says so"),
        (_column([[1, 2]]), _column([[2, 1]]), "1 of 1 values differ"),
        (_column(["a"]), _column(["a", "b"]), "it has 2 rows, not 1"),
    ],
    ids=["zero", "null", "narrow", "zone", "list", "rows"],
)
def test_columns_that_differ(ours: Any, theirs: Any, said: str) -> None:
    assert any(said in text for text in columns.compare(ours, theirs, told=False))


@pytest.mark.parametrize("name", columns.samples())
def test_decoding_is_the_opposite_of_encoding(name: str) -> None:
    column = columns.samples()[name]
    result = zc.convert(columns.made_of(column), "numpy", encode=True, nulls="mask")
    assert columns.decoded(result["x"]) == columns.stored(column)


def test_samples_have_all_that_their_names_say() -> None:
    found = columns.samples()
    assert all(len(column) == 96 for column in found.values())
    assert all(bool(column.null_count) == name.endswith("nulls") for name, column in found.items())
    assert {name for name, column in found.items() if column.num_chunks > 1} == {"int64 chunks"}
    assert len({str(column.type) for column in found.values()}) == 15


def test_pick() -> None:
    every = columns.samples()
    assert list(columns.pick(every, ["string", "int64"])) == [
        *("int64", "int64 nulls", "int64 chunks", "string", "string nulls")
    ]
    assert list(columns.pick(every, ["int64 nulls"])) == ["int64 nulls"]
    assert list(columns.pick(every, ["timestamp[us]"])) == ["timestamp"]
    with pytest.raises(LookupError, match="did you mean 'decimal'"):
        columns.pick(every, ["decimals"])
    with pytest.raises(LookupError, match="there are int64, int64 nulls"):
        columns.pick(every, ["zzz"])


def test_sharing() -> None:
    x = np.arange(8)
    assert evidence.sharing(x, {"a": x[:4], "b": x[4:]}) == evidence.Sharing(True, True, True)
    assert evidence.sharing(x, {"a": x[:4], "b": x.copy()}).whole is False
    assert evidence.sharing({"a": x}, {"a": x}) == evidence.Sharing(True, True, True)
    assert evidence.sharing(x, x.copy()) == evidence.Sharing(False, False, False)
    reader = pa.table({"x": x}).to_reader()
    assert evidence.sharing(reader, x) is None
    assert evidence.blocks_of(reader) is None


# -- the command --------------------------------------------------------------------


def test_a_block_for_each_source(invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("COLUMNS", "110")
    arguments = ("matrix", "--frameworks", "numpy,torch,pyarrow", "--repeat", "1")
    done = invoke(*arguments)
    assert done.exit_code == 0, done.stdout
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 110
    start = lines.index("Columns by type, 96 rows, each as a table of one column")
    assert [line.split() for line in lines[start:] if line.startswith("from ")] == [
        ["from", "pyarrow", "numpy", "torch", "pyarrow"]
    ]
    found = {line[:16].strip(): line[16:].split() for line in lines[start + 4 : start + 23]}
    assert found["int64"] == ["=", "=", "="]
    assert found["string"] == ["e=", "e=", "="]
    assert found["bool"][0] == "+"
    assert found["string nulls"][:3:2] == ["em+", "em+"]
    assert list(found) == list(columns.samples())
    number = found["bool"][1]
    assert f" [{number}] Arrow packs booleans into bits" in lines
    assert any(line.startswith("e ") and "encode=True" in line for line in lines)


def test_the_document_has_the_columns(invoke: Callable[..., Any]) -> None:
    arguments = ("matrix", "--frameworks", "numpy,pyarrow", "--repeat", "1", "--json")
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
    assert len(document["cells"]) == 4
    only = json.loads(invoke(*arguments, "--only", "arrays").stdout)
    assert (only["columns"], only["column_cells"]) == ({}, [])
    rest = json.loads(invoke(*arguments, "--only", "columns", "--from", "numpy").stdout)
    assert rest["cells"] == []
    assert {cell["source"] for cell in rest["column_cells"]} == {"numpy"}


def test_a_broken_column_exits_1(add: Callable[[Framework], None], invoke: Callable[..., Any]) -> None:
    class Copying(Crates):
        def from_table(self, table: Table) -> Any:
            return Crate(_changed(super().from_table(table).table, _fresh))

    add(Copying())
    arguments = ("matrix", "--frameworks", "pyarrow,crates", "--only", "columns", "--types", "float32")
    done = invoke(*arguments)
    assert done.exit_code == 1
    assert "BROKEN: a promise does not hold" in done.stdout
    assert "copy=False copies" in done.stdout
    assert "! 1 of 4 conversions broke a promise" in done.stdout
    document = json.loads(invoke(*arguments, "--json").stdout)
    assert document["broken"] == 1


def test_files_keep_text_dates_and_nulls_as_columns(tmp_path: Path, invoke: Callable[..., Any]) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "id,year,name,day\n" + "".join(f"{i},2020,{'n' * (i % 3)},2020-01-0{i}\n" for i in range(1, 8))
    )
    done = invoke("matrix", "--frameworks", "numpy,pyarrow", "--repeat", "1", "--input", str(path))
    assert done.exit_code == 0, done.stdout
    assert "Left out" not in done.stdout
    for row in ("id, year int64", "name string", "day date32[day]"):
        assert f"\n{row} " in done.stdout
    assert "7 rows, each as a table of one column" in done.stdout
    done = invoke("matrix", "--frameworks", "numpy", "--repeat", "1", "--input", str(path))
    assert "Columns by type" not in done.stdout
    assert "Left out of t.csv" in done.stdout
    path.write_text("a,b\nx,y\n")
    done = invoke("matrix", "--frameworks", "numpy,pyarrow", "--input", str(path), "--types", "b")
    assert done.exit_code == 0
    assert "\nb string " in done.stdout
    done = invoke("matrix", "--frameworks", "numpy", "--input", str(path))
    assert done.exit_code == 2


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
    done = invoke("matrix", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_without_pyarrow_the_arrays_are_there(run_python: Callable[..., Any]) -> None:
    done = run_python(
        """
        import sys
        sys.modules["pyarrow"] = None
        from zerocopy.cli.main import command
        command()(["matrix", "--frameworks", "numpy", "--repeat", "1"], standalone_mode=False)
        command()(["matrix", "--frameworks", "numpy", "--only", "columns"], standalone_mode=True)
        """
    )
    assert done.returncode == 2, done.stderr
    assert "Every promise held in 1 conversion: 1 zero-copy." in done.stdout
    assert "Columns by type need pyarrow: pip install pyarrow" in done.stdout
    assert "Columns by type need pyarrow: pip install pyarrow" in done.stderr


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command in this process; its output is that of a pipe."""
    pytest.importorskip("click")
    pytest.importorskip("rich")
    from click.testing import CliRunner

    from zerocopy.cli.main import command

    for name in ("FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments: CliRunner().invoke(command(), list(arguments), catch_exceptions=False)
