"""DLPack's C exchange API of StridedView and Shared, taken by an extension module in C."""

from __future__ import annotations

import gc
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy import _native
from zerocopy._native import core
from zerocopy.device import Device
from zerocopy.dtype import by_name
from zerocopy.protocols import dlpack

HERE = Path(__file__).parent
HEADER = Path(_native.__file__).with_name("dlpack.h")

if core is None:
    pytest.skip("needs the compiled core", allow_module_level=True)


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compile the extension module, and import it."""
    if shutil.which("gcc") is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("the test compiles an extension module")
    if not HEADER.exists():
        pytest.skip("needs a header of the core, and zerocopy is installed from a wheel, which has none")
    library = tmp_path_factory.mktemp("consumer") / "exchange_consumer.so"
    include = [f"-I{sysconfig.get_path('include')}", f"-I{HEADER.parent}"]
    source = HERE / "exchange_consumer.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", *include, source, "-o", library], check=True)
    spec = importlib.util.spec_from_file_location("exchange_consumer", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def view_of(array: np.ndarray, **changes: Any) -> zc.StridedView:
    view = zc.view(array)
    fields = {name: getattr(view, name) for name in view.__slots__}
    return zc.StridedView(**{**fields, **changes})


def test_the_table_has_the_version_and_the_functions_of_dlpack(consumer: Any) -> None:
    assert consumer.table(zc.StridedView) == (1, 3, 0, 1)
    assert consumer.table(type(zc.share(np.zeros(3)))) == (1, 3, 0, 1)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0),
        np.arange(6.0).reshape(2, 3).T,
        np.arange(24.0).reshape(2, 3, 4)[:, ::2],
        np.broadcast_to(np.arange(3.0), (4, 3)),
        np.array(2.5),
        np.empty((0, 3)),
        np.arange(3.0)[:1][::-1],
    ],
    ids=str,
)
def test_a_consumer_reads_a_view(consumer: Any, array: np.ndarray) -> None:
    assert consumer.total(zc.view(array)) == array.sum()


@pytest.mark.parametrize(
    "name", ["bool", "int8", "uint16", "int64", "float16", "complex64", "bfloat16", "float8_e5m2"]
)
def test_a_view_that_is_passed_on_describes_the_same_memory(consumer: Any, name: str) -> None:
    dtype = by_name(name)
    block = np.zeros(12 * dtype.itemsize, "u1")
    view = zc.StridedView(
        block.ctypes.data, (3, 4), (4 * dtype.itemsize, dtype.itemsize), dtype, Device(1), True, block
    )
    result = consumer.passed(view)
    assert type(result) is zc.StridedView
    fields = ("ptr", "shape", "strides", "dtype", "device", "readonly")
    assert [getattr(result, field) for field in fields] == [getattr(view, field) for field in fields]
    assert zc.shares_memory(result, block)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (lambda: zc.view(np.arange(3.0)[::-1]), "stride is negative"),
        (lambda: view_of(np.zeros((2, 2)), strides=(12, 8)), "not a multiple"),
        (lambda: view_of(np.zeros(3), device=Device(2)), "not on the host"),
        (lambda: view_of(np.zeros(3), dtype=by_name("int4")), "less than a byte"),
        (lambda: view_of(np.zeros(3), ptr=0), "no memory has"),
        (lambda: view_of(np.zeros(3), shape=(-1,)), "negative number"),
        (lambda: view_of(np.zeros(3), shape=(1 << 40, 1 << 40), strides=(8, 8)), "too many elements"),
        (lambda: view_of(np.zeros(3), strides=()), "differ in length"),
        (lambda: view_of(np.zeros(3), shape=(1,) * 65, strides=(8,) * 65), "at most 64"),
        (lambda: view_of(np.zeros(3), shape=[3]), "not a tuple"),
    ],
)
def test_views_that_consumers_do_not_support_are_refused(consumer: Any, view: Any, message: str) -> None:
    with pytest.raises(BufferError, match=message):
        consumer.total(view())


@pytest.mark.parametrize(
    "changes",
    [{"ptr": "x"}, {"ptr": -1}, {"shape": ("x",)}, {"strides": None}, {"dtype": None}, {"device": None}],
    ids=str,
)
def test_views_of_other_objects_raise(consumer: Any, changes: dict[str, Any]) -> None:
    with pytest.raises((BufferError, TypeError, AttributeError, OverflowError)):
        consumer.total(view_of(np.zeros(3), **changes))


def test_a_shared_array_is_opened(consumer: Any) -> None:
    array = np.arange(1000.0)
    with zc.share(array) as shared:
        assert consumer.total(shared) == array.sum()
        view = consumer.passed(shared)
        assert view.readonly
        assert zc.shares_memory(view, zc.convert(shared, "numpy"))
    with pytest.raises(zc.errors.StaleHandleError):
        consumer.total(shared)
    np.testing.assert_array_equal(view.numpy(), array)  # the view keeps the memory


def test_a_table_in_shared_memory_has_no_table(consumer: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    with zc.share(pa.table({"a": [1.0]})) as shared, pytest.raises(AttributeError):
        consumer.total(shared)


def test_new_memory_is_aligned_and_is_freed_with_its_view(consumer: Any) -> None:
    view = consumer.allocated(zc.StridedView, 5, 1)
    assert (view.shape, view.strides, view.readonly) == ((5, 3), (12, 4), False)
    assert view.is_aligned(64)
    array = view.numpy()
    array[:] = 1
    del view
    gc.collect()
    assert array.sum() == 15
    assert consumer.allocated(zc.StridedView, 0, 1).shape == (0, 3)


@pytest.mark.parametrize(("count", "device"), [(1 << 61, 1), (-1, 1), (3, 2)])
def test_memory_that_cannot_be_allocated_is_refused(consumer: Any, count: int, device: int) -> None:
    with pytest.raises(BufferError, match="host memory"):
        consumer.allocated(zc.StridedView, count, device)


def test_nothing_leaks(consumer: Any) -> None:
    class Owner:
        pass

    owner = Owner()
    alive = weakref.ref(owner)
    view = view_of(np.arange(3.0), owner=owner)
    counts = sys.getrefcount(view), sys.getrefcount(zc.StridedView)
    for _ in range(50):
        consumer.total(view)
        consumer.passed(view)
    assert (sys.getrefcount(view), sys.getrefcount(zc.StridedView)) == counts
    passed = consumer.passed(view)
    del view, owner
    gc.collect()
    assert alive() is not None
    del passed
    gc.collect()
    assert alive() is None


def test_an_unknown_type_is_released(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlpack, "by_dlpack", lambda *_: None)
    view = zc.view(np.zeros(3))
    count = sys.getrefcount(view)
    with pytest.raises(zc.UnsupportedConversionError, match="has no counterpart"):
        consumer.passed(view)
    assert sys.getrefcount(view) == count


def test_threads_take_one_view(consumer: Any) -> None:
    view, totals = zc.view(np.arange(100.0)), []

    def take() -> None:
        for _ in range(200):
            totals.append(consumer.total(view))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {*totals} == {4950.0}


def test_the_consumer_takes_tensors_of_torch_too(consumer: Any) -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("torch has no C exchange API")
    assert consumer.total(torch.arange(4.0, dtype=torch.float64)) == 6
