"""Tables and columns convert by routes; the plan gives the same values, types, aliases and refusals."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine.convert import convert_slowly
from zerocopy._engine.routes import NO_ROUTE, routes_of
from zerocopy._native import core
from zerocopy.pairs.conversion import sharing

pa = pytest.importorskip("pyarrow")
TABLES = ("pandas", "polars", "pyarrow", "duckdb", "nanoarrow")
TARGETS = (*TABLES, "numpy", "torch")
ROWS = 12


def _tables() -> dict[str, Any]:
    x = np.arange(float(ROWS))
    numbers = pa.table({"a": x, "b": x.astype("i4"), "c": x.astype("u1")})
    words = [None if i % 5 == 3 else f"word {i}, which is longer than a view" for i in range(ROWS)]
    shifted = np.frombuffer(b"\0" * 3 + x.tobytes(), "u1")[3:]
    dates = pa.array(x.astype("i8"), mask=x > 9)
    mixed = pa.table(
        {"a": words, "b": dates.cast(pa.timestamp("ms", "UTC")), "c": pa.array(x > 5, mask=x > 8)}
    )
    mixed = mixed.append_column("d", dates.cast(pa.timestamp("ns"))).append_column("e", pa.array(x))
    named = pa.field("a", pa.float64(), metadata={"ARROW:extension:name": "other.type"})
    misaligned = pa.Array.from_buffers(pa.float64(), ROWS, [None, pa.py_buffer(shifted)])
    return {
        "numbers": numbers,
        "one type": pa.table({"a": x, "b": x + 1, "c": x + 2}),
        "one column": pa.table({"a": x}),
        "nulls": pa.table({"a": pa.array(x, mask=x > 9), "b": pa.array(x.astype("i8"), mask=x < 2)}),
        "all null": pa.table({"a": pa.array([None] * ROWS, "int64"), "b": x}),
        "NaN": pa.table({"a": np.where(x > 3, np.nan, x), "b": x}),
        "text": pa.table({"a": words, "b": x}),
        "large text": pa.table({"a": pa.array(words, "large_string"), "b": x}),
        "views": pa.table({"a": pa.array(words, "string_view"), "b": x}),
        "bytes": pa.table({"a": pa.array([b"x"] * ROWS), "b": x}),
        "booleans": pa.table({"a": x > 3, "b": pa.array(x > 5, mask=x > 8)}),
        "float16": pa.table({"a": x.astype("f2"), "b": x}),
        "dates": pa.table({"a": pa.array(x.astype("i4")).cast("date32"), "b": x}),
        "seconds": pa.table({"a": pa.array(x.astype("i8")).cast(pa.timestamp("s", "UTC")), "b": x}),
        "decimals": pa.table({"a": pa.array(x).cast(pa.decimal128(9, 2)), "b": x}),
        "categories": pa.table({"a": pa.array(words).dictionary_encode(), "b": x}),
        "lists": pa.table({"a": pa.array([[1.0, 2.0]] * ROWS), "b": x}),
        "structs": pa.table({"a": pa.array([{"k": 1}] * ROWS), "b": x}),
        "nothing": pa.table({"a": pa.nulls(ROWS), "b": x}),
        "misaligned": pa.table({"a": misaligned, "b": x}),
        "slice": numbers.slice(3, 5),
        "slice of text": pa.table({"a": words, "b": x}).slice(3, 5),
        "chunks": pa.concat_tables([numbers, numbers]),
        "one chunk of dates": mixed,
        "chunks of dates and text": pa.concat_tables(
            [mixed.slice(3, 5), mixed, mixed.slice(0, 0), mixed.slice(9)]
        ),
        "chunks that end at different rows": pa.table(
            {"a": pa.chunked_array([x[:5], x[5:]]), "b": pa.chunked_array([words[:7], words[7:]])}
        ),
        "chunks of bytes": pa.table(
            {"a": pa.chunked_array([[b"x"], [b"y"]]), "b": pa.chunked_array([[1], [2]])}
        ),
        "chunks of seconds": pa.table(
            {"a": pa.chunked_array([[1], [2]]).cast(pa.timestamp("s")), "b": [1, 2]}
        ),
        "an unknown extension type": pa.table([pa.array(x)], pa.schema([named])),
        "chunks of an unknown extension type": pa.table([pa.chunked_array([x, x])], pa.schema([named])),
        "no rows": numbers.slice(0, 0),
        "metadata": numbers.replace_schema_metadata({"k": "v"}),
        "metadata of a column": pa.table(
            [pa.array(x)], pa.schema([pa.field("a", pa.float64(), metadata={"k": "v"})])
        ),
        "an empty label": pa.table([x, x], ["", "b"]),
        "one label twice": pa.table([pa.array(x), pa.array(x)], ["a", "a"]),
        "labels that differ by case": pa.table([x, x], ["a", "A"]),
        "a zero byte": pa.table([x, x], ["a\0b", "c"]),
        "other letters": pa.table([x, x], ["Ä", "ä"]),
    }


def _sources(table: Any, framework: str) -> list[Any]:
    """Return a table as tables and columns of a framework, made by zerocopy and by the framework."""
    made = []
    if framework == "polars" and table.column_names[0] == "a":
        pl = pytest.importorskip("polars")
        made = [pl.DataFrame({"a": [1.0, 2.0, 3.0]}).with_columns(b=pl.lit(2.0)), pl.select(b=pl.lit(2.0))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        makers = [lambda: zc.convert(table, framework), lambda: zc.convert(table[0], framework)]
        if framework == "pandas":
            makers += [table.to_pandas, lambda: table.to_pandas().set_index(table.column_names[0])]
            makers += [
                lambda: table.to_pandas().rename_axis(columns="k"),
                lambda: table.to_pandas().add_prefix(""),
            ]
            makers += [
                lambda: table.to_pandas().rename(columns={"a": 1}),
                lambda: table[0].to_pandas(),
                lambda: table.to_pandas()[["a"]].iloc[::2],
            ]
            makers += [lambda: table.to_pandas().iloc[::2], lambda: table.to_pandas().iloc[2:9]]
        for make in makers:
            try:
                made.append(make())
            except (zc.ZeroCopyError, ValueError, KeyError, TypeError, NotImplementedError):
                continue
    return made


def _values(result: Any) -> Any:
    """Return types, labels and values."""
    if isinstance(result, dict):
        return {name: _values(value) for name, value in result.items()}
    if isinstance(result, np.ndarray) or type(result).__module__ == "torch":
        array = np.asarray(result)
        return type(result), str(result.dtype), array.shape, array.tobytes()
    arrow = zc.convert(result, "pyarrow", copy=None)
    types = (
        [str(result.dtypes), repr(result.index)]
        if type(result).__name__ == "DataFrame" and hasattr(result, "index")
        else []
    )
    types += (
        [str(result.schema)]
        if type(result).__module__.startswith("polars") and hasattr(result, "schema")
        else []
    )
    name = getattr(result, "name", None)
    schema = getattr(arrow, "schema", None) or arrow.type
    return type(result), types, name, str(schema), [str(v) for v in arrow.to_pylist()]


def _outcome(convert: Any, obj: Any, to: str, options: dict[str, Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = convert(obj, to, options)
            values = _values(result)
    except (ValueError, TypeError, LookupError) as error:  # zerocopy's derive from these
        return type(error), getattr(error, "code", "")
    try:
        shared = sharing(obj, result)
    except zc.ZeroCopyError:  # a relation
        shared = None
    return values, shared and (shared.some, shared.whole)


def _fast(obj: Any, to: str, options: dict[str, Any]) -> Any:
    return zc.convert(obj, to, **options)


@pytest.mark.parametrize("source", TABLES)
@pytest.mark.parametrize("to", TARGETS)
def test_the_plan_is_the_oracle_of_the_route(source: str, to: str) -> None:
    for name in {source, to}:
        pytest.importorskip(name)
    every = [{}, {"layout": "matrix"}] if registry.by_name(to).kind == "tensor" else [{}]
    tables = _tables()
    for options in every:
        for obj in _sources(tables["one type"], source):
            zc.convert(obj, to, **options)  # routes exist from here on
    for name, table in tables.items():
        for place, obj in enumerate(_sources(table, source)):
            for options in every:
                slow, fast, again = (
                    _outcome(call, obj, to, options) for call in (convert_slowly, _fast, _fast)
                )
                assert slow == fast == again, (name, place, options)


def _matrices() -> dict[str, Any]:
    x = np.arange(60.0).reshape(12, 5)
    frozen = x.copy()
    frozen.flags.writeable = False
    return {
        "rows": x,
        "columns": np.asfortranarray(x),
        "read-only": frozen,
        "gaps": x[::2],
        "gaps in columns": np.asfortranarray(x)[2:7],
        "reversed": x[::-1],
        "part": np.arange(70.0).reshape(10, 7)[:, :5],
        "whole numbers": x.astype("i2"),
        "booleans": x > 3,
        "complex": x.astype("c16"),
        "float16": x.astype("f2"),
        "longdouble": x.astype("g"),
        "the other byte order": x.astype(">f8"),
        "no rows": x[:0],
        "one row": x[:1],
        "too few": x[:, :4],
        "a vector": x[0],
        "three dimensions": x.reshape(12, 5, 1),
        "misaligned": np.frombuffer(b"\0" + x.tobytes(), "u1")[1:].view("f8").reshape(x.shape),
        "text": np.array([["a"] * 5]),
    }


@pytest.mark.parametrize("to", TABLES)
@pytest.mark.parametrize("source", ["numpy", "torch", "tensorflow"])
def test_the_plan_is_the_oracle_of_matrices_with_names(source: str, to: str) -> None:
    for name in {source, to}:
        pytest.importorskip(name)
    every = [
        list("abcde"),
        tuple("abcde"),
        list("abcda"),
        ["", *"bcde"],
        ["a\0", *"bcde"],
        [*"abcd", 5],
        "abcde",
    ]
    zc.convert(zc.convert(_matrices()["rows"], source), to, names=every[0])
    for name, matrix in _matrices().items():
        try:
            obj = zc.convert(matrix, source)
        except zc.ZeroCopyError:
            continue
        for names in every if name == "rows" else every[:1]:
            slow, fast, again = (
                _outcome(call, obj, to, {"names": names}) for call in (convert_slowly, _fast, _fast)
            )
            assert slow == fast == again, (name, names)


@pytest.mark.parametrize("to", ["pandas", "polars", "pyarrow"])
def test_a_matrix_without_columns_keeps_its_rows(to: str) -> None:
    pytest.importorskip(to)
    assert [len(zc.convert(np.zeros((4, 0)), to, names=[])) for _ in range(3)] == [4, 4, 4]


def test_one_column_with_a_name() -> None:
    for to in TABLES:
        pytest.importorskip(to)
        x = np.arange(4.0).reshape(4, 1)
        for _ in range(2):
            slow, fast = (_outcome(call, x, to, {"names": ["a"]}) for call in (convert_slowly, _fast))
            assert slow == fast, to


@pytest.mark.skipif(core is None, reason="the core has these routes")
@pytest.mark.parametrize("to", TABLES)
def test_matrices_with_names_have_a_route(to: str) -> None:
    pytest.importorskip(to)
    x = np.arange(6.0).reshape(3, 2)
    for _ in range(2):
        zc.convert(x, to, names=["a", "b"])
    assert routes_of(to, {"names": ["a", "b"]})[np.ndarray] is not NO_ROUTE
    with zc.monitor.record() if hasattr(zc.monitor, "record") else warnings.catch_warnings():
        assert _values(zc.convert(x, to, names=["a", "b"])) == _values(zc.convert(x, to, names=("a", "b")))


def test_frames_of_the_private_constructor_are_equal() -> None:
    pd = pytest.importorskip("pandas")
    from zerocopy._frameworks.pandas import fast_path

    x, y = np.arange(3.0), pd.arrays.ArrowExtensionArray(pa.chunked_array([["a", None, "c"]]))
    for arrays in ([x, x], [x, y], [y, y], [np.arange(3), x]):
        public, private = (
            build(pd)(("a", "b"), list(arrays)) for build in (fast_path.public_frame, fast_path.private_frame)
        )
        pd.testing.assert_frame_equal(public, private)
        assert [len(f._mgr.blocks) for f in (public, private)] == [2, 2]
        assert public.columns.equals(private.columns)
        assert public.index.equals(private.index)
        for frame in (public, private):  # both alias, and pandas can work with them
            assert not isinstance(arrays[0], np.ndarray) or np.shares_memory(frame["a"].to_numpy(), arrays[0])
            frame.sort_values("a").assign(c=1).loc[1:].describe()
    build = fast_path.private_frame(pd)
    first, second = build(("a", "b"), [x, x]), build(("a", "b"), [x, x])
    first.columns.name = "k"
    assert second.columns.name is None
    second["c"] = second["a"] + 1
    assert list(first) == ["a", "b"]
    assert fast_path.frame_builder() is not None


@pytest.mark.skipif(core is None, reason="the core has these routes")
@pytest.mark.parametrize(("source", "to"), [(a, b) for a in TABLES for b in TABLES if a != b])
def test_tables_of_numbers_and_text_have_a_route(source: str, to: str) -> None:
    for name in {source, to}:
        pytest.importorskip(name)
    (table, *_) = _sources(_tables()["numbers"], source)
    for _ in range(2):
        zc.convert(table, to)
    route = routes_of(to, {})[type(table)]
    assert route is not NO_ROUTE
    assert type(route(table)) is type(zc.convert(table, to))


def test_chunks_of_dates_and_text_have_a_route_to_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("polars")
    table = _tables()["chunks of dates and text"]
    expected = zc.convert(table, "polars")
    target = registry.by_name("polars")
    monkeypatch.setattr(target, "column_reasons", lambda column: pytest.fail("the plan was made"))
    result = zc.convert(table, "polars")
    assert result.equals(expected)
    assert result.schema == expected.schema
    assert zc.shares_memory(table["e"], result["e"])


def test_a_result_keeps_the_memory_of_its_source() -> None:
    nanoarrow = pytest.importorskip("nanoarrow")
    for to in ("numpy", "pyarrow", "polars", "pandas"):
        pytest.importorskip(to)
        for _ in range(2):
            x = np.arange(5000.0)
            table = nanoarrow.Array(pa.table({"a": x, "b": x + 1}))
            result = zc.convert(table, to)
            del table, x
            np.random.default_rng(0).random(50_000)  # new memory would reuse what was freed
            assert list(zc.convert(result, "numpy")["b"][:3]) == [1.0, 2.0, 3.0]


def test_a_query_runs_once() -> None:
    duckdb = pytest.importorskip("duckdb")
    runs: list[int] = []

    def tick(x: int) -> int:
        runs.append(x)
        return x

    with duckdb.connect() as con:
        con.create_function("tick", tick, ["BIGINT"], "BIGINT", side_effects=True)
        relation = con.sql("SELECT tick(7) AS a, 'x' AS b")
        for to in ("pyarrow", "polars", "pandas", "nanoarrow"):
            for _ in range(3):
                runs.clear()
                zc.convert(relation, to)
                assert runs == [7], to


@pytest.mark.parametrize(("source", "to"), [("pandas", "polars"), ("polars", "pandas")])
def test_a_series_keeps_its_name(source: str, to: str) -> None:
    module = pytest.importorskip(source)
    pytest.importorskip(to)
    for values in ([1.5, 2.5], ["a", None], [1, 2]):
        for name in ("x", "", "y"):
            for _ in range(2):
                series = (
                    module.Series(values, name=name) if source == "pandas" else module.Series(name, values)
                )
                assert (zc.convert(series, to).name or "") == name
