"""JAX arrays whose buffers are deleted while another framework aliases them (P4, P5)."""

from __future__ import annotations

import pytest
from helpers.tiers import sample_size

from zerocopy import registry

pytest.importorskip("jax")

#: Every installed framework but JAX, where the result is the array itself.
TARGETS = [name for name, info in registry.frameworks().items() if info.installed and name != "jax"]

# The last line of the output names the case that was running when the process ended.
PROGRAM = """
import ctypes, gc, os, warnings
import numpy as np, jax
from jax.extend.backend import clear_backends
import zerocopy as zc

warnings.simplefilter("ignore")
jax.config.update("jax_enable_x64", True)
NAMES = ["bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
         "float32", "float64", "complex64", "complex128", "bfloat16", "float8_e3m4", "float8_e4m3",
         "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
         "float8_e8m0fnu", "float4_e2m1fn", "int2", "int4", "uint2", "uint4"]
DTYPES = [np.dtype(getattr(jax.numpy, name)) for name in NAMES if hasattr(jax.numpy, name)]
copied = jax.jit(lambda a: a, donate_argnums=0)
ACTIONS = {
    "delete": lambda x: x.delete(),
    "donate": copied,
    "clear_backends": lambda x: None,
}

def content(result):
    try:
        view = zc.view(result)
    except zc.ZeroCopyError:  # a table, or packed booleans
        return repr(result)
    return ctypes.string_at(view.ptr, view.nbytes)

kept = []
for action, run in ACTIONS.items():
    for first, target in enumerate(os.environ["TARGETS"].split(",")):
        for dtype in DTYPES[first % EVERY :: EVERY]:
            for attempt in ("slow path", "route"):
                print(action, target, dtype, attempt, flush=True)
                x = jax.device_put(np.ones(500, dtype)).block_until_ready()
                try:
                    result = zc.convert(x, target)
                except zc.ZeroCopyError:
                    break
                before = content(result)
                run(x)
                del x
                assert content(result) == before
                kept.append((result, before))
print("clear_backends", flush=True)
assert len(kept) > 3 * len(os.environ["TARGETS"].split(","))
clear_backends()
gc.collect()
for result, before in kept:
    assert content(result) == before
print("drop", flush=True)
del result, kept
gc.collect()
print("held")
"""


@pytest.mark.hazard("jax#deleted-buffers")
def test_aliases_outlive_the_deletion_of_their_array(run_warm) -> None:
    process = run_warm(f"EVERY = {sample_size(1, 8)}{PROGRAM}", TARGETS=",".join(TARGETS))
    assert process.returncode == 0, process.stdout[-200:] + process.stderr[-2000:]
    assert process.stdout.endswith("held\n")
