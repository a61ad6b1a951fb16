"""A source that gives up or replaces its memory later cannot free memory that a result still uses (P4, P5).

Each program runs in a subprocess: memory that was freed is unmapped, and reading it ends the process.
"""

from __future__ import annotations

import pytest
from helpers.frameworks import HOST

import zerocopy as zc
from zerocopy import registry

torch = pytest.importorskip("torch")

TARGETS = [name for name in HOST if name != "torch"]
TABLES = [
    name
    for name, info in registry.frameworks().items()
    if info.installed and info.kind == "table" and "cpu" in info.devices
]

#: Every way in which torch replaces or frees the memory of a tensor that Python code still holds.
CHANGES = {
    "data": "t.data = torch.zeros(3, dtype=t.dtype)",
    "set_": "t.set_()",
    "set_ of another": "t.set_(torch.zeros(3, dtype=t.dtype))",
    "set_data of a module": "torch.nn.Module.half(holder(t))",
    "resize_ to more": "t.resize_(4 * t.numel())",
    "resize_ to less": "t.resize_(2)",
    "resize_as_": "t.resize_as_(torch.empty(4 * t.numel(), dtype=t.dtype))",
    "out=": "torch.cat([t.clone()] * 4, out=t)",
    "storage.resize_ to 0": "t.untyped_storage().resize_(0)",
    "storage.resize_ to more": "t.untyped_storage().resize_(1 << 25)",
    "resize of a view": "t.view(-1)[5:].untyped_storage().resize_(0)",
    "swap_tensors": "torch.utils.swap_tensors(t, torch.zeros(3, dtype=t.dtype))",
}

PROGRAM = """
import itertools, warnings
import numpy as np, torch, zerocopy as zc
warnings.simplefilter("ignore")  # out= warns that it resizes
if "jax" in {targets!r}:
    import jax
    jax.config.update("jax_enable_x64", True)

def holder(tensor):
    module = torch.nn.Module()
    module.register_buffer("x", tensor)
    return module

def fresh(dtype):
    # 256 KiB lie in pages of their own, which the allocator unmaps or gives to the next tensors.
    return (torch.arange(1 << 16) % 7).to(dtype)

def values(result):
    tensors = zc.convert(result, to="torch")
    return (tensors["x"] if isinstance(tensors, dict) else tensors).double()

failures = []
for target in {targets!r}:
    print(target, end=" ", flush=True)  # the last one has ended the process
    aliases = 0
    for dtype, change, options, times in itertools.product({dtypes}, {changes!r}, {options!r}, (1, 2)):
        t = fresh(dtype)
        x = {wrap}
        for _ in range(times):  # the second conversion takes the fast path
            result = zc.convert(x, to=target, **options)
        if target != "duckdb":  # a relation has memory only after it is read
            aliases += zc.shares_memory(x, result)
        del x
        try:
            exec({changes!r}[change])
        except RuntimeError as error:
            assert "resiz" in str(error), error  # torch refuses to resize the storage
        del t
        other = [torch.full((1 << 16,), 9).to(dtype) for _ in range(4)]
        if not torch.equal(values(result), fresh(dtype).double()):
            failures.append((str(dtype), change, options, times))
    assert not failures, failures
    print(aliases, flush=True)
"""


def run(run_warm, targets: list[str], wrap: str, dtypes: str, options: list[dict]) -> dict[str, int]:
    """Return the number of results for each target that aliased."""
    process = run_warm(
        PROGRAM.format(targets=targets, wrap=wrap, dtypes=dtypes, options=options, changes=CHANGES)
    )
    assert process.returncode == 0, (process.returncode, process.stdout, process.stderr[-3000:])
    return {target: int(aliases) for target, aliases in map(str.split, process.stdout.splitlines())}


@pytest.mark.hazard("torch#tensors-that-change-their-memory")
def test_tensor_that_changes_its_memory_leaves_results_intact(run_warm) -> None:
    options: list[dict] = [{}, {"copy": None, "writable": None}]
    aliases = run(run_warm, TARGETS, "t", "(torch.float32, torch.int16)", options)
    assert all(aliases[target] for target in TARGETS if target not in ("cupy", "numba")), aliases


def test_bfloat16_tensor_that_changes_its_memory_leaves_results_intact(run_warm) -> None:
    targets = [name for name in TARGETS if name in ("jax", "tensorflow", "numpy")]
    aliases = run(run_warm, targets, "t", "(torch.bfloat16,)", [{}, {"copy": None, "writable": None}])
    assert all(aliases[target] for target in targets), aliases


@pytest.mark.hazard("torch#tensors-that-change-their-memory")
def test_column_that_changes_its_memory_leaves_tables_intact(run_warm) -> None:
    aliases = run(run_warm, TABLES, "{'x': t}", "(torch.float32,)", [{}])
    assert list(aliases) == TABLES


@pytest.mark.hazard("torch#tensors-that-change-their-memory", "robustness#resized-storage")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("target", TARGETS)
def test_storage_of_an_aliased_tensor_is_not_resizable(target: str, dtype) -> None:
    """torch then refuses to resize it, as after ``x.numpy()``."""
    x = torch.ones(64, dtype=dtype)
    assert x.untyped_storage().resizable()
    if not zc.explain(x, target).possible:
        pytest.skip(f"{target} has no {dtype}")
    for _ in range(2):
        result = zc.convert(x, to=target)
        assert not (zc.shares_memory(x, result) and x.untyped_storage().resizable())


def test_view_keeps_memory_that_a_tensor_gives_up(run_warm) -> None:
    process = run_warm(
        """
        import numpy as np, torch, zerocopy as zc
        for change in ("t.data = torch.zeros(3)", "t.set_()"):
            t = torch.ones(1 << 20)
            view = zc.view(t)
            exec(change)
            other = torch.full((1 << 20,), 9.0)
            assert np.asarray(view.numpy()).sum() == 1 << 20
        """
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.hazard("torch#tensors-that-change-their-memory")
def test_buffers_that_are_converted_cannot_be_resized(run_warm) -> None:
    """bytearray, array.array, mmap and ndarray refuse, because the result exports their buffer."""
    process = run_warm(
        f"""
        import array, mmap
        import numpy as np, zerocopy as zc
        def check(target):
            raw = bytearray(b"a" * 4096)
            numbers = array.array("f", [1.0] * 1024)
            anonymous = mmap.mmap(-1, 4096)
            anonymous.write(b"a" * 4096)
            plain = np.ones(4096, np.uint8)
            grow = {{
                "bytearray": (raw, lambda: raw.extend(b"b" * 4096)),
                "array": (numbers, lambda: numbers.extend([2.0] * 1024)),
                "mmap": (anonymous, lambda: anonymous.close()),
                "ndarray": (plain, lambda: plain.resize(8192)),
            }}
            for name, (source, change) in grow.items():
                for options in ({{}}, {{"copy": None, "writable": None}}):
                    result = zc.convert(source, to=target, **options)
                    before = bytes(zc.convert(result, to="numpy", copy=True))
                    shared = zc.shares_memory(source, result)
                    try:
                        change()
                    except (BufferError, ValueError):
                        pass
                    else:
                        assert not shared, (target, name)
                    assert bytes(zc.convert(result, to="numpy", copy=True)) == before, (target, name)
        for target in {HOST!r}:
            print(target, flush=True)
            check(target)
        """
    )
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.hazard("torch#tensors-that-change-their-memory")
def test_hazard_ctypes_resize_frees_memory_under_a_buffer(run_warm) -> None:
    """ctypes does not count exports of its memory, so no guard is possible (docs/hazards.md)."""
    process = run_warm(
        """
        import ctypes
        import zerocopy as zc
        numbers = (ctypes.c_double * 64)()
        view, result = memoryview(numbers), zc.convert(numbers, "numpy")
        assert zc.view(result).ptr == ctypes.addressof(numbers)
        ctypes.resize(numbers, 1 << 22)  # no BufferError, as bytearray and array.array raise
        assert zc.view(result).ptr != ctypes.addressof(numbers)
        """
    )
    assert process.returncode == 0, process.stderr
