"""The calls of messages about the objects of each framework work when pasted."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from helpers.tiers import sampled

import zerocopy as zc

pytest.importorskip("pyarrow")
fix_cases = pytest.importorskip("helpers.fix_cases")  # it needs pyarrow
fix_objects = pytest.importorskip("helpers.fix_objects")

MODULES = fix_objects.modules()
TARGETS = [
    name
    for name in ("torch", "jax", "numpy", "pyarrow", "polars", "pandas", "tensorflow", "duckdb")
    if importlib.util.find_spec(name)
]


_settings = pytest.fixture(autouse=True)(fix_cases.default_settings)


@pytest.mark.parametrize("module", MODULES)
def test_the_fixes_of_objects_work_when_pasted(module: str) -> None:
    """The objects include masked, ragged and sparse arrays, text, and buffers without attributes."""
    cases = list(fix_cases.object_cases(module, TARGETS))
    _, problems = fix_cases.walk(case for (case,) in sampled(60, cases, first=len(module)))
    assert not problems, "\n".join(problems)


def test_the_fixes_of_masked_columns_are_one_call() -> None:
    masked = {"a": np.ma.masked_equal(np.arange(3), 1), "b": np.ma.masked_equal(np.arange(3.0), 2)}
    with pytest.raises(zc.LossyConversionError, match=r"column 'a'.*column 'b'") as caught:
        zc.convert(masked, "polars")
    assert len(caught.value.calls) == 2  # fewer rows of one column do not make a table
    assert not fix_cases.follow(fix_cases.Case("masked", lambda: masked, "polars"), caught.value)


@pytest.mark.parametrize("source", ["pandas", "pyarrow", "polars", "duckdb"])
@pytest.mark.parametrize("form", ["column", "table"])
def test_the_fix_of_nulls_fills_booleans_with_a_boolean(source: str, form: str) -> None:
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip(source)
    pytest.importorskip("torch")
    booleans = pa.chunked_array([[True, None]])
    values = booleans if form == "column" else pa.table({"x": booleans, "n": [1, 2]})
    x = zc.convert(values, source)
    if form == "column" and source == "duckdb":
        x = x.project("1 as n, *")
    error = fix_cases.attempt(lambda: zc.convert(x, "torch", dtype="float32"))
    (fill,) = [call for call in error.calls if "fill" in call or "coalesce" in call]
    assert "False" in fill
    assert "fills them with False" in error.remedy
    result = fix_cases.paste(fill, x, fix_cases.Recorder())
    columns = list(result.values()) if isinstance(result, dict) else [result]
    assert [1.0, 0.0] in [column.tolist() for column in columns]


@pytest.mark.parametrize("source", ["pyarrow", "pandas", "polars"])
@pytest.mark.parametrize("form", ["column", "table"])
@pytest.mark.parametrize("kind", ["categories", "times", "text"])
def test_the_fixes_of_misaligned_columns_keep_their_encoding(source: str, form: str, kind: str) -> None:
    pytest.importorskip("tensorflow")
    pa = pytest.importorskip("pyarrow")
    words = pa.array(["a", "b", "c"])
    times = pa.array([1, 2, 3], pa.timestamp("us"))
    array = {"categories": words.dictionary_encode(), "times": times, "text": words}[kind].slice(1)
    x = zc.convert(array if form == "column" else pa.table({"x": array, "n": [1, 2]}), source)
    for options in ({}, {"encode": True}):
        case = fix_cases.Case(source, lambda: x, "tensorflow", {"copy": False, **options})
        _, problems = fix_cases.walk([case])
        assert not problems, "\n".join(problems)
        error = fix_cases.attempt(lambda options=options: zc.convert(x, "tensorflow", copy=False, **options))
        assert not any("zc.convert(zc.convert(" in call for call in error.calls)


def _frames_of_twice() -> dict[str, Any]:
    import pyarrow as pa

    frames = {"pyarrow": pa.table([[1.0], [2.0]], names=["x", "x"])}
    frames["batch"] = frames["pyarrow"].to_batches()[0]
    if importlib.util.find_spec("pandas"):
        import pandas as pd

        frames["pandas"] = pd.DataFrame([[1.0, 2.0]], columns=["x", "x"])
        frames["levels"] = pd.DataFrame([[1.0, 2.0]], columns=[["x", "x"], ["y", "y"]])
        frames["three"] = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["x", "x", "x_1"])
    if importlib.util.find_spec("duckdb"):
        import duckdb

        frames["duckdb"] = duckdb.sql("select 1.0::double as x, 2.0::double as x")
    return frames


@pytest.mark.parametrize("frame", _frames_of_twice().values(), ids=list(_frames_of_twice()))
@pytest.mark.parametrize("to", ["numpy", "torch", "polars", "duckdb", "xarray", "pyarrow.Array"])
def test_the_fix_of_columns_of_one_name_numbers_the_names(frame: Any, to: str) -> None:
    pytest.importorskip(to.partition(".")[0])
    error = fix_cases.attempt(lambda: zc.convert(frame, to))
    if error is None:
        return  # a relation for DuckDB
    assert error.code == "duplicate-names"
    (call,) = error.calls
    assert "numbers the names" in error.remedy
    result = fix_cases.paste(call, frame, fix_cases.Recorder())
    names = result.keys() if isinstance(result, dict) else getattr(result, "columns", None)
    names = list(result.data_vars) if names is None or to == "xarray" else list(names)
    assert len({*names}) == len(names) == len(getattr(frame, "columns", [0, 1]))
    assert all(str(name).endswith(f"_{i}") for i, name in enumerate(names))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "int64", "uint8"])
@pytest.mark.parametrize("to", ["numpy", "torch", "pyarrow", "jax"])
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_the_fix_of_a_storage_aliases_its_memory(dtype: str, to: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip(to)
    tensor = torch.ones(3).to(getattr(torch, dtype))
    typed = torch.TypedStorage(wrap_storage=tensor.untyped_storage(), dtype=tensor.dtype, _internal=True)
    for storage, expected in ((typed, tensor), (tensor.untyped_storage(), tensor.view(torch.uint8))):
        case = fix_cases.Case("storage", lambda storage=storage: storage, to)
        error = fix_cases.attempt(lambda storage=storage: zc.convert(storage, to))
        assert error.code == "not-an-array"
        assert not fix_cases.follow(case, error)
        alias = fix_cases.paste(error.calls[0].replace(f'"{to}"', '"torch"'), storage, fix_cases.Recorder())
        assert torch.equal(alias, expected)
        assert alias.data_ptr() == tensor.data_ptr()
