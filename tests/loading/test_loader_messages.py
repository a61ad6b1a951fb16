"""Errors of conversions name the loader, and their fixes are calls of the loader that work."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.pasting import pasted
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy.errors import OptionError
from zerocopy.loading.options import _CHECKS, LoaderOptions

TABLE = pa.table({"n": pa.array([1, None, 3]), "x": [0.5, 1.5, 2.5], "city": ["Bern", "Oslo", "Bern"]})
MATRIX: dict[str, Any] = {"layout": "matrix", "columns": ["n"], "dtype": "float64"}


@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize(
    "options", [{}, {"columns": ["n"]}, {"columns": ["n"], "shuffle": True}, {"columns": ["city"]}, MATRIX]
)
def test_fixes_are_calls_of_the_loader(to: str, options: dict[str, Any]) -> None:
    pytest.importorskip(to)
    with pytest.raises(zc.ZeroCopyError) as caught:
        list(zc.loader(TABLE, to=to, **options))
    assert caught.value.asked.startswith(f"loader(source, to='{to}'")
    assert "convert(" not in str(caught.value)
    assert caught.value.calls
    for code in caught.value.calls:
        source = TABLE.select(options["columns"]) if "columns" in options else TABLE
        names = {"zc": zc, "source": source}
        if len(source.column_names) > 1:
            pasted(code, names)  # its batches may need the fix of another column
        else:
            list(pasted(code, names))


@pytest.mark.parametrize(
    ("to", "options"),
    [
        ("torch", {"layout": "matrix", "columns": ["x", "k"], "batch_size": 2, "rank": 0, "world_size": 2}),
        ("jax", {"columns": ["k"], "batch_size": 2, "prefetch": 3, "drop_last": True}),
        ("torch", {"columns": ["x", "when"], "batch_size": 2, "shuffle": 4, "seed": 1}),
    ],
)
def test_fixes_keep_the_options_of_the_caller(to: str, options: dict[str, Any]) -> None:
    pytest.importorskip(to)
    when = pa.array([0, 1, 2], pa.timestamp("s"))
    source = TABLE.append_column("k", pa.array([1, 2, 3])).append_column("when", when)
    narrow = {"x64": False} if to == "jax" else {}
    with _x64(**narrow), pytest.raises(zc.ZeroCopyError) as caught:
        list(zc.loader(source, to, **options))
    assert caught.value.calls
    for name, value in options.items():
        assert f"{name}={value!r}" in caught.value.asked
    for code in caught.value.calls:
        call = ast.parse(code).body[-1].value  # type: ignore[attr-defined]
        passed = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        assert {name: passed[name] for name in options if name not in ("layout", "columns")} == {
            name: value for name, value in options.items() if name not in ("layout", "columns")
        }
        assert {*passed["columns"]} <= {*options["columns"]}
        with _x64(**narrow):
            exec(code, {"zc": zc, "source": source, "jax": pytest.importorskip("jax")})


def test_fixes_change_a_dict_of_the_caller_that_has_no_literal() -> None:
    words = pa.array(["Bern", "Oslo"])
    encode = {"tag": words, "note": words, "city": words}
    names = {"zc": zc, "source": TABLE.select(["city"]), "encode": encode}
    with pytest.raises(OptionError, match="has no column 'tag'") as caught:
        zc.loader(names["source"], "numpy", encode=encode)
    (code,) = caught.value.calls
    assert len(list(pasted(code, names))) == 1
    names["source"] = pa.table({"city": ["Rome"], "tag": ["Bern"], "note": ["Oslo"]})
    with pytest.raises(zc.LossyConversionError, match="has 'Rome'") as caught:
        list(zc.loader(names["source"], "numpy", encode=encode))
    collects, adds = caught.value.calls
    assert collects != adds
    for code in (collects, adds):
        (batch,) = pasted(code, names)
        assert batch["city"].to_pylist() == ["Rome"]
        assert batch["note"].categories.to_pylist() == ["Bern", "Oslo"]


loader_fixes = pytest.importorskip("helpers.loader_fixes")  # it needs pyarrow
MODULES = (
    "builtins", "numpy", "torch", "tensorflow", "jax", "pyarrow", "pandas", "polars", "duckdb", "nanoarrow",
    "awkward", "scipy", "sparse", "xarray", "dask", "astropy", "PIL", "h5py", "zarr", "datasets",
)  # fmt: skip


@pytest.mark.parametrize("module", MODULES)
def test_the_fixes_of_sources_work_when_pasted(module: str) -> None:
    every = list(loader_fixes.cases(module, ("torch", "numpy")))
    chosen = sampled(max(len(every) // 32, 1), every, first=len(module))
    problems = [problem for (case,) in chosen for problem in loader_fixes.problems_of(case)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ({"x": [0.5], "y": [1]}, {"columns": ["xx", "y"]}),
        ({"x": [0.5]}, {"columns": ["absent"]}),
        ({"s": ["a", None]}, {"encode": True}),
        ({"s": ["a", "b"]}, {"encode": {"s": ["a"]}}),
        ({"s": ["a", "b"], "t": [None, "b"]}, {"encode": {"s": ["a", "b"], "absent": ["c"]}}),
        ({"x": [[1], [2, 3]]}, {"lists": "dense"}),
        ({"x": [0.5]}, {"device": "cuda:99"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["table", "reader", "file"])
def test_a_refused_option_has_a_call_with_another_value(
    source: dict[str, Any], options: dict[str, Any], form: str, tmp_path: Path
) -> None:
    table = pa.table(source)
    if form == "file":
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(table, tmp_path / "x.parquet")
    forms = {"table": lambda: table, "reader": table.to_reader, "file": lambda: tmp_path / "x.parquet"}
    with pytest.raises(zc.ZeroCopyError) as caught:
        list(zc.loader(forms[form](), "numpy", **options))
    assert caught.value.calls
    case = loader_fixes.Case(form, forms[form], "numpy", options)
    assert not loader_fixes.problems_of(case)


@pytest.mark.parametrize("name", [*_CHECKS])
@pytest.mark.parametrize("value", [-1, "nonsense", (), 0.5], ids=str)
def test_the_value_that_a_message_names_is_valid(name: str, value: Any) -> None:
    with pytest.raises(OptionError) as caught:
        LoaderOptions("numpy", **{name: value})
    (option,) = re.findall(rf"{name}=(\([^)]*\)|\[[^]]*\]|{{.*}}|[\w\"]+)", caught.value.remedy)[:1]
    others = {"rank": 0, "world_size": 1} if name in ("rank", "world_size") else {}
    LoaderOptions("numpy", **others | {name: ast.literal_eval(option)})


@contextmanager
def _x64(x64: bool | None = None) -> Iterator[None]:
    """Set JAX's x64 mode, and restore it."""
    if x64 is None:
        yield
        return
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", x64)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize(
    "options",
    [{"nulls": "drop"}, {"layout": "matrix"}, {"dtype": "float32"}, {"encode": True}, {"to": "pyarrow"}],
)
@pytest.mark.parametrize("fields", [[("a", "i4"), ("b", "f8")], []])
def test_records_in_a_dict_are_not_a_column_of_a_table(
    fields: list[tuple[str, str]], options: dict[str, Any]
) -> None:
    records = np.zeros(2, fields)
    for source in ({"r": records}, {"x": np.arange(2), "r": records}):
        with pytest.raises(
            zc.UnsupportedConversionError, match=r"\['r'\]: it is an array of records"
        ) as caught:
            zc.loader(source, **{"to": "numpy", **options})
        assert caught.value.code == "records"
