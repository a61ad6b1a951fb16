"""Private names of other packages (law 6): both sides of each use give the same, and each use is listed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.source_files import PACKAGE, parse

from zerocopy._frameworks._private import uses

HOME = PACKAGE / "_frameworks"
#: Names that their packages document, those of Python's named tuples, and of zerocopy's own class `Copied`.
DOCUMENTED = {
    *("_replace", "_import_from_c", "_export_to_c", "_addr"),
    *("_indices of torch", "_values of torch", "_column of pylibcudf"),
}
#: Names that no public name replaces, and that are used for a property instead of for speed.
WITHOUT_PUBLIC_NAME = {
    "jax": {"_src"},
    "mxnet": {"_LIB"},
    "tensorflow": {"_context", "_initialized"},
    "torch": {
        *("_C", "_functorch", "_is_zerotensor", "_utils", "_builtins", "_current_level", "_subclasses"),
        *("_disable_dynamo", "_are_functorch_transforms_active", "_efficientzerotensor", "_dispatch_keys"),
    },
    "warp": {"_wp_scalar_type_"},
}

#: Converts each object to each target; `private` is the use, whose names are hidden if `hidden` is True.
PROGRAM = """
import importlib, warnings
import numpy as np, zerocopy as zc
import {package}
warnings.simplefilter("ignore")
module, _, name = {use!r}.rpartition(".")
private = getattr(importlib.import_module(module), name)
if {hidden}: private.known = False

def text(obj):
    if isinstance(obj, (dict, list, tuple)):
        items = obj.items() if isinstance(obj, dict) else enumerate(obj)
        return str([(key, text(value)) for key, value in items])
    read = getattr(obj, "fetchall", None) or getattr(obj, "to_list", None) or getattr(obj, "to_pylist", None)
    return f"{{type(obj).__name__}} {{read() if read else obj}}"

def show(obj, *targets, **options):
    for to in targets:
        for copy in (None, None, False):
            if copy is False and "writable" in options:
                continue  # the public side refuses what may be read-only
            try:
                result = zc.convert(obj, to=to, copy=copy, **options)
                print(to, copy, options, text(result))
                if "writable" not in options:
                    print("shares", zc.shares_memory(obj, result))
            except zc.ZeroCopyError as error:
                print("code", to, copy, options, error.code)

{objects}
assert private.known is {known}, private.known
"""
OBJECTS = {
    "pandas": """
import pandas as pd, pyarrow as pa
x, ints = np.arange(6.0), np.arange(6)
words = pd.arrays.ArrowExtensionArray(pa.chunked_array([["a", None, "c", "d", "e", "f"]]))
block = np.arange(12.0).reshape(6, 2)
frames = [pd.DataFrame({"a": x, "b": ints, "c": x > 1}), pd.DataFrame(block, columns=["a", "b"]),
          pd.DataFrame(np.asfortranarray(block), columns=["a", "b"]), pd.DataFrame({"a": x})[1:],
          pd.DataFrame({"n": pd.array([1, None, 3, 4, 5, 6], "Int64"), "w": words, "x": x})]
for frame in frames:
    show(frame, "numpy", "pyarrow", "pandas")
    show(frame, "numpy", layout="matrix")
    show(zc.convert(frame, "pyarrow"), "pandas")
for series in (frames[0]["a"], frames[0]["c"], frames[4]["n"], frames[4]["w"], frames[1]["a"][::-1]):
    show(series, "numpy", "pyarrow", "pandas")
    show({"n": series}, "pandas", writable=True)
show({"a": x, "b": ints}, "pandas")
show(pa.array([1, 2]), "pandas.Series")
show(x, "pandas")
""",
    "polars": """
import polars as pl, pyarrow as pa
x, ints = np.arange(6.0), np.arange(6)
whole = pl.Series("a", x)
parts = pl.concat([whole[:2], whole[2:]], rechunk=False)
frames = [pl.DataFrame({"a": x, "b": x[::-1]}), pl.DataFrame({"i": ints, "x": x, "w": list("abcdef")}),
          pl.DataFrame([parts, whole.rename("b")]), pl.DataFrame({"n": [1, None], "b": [True, None]})]
for frame in frames:
    show(frame, "numpy", "pyarrow", "nanoarrow")
    show(frame, "numpy", layout="matrix")
    show(zc.convert(frame, "pyarrow"), "polars")
    show(zc.convert(frame, "pyarrow").to_batches()[0], "polars")
others = [pl.Series(values) for values in ([1, None], ["a"], [{"a": 1}], [True])]
for series in (whole, parts, whole[:0], *others):
    show(series, "numpy", "pyarrow")
for name in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"):
    show(np.array([1, 0, 100], name), "polars")
show(np.array([np.nan, 1.5]), "polars")
show({"a": x, "b": ints}, "polars")
for array in map(pa.array, ([1, None, 3], ["a", None, "u"], [[1], None, []], [{"a": 1}])):
    show(array, "polars")
    show(array[1:], "polars")
""",
    "nanoarrow": """
import nanoarrow as na, pyarrow as pa
texts, numbers, dates = pa.array(["a", None]), pa.array([1.5, None]), pa.array([1, None], "date32")
tables = [pa.table({"a": numbers, "w": texts}), pa.table({"b": numbers}), pa.table({"d": dates})]
for obj in (*tables, numbers, texts, tables[0].rename_columns(["", "x"])):
    show(na.Array(obj), "pyarrow", "polars", "numpy")
""",
    "duckdb": """
import pyarrow as pa
for values in ([1, None, 3], [4, None, 6], [7, 8, None]):
    table = pa.table({"n": values, "s": ["a", None, "c"]})
    show(table, "duckdb")
    print(zc.convert(table, "duckdb").filter("n > 1").fetchall())
""",
    "jaxlib": """
import jax
from zerocopy.protocols.array_interface import aligned_copy
jax.config.update("jax_enable_x64", True)
for name in ("float32", "float16", "int16", "uint8", "complex64", "bool", "float64"):
    for shape in ((5,), (2, 3), (0, 4)):
        show(aligned_copy(np.ones(shape, name)), "jax")
""",
    "xarray": """
import xarray as xr
for x in (np.arange(6.0).reshape(2, 3), np.arange(4)[::2], np.array([True]), np.array(["a"]), np.array(2.0)):
    show(xr.DataArray(x), "numpy")
""",
    "datasets": """
import datasets
data = datasets.Dataset.from_dict({"a": [1, 2, 3, 4], "w": list("abcd")})
for each in (data, data.select([2, 0]), data.select(range(1, 3)), data.filter(lambda row: row["a"] > 1)):
    show(each, "pyarrow", "numpy")
    show(each["a"], "numpy")
""",
}
#: Packages whose public fallback copies, so that aliases and refusals differ.
COPIES = ("datasets",)


@pytest.mark.parametrize("name", uses())
def test_both_sides_give_the_same(name: str, run_warm: Any) -> None:
    use = uses()[name]
    pytest.importorskip(use.package)
    outputs = []
    for hidden in (False, True):
        parts = {"package": use.package, "objects": OBJECTS[use.package], "use": name}
        process = run_warm(PROGRAM.format(**parts, hidden=hidden, known=not hidden))
        assert process.returncode == 0, process.stderr
        lines = process.stdout.splitlines()
        if use.package in COPIES:
            lines = [x for x in lines if not x.startswith(("shares", "code")) and "False {" not in x]
        outputs.append(lines)
    assert len(outputs[0]) > 10
    assert outputs[0] == outputs[1]


def is_private(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch("_[a-zA-Z]\\w*", name) is not None


def names_in(tree: ast.AST) -> Iterator[str]:
    """Yield the private names of other objects than ``self`` and ``cls`` that code reads or imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
            yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr"):
            yield from (each.value for each in node.args[1:2] if isinstance(each, ast.Constant))
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("zerocopy"):
            yield from (part for name in node.names for part in f"{node.module}.{name.name}".split("."))


def own_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that code defines: functions, classes, variables, attributes and slots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.attr if isinstance(node, ast.Attribute) else node.id


def unlisted(framework: str, trees: list[ast.Module]) -> set[str]:
    """Return the private names of other packages that a framework's files read and nothing lists."""
    own = {name for tree in trees for name in own_names(tree)}
    listed = {
        name.partition(" ")[0] for name in DOCUMENTED if name.endswith(f" of {framework}") or " " not in name
    }
    listed |= WITHOUT_PUBLIC_NAME.get(framework, set())
    for name, use in uses().items():
        if name.startswith(f"zerocopy._frameworks.{framework}."):
            listed |= {*re.findall("\\w+", use.names)}
    read = {name for tree in trees for name in names_in(tree) if is_private(name)}
    return read - own - listed


@pytest.mark.parametrize("path", sorted(HOME.iterdir()), ids=lambda path: path.name)
def test_each_private_name_is_listed(path: Path) -> None:
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.suffix == ".py" else []
    names = unlisted(path.stem, [parse(file) for file in files])
    assert not names, "use a public name, or zerocopy._frameworks._private.Private with its measured gain"
