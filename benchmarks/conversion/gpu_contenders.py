"""The contenders of each pair on a CUDA device, and across the bus.

``x`` is the source; ``gpu`` is JAX's device. Each row is one expression as a user would
write it. Between frameworks of the device it aliases; to and from NumPy it copies, and
must give the same values on the right device.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import Method, used
from benchmarks.conversion.contenders import Pair, contender
from benchmarks.conversion.subjects import Array, Subject
from benchmarks.timing import Statement


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
        Subject(
            "cupy",
            lambda values: _module("cupy").array(values),
            lambda x: np.asarray(_module("cupy").asnumpy(x)),
            lambda: bool(_module("cupy").is_available()),
        ),
        Subject(
            "torch",
            lambda values: _module("torch").tensor(values, device="cuda"),
            lambda x: np.asarray(x.cpu().numpy()),
            lambda: bool(_module("torch").cuda.is_available()),
        ),
        # np.array copies; JAX keeps a reference to the result of asarray.
        Subject("jax", _jax, lambda x: np.array(x), _jax_sees),
        Subject(
            "numba",
            lambda values: _module("numba.cuda").to_device(values),
            lambda x: np.asarray(x.copy_to_host()),
            lambda: bool(_module("numba.cuda").is_available()),
        ),
    )
}
#: The host's side of the bus.
HOST = Subject("numpy", lambda values: values.copy(), lambda x: np.array(x))

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
    ("jax", "torch"): ["torch.as_tensor(x, device='cuda')", "torch.utils.dlpack.from_dlpack(x.__dlpack__())"],
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


def contenders(pair: Pair) -> list[Method]:
    """Return all contenders of a pair, zerocopy first, without missing libraries."""
    source, target = pair
    if "numpy" in pair:
        ours, documented, idioms = _ACROSS[pair]
        rows = [contender(ours, "ours"), contender(documented, "documented"), *map(contender, idioms)]
        if pair in (("numpy", "torch"), ("torch", "numpy")):
            device = "cuda" if target == "torch" else "cpu"
            call = f"sklearn_array_api.move_to(x, xp=xp_{target}, device='{device}')"
            rows.append(contender(call, "library"))
    else:
        documented = _FROM_NUMBA[target] if source == "numba" else _DOCUMENTED[target]
        rows = [
            contender(f"zc.convert(x, '{target}')", "ours"),
            contender(documented, "documented"),
            *map(contender, _IDIOMS.get(pair, [])),
        ]
        if "numba" not in pair:
            rows.append(contender(documented.replace("(x)", "(tvm_ffi.from_dlpack(x))"), "library"))
    # Some contenders of other pairs go through CuPy.
    return [c for c in rows if not c.missing() and ("cp" not in used(c.code) or "cupy" in present())]


@cache
def present() -> dict[str, Subject]:
    """Import the frameworks, and return those that can use a device."""
    return {name: side for name, side in SIDES.items() if side.installed()}


def on_device() -> list[Pair]:
    """Return the pairs of different frameworks on the device."""
    return [(a, b) for a, b in product(present(), present()) if a != b]


def across() -> list[Pair]:
    """Return the pairs with NumPy."""
    return [pair for pair in _ACROSS if any(name in present() for name in pair)]


def side(name: str) -> Subject:
    """Return a framework on the device, or NumPy."""
    return HOST if name == HOST.name else SIDES[name]


def statement(method: Method, x: Any) -> Statement:
    """Return the statement to time: the expression and its names."""
    names = {"x": x}
    if "gpu" in used(method.code):
        names["gpu"] = _module("jax").devices("cuda")[0]
    return method.statement(names)


def differs(pair: Pair, x: Any, expected: Array, result: Any) -> str:
    """Return why a result is not that of zerocopy, or nothing.

    Type, values and device must be the same; between frameworks on the device it must share memory.
    """
    ours = statement(contenders(pair)[0], x).value()
    if type(result) is not type(ours):
        return f"gives a {type(result).__qualname__}, not a {type(ours).__qualname__}"
    device, expected_device = zc.view(result).device, zc.view(ours).device
    if device != expected_device:
        return f"gives memory on {device}, not {expected_device}"
    values = side(pair[1]).values(result)
    if values.dtype != expected.dtype or not np.array_equal(values, expected):
        return "gives other values"
    return "copies" if "numpy" not in pair and not zc.shares_memory(x, result) else ""
