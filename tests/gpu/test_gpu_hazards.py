"""P5 and P9 on the GPU: managed and page-locked memory, errors in flight, forks, arrays dropped too early.

Code that may abort runs in a separate process.
"""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from helpers.gpu_arrays import DEVICE, MARKS, NAMES, PAIRS, have, same, sample, side

import zerocopy as zc

pytestmark = MARKS


def run(code: str, **given: object) -> None:
    """Run a program with these names in a separate process, which must exit with 0 in time."""
    assignments = "".join(f"{name} = {value!r}\n" for name, value in given.items())
    completed = subprocess.run(
        [sys.executable, "-c", assignments + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert completed.returncode == 0, f"{completed.stdout}\n{completed.stderr}"


# -- memory that both sides can address ---------------------------------------------------


def _managed(name: str, values: np.ndarray):
    """Return a framework's array of these values in managed memory."""
    if name == "cupy":
        cupy = importlib.import_module("cupy")
        with cupy.cuda.using_allocator(cupy.cuda.malloc_managed):
            return cupy.array(values)
    cuda = importlib.import_module("numba.cuda")
    x = cuda.managed_array(values.shape, values.dtype)
    x[...] = values
    return x


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", ["cupy", "numba"])
@pytest.mark.parametrize("copy", [None, True])
def test_managed_memory_is_converted_as_planned(source: str, target: str, copy: bool | None) -> None:
    """Managed memory belongs to its device; the plan states whether it is aliased or copied."""
    side(source)
    target = side(target)
    values = sample()
    x = _managed(source, values)
    plan = zc.explain(x, to=target.name, device=DEVICE, copy=copy)
    assert plan.possible, plan
    result = zc.convert(x, to=target.name, device=DEVICE, copy=copy)
    assert zc.shares_memory(x, result) == plan.zero_copy
    same(target, result, values)


@pytest.mark.parametrize("source", ["cupy", "numba"])
def test_managed_memory_is_copied_to_numpy(source: str) -> None:
    side(source)
    assert np.array_equal(zc.convert(_managed(source, sample()), to="numpy"), sample())


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", ["cupy", "torch", "numba", "numba, mapped"])
def test_page_locked_memory_is_read_synchronously(source: str, target: str) -> None:
    """Page-locked memory is host memory whichever framework locked it, and is read synchronously."""
    side(source.partition(",")[0])
    target = side(target)
    values = sample(shape=(512, 512))
    if source == "torch":
        x = importlib.import_module("torch").from_numpy(values.copy()).pin_memory()
    elif source == "cupy":
        x = importlib.import_module("cupyx").zeros_pinned(values.shape, values.dtype)
        x[...] = values
    else:
        cuda = importlib.import_module("numba.cuda")
        # A mapped array is a subclass of ndarray, whose own view() is not NumPy's.
        make = cuda.mapped_array if "mapped" in source else cuda.pinned_array
        x = make(values.shape, values.dtype)
        x[...] = values
    result = zc.convert(x, to=target.name, device=DEVICE)
    x[...] = -1  # the transfer is complete, so it must not see this write
    same(target, result, values)


# -- arrays that are dropped while the device still reads them ----------------------------


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_memory_survives_a_kernel_that_outlives_the_source(source: str, target: str) -> None:
    """The kernel reads the memory about 100 ms after the last reference to its owner is dropped.

    The owner's pool reuses it for the next array, in the order of its own stream. JAX's streams
    do not wait for the default one, and JAX does not know about the kernel, so the test waits for it.
    """
    side("torch")
    torch = importlib.import_module("torch")
    source, target = side(source), side(target)
    values = sample(shape=(512, 512))
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)  # on the legacy default stream, for which all of them wait
    result = zc.convert(source.make(values), to=target.name)
    view = zc.convert(result, to="torch")
    late = view * 1
    if source.name == "jax":
        torch.cuda.current_stream().synchronize()
    del result, view
    gc.collect()
    junk = [source.make(np.full((512, 512), -1, "f4")) for _ in range(8)]
    assert np.array_equal(late.cpu().numpy(), values)
    assert junk


@pytest.mark.parametrize("target", ["cupy", "numba"])  # JAX reads on its own streams
def test_torch_memory_is_not_reused_while_a_stream_reads_it(target: str) -> None:
    """A non-blocking stream reads late; torch's allocator then has the dropped memory, and its own stream
    waits for no other.

    The same without a record of the stream shows that the test detects the race.
    """
    side("torch")
    torch = importlib.import_module("torch")
    side(target)
    values, count = torch.arange(1 << 22, dtype=torch.float32, device="cuda:0"), 8

    def reads_its_values(convert) -> bool:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        reader = torch.cuda.Stream()
        x, late = values.clone(), torch.empty_like(values)
        with torch.cuda.stream(reader):
            torch.cuda._sleep(200_000_000)
        alias = zc.convert(convert(x, reader), to="torch", stream=reader)
        with torch.cuda.stream(reader):
            late.copy_(alias)
        del alias, x
        gc.collect()
        junk = [torch.full_like(values, -1) for _ in range(count)]
        torch.cuda.synchronize()
        del junk
        return bool((late == values).all())

    def unrecorded(x, reader):
        return torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))

    assert reads_its_values(lambda x, reader: zc.convert(x, to=target, stream=reader))
    assert not reads_its_values(unrecorded), "the test shows no race on this device"


# -- streams without synchronisation ----------------------------------------------------------------

NO_ORDER = """
import jax, numpy as np, zerocopy as zc
host = np.arange(64, dtype="f4")
x = jax.device_put(host, jax.devices("cuda")[0]).block_until_ready()
assert zc.view(x).ptr == x.unsafe_buffer_pointer()
for name in names:
    y = zc.convert(x, to=name, stream=-1)
    assert zc.shares_memory(x, y) and np.array_equal(zc.convert(y, to="numpy"), host), name
"""


def test_jax_exports_without_synchronisation() -> None:
    """DLPack's -1 requests no synchronisation; XLA passes it to the driver as a stream's handle."""
    side("jax")
    run(NO_ORDER, names=[name for name in ("cupy", "torch", "numba") if have(name)])


# -- errors in flight ---------------------------------------------------------------------

IN_FLIGHT = """
import numpy as np, torch, zerocopy as zc
x = torch.arange(64.0, device="cuda:0")
y = zc.convert(x, to=target) if target != "numpy" else None
torch.cuda.synchronize()
# An index past the end: the kernel stops at its assertion, some time after this line.
x[torch.full((1,), 10**6, device="cuda:0")]
try:
    got = zc.convert(y if y is not None else x, to="numpy")
except zc.ZeroCopyError as error:
    assert error.__cause__ is not None, "the framework's own error is not chained"
    print(type(error).__name__, error)
else:
    raise SystemExit(f"values were read after the device had failed: {got[:3]}")
import os
os._exit(0)  # the context is lost: what modules do with it at the exit is theirs
"""


@pytest.mark.parametrize("target", ["numpy", "cupy", "numba"])
def test_earlier_device_error_is_raised_by_the_transfer(target: str) -> None:
    """After a device failure: a zerocopy error with the framework's error as its cause, and no values."""
    side("torch")
    if target != "numpy":
        side(target)
    run(IN_FLIGHT, target=target)


# -- forks --------------------------------------------------------------------------------

FORKED = """
import os, sys, traceback
import numpy as np, zerocopy as zc
for name in names: __import__(name)
host = np.arange(64, dtype="f4")
def use():
    for name in names:
        x = zc.convert(host, to=name, device="cuda:0")
        for other in names:
            assert np.array_equal(zc.convert(zc.convert(x, to=other), to="numpy"), host)
if begun: use()
sys.stdout.flush()
child = os.fork()
if child == 0:
    code = 1
    try:
        use()
        code = 0
    except (zc.ZeroCopyError, RuntimeError):
        code = 7
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
_, status = os.waitpid(child, 0)
ended = os.waitstatus_to_exitcode(status)
# CUDA cannot be used in the child of a process that has used it: an error, no hang and no crash.
assert ended == (7 if begun else 0), ended
use()
"""


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", ["cupy", "torch", "numba"])
def test_forked_child_raises_if_the_parent_used_cuda(name: str, begun: bool) -> None:
    """JAX is left out: it starts threads at import, and warns that it does not support fork."""
    side(name)
    run(FORKED, names=[name], begun=begun)
