"""One call of a message removes all obstacles: those that follow from a change of the object too."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy import handover, registry

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("jax")
fix_cases = pytest.importorskip("helpers.fix_cases")  # it needs pyarrow

TARGETS = (
    "numpy",
    "torch",
    "polars",
    "pandas",
    "pyarrow",
    "pyarrow.Tensor",
    "duckdb",
    "nanoarrow",
    "scipy",
    "sparse",
)


_settings = pytest.fixture(autouse=True)(fix_cases.default_settings)


def problems_of(make: Callable[[], Any], to: str, **options: Any) -> list[str]:
    """Return the calls of a refusal that do not work by themselves; none if it is not refused."""
    if not registry.by_name(to.partition(".")[0]).installed():
        pytest.skip(f"{to} is not installed")
    return fix_cases.first_fixes(fix_cases.Case("x", make, to, options))


def error_of(x: Any, to: str, **options: Any) -> zc.ZeroCopyError:
    with pytest.raises(zc.ZeroCopyError) as caught:
        zc.convert(x, to, **options)
    return caught.value


def _masked(dtype: Any) -> Callable[[], Any]:
    return lambda: np.ma.masked_array(np.zeros(2, dtype), np.ones(2, bool))


RECORDS = [("x", "f4"), ("n", "i4")]
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"copy": False},
    {"encode": True},
    {"encode": "bytes"},
    {"nulls": 0},
    {"layout": "columns"},
    {"layout": "matrix"},
)


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("dtype", ["f8", "i4", "?", "c8", ">f4"])
def test_the_fixes_of_masked_arrays_fit_the_options_and_the_type(dtype: str, to: str) -> None:
    pytest.importorskip("duckdb")
    problems = [each for options in OPTIONS for each in problems_of(_masked(dtype), to, **options)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("to", ["numpy", "torch", "polars", "pyarrow", "duckdb", "jax"])
@pytest.mark.parametrize("others", [{}, {"b": np.arange(2)}], ids=["alone", "others"])
def test_the_fixes_of_a_dict_of_masked_records_fit_the_options(to: str, others: dict[str, Any]) -> None:
    options = [{}, {"nulls": 0}, {"layout": "columns"}, {"layout": "matrix"}]
    make = _masked(RECORDS)
    for each in options[: 3 if others else 4]:
        assert not problems_of(lambda: {"a": make(), **others}, to, **each)


@pytest.mark.parametrize("source", ["numpy", "dict", "pyarrow", "pandas"])
@pytest.mark.parametrize(
    "options", [{"encode": "bytes"}, {"nulls": 0}, {"dtype": "float16"}, {"encode": True}], ids=str
)
def test_half_floats_to_duckdb_have_one_call(source: str, options: dict[str, Any]) -> None:
    pytest.importorskip("duckdb")
    values = np.ones(3, "f2")
    x = values if source == "numpy" else {"a": values}
    x = zc.convert(x, source) if source not in ("numpy", "dict") else x
    error = error_of(x, "duckdb", **options)
    assert error.calls
    assert not problems_of(lambda: x, "duckdb", **options)


@pytest.mark.parametrize("layout", ["matrix", "by column", "records", "columns"])
@pytest.mark.parametrize("values", [("f4", "f4"), ("f4", "f8"), ("i4", "f4")], ids=str)
@pytest.mark.parametrize("which", ["a", "b", "ab"])
def test_columns_that_require_grad_are_named(layout: str, values: tuple[str, str], which: str) -> None:
    torch = pytest.importorskip("torch")
    x = {name: torch.from_numpy(np.arange(3).astype(dtype)) for name, dtype in zip("ab", values, strict=True)}
    for name in which:
        if not x[name].is_floating_point():
            pytest.skip("integers have no gradient")
        x[name].requires_grad_()
    options = {"layout": "matrix", "order": "F"} if layout == "by column" else {"layout": layout}
    error = error_of(x, "numpy", **options)
    assert [label for label, _ in error.columns.items()] == [*which]
    assert all(f"column {name!r} requires grad" in error.why for name in which)
    assert not problems_of(lambda: x, "numpy", **options)


TABLES: dict[str, dict[str, Any]] = {
    "text": {"x": np.array(["a", "b"]), "n": np.array([0.0, 2.0])},
    "dates": {"x": np.arange(2).astype("M8[s]"), "n": np.array([0, 2])},
    "numbers": {"x": np.array([0, 1], "i4"), "n": np.array([0.0, 2.0], "f4")},
}


@pytest.mark.parametrize("to", ["scipy", "sparse"])
@pytest.mark.parametrize("source", ["pandas", "pyarrow", "polars", "records"])
@pytest.mark.parametrize("name", [*TABLES])
def test_the_fixes_of_tables_to_sparse_targets_work(name: str, source: str, to: str) -> None:
    columns = TABLES[name]
    x = zc.soa_to_aos(columns, [(k, v.dtype) for k, v in columns.items()]) if source == "records" else None
    x = zc.convert(columns, source) if x is None else x
    options = [
        {},
        {"encode": True},
        {"encode": "bytes"},
        {"layout": "records"},
        {"layout": "columns", "encode": True},
    ]
    problems = [each for given in options for each in problems_of(lambda: x, to, **given)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("to", ["scipy", "sparse"])
@pytest.mark.parametrize("dtype", [">f4", ">i8", ">c8", ">u2", ">f2"])
@pytest.mark.parametrize("shape", [(), (3,), (3, 2)], ids=str)
def test_arrays_of_the_other_byte_order_become_sparse(shape: tuple[int, ...], dtype: str, to: str) -> None:
    pytest.importorskip(to)
    x = np.ones(shape, dtype)
    for options in ({}, {"copy": False}):
        error = error_of(x, to, **options)
        (call,) = error.calls
        assert fix_cases.paste(call, x, fix_cases.Recorder()).nnz == x.size
        assert error.calls == zc.explain(x, to, **options).error.calls  # type: ignore[union-attr]


@pytest.mark.parametrize("to", ["polars", "pyarrow", "duckdb", "nanoarrow"])
@pytest.mark.parametrize(
    "names", [("c8",), ("c8", "c16"), ("c8", "f4"), (">c8", "i4"), (("c8", (2,)), "f4")], ids=str
)
def test_complex_fields_of_records_become_pairs(names: tuple[Any, ...], to: str) -> None:
    fields = [(f"f{i}", *(kind if isinstance(kind, tuple) else (kind,))) for i, kind in enumerate(names)]
    x = np.zeros(3, fields)
    x["f0"] = 1 + 2j
    assert not problems_of(lambda: x, to)
    result = fix_cases.paste(error_of(x, to).calls[0], x, fix_cases.Recorder())
    pairs = np.asarray(zc.convert(result, "pyarrow.Table").column("f0").to_pylist())
    assert pairs.reshape(3, -1, 2)[:, 0].tolist() == [[1, 2]] * 3


@pytest.mark.parametrize("to", ["polars", "pyarrow", "duckdb", "nanoarrow"])
@pytest.mark.parametrize(
    "x", [np.eye(3, dtype="c8"), np.ones((2, 3), ">c16"), np.ones((1, 2), "c8")], ids=str
)
def test_a_complex_matrix_becomes_columns_of_pairs(x: Any, to: str) -> None:
    for options in ({}, {"copy": False}):
        assert not problems_of(lambda: x, to, **options)


@pytest.mark.parametrize("to", ["polars", "pyarrow", "duckdb", "nanoarrow"])
@pytest.mark.parametrize("name", ["bool matrix", "awkward records", "awkward lists", "awkward text"])
def test_the_fixes_of_copy_false_do_not_copy_twice(name: str, to: str) -> None:
    ak = pytest.importorskip("awkward")
    made = {
        "bool matrix": np.eye(3, dtype=bool),
        "awkward records": ak.Array([{"x": True, "n": 1}, {"x": False, "n": 2}]),
        "awkward lists": ak.Array([[1], [2, 3]]),
        "awkward text": ak.Array(["a", "b"]),
    }
    assert not problems_of(lambda: made[name], to, copy=False)


@pytest.mark.parametrize("to", ["polars", "pandas", "xarray"])
def test_types_that_a_target_lacks_have_a_call_with_a_type(to: str) -> None:
    pytest.importorskip(to)
    torch = pytest.importorskip("torch")
    for dtype in (torch.bfloat16, torch.float8_e5m2, torch.complex64):
        array = torch.ones(2).to(dtype)
        for x in (array, {"a": array}, {"a": array, "b": array}):
            error = fix_cases.attempt(lambda x=x: zc.convert(x, to))
            if error is None:
                continue
            assert "a type that both have" not in str(error)
            assert not problems_of(lambda x=x: x, to)


@pytest.mark.full
@pytest.mark.parametrize("to", TARGETS)
def test_each_call_of_a_sample_is_that_of_the_object(to: str) -> None:
    """A sample stands for the object of a fix: what it is refused for, the object is refused for too."""
    problems = []
    arrays = fix_cases.arrays()
    for name, options in itertools.product(arrays, OPTIONS):
        error = fix_cases.attempt(lambda n=name, o=options: zc.convert(arrays[n](), to, **o))
        for code in error.calls if error is not None and "also, " in error.why else ():
            then = fix_cases.attempt(
                lambda c=code, n=name: fix_cases.paste(c, arrays[n](), fix_cases.Recorder())
            )
            problems += [] if then is None else [f"{name} {options}: {code}: {then}"]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("to", ["polars", "pandas", "duckdb", "pyarrow.Table"])
@pytest.mark.parametrize(
    "x",
    [
        {"x": {"a": np.arange(2), "b": [0.5, 1.5]}, "n": np.arange(2)},
        {"x": {"a": ["s", "t"]}},
        {"x": [1, 2], "n": {"s": "a"}},
        {"x": {"a": [1, 2]}, "y": {"b": [True, False]}, "z": {"s": "t"}, "n": [1, 2]},
        {"x": {}, 3: np.arange(2), "n": {"b": np.ones(2)}},
    ],
    ids=str,
)
def test_a_dict_in_a_dict_becomes_a_column_of_structs_or_is_left_out(x: Any, to: str) -> None:
    if to != "pyarrow.Table":
        pytest.importorskip(to)
    assert error_of(x, to).calls
    assert not problems_of(lambda: x, to)
    if len(x) == 1:
        result = fix_cases.paste(error_of(x, to).calls[0], x, fix_cases.Recorder())
        assert zc.convert(result, "pyarrow.Table").to_pylist() == [{"x": {"a": "s"}}, {"x": {"a": "t"}}]


@pytest.mark.parametrize("to", ["numpy", "torch", "polars", "pandas", "pyarrow"])
@pytest.mark.parametrize("rows", [[{"a": 1, "b": 2.0}, None], [None], [None, {"a": 3, "b": None}]], ids=str)
def test_rows_that_are_null_as_a_whole_are_dropped_by_a_call(rows: list[Any], to: str) -> None:
    pa, na = pytest.importorskip("pyarrow"), pytest.importorskip("nanoarrow")
    kind = pa.struct({"a": pa.int64(), "b": pa.float64()})
    x = na.Array(pa.array(rows, kind))
    (call,) = error_of(x, to).calls
    error = fix_cases.attempt(lambda: fix_cases.paste(call, x, fix_cases.Recorder()))
    assert error is None or "null" in error.why  # of the fields


@pytest.mark.parametrize("rows", [[{"a": 1}, None], [{"a": 1}, {"a": 2}], [{"a": {"b": 1}}, None]], ids=str)
def test_shares_memory_reads_structs_with_null_rows(rows: list[Any]) -> None:
    pa, na = pytest.importorskip("pyarrow"), pytest.importorskip("nanoarrow")
    array = pa.array(rows)
    x = na.Array(array)
    assert zc.shares_memory(x, array)
    assert zc.shares_memory(array, x)
    assert zc.shares_memory(x, x)
    assert not zc.shares_memory(x, na.Array(pa.array(rows)))


def test_shares_memory_does_not_compare_the_index_of_a_series() -> None:
    pd = pytest.importorskip("pandas")
    index = pd.Index([0.5, 1.5])
    x = pd.Series([1.0, 2.0], index=index)
    assert not zc.shares_memory(x, index)
    assert zc.shares_memory(x.to_frame(), index)


def test_the_text_of_labels_is_not_evaluated() -> None:
    class Label:
        def __repr__(self) -> str:
            return "run()"

    ran = list[int]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("builtins.run", lambda: ran.append(1), raising=False)
        for to in ("polars", "torch", "pandas"):
            with pytest.raises(zc.ZeroCopyError):
                zc.convert({Label(): np.zeros(3, "g"), "ok": np.arange(3.0)}, to)
    assert not ran


@pytest.mark.parametrize("ndim", [2, 30])
def test_samples_have_one_element(ndim: int) -> None:
    """With two along each dimension, one of 30 dimensions would take 16 GiB."""
    from zerocopy.protocols import array_method

    x = np.zeros((1,) * ndim, "g")
    assert eval(array_method.SAMPLE.format(x="x"), {"x": x, "numpy": np}).size == 1


@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_fixes_of_columns_that_contradict_each_other_are_not_one_call(to: str) -> None:
    """Each column could be the matrix alone; a call that takes one would leave out the other."""
    x = pyarrow.table({"a": [[1], [1, 2]], "b": [[1], [1, 2]]})
    calls = error_of(x, to, layout="matrix").calls
    results = [fix_cases.paste(code, x, fix_cases.Recorder()) for code in calls]
    assert [list(result) for result in results] == [["a", "b"]] * len(calls) != []


@pytest.mark.parametrize("copies", [None, False])
def test_calls_of_a_message_are_planned_once_for_equal_columns(
    copies: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame of 300 numbers and a text: the plan of `encode=True` needs one column of each kind."""
    pl = pytest.importorskip("polars")
    pytest.importorskip("torch")
    planned = []
    original = handover.plan
    monkeypatch.setattr(handover, "plan", lambda *args: planned.append(args) or original(*args))
    frame = pl.DataFrame({f"c{i}": np.arange(64.0) for i in range(300)} | {"t": ["x"] * 64})
    options = {} if copies is None else {"copy": copies}
    plan = zc.explain(frame, "torch", **options)
    assert plan.error is not None
    assert "column 't' is string_view" in plan.error.why
    assert ("the codes of its words are computed" in plan.error.why) is (copies is False)
    assert "encode=" in plan.error.calls[0]
    assert len(planned) < (40 if copies is None else 1000)
