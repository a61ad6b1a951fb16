"""docs/comparison.md: the outcome of each method for the same difficult inputs, cell by cell.

``ROWS`` and ``METHODS`` define the tables. The tests run each cell, write the tables from the outcomes and
compare them with the page; a failure shows the table that the page should have.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

import pytest
from helpers.paths import ROOT

PAGE = ROOT / "docs" / "comparison.md"
MODULES = (
    "torch",
    "jax",
    "tensorflow",
    "pyarrow",
    "pandas",
    "polars",
    "tvm_ffi",
    "dlpack",
    "narwhals",
    "nanoarrow",
    "array_api_compat",
)

#: The call that converts ``x``, by method and by target framework.
METHODS = {
    "DLPack by hand": {
        "numpy": "np.from_dlpack(x)",
        "torch": "torch.from_dlpack(x)",
        "jax": "jax.dlpack.from_dlpack(x)",
        "tensorflow": "tf.experimental.dlpack.from_dlpack(x.__dlpack__())",
        "pyarrow": "pa.Array.from_dlpack(x)",
    },
    "through NumPy": {
        "numpy": "np.asarray(x)",
        "torch": "torch.from_numpy(np.asarray(x))",
        "jax": "jax.numpy.asarray(np.asarray(x))",
        "tensorflow": "tf.convert_to_tensor(np.asarray(x))",
        "pyarrow": "pa.array(np.asarray(x))",
    },
    "array-api-compat": {
        "numpy": "array_api_compat.numpy.asarray(x)",
        "torch": "array_api_compat.torch.asarray(x)",
        "jax": "array_api_compat.array_namespace(jax.numpy.zeros(1)).asarray(x)",
    },
    "tvm-ffi": {
        "numpy": "np.from_dlpack(tvm_ffi.from_dlpack(x))",
        "torch": "torch.from_dlpack(tvm_ffi.from_dlpack(x))",
        "jax": "jax.dlpack.from_dlpack(tvm_ffi.from_dlpack(x))",
        "tensorflow": "tf.experimental.dlpack.from_dlpack(tvm_ffi.from_dlpack(x).__dlpack__())",
        "pyarrow": "pa.Array.from_dlpack(tvm_ffi.from_dlpack(x))",
    },
    "pydlpack": {
        "numpy": "np.from_dlpack(dlpack.asdlpack(x))",
        "torch": "torch.from_dlpack(dlpack.asdlpack(x))",
        "jax": "jax.dlpack.from_dlpack(dlpack.asdlpack(x))",
        "tensorflow": "tf.experimental.dlpack.from_dlpack(dlpack.asdlpack(x).__dlpack__())",
        "pyarrow": "pa.Array.from_dlpack(dlpack.asdlpack(x))",
    },
    "Arrow alone": {
        "torch": "torch.from_numpy(x.to_numpy(zero_copy_only=False))",
        "pyarrow": "pa.chunked_array(x)",
        "polars": "pl.Series(x)",
    },
    "nanoarrow": {
        "torch": "torch.from_numpy(np.asarray(na.Array(x).to_pysequence()))",
        "pyarrow": "pa.chunked_array(na.ArrayStream(x))",
        "polars": "pl.Series(na.ArrayStream(x))",
    },
    "narwhals": {
        "torch": "torch.from_numpy(nw.from_native(pa.table({'x': x}))['x'].to_numpy())",
        "pyarrow": "nw.from_native(x, series_only=True).to_arrow()",
        "polars": "nw.from_native(x, series_only=True).to_polars()",
    },
    "zerocopy": dict.fromkeys(
        ("numpy", "torch", "jax", "tensorflow", "pyarrow", "polars"), "zc.convert(x, to=target)"
    ),
}
ARRAYS = ("DLPack by hand", "through NumPy", "array-api-compat", "tvm-ffi", "pydlpack", "zerocopy")
COLUMNS = ("DLPack by hand", "Arrow alone", "nanoarrow", "narwhals", "zerocopy")


@dataclass(frozen=True)
class Row:
    """One input, its target framework and the expected result."""

    title: str
    setup: str  # statements that define `x`
    target: str
    values: list[object]
    dtype: str | None  # the target's name of it; None: any dtype that holds the values
    fix: str = ""  # the call that replaces `zc.convert(x, to=target)`
    fixed_values: list[object] | None = None  # its values, if they differ


# fmt: off
ROWS = {
    ARRAYS: [
        Row("plain array, to torch", "x = blank(4)", "torch", [0.0] * 4, "float32"),
        Row("negative strides, to torch", "x = np.arange(4.0)[::-1]",
            "torch", [3.0, 2.0, 1.0, 0.0], "float64", "zc.convert(x, to=target, copy=False)"),
        Row("read-only NumPy array, to torch", "x = blank(4); x.flags.writeable = False",
            "torch", [0.0] * 4, "float32", "zc.convert(x, to=target, writable=True)"),
        Row("non-native byte order, to torch", "x = np.array([1, 2], '>i4')", "torch", [1, 2], "int32"),
        Row("masked array, to torch", "x = np.ma.masked_array([1.0, 2.0], mask=[False, True])",
            "torch", [1.0, None], "float64", "zc.convert(x.filled(0), to=target)", fixed_values=[1.0, 0.0]),
        Row("torch `bfloat16`, to NumPy", "x = torch.ones(2, dtype=torch.bfloat16)",
            "numpy", [1.0, 1.0], "bfloat16"),
        Row("tensor that requires grad, to NumPy", "x = torch.ones(2, requires_grad=True)",
            "numpy", [1.0, 1.0], "float32", "zc.convert(x.detach(), to=target)"),
        Row("lazy conjugate, to NumPy", "x = torch.tensor([1 + 2j, 3 - 4j]).conj()",
            "numpy", [1 - 2j, 3 + 4j], "complex64"),
        Row("lazy negation, to NumPy", "x = torch.tensor([1 + 2j, 3 - 4j]).conj().imag",
            "numpy", [-2.0, 4.0], "float32"),
        Row("`int64`, to JAX with x64 off", "x = blank(4).view(np.int64); x[:] = [2**40 + 5, 1]",
            "jax", [2**40 + 5, 1], "int64"),
        Row("not 64-byte-aligned, to TensorFlow", "x = blank(4, 4)",
            "tensorflow", [0.0] * 4, "float32", "zc.convert(x, to=target, copy=False)"),
        Row("not 64-byte-aligned, to JAX", "x = blank(4, 4)",
            "jax", [0.0] * 4, "float32", "zc.convert(x, to=target, copy=False)"),
        Row("TensorFlow strings, to NumPy", "x = tf.constant(['a'])", "numpy", [b"a"], None),
        Row("JAX array, to pyarrow", "x = jax.numpy.zeros(2)", "pyarrow", [0.0, 0.0], "float"),
    ],
    COLUMNS: [
        Row("plain numbers, to torch", "x = pa.array([1, 2])", "torch", [1, 2], "int64"),
        Row("nulls, to torch", "x = pa.array([2**53 + 1, None])",
            "torch", [2**53 + 1, None], "int64", 'zc.convert(x, to=target, nulls="mask")'),
        Row("two chunks, to torch", "x = pa.chunked_array([[1], [2]])", "torch", [1, 2], "int64"),
        Row("text, to torch", "x = pa.array(['a', 'b'])",
            "torch", ["a", "b"], None, "zc.convert(x, to=target, encode=True)"),
        Row("dates, to torch", "x = pa.array([86400]).cast(pa.timestamp('s'))",
            "torch", [86400], None, "zc.convert(x, to=target, encode=True)"),
        Row("pandas NaN, to pyarrow", "x = pd.Series([1.0, np.nan])", "pyarrow", [1.0, "nan"], "double"),
        Row("polars series with two chunks, to pyarrow",
            "x = pl.concat([pl.Series('x', [1.0]), pl.Series('x', [2.0])], rechunk=False)",
            "pyarrow", [1.0, 2.0], "double"),
        Row("pyarrow text, to polars", "x = pa.chunked_array([['a', None]])",
            "polars", ["a", None], "String"),
    ],
}
# fmt: on

# The child prints one line before each cell and one after it: a cell without the second line crashed.
CHILD = '''
import ast, importlib, json, math, os, sys, warnings
import numpy as np
import zerocopy as zc

ALSO = {"array_api_compat": ["array_api_compat.numpy", "array_api_compat.torch"], "jax": ["jax.dlpack"]}
NAMES = {"tf": "tensorflow", "pa": "pyarrow", "pd": "pandas", "pl": "polars"}
NAMES |= {"na": "nanoarrow", "nw": "narwhals"}


class Names(dict):
    # Modules are imported on first use, because each crash would otherwise repeat all imports.
    def __missing__(self, name):
        if name in dir(__builtins__):
            raise KeyError(name)
        self[name] = importlib.import_module(NAMES.get(name, name))
        for module in ALSO.get(name, []):
            importlib.import_module(module)
        if "torch" in sys.modules:
            sys.modules["torch"].set_warn_always(True)
        return self[name]


def blank(n, offset=0):
    raw = np.zeros(4 * n + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + 4 * n].view(np.float32)


def of(x):
    kind = type(x).__module__.partition(".")[0]
    return "jax" if kind == "jaxlib" else kind


def memory(x):
    """Return the memory of an object's values as (address, bytes), from its framework's own functions."""
    if of(x) == "jax":
        return [(x.unsafe_buffer_pointer(), x.nbytes)]
    if of(x) == "torch":
        return [(x.data_ptr(), x.nbytes)]
    if of(x) == "tensorflow":
        return [] if x.dtype.name == "string" else memory(np.from_dlpack(x))
    if of(x) == "pandas":
        return memory(x.to_numpy())
    if of(x) == "polars":
        return [part for chunk in x.get_chunks() for part in memory(chunk.to_arrow())]
    if of(x) == "pyarrow" and hasattr(x, "chunks"):
        return [part for chunk in x.chunks for part in memory(chunk)]
    if of(x) == "pyarrow":
        return [(buffer.address, buffer.size) for buffer in x.buffers()[1:] if buffer is not None]
    if of(x) == "zerocopy":  # Masked, Encoded
        return memory(x.values)
    return [(np.lib.array_utils.byte_bounds(x)[0], x.nbytes)]


def overlap(left, right):
    return any(a < d + n and d < a + m for a, m in left for d, n in right)


def values(y):
    if isinstance(y, zc.Masked):
        return [None if null else v for v, null in zip(y.values.tolist(), y.mask.tolist())]
    if isinstance(y, zc.Encoded):
        return y.to_pylist() if y.unit is None else y.values.tolist()
    if of(y) == "tensorflow":
        return (y + 1 - 1).numpy().tolist()  # a kernel must run, because misaligned memory crashes only then
    return next(getattr(y, name) for name in ("to_pylist", "to_list", "tolist") if hasattr(y, name))()


def dtype_name(y):
    if of(y) == "zerocopy":
        return dtype_name(y.values)
    if of(y) in ("pyarrow", "tensorflow"):
        return str(y.type) if of(y) == "pyarrow" else y.dtype.name
    return str(y.dtype).rpartition(".")[2]


def outcome(setup, call, target, expected, dtype):
    names = Names(np=np, zc=zc, blank=blank, target=target)
    exec(setup, {}, names)
    x = names["x"]
    chunks = x.n_chunks() if of(x) == "polars" else None
    source_memory = memory(x.detach() if of(x) == "torch" else x)
    plan = zc.explain(x, to=target) if call == "zc.convert(x, to=target)" else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            y = eval(call, {}, names)
            result = ["nan" if isinstance(v, float) and math.isnan(v) else v for v in values(y)]
        except Exception as error:
            assert plan is None or not plan.possible
            return f"`{type(error).__name__}`"
    other_dtype = dtype is not None and dtype_name(y) != dtype
    if result != expected or other_dtype:
        return f"**wrong: `{result}`**" + (f" as {dtype_name(y)}" if other_dtype else "")
    alias = overlap(source_memory, memory(y))
    assert plan is None or plan.zero_copy == alias, plan
    parts = ["alias" if alias else "copy"]
    if plan and plan.warnings:
        parts.append("the plan warns")
    if any("not writable" in str(warning.message) for warning in caught):
        parts.append("warns")
    if chunks is not None and x.n_chunks() != chunks:
        parts.append("rechunks the source")
    return ", ".join(parts)


for number, cell in enumerate(ast.literal_eval(sys.argv[1])):
    print(json.dumps([number, None]), flush=True)
    print(json.dumps([number, outcome(*cell)]), flush=True)
os._exit(0)  # pydlpack prints messages about leaks at exit
'''


Cell = tuple[str, str, str, list[object], str | None]


def run(cells: list[Cell]) -> list[str]:
    """Return the outcome of each cell. One process runs them in turn; after a crash, a new one continues."""
    outcomes: list[str] = []
    while len(outcomes) < len(cells):
        completed = subprocess.run(
            [sys.executable, "-c", CHILD, repr(cells[len(outcomes) :])],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=ROOT,
            env={**os.environ, "JAX_ENABLE_X64": "0"},
        )
        lines = [json.loads(line) for line in completed.stdout.splitlines() if line.startswith("[")]
        assert lines, completed.stderr
        outcomes += [outcome for _, outcome in lines if outcome is not None]
        if completed.returncode:
            # A positive code is a bug in the child; exceptions raised by a cell are outcomes.
            assert completed.returncode < 0, completed.stderr
            assert lines[-1][1] is None, completed.stderr
            outcomes.append("**crash**")
    return outcomes


def cell(row: Row, call: str) -> Cell:
    fixed = call == row.fix and row.fixed_values is not None
    return row.setup, call, row.target, row.fixed_values if fixed else row.values, row.dtype


@cache
def outcomes() -> dict[tuple[str, str], str]:
    """Return every cell's outcome, by row and call."""
    pairs = [
        (row, call)
        for methods, rows in ROWS.items()
        for row in rows
        for call in [*(METHODS[method].get(row.target, "") for method in methods), row.fix]
        if call
    ]
    # Cells that crash come first, while the process has imported little.
    pairs.sort(key=lambda pair: ("tf." not in "".join(cell(*pair)[:2]), pair[0].target != "torch"))
    keys = [(row.title, call) for row, call in pairs]
    return dict(zip(keys, run([cell(*pair) for pair in pairs]), strict=True))


def table(methods: tuple[str, ...]) -> str:
    """Return the page's table of outcomes for some methods."""
    lines = [f"| | {' | '.join(methods)} | zerocopy with options |", "|---" * (len(methods) + 2) + "|"]
    for row in ROWS[methods]:
        cells = [outcomes().get((row.title, METHODS[method].get(row.target, "")), "–") for method in methods]
        fix = row.fix and f"`{short_fix(row)}`: {outcomes()[row.title, row.fix]}"
        lines.append(f"| {row.title} | {' | '.join([*cells, fix])} |".replace("  ", " "))
    return "\n".join(lines)


def short_fix(row: Row) -> str:
    """Return the part of a fix that differs from ``zc.convert(x, to=target)``."""
    arguments = row.fix.removeprefix("zc.convert(").removesuffix(")").replace(", to=target", "")
    return arguments.removeprefix("x, ")


def calls(methods: tuple[str, ...]) -> str:
    """Return the page's table of calls."""
    targets = list(dict.fromkeys(row.target for row in ROWS[methods]))
    lines = [f"| to | {' | '.join(methods[:-1])} |", "|---" * len(methods) + "|"]
    for target in targets:
        cells = [
            f"`{METHODS[method][target]}`" if target in METHODS[method] else "–" for method in methods[:-1]
        ]
        lines.append(f"| {target} | {' | '.join(cells)} |")
    return "\n".join(lines)


@pytest.fixture(autouse=True)
def _installed() -> None:
    for module in MODULES:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


@pytest.mark.full
@pytest.mark.parametrize("methods", ROWS, ids=["arrays", "columns"])
def test_table_of_outcomes_matches_page(methods: tuple[str, ...]) -> None:
    assert table(methods) in PAGE.read_text(encoding="utf-8"), f"the page should have\n{table(methods)}"


@pytest.mark.full
def test_zerocopy_is_right_or_refuses_in_every_row() -> None:
    ours = {
        row.title: outcomes()[row.title, METHODS["zerocopy"][row.target]]
        for rows in ROWS.values()
        for row in rows
    }
    assert not [title for title, outcome in ours.items() if outcome.startswith("**")]
    # Every kind of outcome occurs for other methods, so the test can detect each of them.
    others = " ".join(outcome for (_, call), outcome in outcomes().items() if not call.startswith("zc."))
    assert all(kind in others for kind in ("alias", "copy", "wrong", "crash", "rechunks", "Error"))


@pytest.mark.parametrize("methods", ROWS, ids=["arrays", "columns"])
def test_table_of_calls_matches_page(methods: tuple[str, ...]) -> None:
    assert calls(methods) in PAGE.read_text(encoding="utf-8"), f"the page should have\n{calls(methods)}"
