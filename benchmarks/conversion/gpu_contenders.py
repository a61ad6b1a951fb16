"""The contenders of each pair on a CUDA device, and across the bus.

``x`` is the source; ``gpu`` is JAX's device. Each row is one expression as a user would
write it. Between frameworks of the device it aliases; to and from NumPy it copies, and
must give the same values on the right device.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import refusal
from benchmarks.conversion.contenders import LIBRARIES, Contender, Pair
from benchmarks.conversion.subjects import Array
from benchmarks.timing import Statement


@dataclass(frozen=True)
class Side:
    """One framework on the device, used through public calls.

    Attributes
    ----------
    name : str
        The name that ``to=`` takes.
    modules : dict of str to str
        Modules by the names that user code has for them.
    sees : callable
        Whether it can use a device.
    make, values : callable
        ``make(ndarray) -> array`` on the device; ``values(array) -> ndarray``, which
        waits for pending work.
    """

    name: str
    modules: Mapping[str, str]
    sees: Callable[[], bool]
    make: Callable[[Array], Any]
    values: Callable[[Any], Array]

    def missing(self) -> str:
        """Return why it is not measured, or nothing."""
        if importlib.util.find_spec(self.name) is None:
            return f"{self.name} is not installed"
        return "" if self.sees() else f"{self.name} cannot use a GPU"


def _module(name: str) -> Any:
    return import_module(name)


def _jax_sees() -> bool:
    try:
        return bool(_module("jax").devices("cuda"))
    except RuntimeError:  # JAX has no backend of that name
        return False


def _jax(values: Array) -> Any:
    jax = _module("jax")
    # A copy, because JAX may keep a reference to the host memory.
    return jax.device_put(values.copy(), jax.devices("cuda")[0]).block_until_ready()


SIDES = {
    side.name: side
    for side in (
        Side(
            "cupy",
            {"cp": "cupy"},
            lambda: bool(_module("cupy").is_available()),
            lambda values: _module("cupy").array(values),
            lambda x: np.asarray(_module("cupy").asnumpy(x)),
        ),
        Side(
            "torch",
            {"torch": "torch"},
            lambda: bool(_module("torch").cuda.is_available()),
            lambda values: _module("torch").tensor(values, device="cuda"),
            lambda x: np.asarray(x.cpu().numpy()),
        ),
        # np.array copies; JAX keeps a reference to the result of asarray.
        Side("jax", {"jax": "jax", "jnp": "jax.numpy"}, _jax_sees, _jax, lambda x: np.array(x)),
        Side(
            "numba",
            {"cuda": "numba.cuda"},
            lambda: bool(_module("numba.cuda").is_available()),
            lambda values: _module("numba.cuda").to_device(values),
            lambda x: np.asarray(x.copy_to_host()),
        ),
    )
}
#: The host's side of the bus.
HOST = Side("numpy", {"np": "numpy"}, lambda: True, lambda values: values.copy(), lambda x: np.array(x))

#: The call that each target documents for memory on the device. Numba supports only the CUDA Array
#: Interface, so that conversions from it use that too.
_DOCUMENTED = {
    "cupy": "cp.from_dlpack(x)",
    "torch": "torch.from_dlpack(x)",
    "jax": "jax.dlpack.from_dlpack(x)",
    "numba": "cuda.as_cuda_array(x)",
}
_FROM_NUMBA = {"cupy": "cp.asarray(x)", "torch": "torch.as_tensor(x, device='cuda')", "jax": "jnp.asarray(x)"}

#: Code by hand, on the device.
_IDIOMS: dict[Pair, list[str]] = {
    ("cupy", "torch"): [
        "torch.as_tensor(x, device='cuda')",
        "torch.asarray(x)",
        "torch.utils.dlpack.from_dlpack(x.__dlpack__())",
    ],
    ("cupy", "jax"): ["jnp.from_dlpack(x)", "jnp.asarray(x)"],
    ("torch", "cupy"): ["cp.asarray(x)", "cp.from_dlpack(x.detach())"],
    ("torch", "jax"): ["jnp.from_dlpack(x)", "jnp.asarray(x)"],
    ("torch", "numba"): ["cuda.as_cuda_array(x.detach())"],
    ("jax", "cupy"): ["cp.asarray(x)"],
    ("jax", "torch"): [
        "torch.as_tensor(x, device='cuda')",
        "torch.utils.dlpack.from_dlpack(x.__dlpack__())",
    ],
    ("jax", "numba"): ["cuda.as_cuda_array(cp.from_dlpack(x))"],
    ("numba", "torch"): ["torch.from_dlpack(cp.asarray(x))"],
    ("numba", "jax"): ["jnp.from_dlpack(cp.asarray(x))", "jax.dlpack.from_dlpack(cp.asarray(x))"],
}

#: Across the bus: zerocopy, the call that the framework documents, and code by hand.
_ACROSS: dict[Pair, tuple[str, str, list[str]]] = {
    ("numpy", "cupy"): ("zc.convert(x, 'cupy')", "cp.asarray(x)", ["cp.array(x)"]),
    ("numpy", "torch"): (
        "zc.convert(x, 'torch', device='cuda')",
        "torch.from_numpy(x).to('cuda')",
        [
            "torch.as_tensor(x, device='cuda')",
            "torch.asarray(x, device='cuda')",
            "torch.tensor(x, device='cuda')",
        ],
    ),
    ("numpy", "jax"): (
        "zc.convert(x, 'jax', device='cuda')",
        "jax.device_put(x, gpu)",
        ["jnp.asarray(x)", "jnp.array(x)"],
    ),
    ("numpy", "numba"): ("zc.convert(x, 'numba')", "cuda.to_device(x)", []),
    ("cupy", "numpy"): ("zc.convert(x, 'numpy')", "cp.asnumpy(x)", ["x.get()"]),
    ("torch", "numpy"): (
        "zc.convert(x, 'numpy')",
        "x.cpu().numpy()",
        ["x.detach().cpu().numpy()", "x.numpy(force=True)", "x.to('cpu').numpy()"],
    ),
    ("numba", "numpy"): ("zc.convert(x, 'numpy')", "x.copy_to_host()", []),
}
# JAX to NumPy has no row: JAX caches the fetched data, so that only the first call transfers.


def contenders(pair: Pair) -> list[Contender]:
    """Return all contenders of a pair, zerocopy first, without missing libraries."""
    source, target = pair
    if "numpy" in pair:
        ours, documented, idioms = _ACROSS[pair]
        rows = [Contender(ours, "ours"), Contender(documented, "documented"), *map(Contender, idioms)]
        if pair in (("numpy", "torch"), ("torch", "numpy")):
            device = "cuda" if target == "torch" else "cpu"
            xp = f"xp_{target}"
            call = f"sklearn_array_api.move_to(x, xp={xp}, device='{device}')"
            rows.append(Contender(call, "library", needs=(xp, "sklearn_array_api")))
        return [contender for contender in rows if contender.installed()]
    documented = _FROM_NUMBA[target] if source == "numba" else _DOCUMENTED[target]
    rows = [
        Contender(f"zc.convert(x, '{target}')", "ours"),
        Contender(documented, "documented"),
        *map(Contender, _IDIOMS.get(pair, [])),
    ]
    if "numba" not in pair:
        through = documented.replace("(x)", "(tvm_ffi.from_dlpack(x))")
        rows.append(Contender(through, "library", needs=("tvm_ffi",)))
    # Some contenders of other pairs go through CuPy.
    names = {*pair, *present()}
    return [c for c in rows if c.installed() and ("cp." not in c.code or "cupy" in names)]


@cache
def present() -> dict[str, Side]:
    """Import the frameworks, and return those that can use a device."""
    return {name: side for name, side in SIDES.items() if not side.missing()}


def on_device() -> list[Pair]:
    """Return the pairs of different frameworks on the device."""
    return [(a, b) for a, b in product(present(), present()) if a != b]


def across() -> list[Pair]:
    """Return the pairs with NumPy."""
    return [pair for pair in _ACROSS if any(name in present() for name in pair)]


def side(name: str) -> Side:
    """Return a framework on the device, or NumPy."""
    return HOST if name == HOST.name else SIDES[name]


def statement(contender: Contender, x: Any) -> Statement:
    """Return the statement to time: the expression and its names."""
    names: dict[str, Any] = {"zc": zc, "np": np, "x": x}
    for each in present().values():
        names |= {alias: import_module(module) for alias, module in each.modules.items()}
    if "gpu" in contender.code:
        names["gpu"] = names["jax"].devices("cuda")[0]
    return Statement(contender.code, names | {n: import_module(LIBRARIES[n]) for n in contender.needs})


def check(contender: Contender, pair: Pair, x: Any, expected: Array) -> str:
    """Return why a result is not that of zerocopy, or nothing.

    Type, values and device must be the same; between frameworks on the device it must share memory.
    """
    ours = zc_result(pair, x)

    def wrong() -> str:
        result = statement(contender, x).value()
        if type(result) is not type(ours):
            return f"gives a {type(result).__qualname__}, not a {type(ours).__qualname__}"
        device, expected_device = zc.view(result).device, zc.view(ours).device
        if device != expected_device:
            return f"gives memory on {device}, not {expected_device}"
        values = side(pair[1]).values(result)
        if values.dtype != expected.dtype or not np.array_equal(values, expected):
            return "gives other values"
        return "copies" if "numpy" not in pair and not zc.shares_memory(x, result) else ""

    return refusal(wrong)


def zc_result(pair: Pair, x: Any) -> Any:
    """Return the result of zerocopy."""
    return statement(contenders(pair)[0], x).value()
