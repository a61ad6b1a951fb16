"""P4, P5 and P7 on the GPU: lifetimes, leaks by the driver's figure, out of memory, threads, exit."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers.gpu_arrays import (
    DEVICE,
    MARKS,
    NAMES,
    PAIRS,
    InterfaceAlone,
    free_bytes,
    have,
    same,
    sample,
    side,
)

import zerocopy as zc

pytestmark = MARKS

MIB = 1 << 20


def _settle() -> None:
    gc.collect()
    if have("torch"):
        torch = importlib.import_module("torch")
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    if have("cupy"):
        cupy = importlib.import_module("cupy")
        cupy.get_default_memory_pool().free_all_blocks()
    if have("numba"):
        # Numba defers deallocation: up to ten arrays at once (numba.cuda.cudadrv.driver._PendingDeallocs).
        importlib.import_module("numba.cuda").current_context().memory_manager.deallocations.clear()


def _used(name: str) -> int:
    """Return the bytes in use according to a framework's allocator."""
    if name == "cupy":
        return importlib.import_module("cupy").get_default_memory_pool().used_bytes()
    if name == "torch":
        return importlib.import_module("torch").cuda.memory_allocated()
    if name == "jax":
        stats = importlib.import_module("jax").devices("cuda")[0].memory_stats()
        if stats:
            return stats["bytes_in_use"]
    pytest.skip(f"{name} does not count its allocations")


def _eventually(true: Callable[[], bool]) -> bool:
    """Poll for some seconds: JAX's threads free memory with a delay."""
    for _ in range(50):
        gc.collect()
        if true():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_result_outlives_its_source(source: str, target: str) -> None:
    source, target = side(source), side(target)
    values = sample(shape=(512, 512))
    result = zc.convert(source.make(values), to=target.name)
    gc.collect()
    # These would reuse and overwrite freed memory.
    junk = [source.make(np.full((512, 512), -1, "f4")) for _ in range(8)]
    same(target, result, values)
    assert junk


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_source_outlives_its_result(source: str, target: str) -> None:
    source, target = side(source), side(target)
    values = sample(shape=(512, 512))
    x = source.make(values)
    for _ in range(3):
        zc.convert(x, to=target.name)
    gc.collect()
    junk = [target.make(np.full((512, 512), -1, "f4")) for _ in range(8)]
    same(source, x, values)
    assert junk


@pytest.mark.parametrize("order", ["source first", "result first"])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_dropping_both_frees_the_memory(source: str, target: str, order: str) -> None:
    source, target = side(source), side(target)
    host = np.ones((1024, 1024), "f4")
    zc.convert(source.make(host), to=target.name)  # allocations that happen once
    gc.collect()
    before = _used(source.name)
    x = source.make(host)
    result = zc.convert(x, to=target.name)
    assert _used(source.name) >= before + host.nbytes
    if order == "source first":
        del x
        gc.collect()
        assert _used(source.name) >= before + host.nbytes, "the result holds it"
        del result
    else:
        del result
        gc.collect()
        assert _used(source.name) >= before + host.nbytes, "the source holds it"
        del x
    assert _eventually(lambda: _used(source.name) <= before + 4096)


@pytest.mark.parametrize("target", ["cupy", "torch", "numba"])
def test_bare_producer_stays_alive_while_aliased(target: str) -> None:
    cupy, target = side("cupy"), side(target)
    bare = InterfaceAlone(cupy.make(sample()))
    alive = weakref.ref(bare)
    result = zc.convert(bare, to=target.name)
    del bare
    gc.collect()
    assert alive() is not None
    same(target, result, sample())
    del result
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_result_can_be_dropped_in_another_thread(source: str, target: str) -> None:
    source, target = side(source), side(target)
    for _ in range(20):
        box = [zc.convert(source.make(sample()), to=target.name)]
        thread = threading.Thread(target=box.clear)
        thread.start()
        thread.join()
    same(source, source.make(sample()), sample())


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_no_leak_over_10000_conversions(source: str, target: str) -> None:
    """An alias that leaks holds its source: one of each 500 would hold 160 MiB in all."""
    source, target = side(source), side(target)
    host = np.ones(2 * MIB, "f4")

    def convert(times: int) -> None:
        x = source.make(host)
        for _ in range(times):
            zc.convert(x, to=target.name)
        source.values(x)

    convert(100)
    _settle()
    before = free_bytes()
    for _ in range(20):
        convert(500)
    assert _eventually(lambda: _settle() or before - free_bytes() < 64 * MIB)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_no_leak_over_copies(source: str, target: str) -> None:
    source, target = side(source), side(target)
    x = source.make(np.ones(65_536, "f4"))  # 256 KiB: a leak of each would be 250 MiB
    for _ in range(100):
        zc.convert(x, to=target.name, copy=True)
    source.values(x)
    _settle()
    before = free_bytes()
    for _ in range(1000):
        zc.convert(x, to=target.name, copy=True)
    source.values(x)
    assert _eventually(lambda: _settle() or before - free_bytes() < 64 * MIB)


@pytest.mark.parametrize("name", NAMES)
def test_no_leak_over_transfers(name: str) -> None:
    framework, host = side(name), np.ones(65_536, "f4")
    for _ in range(100):
        zc.convert(zc.convert(host, to=name, device=DEVICE), to="numpy")
    _settle()
    before = free_bytes()
    for _ in range(1000):
        x = zc.convert(host, to=name, device=DEVICE)
        zc.convert(x, to="numpy")
    framework.values(x)
    del x
    assert _eventually(lambda: _settle() or before - free_bytes() < 64 * MIB)


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", ["cupy", "torch", "numba"])
def test_out_of_memory_raises_memory_error(source: str, target: str) -> None:
    """A 4 TiB broadcast of one number is refused, and later conversions work."""
    source, target = side(source), side(target)
    huge = source.broadcast(np.ones(1, "f4"), (1 << 40,))
    _settle()
    before = free_bytes()
    with pytest.raises(MemoryError):
        zc.convert(huge, to=target.name, copy=True)
    gc.collect()
    result = zc.convert(source.make(sample()), to=target.name, copy=True)
    same(target, result, sample())
    _settle()
    assert before - free_bytes() < 64 * MIB


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_threads_convert_private_and_shared_arrays(source: str, target: str) -> None:
    """Eight threads, each with private arrays and one shared array."""
    source, target = side(source), side(target)
    shared = source.make(sample())
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(50):
                values = np.full((64, 64), seed * 100 + i, "f4")
                same(target, zc.convert(source.make(values), to=target.name), values)
                same(target, zc.convert(shared, to=target.name, copy=bool(i % 2) or None), sample())
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("source", NAMES)
def test_interpreter_exits_with_live_arrays(source: str) -> None:
    """Deleters also run after modules are cleared: no crash, no message."""
    side(source)
    targets = [target for target in NAMES if target != source and have(target)]
    code = f"""
        import numpy as np, zerocopy as zc
        host = np.ones((64, 64), "f4")
        x = zc.convert(host, to={source!r}, device="cuda:0")
        aliases = [zc.convert(x, to=target) for target in {targets!r}]
        assert all(zc.shares_memory(x, y) for y in aliases)
        others = [zc.convert(zc.convert(host, to={source!r}, device="cuda:0"), to=t) for t in {targets!r}]
    """
    completed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    )
    assert completed.returncode == 0, completed.stderr
    assert "Exception ignored" not in completed.stderr
    assert "Traceback" not in completed.stderr
