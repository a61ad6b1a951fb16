"""One table of who converts what, and how: ours, the documented call, by hand, libraries.

``x`` is the source. Each row is one expression as a user would write it, and
aliases memory that is aligned to 64 bytes. A row is *narrow* where it is right
for this array only: it names the dtype, or goes past an offset or a null bitmap.
Calls that copy have no row: what they cost is the copy.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.conversion.subjects import SUBJECTS, Array, aligned_values
from benchmarks.timing import Raised, Statement

Pair = tuple[str, str]


@dataclass(frozen=True)
class Contender:
    """One way to convert.

    Attributes
    ----------
    code : str
        An expression of ``x``.
    role : str
        One of :data:`benchmarks.suite.ROLES`.
    warns : bool
        Whether it may emit a warning: in the timed loop it is ignored, and paid for.
    needs : tuple of str
        The names of libraries in :data:`LIBRARIES` that it uses.
    """

    code: str
    role: str = "idiom"
    warns: bool = False
    needs: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """What a reader of the table should know about it."""
        notes = [_KNOWN_AS.get(self.needs[-1], self.needs[-1])] if self.needs else []
        notes += ["for this array only"] if self.role == "narrow" else []
        notes += ["warns"] if self.warns else []
        return ", ".join(notes)

    def installed(self) -> bool:
        """Whether the libraries that it uses could be imported."""
        return all(_installed(LIBRARIES[name]) for name in self.needs)


#: The one call by which each target documents that it takes DLPack: of an array,
#: or of a capsule.
DOCUMENTED = {
    "numpy": "np.from_dlpack({array})",
    "torch": "torch.from_dlpack({array})",
    "jax": "jax.dlpack.from_dlpack({array})",
    "tensorflow": "tfd.from_dlpack({capsule})",
    "pyarrow": "pa.Array.from_dlpack({array})",
}

#: How a source documents that it makes a capsule; the others have the method alone.
CAPSULES = {"torch": "torch.utils.dlpack.to_dlpack(x)", "tensorflow": "tfd.to_dlpack(x)"}

#: Other libraries: the name that the expression uses, and its module.
LIBRARIES = {
    "tvm_ffi": "tvm_ffi",
    "xp_torch": "array_api_compat.torch",
    "xp_numpy": "array_api_compat.numpy",
    # Not public, and the best known of what is made of `array-api-compat`.
    "sklearn_array_api": "sklearn.utils._array_api",
    # Maps over containers: see :mod:`benchmarks.conversion.containers`.
    "optree": "optree",
    "pytree": "torch.utils._pytree",
    # In a process of its own: see :mod:`benchmarks.conversion.rival`.
    "dlpack": "dlpack",
}

#: What a reader knows a library as, where its name in the expression does not say it.
_KNOWN_AS = {
    "xp_torch": "array_api_compat",
    "xp_numpy": "array_api_compat",
    "sklearn_array_api": "scikit-learn",
    "pytree": "not public",
    "dlpack": "pydlpack",
}


def _warns(code: str) -> Contender:
    return Contender(code, warns=True)


def _narrow(code: str, warns: bool = False) -> Contender:
    return Contender(code, "narrow", warns)


_FROM_BUFFER = "pa.Array.from_buffers({dtype}, {count}, [None, {buffer}])"

#: By hand. PyTorch warns once a process of memory that is not writable, and pyarrow
#: of each legacy capsule.
IDIOMS: dict[Pair, list[str | Contender]] = {
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
                dtype="pa.float32()",
                count="len(x)",
                buffer="pa.foreign_buffer(x.data_ptr(), x.nbytes, x)",
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
            dtype="pa.from_numpy_dtype(x.dtype.as_numpy_dtype)",
            count="x.shape[0]",
            buffer="pa.py_buffer(x)",
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


def contenders(pair: Pair) -> list[Contender]:
    """Return all contenders of a pair, ours first; without libraries that are not installed."""
    source, target = pair
    capsule = CAPSULES.get(source, "x.__dlpack__()")
    # pyarrow calls legacy capsules deprecated, and JAX and TensorFlow take no others.
    warns = source == "pyarrow" and target in ("jax", "tensorflow")
    found = [
        Contender(f'zc.convert(x, "{target}")', "ours"),
        Contender(DOCUMENTED[target].format(array="x", capsule=capsule), "documented", warns),
        *(Contender(row) if isinstance(row, str) else row for row in IDIOMS[pair]),
        *_libraries(pair),
    ]
    found = [c for c in found if c.installed()]
    return list({contender.code: contender for contender in reversed(found)}.values())[::-1]


def essential(pair: Pair) -> list[Contender]:
    """Return ours and the documented call."""
    by_role = {contender.role: contender for contender in reversed(contenders(pair))}
    return [by_role["ours"], by_role["documented"]]


def _libraries(pair: Pair) -> list[Contender]:
    source, target = pair
    through = "tvm_ffi.from_dlpack(x)"
    call = DOCUMENTED[target].format(array=through, capsule=f"{through}.__dlpack__()")
    found = [Contender(call, "library", warns=source == "pyarrow", needs=("tvm_ffi",))]
    if target in ("torch", "numpy") and source not in ("pyarrow", "tensorflow"):
        xp, warns = f"xp_{target}", pair == ("jax", "torch")
        found.append(Contender(f"{xp}.asarray(x)", "library", warns, needs=(xp,)))
        if not warns:  # move_to looks for strides, which JAX's arrays have not
            call = f'sklearn_array_api.move_to(x, xp={xp}, device="cpu")'
            found.append(Contender(call, "library", needs=(xp, "sklearn_array_api")))
    return found


def _installed(module: str) -> bool:
    top = module.partition(".")[0]
    return importlib.util.find_spec(top) is not None


def pairs(wanted: Any = None) -> list[Pair]:
    """Return the pairs of different frameworks that are installed, and wanted if that is said."""
    names = [
        name for name, subject in SUBJECTS.items() if (wanted is None or wanted(name)) and subject.installed()
    ]
    return [(a, b) for a, b in product(names, names) if a != b]


def namespace(pair: Pair, needs: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the names that a pair's expressions use, but for ``x``."""
    names: dict[str, Any] = {"zc": zc, "np": np}
    for name in pair:
        names |= SUBJECTS[name].namespace()
    return names | {name: import_module(LIBRARIES[name]) for name in needs}


def statement(contender: Contender, pair: Pair, x: Any, names: Mapping[str, Any] | None = None) -> Statement:
    """Return what is timed: the expression and its names."""
    return Statement(contender.code, {**namespace(pair, contender.needs), **(names or {}), "x": x})


def check(contender: Contender, pair: Pair, x: Any, expected: Array) -> str:
    """Return why a contender does not do the work that is measured; nothing if it does.

    It does if the result is what ours is: of the same type and dtype, with the
    same values, in the same memory.
    """
    try:
        with warnings.catch_warnings():
            if contender.warns:
                warnings.simplefilter("ignore")
            result = statement(contender, pair, x).value()
    except Exception as error:  # noqa: BLE001 - whatever a framework raises is the finding
        return Raised.of(error).why
    return differs(pair, result, expected) or ("" if zc.shares_memory(x, result) else "copies")


def differs(pair: Pair, result: Any, expected: Array) -> str:
    """Return in what a result is not what the target should have: its type, dtype, values."""
    target = SUBJECTS[pair[1]]
    ours = _type(pair, expected.dtype)
    if ours is not None and type(result) is not ours:
        return f"gives a {type(result).__qualname__}, not a {ours.__qualname__}"
    values = target.values(result)
    if values.dtype != expected.dtype or values.shape != expected.shape:
        return f"gives {values.dtype}{list(values.shape)}, not {expected.dtype}{list(expected.shape)}"
    # Bits: NumPy compares no float8.
    bits = np.dtype(f"V{expected.dtype.itemsize}")
    same = np.array_equal(np.ascontiguousarray(values).view(bits), expected.view(bits))
    return "" if same else "gives other values"


@cache
def _type(pair: Pair, dtype: np.dtype[Any]) -> type | None:
    """Return the type that ours gives, None of what it refuses; kept, for containers have many leaves."""
    made = SUBJECTS[pair[0]].make(aligned_values(1, dtype))
    return type(zc.convert(made, pair[1])) if zc.explain(made, pair[1]).possible else None
