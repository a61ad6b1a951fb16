"""DuckDB: reading a relation runs it; creating one does not copy."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted
from helpers.table_cases import KINDS, SHAPES, shaped, storage
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy import registry
from zerocopy.protocols.arrow_schema import Field, read_schema

duckdb = pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")


@pytest.fixture
def con() -> Any:
    with duckdb.connect() as connection:
        yield connection


@pytest.fixture
def numbers(con: Any) -> Any:
    """A relation with columns of several types, two of them with nulls."""
    return con.sql(
        """select i, i::double / 2 as half, case when i % 2 = 0 then i end as even,
        case when i % 3 = 0 then i::float end as third, i % 2 = 0 as flag, 'text ' || i as s,
        date '2020-01-01' + i::integer as d from range(6) t(i)"""
    )


def counted(con: Any) -> tuple[Any, list[int]]:
    """Return a relation, and a list that grows by each row that it computes."""
    seen: list[int] = []

    def look(x: int) -> int:
        seen.append(x)
        return x

    con.create_function("look", look, ["BIGINT"], "BIGINT", side_effects=True)
    return con.sql("select look(i) as x from range(3) t(i)"), seen


# -- relations to tensors and tables ---------------------------------------------


def test_values_reach_tensors(numbers: Any) -> None:
    pytest.importorskip("torch")
    for target in ("numpy", "torch"):
        converted = zc.convert(numbers, target, columns=["half", "i", "flag"])
        assert list(converted) == ["half", "i", "flag"]
        assert np.asarray(converted["half"]).tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
        assert np.asarray(converted["i"]).dtype == np.int64
        assert np.asarray(converted["flag"]).tolist() == [True, False] * 3


def test_planning_runs_no_query(con: Any) -> None:
    relation, seen = counted(con)
    for target in ("numpy", "pyarrow", "duckdb"):
        assert zc.explain(relation, target).possible
    plan = zc.explain(relation, "numpy")
    assert not plan.zero_copy
    assert "DuckDB copies its results" in str(plan)
    assert any("reading runs it" in warning for warning in plan.warnings)
    assert seen == []
    assert zc.convert(relation, "numpy")["x"].tolist() == [0, 1, 2]
    assert len(seen) == 3


def test_copy_false_is_refused_before_the_query_runs(con: Any) -> None:
    relation, seen = counted(con)
    for target in ("numpy", "pyarrow"):
        with pytest.raises(zc.CopyRequiredError, match="DuckDB copies its results"):
            zc.convert(relation, target, copy=False)
    assert not zc.explain(relation, "numpy", copy=False).possible
    assert seen == []


@pytest.mark.hazard("duckdb#torch-fills-nulls-with-zeros")
def test_hazard_2_duckdb_turns_nulls_into_zeros(con: Any, numbers: Any) -> None:
    torch = pytest.importorskip("torch")
    naive = numbers.select("even", "third").torch()
    assert naive["even"].tolist() == [0, 0, 2, 0, 4, 0]  # 1, 3 and 5 are null
    with pytest.raises(zc.LossyConversionError) as caught:
        zc.convert(numbers, "torch", columns=["i", "even", "third"])
    assert "column 'even' has 3 nulls" in caught.value.why
    assert "column 'third' has 4 nulls" in caught.value.why

    masked = zc.convert(numbers, "torch", columns=["even", "i"], nulls="mask")
    assert masked["even"].mask.tolist() == [False, True] * 3
    assert masked["even"].values[~masked["even"].mask].tolist() == [0, 2, 4]
    assert not masked["i"].mask.any()
    filled = zc.convert(numbers, "torch", columns=["even", "third"], nulls={"even": -1, "third": "nan"})
    assert filled["even"].tolist() == [0, -1, 2, -1, 4, -1]
    assert torch.isnan(filled["third"]).tolist() == [False, True, True, False, True, True]


def test_types_that_tensors_lack_are_encoded(numbers: Any) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="column 's' is string"):
        zc.convert(numbers, "numpy", columns=["s"])
    converted = zc.convert(numbers, "numpy", columns=["s", "d"], encode=True)
    assert converted["s"].to_pylist() == [f"text {i}" for i in range(6)]
    assert (converted["d"].unit, converted["d"].values.tolist()) == ("D", list(range(18262, 18268)))
    city = numbers.select("('c' || i % 2)::enum('c1', 'c0') as c")
    assert zc.convert(city, "numpy", encode=True)["c"].to_pylist() == ["c0", "c1"] * 3


def test_results_in_several_chunks_are_complete(con: Any) -> None:
    """DuckDB returns 131,072 rows per chunk."""
    relation = con.sql("select i, ('e' || i % 3)::enum('e0', 'e1', 'e2') as e from range(300_000) t(i)")
    assert relation.to_arrow_table()["i"].num_chunks > 1
    converted = zc.convert(relation, "numpy", encode=True)
    assert np.array_equal(converted["i"], np.arange(300_000))
    assert np.array_equal(converted["e"].values, np.arange(300_000) % 3)
    table = zc.convert(relation, "pyarrow")
    assert table["i"].num_chunks == relation.to_arrow_table()["i"].num_chunks


@pytest.mark.hazard("duckdb#torch-fills-nulls-with-zeros")
def test_results_share_no_memory(con: Any) -> None:
    con.sql("create table stored as select i from range(4) t(i)")
    relation = con.table("stored").materialize()
    first = zc.convert(relation, "numpy", writable=True)["i"]
    assert first.flags.writeable
    first[:] = 7
    assert zc.convert(relation, "numpy")["i"].tolist() == [0, 1, 2, 3]
    assert con.table("stored").fetchall() == [(0,), (1,), (2,), (3,)]
    con.close()
    gc.collect()
    assert first.tolist() == [7] * 4


def test_relation_is_returned_unchanged_and_copies_are_snapshots(con: Any) -> None:
    relation = con.sql("select random() as x from range(3)")
    assert zc.convert(relation, "duckdb") is relation
    assert relation.fetchall() != relation.fetchall()  # it is a query, not its result
    snapshot = zc.convert(relation, "duckdb", copy=True)
    assert snapshot is not relation
    assert snapshot.fetchall() == snapshot.fetchall()
    times = con.sql("select to_seconds(i) as t from range(2) r(i)")
    assert zc.convert(times, "duckdb", copy=True).fetchall() == times.fetchall()


def test_duplicate_names_of_a_query(con: Any) -> None:
    relation = con.sql("select 1 as a, 2 as a")
    assert zc.convert(relation, "pyarrow").column_names == ["a", "a"]
    with pytest.raises(zc.UnsupportedConversionError, match="several columns are called 'a'"):
        zc.convert(relation, "numpy")


# -- errors ---------------------------------------------------------------------


def test_failing_query_is_reported(con: Any) -> None:
    relation = con.sql("select error('no such luck')::bigint as x")
    assert zc.explain(relation, "numpy").possible  # it did not run
    with pytest.raises(zc.UnsupportedConversionError, match=r"the query failed: .*no such luck") as caught:
        zc.convert(relation, "numpy")
    assert isinstance(caught.value.__cause__, duckdb.Error)
    assert con.sql("select 1").fetchall() == [(1,)]


def test_types_that_no_target_takes_are_refused_before_the_query_runs(con: Any) -> None:
    looks, seen = counted(con)
    texts = looks.query("looks", "select x, x::varchar as s, x::bignum as b from looks")
    with pytest.raises(zc.UnsupportedConversionError, match=r"'s' is string.*'b' is extension"):
        zc.convert(texts, "numpy")
    assert not zc.explain(texts, "numpy").possible
    assert seen == []
    assert zc.convert(texts, "numpy", columns=["x"])["x"].tolist() == [0, 1, 2]


def test_closed_connection_is_reported() -> None:
    connection = duckdb.connect()
    relation = connection.sql("select 1 as x")
    connection.close()
    with pytest.raises(zc.UnsupportedConversionError, match="cannot be used any more") as caught:
        zc.convert(relation, "numpy")
    assert isinstance(caught.value.__cause__, duckdb.Error)
    assert not zc.explain(relation, "numpy").possible


@pytest.mark.hazard("duckdb#one-open-result-for-each-connection")
def test_connection_with_an_open_result_is_refused(con: Any) -> None:
    """A connection has one open result: a conversion refuses a second one, and leaves none open."""
    relation = con.sql("select i from range(5) t(i)")
    reader = relation.to_arrow_reader()
    with pytest.raises(zc.UnsupportedConversionError, match=r"the query failed: .*open result") as caught:
        zc.convert(relation, "numpy")
    assert "con.cursor()" in caught.value.remedy
    reader.close()
    del reader
    zc.convert(relation, "numpy")
    assert con.sql("select 1").fetchall() == [(1,)]


@pytest.mark.parametrize("target", ["numpy", "duckdb", "pyarrow"])
def test_connection_is_not_a_table(con: Any, target: str) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(con.execute("select 1"), target)
    assert "con.sql(query)" in caught.value.remedy
    assert con.fetchall() == [(1,)]  # it was not read
    with pytest.raises(zc.UnsupportedConversionError, match="a table and not one array"):
        zc.view(con.sql("select 1"))


@pytest.mark.hazard("duckdb#silent-changes-of-types-and-values")
@pytest.mark.parametrize(
    ("value", "kind", "remedy"),
    [
        ("1::uhugeint", "UHUGEINT", "VARCHAR"),
        ("'10:00:00+01'::timetz", "TIME WITH TIME ZONE", "TIME"),
        ("'101'::bit", "BIT", "BLOB"),
        ("[{'a': 1::uhugeint}]", "UHUGEINT", "VARCHAR"),
        ("map([1], [1::uhugeint])", "UHUGEINT", "VARCHAR"),
    ],
)
def test_types_that_duckdb_changes_silently_are_refused(con: Any, value: str, kind: str, remedy: str) -> None:
    con.sql(f"select {value} as bad").to_arrow_table()  # DuckDB itself accepts it
    relation = con.sql(f"select 1 as good, {value} as bad")
    with pytest.raises(zc.LossyConversionError, match=f"column 'bad' is {kind}") as caught:
        zc.convert(relation, "pyarrow")
    assert remedy in caught.value.remedy
    assert not zc.explain(relation, "pyarrow").possible
    assert zc.convert(relation.select("good"), "numpy")["good"].tolist() == [1]


_HUGE = "170141183460469231731687303715884105727::hugeint"


@pytest.mark.hazard("duckdb#silent-changes-of-types-and-values")
@pytest.mark.parametrize(
    ("value", "why"),
    [
        (_HUGE, "more than 38 digits"),
        (f"[null, [{_HUGE}]]", "more than 38 digits"),
        ("'infinity'::timestamp", "1 infinite dates"),
        ("'-infinity'::timestamptz", "1 infinite dates"),
        ("'infinity'::timestamp_ns", "1 infinite dates"),
        ("'-infinity'::date", "1 infinite dates"),
        ("{'a': ['infinity'::date, null]}", "1 infinite dates"),
        ("map(['infinity'::date], [1])", "1 infinite dates"),
        ("union_value(a := 'infinity'::date)", "1 infinite dates"),
        ("to_microseconds(9300000000000000)", "past 292 years"),
    ],
)
def test_values_that_duckdb_changes_silently_are_refused(con: Any, value: str, why: str) -> None:
    relation = con.sql(f"select 1 as good, {value} as bad union all select 2, null")
    with pytest.raises(zc.LossyConversionError, match=f"column 'bad' has .*{why}") as caught:
        zc.convert(relation, "pyarrow")
    assert caught.value.asked


def test_nearby_values_are_kept(con: Any) -> None:
    relation = con.sql(
        """select sum(i) as total, date '2020-01-01' as d, timestamptz '2020-01-01 12:00:00+00' as t,
        to_microseconds(9000000000000000) as far, -10000000000000000000000000000000000000::hugeint as huge
        from range(4) r(i)"""
    )
    row = zc.convert(relation, "pyarrow").to_pylist()[0]
    assert (row["total"], row["huge"]) == (6, -(10**37))
    assert (row["d"].isoformat(), row["t"].year, row["far"].nanoseconds) == ("2020-01-01", 2020, 9 * 10**18)


_TYPES = (
    *(f"{sign}{size}" for sign in ("", "u") for size in ("tinyint", "smallint", "integer", "bigint")),
    *("hugeint", "float", "double", "boolean", "varchar", "blob", "uuid", "decimal(4,1)", "decimal(38,3)"),
    *("date", "time", "time_ns", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz"),
    *("interval", "integer[]", "integer[3]", "varchar[][]", "enum('a', 'b')", "map(integer, varchar)"),
    *("struct(a integer, b varchar[])", "union(a integer, b varchar)", "bignum", "geometry", "variant"),
)


@pytest.mark.parametrize("kind", _TYPES)
def test_types_are_known_before_the_query_runs(con: Any, kind: str) -> None:
    relation = con.sql(f"select null::{kind} as x")
    expected = read_schema(relation.to_arrow_table().schema.field("x").__arrow_c_schema__())
    table = registry.by_name("duckdb").table(relation)
    assert table is not None

    def formats(field: Field | None) -> Any:
        if field is None:
            return None
        arrow_format = "tsu:tz" if field.timezone else field.format
        return (
            arrow_format,
            field.extension,
            [formats(child) for child in field.children],
            formats(field.dictionary),
        )

    assert formats(table.columns[0].field) == formats(expected)


# -- into relations --------------------------------------------------------------


def test_relation_aliases_its_source_with_a_warning() -> None:
    values = np.arange(5)
    table = pa.table({"x": values, "s": list("abcde")})
    plan = zc.explain(table, "duckdb")
    assert plan.zero_copy
    assert plan.copied_bytes == 0
    assert any("writing to the source" in warning for warning in plan.warnings)
    relation = zc.convert(table, "duckdb", copy=False)
    assert isinstance(relation, duckdb.DuckDBPyRelation)
    assert relation.sum("x").fetchall() == [(10,)]
    values[0] = 100
    assert relation.sum("x").fetchall() == [(110,)]

    copied = zc.explain(table, "duckdb", copy=True)
    assert copied.copied_bytes == table.nbytes
    assert not any("writing to the source" in warning for warning in copied.warnings)
    snapshot = zc.convert(table, "duckdb", copy=True)
    values[0] = 0
    assert snapshot.sum("x").fetchall() == [(110,)]


def test_tensors_become_columns_in_place() -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.arange(3), np.array([0.5, 1.5, 2.5])
    relation = zc.convert({"x": x, "y": y}, "duckdb")
    assert relation.fetchall() == [(0, 0.5), (1, 1.5), (2, 2.5)]
    x[0], y[0] = 7, 8.5
    assert relation.fetchall()[0] == (7, 8.5)
    assert zc.convert(np.arange(2), "duckdb").columns == ["column_0"]
    two = zc.convert(np.arange(6.0).reshape(3, 2), "duckdb", names=["a", "b"])
    assert two.order("a").fetchall() == [(0.0, 1.0), (2.0, 3.0), (4.0, 5.0)]
    assert zc.convert({"b": np.array([True, False])}, "duckdb").fetchall() == [(True,), (False,)]


def test_tensors_keep_their_shape() -> None:
    values = np.arange(48.0).reshape(2, 4, 3, 2)
    relation = zc.convert({"x": values}, "duckdb", copy=False)
    assert str(relation.types[0]) == "DOUBLE[2][3][4]"
    values[1, 3, 2, 1] = -1
    assert np.array_equal(zc.convert(relation, "numpy")["x"], values)


@pytest.mark.parametrize(("kind", "shape"), [*sampled(3, [*KINDS], [*SHAPES])])
def test_each_type_in_each_shape_keeps_its_values(kind: str, shape: str) -> None:
    table = pa.table({"x": shaped(KINDS[kind], shape)})
    if kind in ("halffloat", "decimal256(50, 2)"):
        with pytest.raises(zc.UnsupportedConversionError, match=r"column 'x' is .*, which DuckDB lacks"):
            zc.convert(table, "duckdb")
        return
    plan = zc.explain(table, "duckdb")
    assert plan.copied_bytes == 0
    assert all(not leaf.reasons for leaf in plan.leaves.values())
    result = zc.convert(table, "duckdb", copy=False).to_arrow_table()["x"]
    column = table["x"]
    if kind.startswith("duration"):
        unit = {"s": 10**9, "us": 10**3}[column.type.unit]
        assert [v and v.nanoseconds for v in result.to_pylist()] == [v and v * unit for v in storage(column)]
    elif kind.startswith("extension<arrow.fixed"):
        expected = [v and np.reshape(v, (2, 3)).tolist() for v in storage(column)]
        assert result.to_pylist() == expected
    else:
        assert result.to_pylist() == column.to_pylist()
    lost = not result.type.equals(column.type) and "list" not in kind
    if lost and kind not in ("list<item: int16>",):
        assert any(warning.startswith("column 'x': ") for warning in plan.warnings), plan.warnings


@pytest.mark.hazard("duckdb#dictionaries-of-structs")
def test_dictionaries_of_structs_are_refused() -> None:
    """A query on null codes would fail, and invalidate the whole database."""
    words = pa.array([{"a": 1}, None, {"a": 2}])
    table = pa.table({"x": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2], pa.int8()), words)})
    assert not zc.explain(table, "duckdb").possible
    with pytest.raises(zc.UnsupportedConversionError, match="decode it in Arrow"):
        zc.convert(table, "duckdb")
    assert zc.convert(table["x"].combine_chunks().dictionary_decode(), "duckdb").fetchall()[0] == ({"a": 1},)


@pytest.mark.hazard("duckdb#silent-changes-of-types-and-values")
def test_losses_are_warned_of() -> None:
    table = pa.table(
        {
            "city": pa.array(["Bern", "Oslo"]).dictionary_encode(),
            "when": pa.array([1, 2], pa.timestamp("ms", "Europe/Oslo")),
            "image": pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((2, 2, 3))),
            "id": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16] * 2, pa.binary(16))),
            "nested": pa.array([["a"], None], pa.list_(pa.large_string())),
        },
        metadata={"made": "here"},
    )
    message = "\n".join(zc.explain(table, "duckdb").warnings)
    for words in (
        "column 'city': categories become plain values",
        "column 'when': DuckDB keeps the instants and not the zone Europe/Oslo",
        "column 'image': tensors become lists",
        "column 'id': UUIDs come back as text",
        "column 'nested': DuckDB has one type of text",
        "DuckDB has no metadata",
    ):
        assert words in message
    plain = pa.table({"x": [1.0]})
    assert len(zc.explain(plain, "duckdb").warnings) == 1  # the warning about the alias


@pytest.mark.hazard("duckdb#silent-changes-of-types-and-values")
@pytest.mark.parametrize(
    "array",
    [
        pa.array([1000, 1500, None, -1], pa.duration("ns")),
        pa.array([[1000], [1500, 7], None], pa.list_(pa.duration("ns"))),
        pa.array([pa.MonthDayNano([1, 2, n]) for n in (1000, 1001, -1)]),
        pa.array([[("a", 1000)], [("b", 1), ("c", 2)]], pa.map_(pa.string(), pa.duration("ns"))),
    ],
    ids=str,
)
def test_durations_that_duckdb_would_truncate_are_refused(array: Any) -> None:
    table = pa.table({"t": array})
    with pytest.raises(
        zc.LossyConversionError, match="'t' has 2 durations with fractions of a microsecond"
    ) as caught:
        zc.convert(table, "duckdb")
    assert not zc.explain(table, "duckdb").possible
    for call in caught.value.calls:
        pasted(call, {"x": table, "zc": zc, "pyarrow": pa})
    whole = pa.table({"t": pa.array([1000, None, -2000, 5][:3], pa.duration("ns"))})
    converted = zc.convert(whole, "duckdb", copy=False).to_arrow_table()["t"].to_pylist()
    assert [v and v.nanoseconds for v in converted] == [1000, None, -2000]
    sliced = table.slice(0, 1)
    assert len(zc.convert(sliced, "duckdb").fetchall()) == 1  # only that row is a whole number


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1.0]], pa.list_(pa.float16())),
        pa.array([1], pa.decimal256(20, 1)),
        pa.array([100], pa.decimal128(5, -2)),
        pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]),
        np.ones(2, "f2"),
    ],
    ids=lambda a: str(getattr(a, "type", a.dtype if hasattr(a, "dtype") else a)),
)
def test_types_that_duckdb_lacks_are_named(array: Any) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match=r"column 'x' .*, which DuckDB lacks") as caught:
        zc.convert({"x": array}, "duckdb")
    assert caught.value.remedy


@pytest.mark.hazard("duckdb#silent-changes-of-types-and-values")
@pytest.mark.parametrize(
    ("names", "accepted"),
    [
        (["a", "a"], False),
        (["a", "A"], False),
        (["", "b"], False),
        (["a\0b", "c"], False),
        (["É", "é"], True),
        (["x y", 'say "x"'], True),
    ],
)
def test_names_that_duckdb_would_change_are_refused(names: list[str], accepted: bool) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=names)
    if accepted:
        assert zc.convert(table, "duckdb").columns == names
        return
    assert duckdb.connect().from_arrow(table).columns != names
    assert not zc.explain(table, "duckdb").possible
    with pytest.raises(zc.UnsupportedConversionError, match=r"and would rename one|which DuckDB would"):
        zc.convert(table, "duckdb")


def test_tables_without_columns_are_refused() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="no columns"):
        zc.convert(pa.table({}), "duckdb")


# -- lifetimes, threads, connections ---------------------------------------------


def test_relation_keeps_its_source_alive_and_releases_it() -> None:
    values = np.arange(1000)
    alive = weakref.ref(values)
    relation = zc.convert({"x": values}, "duckdb")
    derived = relation.filter("x >= 998")
    del values, relation
    gc.collect()
    assert alive() is not None
    assert derived.fetchall() == [(998,), (999,)]
    del derived
    gc.collect()
    assert alive() is None


def test_sql_finds_and_joins_converted_relations() -> None:
    ages = zc.convert({"k": np.array([1, 2]), "age": np.array([10, 20])}, "duckdb")
    sizes = zc.convert({"k": np.array([2, 3]), "size": np.array([0.2, 0.3])}, "duckdb")
    assert duckdb.sql("select * from ages join sizes using (k)").fetchall() == [(2, 20, 0.2)]
    del ages, sizes


@pytest.mark.hazard("duckdb#one-open-result-for-each-connection")
def test_open_reader_does_not_block_a_conversion() -> None:
    reader = duckdb.sql("select * from range(10)").to_arrow_reader()
    assert zc.convert({"x": np.arange(3)}, "duckdb").fetchall() == [(0,), (1,), (2,)]
    reader.close()


@pytest.mark.hazard("duckdb#one-open-result-for-each-connection")
def test_threads_use_separate_connections() -> None:
    start = threading.Barrier(4)
    converted: list[Any] = []

    def work(n: int) -> None:
        start.wait()
        for _ in range(5):
            relation = zc.convert({"x": np.full(200_000, n)}, "duckdb")
            converted.append((n, zc.convert(relation, "numpy")["x"].sum()))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(converted) == 20
    assert all(total == n * 200_000 for n, total in converted)


def test_a_relation_on_the_connection_of_the_caller(con: Any) -> None:
    con.sql("create table t (x bigint)")
    result = zc.convert({"x": np.arange(3)}, "duckdb", connection=con)
    con.sql("insert into t select * from result")
    result.insert_into("t")
    assert con.sql("select sum(x) from t").fetchall() == [(6,)]
    assert zc.explain({"x": np.arange(3)}, "duckdb", connection=con).zero_copy
    # Without the option, the result is on the default connection, which this one cannot read.
    other = zc.convert({"x": np.arange(3)}, "duckdb")
    with pytest.raises(duckdb.Error, match="another database"):
        con.sql("select * from other")
    con.register("moved", zc.convert(other, "duckdb", connection=con))
    assert con.sql("select max(x) from moved").fetchall() == [(2,)]
    con.register("series", zc.convert(np.arange(3), "duckdb", connection=con))
    assert con.sql("select sum(column_0) from series").fetchall() == [(3,)]


def test_a_connection_that_cannot_be_used_is_refused() -> None:
    x = {"x": np.arange(3)}
    with duckdb.connect() as closed:
        pass
    for connection, why in [(closed, "connection= cannot be used"), (3, "int, which is not a connection")]:
        plan = zc.explain(x, "duckdb", connection=connection)
        with pytest.raises(zc.UnsupportedConversionError, match=why) as caught:
            zc.convert(x, "duckdb", connection=connection)
        assert not plan.possible
        assert str(plan.error) == str(caught.value)
    for to in ("polars", "numpy"):
        with pytest.raises(zc.UnsupportedConversionError, match=f"{to} has no connections"):
            zc.convert(x, to, connection=closed)


def test_a_connection_is_not_kept_alive() -> None:
    connection = duckdb.connect()
    reference = weakref.ref(connection)
    converter = zc.converter(pa.schema([("x", pa.int64())]), "duckdb", connection=connection)
    assert converter({"x": np.arange(3)}).fetchall() == [(0,), (1,), (2,)]
    del converter, connection
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("start", [0, 3, 2100])
def test_intervals_of_months_days_and_nanoseconds_are_kept(start: int) -> None:
    rows = [None if i % 5 == 0 else (i % 40 - 20, i, i * 1000) for i in range(5000)]
    flat = pa.array(rows, pa.month_day_nano_interval())
    shapes = [flat, pa.StructArray.from_arrays([flat], ["i"]), pa.FixedSizeListArray.from_arrays(flat, 2)]
    for array in [*shapes, pa.ListArray.from_arrays(range(0, 5001, 2), flat)]:
        table = pa.table({"a": array[start:2400]})
        assert zc.convert(zc.convert(table, "duckdb"), "pyarrow")["a"].to_pylist() == table["a"].to_pylist()


@pytest.mark.parametrize("source", ["polars", "pyarrow"])
def test_text_views_with_nulls_and_durations_convert(source: str) -> None:
    """Durations are inspected in nested types, where pyarrow cannot drop the nulls of views."""
    views = {"a": pa.array([b"x", None], pa.binary_view()), "b": pa.array([None, "y"], pa.string_view())}
    struct = pa.StructArray.from_arrays([*views.values(), pa.array([1000, None], pa.duration("ns"))], "abt")
    for column in (struct, pa.LargeListArray.from_arrays([0, 1, 2], struct)):
        table = zc.convert(pa.table({"x": column}), source)
        for _ in range(2):
            rows = zc.convert(table, "duckdb").fetchall()
            first, second = (row[0][0] if isinstance(row[0], list) else row[0] for row in rows)
            assert (first["a"], first["b"], second["a"], second["b"]) == (b"x", None, None, "y")


def test_every_result_in_numpy_is_writable() -> None:
    relation = duckdb.sql("SELECT range AS a, range / 2 AS b FROM range(4)")
    for _ in range(3):
        assert all(array.flags.writeable for array in zc.convert(relation, "numpy").values())


@pytest.mark.parametrize("options", [{}, {"layout": "matrix"}, {"dtype": "float32"}], ids=str)
@pytest.mark.parametrize(
    "to", ["numpy", "torch", "jax", "tensorflow", "pyarrow", "pandas", "polars", "nanoarrow"]
)
def test_a_conversion_runs_the_query_once(con: Any, to: str, options: dict[str, str]) -> None:
    pytest.importorskip(to)
    if options and registry.by_name(to).tables:
        pytest.skip("an option of tensors")
    relation, seen = counted(con)
    for _ in range(3):  # from the second on by the route
        seen.clear()
        zc.convert(relation, to, **options)
        assert len(seen) == 3


@pytest.mark.parametrize("to", ["pandas", "polars", "nanoarrow", "pyarrow"])
def test_settings_of_a_connection_that_change_types(con: Any, to: str) -> None:
    """nanoarrow ends the process when it exports views of text."""
    relation, seen = counted(con)
    texts = relation.query("looks", "select x::varchar as s, x from looks")
    for setting in ("produce_arrow_string_view", "arrow_large_buffer_size", "arrow_lossless_conversion"):
        con.sql(f"set {setting} = true")
        for _ in range(3):
            seen.clear()
            result = zc.convert(texts, to)
            assert len(seen) == 3
            assert zc.convert(result, "pyarrow").to_pydict() == {"s": ["0", "1", "2"], "x": [0, 1, 2]}


@pytest.mark.parametrize("to", ["pandas", "polars", "nanoarrow", "pyarrow", "torch", "jax"])
@pytest.mark.parametrize("rows", [0, 300_000])
def test_results_of_no_batch_and_of_several(con: Any, to: str, rows: int) -> None:
    relation = con.sql(f"select range as a, range / 2 as b from range({rows})")
    for _ in range(3):
        result = zc.convert(relation, to)
        for name, values in {"a": np.arange(rows), "b": np.arange(rows) / 2}.items():
            np.testing.assert_array_equal(zc.convert(result, "numpy")[name], values)


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_null_durations_of_milliseconds(unit: str) -> None:
    values = np.array([1, "NaT", 3], f"m8[{unit}]")
    arrow = pa.array(values)
    pair = pa.StructArray.from_arrays([arrow, pa.array(["a"] * 3).dictionary_encode()], ["part", "name"])
    coded = pa.DictionaryArray.from_arrays(pa.array([2, 1, 0]), arrow)
    hidden = pa.array(values.view(np.int64)).view(arrow.type)  # NaT is a value, below a null
    null_rows = pa.StructArray.from_arrays([hidden], ["part"], mask=pa.array([False, True, False]))
    lists, chunks = pa.FixedSizeListArray.from_arrays(pair, 3), pa.chunked_array([arrow, arrow])
    for column in (values, arrow, arrow[1:], arrow[1:2], chunks, pair, lists, coded, null_rows):
        plan = zc.explain({"x": column}, "duckdb")
        assert any("microseconds" in reason.why for reason in plan.leaves["['x']"].reasons)
        result = zc.convert({"x": column}, "duckdb").fetchall()
        rows = [list(x) if isinstance(x, tuple) else x for (x,) in result]
        assert rows == zc.convert({"x": column}, "pyarrow")["x"].to_pylist()
        with pytest.raises(zc.CopyRequiredError):
            zc.convert({"x": column}, "duckdb", copy=False)
    assert zc.explain({"x": pa.array([1, None, 3], pa.duration(unit))}, "duckdb").zero_copy


def test_decimals_with_a_dtype_are_cast_in_the_query(con: Any) -> None:
    relation = con.sql("SELECT CAST(1.25 AS DECIMAL(18, 2)) AS d")
    error = zc.explain(relation, "numpy", dtype="float64").error
    assert error is not None
    results = [eval(call, {"zc": zc, "x": relation}) for call in error.calls if "CAST" in call]
    assert [result["d"].tolist() for result in results] == [[1.25]]
