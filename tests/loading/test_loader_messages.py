"""Errors of conversions name the loader, and their fixes are calls of the loader that work."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.pasting import pasted

import zerocopy as zc

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
        (
            "torch",
            {"layout": "matrix", "columns": ["x", "k"], "batch": 2, "shard": (0, 2), "drop_last": True},
        ),
        ("jax", {"columns": ["k"], "batch": 2, "prefetch": 3}),
        ("torch", {"columns": ["x", "when"], "batch": 2, "shuffle": 4, "seed": 1}),
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
