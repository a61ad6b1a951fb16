"""``empty``, ``aligned`` and ``aligned_numpy``: addresses at multiples of 64 bytes, and handlers restored."""

from __future__ import annotations

import asyncio
import threading
from contextvars import Context
from typing import Any

import numpy as np
import pytest
from helpers.frameworks import ALIASING

import zerocopy as zc
from zerocopy import registry
from zerocopy._native import core
from zerocopy.pool.host import c_library, data_handler

handler = pytest.mark.skipif(
    c_library.refusal() is not None or data_handler.refusal() is not None,
    reason=str(c_library.refusal() or data_handler.refusal()),
)
has_core = hasattr(core, "allocator_functions")


def offset(array: Any) -> int:
    return array.ctypes.data % 64


def off_by_one(count: int, dtype: str = "float32") -> np.ndarray:
    """Return an array one element after a multiple of 64 bytes."""
    array = zc.empty(count + 1, dtype)
    array[:] = np.arange(count + 1)
    return array[1:]


# -- empty and aligned --------------------------------------------------------------------


@pytest.mark.parametrize("align", [1, 64, 4096, 1 << 21])
@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "bool", "M8[s]", "U3", "V5", "S0", "int4", [("a", "u1")]]
)
def test_empty_arrays_have_the_shape_dtype_and_alignment(align: int, dtype: Any) -> None:
    for shape in ((), 0, 5, (3, 0), [2, 3], (1, 2, 3)):
        array = zc.empty(shape, dtype, align)
        counts = (shape,) if isinstance(shape, int) else tuple(shape)
        assert array.shape == counts
        assert array.ctypes.data % align == 0
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert str(array.dtype) == str(zc.empty(1, dtype).dtype)
    assert zc.empty(2).dtype == np.float64
    assert zc.empty(np.array([2, 3])).shape == zc.empty(iter([2, 3])).shape == (2, 3)
    assert zc.empty(np.array(4)).shape == (4,)


def test_empty_takes_the_dtypes_of_frameworks() -> None:
    torch = pytest.importorskip("torch")
    assert zc.empty(3, torch.bfloat16).dtype.name == "bfloat16"
    assert zc.empty(3, "torch.float16").dtype == np.float16


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((-1,), zc.errors.OptionError, "a dimension is negative"),
        (("34",), zc.errors.OptionError, "the shape is not an int or several"),
        (("",), zc.errors.OptionError, "the shape is not an int or several"),
        ((2.5,), zc.errors.OptionError, "the shape is not an int or several"),
        (((1 << 62, 4),), zc.errors.OptionError, "NumPy refuses the shape"),
        (((1,) * 70,), zc.errors.OptionError, "NumPy refuses the shape"),
        ((3, "flaot32"), zc.errors.OptionError, "did you mean 'float32'"),
        ((3, [("a", "f4"), ("a", "f4")]), zc.errors.OptionError, "is not the dtype of"),
        ((3, object), zc.UnsupportedConversionError, "with zc.aligned_numpy"),
        ((3, "f4", 48), zc.errors.OptionError, "align=48 is not a power of 2"),
        ((3, "f4", 0), zc.errors.OptionError, "align=0"),
        ((3, "f4", 64.0), zc.errors.OptionError, "align=64.0"),
        ((1 << 55,), MemoryError, "Unable to allocate"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        zc.empty(*arguments)


def test_an_aligned_array_is_returned_itself() -> None:
    x = zc.empty((4, 4))
    assert zc.aligned(x) is x
    assert zc.aligned(x.T) is not None
    assert zc.aligned(x.T).base is x.T.base
    none = off_by_one(0)
    assert zc.aligned(none) is none


@pytest.mark.parametrize("dtype", ["float32", ">i2", "M8[D]", "bool", "complex128"])
def test_another_array_is_copied_with_its_values_and_dtype(dtype: str) -> None:
    array = np.arange(40).reshape(5, 8)[:, 1:].astype(dtype)
    memory = zc.empty(array.nbytes + 1, "u1")
    x = np.ndarray(array.shape, dtype, memory, 1)
    x[:] = array
    copy = zc.aligned(x)
    assert offset(copy) == 0
    assert copy.dtype == x.dtype
    assert (copy == array).all()
    assert not np.shares_memory(copy, x)
    assert zc.aligned(x, 4096).ctypes.data % 4096 == 0


@pytest.mark.parametrize("to", ALIASING)
def test_arrays_of_each_framework_are_aligned_or_refused(to: str) -> None:
    x = off_by_one(32)
    tensor = zc.convert(x, to)
    if registry.by_name(to).kind != "tensor" and zc.view(tensor).ptr % 64:
        with pytest.raises(zc.UnsupportedConversionError, match="lose its name or its labels") as caught:
            zc.aligned(tensor)
        copy = eval(caught.value.remedy.partition(" is ")[0], {"zc": zc, "x": tensor})
    else:
        copy = zc.aligned(tensor)
        assert type(copy) is type(tensor)
    assert zc.view(copy).ptr % 64 == 0
    assert (np.asarray(zc.convert(copy, "numpy")) == x).all()
    assert zc.aligned(copy) is copy


def test_columns_are_refused_unless_they_are_aligned() -> None:
    pl = pytest.importorskip("polars")
    with pytest.raises(zc.UnsupportedConversionError, match="lose its name"):
        zc.aligned(pl.Series("a", off_by_one(32)))
    series = pl.Series("a", zc.aligned(off_by_one(32)))
    assert zc.aligned(series) is series


def test_bytes_and_numbers_become_arrays_of_numpy() -> None:
    assert zc.aligned([1.0, 2.0]).tolist() == [1, 2]
    assert offset(zc.aligned(memoryview(off_by_one(8)))) == 0
    with pytest.raises(zc.ZeroCopyError, match=r"aligned\(str\)"):
        zc.aligned("text")
    with pytest.raises(zc.ZeroCopyError, match="sparse"):
        zc.aligned(pytest.importorskip("torch").eye(3).to_sparse())


def test_a_copy_of_a_subclass_has_the_class_of_the_framework() -> None:
    torch = pytest.importorskip("torch")

    class Own(torch.Tensor):
        pass

    x = torch.from_numpy(off_by_one(8)).as_subclass(Own)
    assert type(zc.aligned(x)) is torch.Tensor


def test_the_fix_of_a_tensor_that_requires_grad_aligns_it() -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(off_by_one(8)).requires_grad_()
    with pytest.raises(zc.UnsupportedConversionError, match="requires grad") as caught:
        zc.aligned(x)
    copy = eval(caught.value.remedy.partition(" aligns ")[0], {"zc": zc, "x": x})
    assert copy.data_ptr() % 64 == 0
    assert torch.equal(copy, x.detach())


# -- aligned_numpy -------------------------------------------------------------------------


def name() -> str:
    return data_handler._module().get_handler_name()


@handler
def test_arrays_of_the_block_are_aligned_and_others_are_as_before() -> None:
    default = name()
    with zc.aligned_numpy():
        assert name() == "zerocopy_aligned"
        makers = [np.ones, np.empty, lambda n: np.arange(n) + 1.0]
        makers += [np.zeros] if has_core else []
        arrays = [make(n) for make in makers for n in (1, 7, 100, 1000, 10**5, 10**6, 5 * 10**6)]
        assert {offset(array) for array in arrays} == {0}
        with zc.aligned_numpy():
            pass
        assert name() == "zerocopy_aligned"
    assert name() == default
    if has_core:
        arrays[0].resize(1000, refcheck=False)
        assert offset(arrays[0]) == 0
    del arrays


@handler
def test_an_exception_restores_the_handler() -> None:
    default, block = name(), zc.aligned_numpy()
    for _ in range(2):
        with pytest.raises(KeyError), block:
            raise KeyError(name())
        assert name() == default
    assert not callable(block)  # a decorated generator or coroutine would run outside of the block


@handler
def test_blocks_that_overlap_restore_the_handler() -> None:
    default = name()

    def suspended() -> Any:
        with zc.aligned_numpy():
            yield name()

    first, second = suspended(), suspended()
    assert next(first) == next(second) == "zerocopy_aligned"
    first.close()
    assert name() == "zerocopy_aligned"
    second.close()
    assert name() == default
    third = suspended()
    Context().run(next, third)
    third.close()  # in a context that has not entered the block
    assert name() == default


@handler
def test_other_threads_have_their_own_handler() -> None:
    default, seen = name(), []

    def thread() -> None:
        seen.append(name())
        with zc.aligned_numpy():
            seen.append(name())
        seen.append(name())

    with zc.aligned_numpy():
        worker = threading.Thread(target=Context().run, args=(thread,))
        worker.start()
        worker.join()
        assert name() == "zerocopy_aligned"
    assert seen == [default, "zerocopy_aligned", default]


@handler
def test_tasks_have_their_own_handler() -> None:
    default = name()

    async def inside(entered: asyncio.Event, leave: asyncio.Event) -> None:
        with zc.aligned_numpy():
            entered.set()
            await leave.wait()
            assert name() == "zerocopy_aligned"
        assert name() == default

    async def main() -> None:
        entered, leave = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(inside(entered, leave))
        await entered.wait()
        assert name() == default
        leave.set()
        await task
        cancelled = asyncio.create_task(inside(entered, asyncio.Event()))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert name() == default

    asyncio.run(main())
    assert name() == default


@handler
def test_threads_allocate_at_the_same_time() -> None:
    wrong = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(300):
            with zc.aligned_numpy():
                array = np.full(int(rng.integers(1, 10**5)), seed, "u1")
            wrong.append(offset(array) or not (array == seed).all())
            array.resize(array.size * 2, refcheck=False)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 1200
    assert not any(wrong)


@handler
def test_a_pool_is_installed_and_closed_within_the_block(run_python: Any) -> None:
    completed = run_python(
        """
import numpy as np, zerocopy as zc
with zc.aligned_numpy():
    a = np.ones(1000)
    pool = zc.install_pool(host="aligned")
    b = np.ones(1000)
    pool.close()
    c = np.ones(1000)
pool = zc.install_pool(host="aligned")
d = np.ones(1000)
with zc.aligned_numpy():
    e = np.ones(1000)
pool.close()
del a, c
print([x.ctypes.data % 64 for x in (b, d, e)])
"""
    )
    assert (completed.returncode, completed.stdout) == (0, "[0, 0, 0]\n"), completed.stderr


@handler
@pytest.mark.parametrize("setting", ["", "0"])
def test_the_interpreter_ends_with_live_arrays(run_python: Any, setting: str) -> None:
    completed = run_python(
        """
import atexit, sys
import numpy as np, zerocopy as zc
with zc.aligned_numpy():
    sys.kept = [f(n) for n in (1, 100, 10**4, 5 * 10**6) for f in (np.zeros, np.ones)]
    cycle = [np.ones(10**4)]
    cycle.append(cycle)
    atexit.register(lambda: sys.kept[0].resize(10**4, refcheck=False))
    assert not any(x.ctypes.data % 64 for x in sys.kept[1::2])
""",
        ZEROCOPY_NATIVE=setting,
    )
    assert (completed.returncode, completed.stderr) == (0, "")


@pytest.mark.parametrize(
    ("variable", "why"),
    [("PYTHONMALLOC", "debugging allocator"), ("PYTHONTRACEMALLOC", "tracemalloc is running")],
)
def test_wrapped_allocators_are_refused_before_numpy_frees_through_them(
    run_python: Any, variable: str, why: str
) -> None:
    completed = run_python(
        """
import numpy as np, zerocopy as zc
try:
    with zc.aligned_numpy():
        np.ones(1000)
except zc.errors.PoolUnavailableError as error:
    print(error)
""",
        **{variable: "debug" if variable == "PYTHONMALLOC" else "1"},
    )
    assert completed.returncode == 0, completed.stderr
    assert why in completed.stdout
