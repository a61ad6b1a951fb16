"""The page that compares: what each way really does with the same hard inputs, cell by cell.

``ROWS`` and ``WAYS`` are the one table. The test runs each cell and writes the page's tables from
what it finds; a page that says something else fails, and the failure shows the table that is true.
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

#: What one writes to convert ``x``, by way and by the framework that it goes to.
WAYS = {
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
    """One input on its way to one framework, and what must come."""

    what: str
    make: str  # statements that make `x`
    target: str
    values: list[object]
    dtype: str | None  # as the target calls it; None: anything that has the values
    remedy: str = ""  # what is written instead of `zc.convert(x, to=target)`
    instead: list[object] | None = None  # the values of that, if they are others


# fmt: off
ROWS = {
    ARRAYS: [
        Row("a plain array, to torch", "x = blank(4)", "torch", [0.0] * 4, "float32"),
        Row("negative strides, to torch", "x = np.arange(4.0)[::-1]",
            "torch", [3.0, 2.0, 1.0, 0.0], "float64", "zc.convert(x, to=target, copy=False)"),
        Row("read-only NumPy, to torch", "x = blank(4); x.flags.writeable = False",
            "torch", [0.0] * 4, "float32", "zc.convert(x, to=target, writable=True)"),
        Row("the other byte order, to torch", "x = np.array([1, 2], '>i4')", "torch", [1, 2], "int32"),
        Row("a mask, to torch", "x = np.ma.masked_array([1.0, 2.0], mask=[False, True])",
            "torch", [1.0, None], "float64", "zc.convert(x.filled(0), to=target)", instead=[1.0, 0.0]),
        Row("`bfloat16` of torch, to NumPy", "x = torch.ones(2, dtype=torch.bfloat16)",
            "numpy", [1.0, 1.0], "bfloat16"),
        Row("a gradient, to NumPy", "x = torch.ones(2, requires_grad=True)",
            "numpy", [1.0, 1.0], "float32", "zc.convert(x.detach(), to=target)"),
        Row("a lazy conjugate, to NumPy", "x = torch.tensor([1 + 2j, 3 - 4j]).conj()",
            "numpy", [1 - 2j, 3 + 4j], "complex64"),
        Row("a lazy negation, to NumPy", "x = torch.tensor([1 + 2j, 3 - 4j]).conj().imag",
            "numpy", [-2.0, 4.0], "float32"),
        Row("`int64`, to JAX with x64 off", "x = blank(4).view(np.int64); x[:] = [2**40 + 5, 1]",
            "jax", [2**40 + 5, 1], "int64"),
        Row("not at a multiple of 64 bytes, to TensorFlow", "x = blank(4, 4)",
            "tensorflow", [0.0] * 4, "float32", "zc.convert(x, to=target, copy=False)"),
        Row("not at a multiple of 64 bytes, to JAX", "x = blank(4, 4)",
            "jax", [0.0] * 4, "float32", "zc.convert(x, to=target, copy=False)"),
        Row("text of TensorFlow, to NumPy", "x = tf.constant(['a'])", "numpy", [b"a"], None),
        Row("a JAX array, to pyarrow", "x = jax.numpy.zeros(2)", "pyarrow", [0.0, 0.0], "float"),
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
        Row("NaN of pandas, to pyarrow", "x = pd.Series([1.0, np.nan])", "pyarrow", [1.0, "nan"], "double"),
        Row("polars in two chunks, to pyarrow",
            "x = pl.concat([pl.Series('x', [1.0]), pl.Series('x', [2.0])], rechunk=False)",
            "pyarrow", [1.0, 2.0], "double"),
        Row("text of pyarrow, to polars", "x = pa.chunked_array([['a', None]])",
            "polars", ["a", None], "String"),
    ],
}
# fmt: on

# One line is printed before each cell and one after it: a cell without the second ended the process.
CHILD = '''
import ast, importlib, json, math, os, sys, warnings
import numpy as np
import zerocopy as zc

ALSO = {"array_api_compat": ["array_api_compat.numpy", "array_api_compat.torch"], "jax": ["jax.dlpack"]}
NAMES = {"tf": "tensorflow", "pa": "pyarrow", "pd": "pandas", "pl": "polars"}
NAMES |= {"na": "nanoarrow", "nw": "narwhals"}


class Names(dict):
    # What a cell names is imported then: each process that ends would otherwise cost all imports again.
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
    """Return where an object's values lie: (address, bytes), by its framework's means and not by ours."""
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


def meet(these, those):
    return any(a < d + n and d < a + m for a, m in these for d, n in those)


def values(y):
    if isinstance(y, zc.Masked):
        return [None if null else v for v, null in zip(y.values.tolist(), y.mask.tolist())]
    if isinstance(y, zc.Encoded):
        return y.to_pylist() if y.unit is None else y.values.tolist()
    if of(y) == "tensorflow":
        return (y + 1 - 1).numpy().tolist()  # used: that is where misaligned memory ends the process
    return next(getattr(y, name) for name in ("to_pylist", "to_list", "tolist") if hasattr(y, name))()


def kind(y):
    if of(y) == "zerocopy":
        return kind(y.values)
    if of(y) in ("pyarrow", "tensorflow"):
        return str(y.type) if of(y) == "pyarrow" else y.dtype.name
    return str(y.dtype).rpartition(".")[2]


def outcome(make, call, target, expected, dtype):
    names = Names(np=np, zc=zc, blank=blank, target=target)
    exec(make, {}, names)
    x = names["x"]
    chunks = x.n_chunks() if of(x) == "polars" else None
    there = memory(x.detach() if of(x) == "torch" else x)
    said = zc.explain(x, to=target) if call == "zc.convert(x, to=target)" else None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            y = eval(call, {}, names)
            found = ["nan" if isinstance(v, float) and math.isnan(v) else v for v in values(y)]
        except Exception as error:
            assert said is None or not said.possible
            return f"`{type(error).__name__}`"
    other = dtype is not None and kind(y) != dtype
    if found != expected or other:
        return f"**wrong: `{found}`**" + (f" as {kind(y)}" if other else "")
    alias = meet(there, memory(y))
    assert said is None or said.zero_copy == alias, said
    parts = ["alias" if alias else "copy"]
    if said and said.warnings:
        parts.append("the plan warns")
    if any("not writable" in str(warning.message) for warning in told):
        parts.append("warns")
    if chunks is not None and x.n_chunks() != chunks:
        parts.append("the source is rechunked")
    return ", ".join(parts)


for number, cell in enumerate(ast.literal_eval(sys.argv[1])):
    print(json.dumps([number, None]), flush=True)
    print(json.dumps([number, outcome(*cell)]), flush=True)
os._exit(0)  # pydlpack writes about what it leaked
'''


Cell = tuple[str, str, str, list[object], str | None]


def run(cells: list[Cell]) -> list[str]:
    """What each cell comes to. One process runs them in turn; where it ends, a new one goes on."""
    found: list[str] = []
    while len(found) < len(cells):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, repr(cells[len(found) :])],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=ROOT,
            env={**os.environ, "JAX_ENABLE_X64": "0"},
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        assert lines, done.stderr
        found += [outcome for _, outcome in lines if outcome is not None]
        if done.returncode:
            # Of a bug in the child itself the traceback is shown; what a cell raises is an outcome.
            assert done.returncode < 0, done.stderr
            assert lines[-1][1] is None, done.stderr
            found.append("**the process ends**")
    return found


def cell(row: Row, call: str) -> Cell:
    asked = call == row.remedy and row.instead is not None
    return row.make, call, row.target, row.instead if asked else row.values, row.dtype


@cache
def outcomes() -> dict[tuple[str, str], str]:
    """Every cell's outcome, by row and by call."""
    asked = [
        (row, call)
        for ways, rows in ROWS.items()
        for row in rows
        for call in [*(WAYS[way].get(row.target, "") for way in ways), row.remedy]
        if call
    ]
    # Those that end the process first, while it has imported little.
    asked.sort(key=lambda one: ("tf." not in "".join(cell(*one)[:2]), one[0].target != "torch"))
    keys = [(row.what, call) for row, call in asked]
    return dict(zip(keys, run([cell(*one) for one in asked]), strict=True))


def table(ways: tuple[str, ...]) -> str:
    """The page's table for those ways, as it must read."""
    lines = [f"| | {' | '.join(ways)} | with zerocopy, asked |", "|---" * (len(ways) + 2) + "|"]
    for row in ROWS[ways]:
        cells = [outcomes().get((row.what, WAYS[way].get(row.target, "")), "–") for way in ways]
        asked = row.remedy and f"`{shown(row)}`: {outcomes()[row.what, row.remedy]}"
        lines.append(f"| {row.what} | {' | '.join([*cells, asked])} |".replace("  ", " "))
    return "\n".join(lines)


def shown(row: Row) -> str:
    """What a remedy adds to or changes in ``zc.convert(x, to=target)``."""
    given = row.remedy.removeprefix("zc.convert(").removesuffix(")").replace(", to=target", "")
    return given.removeprefix("x, ")


def calls(ways: tuple[str, ...]) -> str:
    """The page's table of what one writes."""
    targets = list(dict.fromkeys(row.target for row in ROWS[ways]))
    lines = [f"| to | {' | '.join(ways[:-1])} |", "|---" * len(ways) + "|"]
    for target in targets:
        cells = [f"`{WAYS[way][target]}`" if target in WAYS[way] else "–" for way in ways[:-1]]
        lines.append(f"| {target} | {' | '.join(cells)} |")
    return "\n".join(lines)


@pytest.fixture(autouse=True)
def _installed() -> None:
    for module in MODULES:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


@pytest.mark.parametrize("ways", ROWS, ids=["arrays", "columns"])
def test_each_cell_is_what_happens(ways: tuple[str, ...]) -> None:
    assert table(ways) in PAGE.read_text(encoding="utf-8"), f"the page should have\n{table(ways)}"


def test_zerocopy_is_right_or_refuses_in_every_row() -> None:
    ours = {
        row.what: outcomes()[row.what, WAYS["zerocopy"][row.target]] for rows in ROWS.values() for row in rows
    }
    assert not [what for what, outcome in ours.items() if outcome.startswith("**")]
    # Each kind of outcome is among the others', so none is found by a mistake of the judge's.
    others = " ".join(found for (_, call), found in outcomes().items() if not call.startswith("zc."))
    assert all(
        kind in others for kind in ("alias", "copy", "wrong", "the process ends", "rechunked", "Error")
    )


@pytest.mark.parametrize("ways", ROWS, ids=["arrays", "columns"])
def test_the_calls_are_those_that_were_run(ways: tuple[str, ...]) -> None:
    assert calls(ways) in PAGE.read_text(encoding="utf-8"), f"the page should have\n{calls(ways)}"
