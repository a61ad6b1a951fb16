"""Wide tables of few rows, which pyarrow and polars copy to a matrix: the plan is the oracle of the route."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from helpers import crafted_arrow
from helpers.recorded_calls import recording
from hypothesis import given, settings, strategies as st

import zerocopy as zc
from zerocopy._engine.convert import convert_slowly
from zerocopy._frameworks.pyarrow.fast_path import FEW_ROWS

pa = pytest.importorskip("pyarrow")

WIDTH = 34
KINDS = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "M8[ms]")


def columns(rows: int = 5, kind: str = "f8") -> list[Any]:
    """Return Arrow arrays of one type, each with memory of its own."""
    random = np.random.default_rng(rows)
    return [pa.array(random.integers(0, 100, rows).astype(kind)) for _ in range(WIDTH)]


def at_equal_distances(rows: int = 5) -> list[Any]:
    """Return columns in separate buffers of pyarrow, as blocks of malloc may lie."""
    owner = np.random.default_rng(0).random((WIDTH, rows))
    buffers = [pa.foreign_buffer(row.ctypes.data, row.nbytes, owner) for row in owner]
    return [pa.Array.from_buffers(pa.float64(), rows, [None, buffer]) for buffer in buffers]


def table_of(arrays: list[Any], names: list[str] | None = None) -> Any:
    return pa.table(arrays, names=names or [f"c{i}" for i in range(len(arrays))])


def of_one_array(rows: int = 5, gap: int = 0, last: int = 0) -> list[Any]:
    """Return the columns of one array, with gaps, and the last one moved by some rows."""
    buffer = pa.py_buffer(np.arange((rows + gap) * WIDTH + last, dtype="f8"))
    starts = [k * (rows + gap) for k in range(WIDTH)]
    starts[-1] += last
    return [pa.Array.from_buffers(pa.float64(), rows, [None, buffer], offset=start) for start in starts]


def with_nulls(kind: Any, count: int = 1) -> Any:
    return pa.array([*[None] * count, *range(5 - count)], kind)


def _with_a_short_buffer(table: Any) -> Any:
    """Return the table of a file whose first column has one value, which pyarrow reads without an error."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    place = [struct.pack("<qq", 0, 8 * length) for length in (table.num_rows, 1)]  # offset and size
    data = crafted_arrow.replaced(sink.getvalue().to_pybytes(), *place)
    return pa.ipc.open_file(io.BytesIO(data)).read_all()


def tables() -> dict[str, Any]:
    plain, whole = columns(), pa.array(range(5), pa.float64())
    extension = pa.schema([pa.field(f"c{i}", pa.float64()) for i in range(WIDTH)])
    marked = extension.set(3, extension.field(3).with_metadata({"ARROW:extension:name": "unit"}))
    odd = pa.Array.from_buffers(pa.float64(), 5, [None, pa.py_buffer(np.zeros(41, "u1"))[1:]])
    # All values are valid, and the bitmap exists.
    bitmap = pa.Array.from_buffers(pa.float64(), 5, [pa.py_buffer(b"\xff"), whole.buffers()[1]])
    return {
        **{kind: table_of(columns(kind=kind)) for kind in KINDS},
        "one row": table_of(columns(1)),
        "no rows": table_of(columns(0)),
        "the most rows": table_of(columns(FEW_ROWS)),
        "more rows": table_of(columns(FEW_ROWS + 1)),
        "one column": table_of(plain[:1]),
        "two columns": table_of(plain[:2]),
        "one array": table_of(of_one_array()),
        "one array with gaps": table_of(of_one_array(gap=3)),
        "one array with gaps of a page": table_of(of_one_array(gap=512)),
        "one array but for a column": table_of(of_one_array(last=WIDTH - 1)),
        "equal distances": table_of(at_equal_distances()),
        "in reverse": table_of(of_one_array()[::-1]),
        "the same column": table_of(plain[:1] * WIDTH),
        "a slice": table_of(columns(9)).slice(2, 5),
        "chunks": pa.concat_tables([table_of(plain), table_of(columns(3))]),
        "an empty chunk": pa.concat_tables([table_of(plain), table_of(columns(0))]),
        "chunks of one column": table_of([*plain[1:], pa.chunked_array([plain[0][:2], plain[0][2:]])]),
        "mixed floats": table_of([*plain[1:], whole.cast("float32")]),
        "mixed numbers": table_of([*plain[1:], whole.cast("int64")]),
        "text": table_of([*plain[1:], pa.array(list("abcde"))]),
        "codes": table_of([whole.cast("int64").dictionary_encode()] * WIDTH),
        "lists": table_of([pa.array([[1.0]] * 5)] * WIDTH),
        "null floats": table_of([*plain[1:], with_nulls(pa.float64())]),
        "null integers": table_of([*columns(kind="i4")[1:], with_nulls(pa.int32())]),
        "all null": table_of([pa.nulls(5, pa.float64())] * WIDTH),
        "a bitmap": table_of([*plain[1:], bitmap]),
        "NaN": table_of([*plain[1:], pa.array([np.nan] * 5)]),
        "infinity": table_of([*plain[1:], pa.array([np.inf, -np.inf, 0.0, 1.0, 2.0])]),
        "two names alike": table_of(plain, ["a"] * WIDTH),
        "no names": table_of(plain, [""] * WIDTH),
        "metadata": table_of(plain).replace_schema_metadata({"key": "value"}),
        "extension type": pa.Table.from_arrays(plain, schema=marked),
        "a short buffer": _with_a_short_buffer(table_of(plain)),
        "a misaligned buffer": table_of([*plain[1:], odd]),
        "wider": table_of([*plain, *plain]),
    }  # fmt: skip


def outcome(convert: Callable[[], Any], table: Any) -> Any:
    """Return what two conversions must have in common."""
    try:
        result = convert()
    except zc.ZeroCopyError as error:
        return type(error), error.code, error.why
    is_date = isinstance(result, np.ndarray) and result.dtype.kind in "mM"
    view = zc.view(result.view("i8") if is_date else result)
    strides = view.strides if min(view.shape) > 1 else None  # those of one row have no meaning
    aliases = view.size > 0 and zc.shares_memory(result, table)
    values = np.asarray(zc.convert(result, "numpy")).tobytes()
    misaligned = view.ptr % 64 if view.size else 0
    return type(result), view.dtype, view.shape, strides, view.readonly, aliases, misaligned, values


def frames(source: str) -> dict[str, Any]:
    """Return the tables as objects of a framework."""
    if source == "pyarrow":
        return tables()
    if source == "RecordBatch":
        batches = {name: table.to_batches() for name, table in tables().items()}
        return {name: batch[0] for name, batch in batches.items() if batch}
    if source == "nanoarrow":
        na = pytest.importorskip("nanoarrow")
        return {name: na.Array(table) for name, table in tables().items() if name != "codes"}
    pl = pytest.importorskip("polars")
    left_out = ("two names alike", "no names", "a short buffer", "a misaligned buffer", "extension type")
    made = {n: zc.convert(table, "polars") for n, table in tables().items() if n not in left_out}
    plain, literal, halves = made["f8"], pl.lit(1.0).alias("c1"), pl.Series([1.0, 2.0])
    halves.append(plain["c0"][2:])
    wide = np.asfortranarray(np.random.default_rng(0).random((5, WIDTH)))
    return made | {
        "a literal": plain.with_columns(literal),
        "chunks of later columns": plain.with_columns(c33=halves),
        "128 bits": plain.cast(pl.Int128),
        "decimals": plain.cast(pl.Decimal(10, 2)),
        "durations": plain.cast(pl.Int64).cast(pl.Duration("ms")),
        "of one array": pl.DataFrame({f"c{i}": pl.Series(wide[:, i]) for i in range(WIDTH)}),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("source", "to"),
    [
        ("pyarrow", "numpy"),
        ("pyarrow", "jax"),
        ("RecordBatch", "numpy"),
        ("polars", "numpy"),
        ("polars", "torch"),
        ("nanoarrow", "numpy"),
    ],
)
def test_the_plan_is_the_oracle_of_the_route(source: str, to: str) -> None:
    pytest.importorskip(to)
    made = frames(source)
    every = [{"copy": False}, {"writable": True}, {"writable": False}, {"layout": "matrix", "order": "F"}]
    for more in [{}, {"copy": True}, *(every if to == "numpy" else [])]:
        options = {"layout": "matrix", **more}
        for name, frame in made.items():
            plain = made["f8"] if more.get("copy") is not False or source == "polars" else made["one array"]
            with contextlib.suppress(zc.CopyRequiredError):
                zc.convert(plain, to, **options)  # the route asks the framework after a wide table
            fast = outcome(partial(zc.convert, frame, to, **options), frame)
            slow = outcome(partial(convert_slowly, frame, to, options), frame)
            assert fast == slow, (name, options)


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([0, 0, 0, 1, 2])), min_size=1, max_size=3),
    st.integers(0, 6),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_tables_of_any_types(mixture: list[tuple[str, int]], cut: int, as_polars: bool) -> None:
    arrays = []
    for i in range(WIDTH):
        kind, nulls = mixture[i % len(mixture)] if i >= WIDTH - len(mixture) else mixture[0]
        values = np.arange(i, i + 6).astype(kind)
        arrays.append(pa.array(values, mask=np.arange(6) < nulls if nulls else None))
    table: Any = table_of(arrays).slice(6 - cut)
    if as_polars:
        table = zc.convert(table, "polars")
    zc.convert(table_of(columns()), "numpy", layout="matrix")
    fast = outcome(lambda: zc.convert(table, "numpy", layout="matrix"), table)
    assert fast == outcome(lambda: convert_slowly(table, "numpy", {"layout": "matrix"}), table)


@pytest.mark.parametrize("source", ["pyarrow", "RecordBatch", "polars"])
def test_the_framework_copies_plain_numbers(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = frames(source)
    cls = type(made["f8"])
    if source == "polars":
        from zerocopy._frameworks.polars import _small_matrix as small_matrix

        matrix = small_matrix(pytest.importorskip("polars"))
    else:
        from zerocopy._frameworks.pyarrow import fast_path

        # The allocator may place columns as far apart as those of one array.
        monkeypatch.setattr(fast_path, "_may_be_one_array", lambda batch, width: False)
        matrix = fast_path._small_matrix(pa, cls)
    taken = {name for name, frame in made.items() if isinstance(_result(matrix, frame), np.ndarray)}
    assert taken >= {*KINDS} - {"f2", "?", "M8[ms]"} | {
        "one row",
        "the most rows",
        "equal distances",
        "a slice",
        "wider",
    }
    refused = {"f2", "?", "no rows", "one column", "mixed floats", "null floats"}
    refused |= {"pyarrow": {"chunks", "more rows"}, "RecordBatch": {"more rows"}, "polars": {"chunks"}}[
        source
    ]
    assert not taken & refused


def _result(matrix: Any, frame: Any) -> Any:
    try:
        return matrix(frame)
    except (ValueError, pa.ArrowException):
        return None


@pytest.mark.parametrize("source", ["pyarrow", "polars"])
def test_the_table_can_be_dropped_first(source: str) -> None:
    pytest.importorskip(source)
    for _ in range(3):
        array = np.arange(5.0)
        table = zc.convert(table_of([pa.array(array)] * WIDTH), source)
        watched, result = weakref.ref(array), zc.convert(table, "numpy", layout="matrix")
        del array, table
        assert watched() is None
        assert result.tolist() == [[float(row)] * WIDTH for row in range(5)]


def test_the_frame_keeps_its_chunks() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({f"c{i}": [1.0, 2.0] for i in range(3)})
    frame = frame.with_columns(pl.Series("c2", [1.0]).append(pl.Series([2.0])))
    before = frame.n_chunks("all")
    assert before == [1, 1, 2]
    for _ in range(3):
        assert zc.convert(frame, "numpy", layout="matrix").tolist() == [[1.0] * 3, [2.0] * 3]
    assert frame.n_chunks("all") == before


@pytest.mark.parametrize("source", ["pyarrow", "polars"])
def test_recordings_count_the_copy(source: str) -> None:
    pytest.importorskip(source)
    frame = zc.convert(table_of(columns()), source)
    with recording() as recorder:
        for _ in range(3):
            zc.convert(frame, "numpy", layout="matrix")
    assert sum(row.copied_bytes for row in recorder.rows()) == 3 * 5 * WIDTH * 8
    assert not sum(row.aliased_bytes for row in recorder.rows())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_converts_frames(run_python: Callable[..., Any]) -> None:
    """Threads of polars do not exist in the child, and some calls of polars wait for them."""
    pytest.importorskip("polars")
    completed = run_python("""
        import os, signal, warnings
        import numpy as np, polars as pl, zerocopy as zc
        warnings.simplefilter("ignore")  # of forks in a process with threads
        frame = pl.DataFrame({f"c{i}": np.arange(100.0) for i in range(300)})
        narrow = frame[:, :3].with_columns(c2=pl.concat([frame["c2"][:5], frame["c2"][5:]], rechunk=False))
        assert narrow.n_chunks("all") == [1, 1, 2]
        frame.select(pl.all().sort())  # starts the threads
        for _ in range(3):
            expected = [zc.convert(x, "numpy", layout="matrix") for x in (frame, frame[:, :3], narrow)]
        child = os.fork()
        if not child:
            signal.alarm(60)
            made = [zc.convert(x, "numpy", layout="matrix") for x in (frame, frame[:, :3], narrow)]
            os._exit(not all(map(np.array_equal, made, expected)))
        print("status", os.waitpid(child, 0)[1])
    """)
    assert completed.stdout.split() == ["status", "0"], completed.stderr
