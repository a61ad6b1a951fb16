"""The contenders of each pair: zerocopy, the documented call, code by hand, libraries.

``x`` is the source. Each row is one expression as a user would write it, which
aliases 64-byte-aligned memory. A row is *narrow* if it is correct for this array
only: it names the dtype, or ignores an offset or a null bitmap. Calls that copy have
no row, because their cost is that of the copy.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import Method, used
from benchmarks.conversion.subjects import SUBJECTS, Array, Subject, aligned_values
from benchmarks.suite import Settings

Pair = tuple[str, str]


#: Libraries in the notes of tables, by the name in the expression.
_KNOWN_AS = {
    "sklearn_array_api": "scikit-learn",
    "xp_torch": "array_api_compat",
    "xp_numpy": "array_api_compat",
    "pytree": "not public",
    "dlpack": "pydlpack",
    "tvm_ffi": "tvm_ffi",
    "optree": "optree",
}


def contender(code: str, role: str = "idiom", warns: bool = False) -> Method:
    """Return one way to convert, with the facts that a reader of the table needs.

    With `warns` it may emit a warning, which the timed loop ignores, but whose cost it includes.
    """
    known = [known for name, known in _KNOWN_AS.items() if name in used(code)]
    notes = [*known[:1], *["for this array only"] * (role == "narrow"), *["warns"] * warns]
    return Method(code, role, ", ".join(notes))


#: The call that each target documents for DLPack, from an array or from a capsule.
DOCUMENTED = {
    "numpy": "np.from_dlpack({array})",
    "torch": "torch.from_dlpack({array})",
    "jax": "jax.dlpack.from_dlpack({array})",
    "tensorflow": "tfd.from_dlpack({capsule})",
    "pyarrow": "pa.Array.from_dlpack({array})",
}

#: The call that a source documents for exporting a capsule; others have only the method.
CAPSULES = {"torch": "torch.utils.dlpack.to_dlpack(x)", "tensorflow": "tfd.to_dlpack(x)"}


def _warns(code: str) -> Method:
    return contender(code, warns=True)


def _narrow(code: str, warns: bool = False) -> Method:
    return contender(code, "narrow", warns)


_FROM_BUFFER = "pa.Array.from_buffers({dtype}, {count}, [None, {buffer}])"

#: Code by hand. PyTorch warns once per process about read-only memory, pyarrow about each legacy
#: capsule.
IDIOMS: dict[Pair, list[str | Method]] = {
    ("numpy", "torch"): [
        "torch.from_numpy(x)",
        "torch.asarray(x)",
        "torch.as_tensor(x)",
        "torch.utils.dlpack.from_dlpack(x.__dlpack__())",
        _narrow("torch.frombuffer(x, dtype=torch.float32)"),
    ],
    ("numpy", "jax"): ["jnp.from_dlpack(x)", "jax.device_put(x, may_alias=True)", "jax.device_put(x)"],
    ("numpy", "tensorflow"): [],
    ("numpy", "pyarrow"): [
        "pa.array(x)",
        _FROM_BUFFER.format(dtype="pa.from_numpy_dtype(x.dtype)", count="x.size", buffer="pa.py_buffer(x)"),
        _narrow(_FROM_BUFFER.format(dtype="pa.float32()", count="x.size", buffer="pa.py_buffer(x)")),
    ],
    ("torch", "numpy"): [
        "x.numpy()",
        "np.asarray(x)",
        "x.__array__()",
        "x.numpy(force=True)",
        "x.detach().numpy()",
        "x.detach().cpu().numpy()",
    ],
    ("torch", "jax"): ["jnp.from_dlpack(x)", "jax.device_put(x.numpy(), may_alias=True)"],
    ("torch", "tensorflow"): [
        "tfd.from_dlpack(x.__dlpack__())",
        "tfd.from_dlpack(x.numpy().__dlpack__())",
        "tf.convert_to_tensor(x)",
    ],
    ("torch", "pyarrow"): [
        "pa.array(x.numpy())",
        "pa.Array.from_dlpack(x.numpy())",
        _narrow(
            _FROM_BUFFER.format(
                dtype="pa.float32()", count="len(x)", buffer="pa.foreign_buffer(x.data_ptr(), x.nbytes, x)"
            )
        ),
    ],
    ("jax", "numpy"): [
        "np.asarray(x)",
        "np.asarray(memoryview(x))",
        "np.frombuffer(x, x.dtype)",
        "jax.device_get(x)",
    ],
    ("jax", "torch"): [
        "torch.utils.dlpack.from_dlpack(x.__dlpack__())",
        _warns("torch.from_numpy(np.asarray(x))"),
        _warns("torch.asarray(x)"),
        "torch.as_tensor(x)",
        _narrow("torch.frombuffer(x, dtype=torch.float32)", warns=True),
    ],
    ("jax", "tensorflow"): ["tf.convert_to_tensor(x)"],
    ("jax", "pyarrow"): [
        "pa.array(np.asarray(x))",
        _FROM_BUFFER.format(dtype="pa.from_numpy_dtype(x.dtype)", count="x.size", buffer="pa.py_buffer(x)"),
        _narrow(_FROM_BUFFER.format(dtype="pa.float32()", count="x.size", buffer="pa.py_buffer(x)")),
    ],
    ("tensorflow", "numpy"): [
        "np.asarray(x)",
        "x.__array__()",
        "np.asarray(memoryview(x))",
        "np.from_dlpack(x)",
    ],
    ("tensorflow", "torch"): [
        "torch.utils.dlpack.from_dlpack(tfd.to_dlpack(x))",
        "torch.from_dlpack(tfd.to_dlpack(x))",
        "torch.utils.dlpack.from_dlpack(x.__dlpack__())",
        _warns("torch.from_numpy(np.asarray(x))"),
        _narrow("torch.frombuffer(x, dtype=torch.float32)", warns=True),
    ],
    ("tensorflow", "jax"): ["jnp.from_dlpack(x)", "jax.device_put(np.asarray(x), may_alias=True)"],
    ("tensorflow", "pyarrow"): [
        "pa.array(np.asarray(x))",
        "pa.Array.from_dlpack(np.asarray(x))",
        _FROM_BUFFER.format(
            dtype="pa.from_numpy_dtype(x.dtype.as_numpy_dtype)", count="x.shape[0]", buffer="pa.py_buffer(x)"
        ),
        _narrow(_FROM_BUFFER.format(dtype="pa.float32()", count="x.shape[0]", buffer="pa.py_buffer(x)")),
    ],
    ("pyarrow", "numpy"): [
        "x.to_numpy()",
        "np.asarray(x)",
        "x.__array__()",
        _narrow("np.frombuffer(x.buffers()[1], np.float32)"),
    ],
    ("pyarrow", "torch"): [
        "torch.utils.dlpack.from_dlpack(x.__dlpack__(max_version=(1, 0)))",
        _warns("torch.from_numpy(x.to_numpy())"),
        "torch.as_tensor(x)",
        _narrow("torch.frombuffer(x.buffers()[1], dtype=torch.float32)"),
    ],
    ("pyarrow", "jax"): [_warns("jnp.from_dlpack(x)"), "jax.device_put(x.to_numpy(), may_alias=True)"],
    ("pyarrow", "tensorflow"): ["tf.convert_to_tensor(x)"],
}


def contenders(pair: Pair) -> list[Method]:
    """Return all contenders of a pair, zerocopy first, without missing libraries."""
    source, target = pair
    capsule = CAPSULES.get(source, "x.__dlpack__()")
    # pyarrow warns about legacy capsules; JAX and TensorFlow accept only these.
    warns = source == "pyarrow" and target in ("jax", "tensorflow")
    rows = [
        contender(f'zc.convert(x, "{target}")', "ours"),
        contender(DOCUMENTED[target].format(array="x", capsule=capsule), "documented", warns),
        *(contender(row) if isinstance(row, str) else row for row in IDIOMS[pair]),
        *_libraries(pair),
    ]
    return list({row.code: row for row in reversed(rows) if not row.missing()}.values())[::-1]


def essential(pair: Pair) -> list[Method]:
    """Return zerocopy and the documented call."""
    by_role = {row.role: row for row in reversed(contenders(pair))}
    return [by_role["ours"], by_role["documented"]]


def _libraries(pair: Pair) -> list[Method]:
    source, target = pair
    through = "tvm_ffi.from_dlpack(x)"
    call = DOCUMENTED[target].format(array=through, capsule=f"{through}.__dlpack__()")
    rows = [contender(call, "library", source == "pyarrow")]
    if target in ("torch", "numpy") and source not in ("pyarrow", "tensorflow"):
        xp, warns = f"xp_{target}", pair == ("jax", "torch")
        rows.append(contender(f"{xp}.asarray(x)", "library", warns))
        if not warns:  # move_to requires strides, which JAX arrays do not have
            rows.append(contender(f'sklearn_array_api.move_to(x, xp={xp}, device="cpu")', "library"))
    return rows


def pairs(wanted: Any = None) -> list[Pair]:
    """Return the pairs of different installed frameworks, filtered by `wanted`."""
    names = [
        name for name, subject in SUBJECTS.items() if (wanted is None or wanted(name)) and subject.installed()
    ]
    return [(a, b) for a, b in product(names, names) if a != b]


def sources(settings: Settings) -> list[Subject]:
    return [SUBJECTS[name] for name in dict.fromkeys(source for source, _ in pairs(settings.wants))]


def targets(source: Subject, settings: Settings) -> list[str]:
    return [target for name, target in pairs(settings.wants) if name == source.name]


def aliases(pair: Pair, x: Any, expected: Array, result: Any) -> str:
    """Return why a result is not that of zerocopy, or nothing.

    Type, dtype and values must be the same, and it must share the memory of the source.
    """
    return differs(pair, result, expected) or ("" if zc.shares_memory(x, result) else "copies")


def differs(pair: Pair, result: Any, expected: Array) -> str:
    """Return how type, dtype or values of a result differ from the expected ones."""
    target = SUBJECTS[pair[1]]
    ours = _type(pair, expected.dtype)
    if ours is not None and type(result) is not ours:
        return f"gives a {type(result).__qualname__}, not a {ours.__qualname__}"
    values = target.values(result)
    if values.dtype != expected.dtype or values.shape != expected.shape:
        return f"gives {values.dtype}{list(values.shape)}, not {expected.dtype}{list(expected.shape)}"
    # As bits, because NumPy cannot compare float8.
    bits = np.dtype(f"V{expected.dtype.itemsize}")
    same = np.array_equal(np.ascontiguousarray(values).view(bits), expected.view(bits))
    return "" if same else "gives other values"


@cache
def _type(pair: Pair, dtype: np.dtype[Any]) -> type | None:
    """Return the type that zerocopy gives, None if it refuses; cached, as containers have many leaves."""
    array = SUBJECTS[pair[0]].make(aligned_values(1, dtype))
    return type(zc.convert(array, pair[1])) if zc.explain(array, pair[1]).possible else None
