"""Every caller gives the result of the plan: `convert` with a route, converters, recorded calls and more."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from helpers.arrays import sample
from helpers.frameworks import HOST, PAIRS
from helpers.option_cases import OPTIONS, TABLE_OPTIONS, tables
from helpers.oracle import (
    CALLERS,
    arrays_of,
    check,
    check_values,
    columns_of_a_dict,
    frames,
    matrices,
    own_objects,
    sources_of,
    tables_of_arrow,
    targets,
    tensors_of_torch,
)
from helpers.tiers import sampled

import zerocopy as zc

pytestmark = pytest.mark.filterwarnings("ignore")
TARGETS = targets()
TABLES = [name for name in ("pandas", "polars", "pyarrow", "duckdb", "nanoarrow") if name in TARGETS]
WITH_DEFAULT: list[dict[str, Any]] = [{}, *OPTIONS, {"dtype": "bfloat16"}]
TABLE_CASES: list[dict[str, Any]] = [
    *({}, {"copy": True}, {"copy": False}, {"writable": True}, {"index": False}),
]
MATRICES: list[dict[str, Any]] = [{"layout": "matrix"}, {"layout": "matrix", "order": "F", "copy": False}]


def first(*names: str) -> int:
    """Return where a case begins in the Latin square of its loops."""
    return sum((*CALLERS, *TARGETS, *HOST).index(name) for name in names)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("source", "to"), PAIRS)
def test_arrays(source: str, to: str, caller: str) -> None:
    warm = zc.convert(sample("f4", (64,)), source)
    cases = sampled(151, WITH_DEFAULT, arrays_of(source), first=first(source, to, caller))
    for options, (x, values) in cases:
        check(x, warm, to, options, caller)
        check_values(x, values, to, options)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("to", HOST)
def test_tensors_of_torch(to: str, caller: str) -> None:
    tensors = tensors_of_torch()
    for options, x in sampled(11, OPTIONS, tensors, first=first(to, caller)):
        if caller == "recorded" and x.is_sparse:
            continue  # the recorder counts it as unchanged, also where convert returns another tensor
        check(x, tensors[-1], to, options, caller)


#: Options that change nothing for most of a target's own objects, for each name that a route can hold.
NEUTRAL: list[dict[str, Any]] = [
    *({"layout": layout} for layout in ("matrix", "columns", "records")),
    *({"layout": "matrix", "copy": copy} for copy in (True, False)),
    {"layout": "matrix", "order": "F"},
    {"layout": "matrix", "dtype": "float32"},
    {"layout": "columns", "writable": True, "device": "cpu"},
    *({"lists": lists} for lists in ("dense", "pad", "ragged")),
    *({"index": index} for index in (True, False)),
    *({"nulls": nulls} for nulls in (0, "nan")),
    {"columns": ["a"]},
    {"names": ["a", "b"]},
]


@pytest.mark.parametrize("caller", [name for name in CALLERS if name != "recorded"])
@pytest.mark.parametrize("framework", TARGETS)
def test_own_objects_with_options_that_change_nothing(framework: str, caller: str) -> None:
    warm, *others = own_objects(framework)
    for options, x in sampled(7, [{}, *NEUTRAL], others, first=first(framework, caller)):
        check(x, warm, framework, options, caller)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("to", TARGETS)
def test_tables(to: str, caller: str) -> None:
    for number, (warm, others) in enumerate(tables(), first(to, caller)):
        for options, table in sampled(97, [{}, *TABLE_OPTIONS], (warm, *others), first=number):
            check(table, warm, to, options, caller)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("to", TARGETS)
def test_columns_and_frames_of_every_dtype_and_label(to: str, caller: str) -> None:
    options = [{}, {"copy": False}, {"copy": True}, {"dtype": "float32"}]
    for number, (warm, others) in enumerate(frames(), first(to, caller)):
        for each, x in sampled(53, options, others, first=number):
            check(x, warm, to, each, caller)


@pytest.mark.parametrize("caller", [name for name in CALLERS if name != "accepts"])  # converts leaves
@pytest.mark.parametrize("to", [*TABLES, "numpy", "torch", "jax"])
def test_dicts_of_columns(to: str, caller: str) -> None:
    if caller == "recorded" and to not in TABLES:
        pytest.skip("counted leaf by leaf: monitor/test_recorded_bytes.py")
    dicts = columns_of_a_dict()
    for each, x in sampled(31, [*TABLE_CASES, *MATRICES], list(dicts.values()), first=first(to, caller)):
        check(x, dicts["arrays"], to, each, caller)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("source", TABLES)
@pytest.mark.parametrize("to", [*TABLES, "numpy", "torch"])
def test_tables_of_each_framework(source: str, to: str, caller: str) -> None:
    options = [*TABLE_CASES, *MATRICES] if to in ("numpy", "torch") else TABLE_CASES
    warm, *_ = sources_of("one type", source)
    forms = 4 if source == "pandas" else 1  # makes twelve of each table
    cases = sampled(23, list(tables_of_arrow()), options, first=first(to, caller))
    for number, (name, each) in enumerate(cases):
        for (x,) in sampled(forms, sources_of(name, source), first=number):
            check(x, warm, to, each, caller)


NAMES: list[Any] = [
    [*"abcde"],
    (*"abcde",),
    [*"abcda"],
    ["", *"bcde"],
    ["a\0", *"bcde"],
    [*"abcd", 5],
    "abcde",
]


@pytest.mark.parametrize("caller", [name for name in CALLERS if name != "accepts"])  # keeps the names' type
@pytest.mark.parametrize("to", TABLES)
@pytest.mark.parametrize("source", ["numpy", "torch", "tensorflow"])
def test_matrices_with_names(source: str, to: str, caller: str) -> None:
    warm = zc.convert(matrices()["rows"], source)
    for matrix, names in sampled(11, list(matrices().values()), NAMES, first=first(to, caller)):
        with suppress(zc.ZeroCopyError):
            x = zc.convert(matrix, source)
            check(x, warm, to, {"names": names}, caller)
