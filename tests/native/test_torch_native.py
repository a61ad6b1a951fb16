"""torch's private layout against its public functions, and the guards of the compiled core around torch."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import warnings

import numpy as np
import pytest
from helpers.native_core import REFUSED, consume, core, exported, keep_capsule, memory_route, require_core
from numpy.lib.stride_tricks import as_strided

from zerocopy.protocols import dlpack
from zerocopy.strided_view import MAX_NDIM

require_core()
torch = pytest.importorskip("torch")

from zerocopy._frameworks.torch import dtypes, native  # noqa: E402 - after the check for torch

LAYOUT = native.find_layout(torch)
EXPORTER, IMPORTER = native.exporter(torch), native.importer(torch, dtypes(torch).values())
if EXPORTER is None or IMPORTER is None:
    pytest.skip("this torch has no exchange API, or another layout", allow_module_level=True)


def importers():
    """Return importers of each kind, which take any layout."""
    kinds = {"ndarray": core.NDArrayImporter(), "torch": IMPORTER, "capsule": keep_capsule([])}
    types = {(2, 32): 0, (0, 64): 0, (5, 64): 0, (1, 8): 0}
    return kinds | {"column": core.ArrowImporter(lambda address, kind: address, types)}


def word(address):
    return ctypes.c_uint64.from_address(address).value


def samples():
    """Return tensors with and without each property that the exporter must see."""
    z = torch.arange(4).to(torch.complex64)
    plain = {
        "float32": torch.arange(4.0),
        "int64": torch.arange(4),
        "0-d": torch.tensor(3.0),
        "detached": torch.ones(3, requires_grad=True).detach(),
        "view": torch.arange(12.0).reshape(3, 4)[1:, ::2],
        "channels last": torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "expanded": torch.ones(3, 1).expand(3, 4),
        "pinned flag": torch.from_numpy(np.arange(3.0)),
        "contiguous conj": z.conj().resolve_conj(),
    }
    special = {
        "requires grad": torch.ones(3, requires_grad=True),
        "not a leaf": torch.ones(3, requires_grad=True) * 2,
        "conj": z.conj(),
        "neg": z.conj().imag,
        "zero tensor": torch._efficientzerotensor(3),
        "sparse": torch.eye(3).to_sparse(),
        "sparse csr": torch.eye(3).to_sparse_csr(),
        "meta": torch.zeros(3, device="meta"),
        "mkldnn": torch.ones(3).to_mkldnn()
        if torch.backends.mkldnn.is_available()
        else torch.eye(2).to_sparse(),
    }
    with torch.inference_mode():
        special["inference"] = torch.ones(3)
    return plain, special


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # some kinds of tensors are in beta state
    PLAIN, SPECIAL = samples()


@pytest.mark.hazard("robustness#offsets-in-torch")
@pytest.mark.parametrize("name", [*PLAIN, *SPECIAL])
def test_the_words_at_the_offsets_are_torchs_own(name):
    tensor = (PLAIN | SPECIAL)[name]
    impl = word(id(tensor) + LAYOUT["impl_offset"])
    keys = torch._C._dispatch_keys(tensor).raw_repr()
    assert word(impl + LAYOUT["key_offset"]) == keys
    assert (keys in LAYOUT["keys"]) is (name in PLAIN or name in ("requires grad", "not a leaf"))
    if tensor.requires_grad:
        assert word(impl + LAYOUT["meta_offset"]) != 0


@pytest.mark.parametrize("target", ["ndarray", "torch", "capsule"])
@pytest.mark.parametrize("name", PLAIN)
def test_plain_tensors_pass_as_torch_describes_them(name, target):
    tensor = PLAIN[name]
    result = memory_route(EXPORTER, importers()[target], copy=False, fallback=lambda x: None)(tensor)
    if target == "capsule":
        assert result is None or dlpack.read(result).ptr == tensor.data_ptr()
        return
    pointer = result.ctypes.data if target == "ndarray" else result.data_ptr()
    assert pointer == tensor.data_ptr()
    assert tuple(result.shape) == tuple(tensor.shape)
    assert np.array_equal(np.asarray(result), tensor.numpy())


@pytest.mark.parametrize("target", ["ndarray", "torch", "capsule", "column"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_tensors_are_left_to_the_slow_path(name, target):
    with pytest.raises(BufferError, match=REFUSED):
        memory_route(EXPORTER, importers()[target])(SPECIAL[name])


def test_quantized_and_nested_tensors_are_left_to_the_slow_path():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = [torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])]
        if hasattr(torch, "quantize_per_tensor"):
            tensors.append(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8))
    for tensor in tensors:
        for importer in importers().values():
            with pytest.raises(BufferError, match=REFUSED):
                memory_route(EXPORTER, importer)(tensor)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch uses its own torch.jit
@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp", "functionalize"])
def test_tensors_of_functorch_are_left_to_the_slow_path(transform):
    seen = []

    def function(x):
        # torch makes a plain tensor, which may pass, while something excludes functorch's dispatch keys.
        assert torch._C._functorch.is_functorch_wrapped_tensor(x), torch._C._dispatch_keys(x)
        for importer in importers().values():
            with pytest.raises(BufferError, match=REFUSED):
                memory_route(EXPORTER, importer)(x)
            seen.append(x)
        return x.sum()

    func, x = torch.func, torch.ones(2, 3)
    if transform == "jvp":
        func.jvp(function, (x,), (x,))
    else:
        getattr(func, transform)(function)(x)
    assert seen


@pytest.mark.parametrize("addresses_first", [False, True])
def test_words_that_freed_tensors_left_do_not_hide_the_layout(addresses_first, monkeypatch):
    """One unused word is 0 in the first three tensors and an address in the others, or the reverse."""
    unused, pointers, tensors, left = LAYOUT["key_offset"] + 8, set(), set(), {}

    def id_of(tensor):
        pointers.add(id(tensor) + LAYOUT["impl_offset"])
        return id(tensor)

    def word_or_left(address):
        if address - unused in tensors:
            return left.setdefault(address, id(left) if (len(left) < 3) is addresses_first else 0)
        value = word(address)
        if address in pointers:
            tensors.add(value)
        return value

    monkeypatch.setattr(native, "id", id_of, raising=False)
    offsets = native._offsets_of_tensors(torch, word_or_left)
    assert offsets == {name: LAYOUT[name] for name in offsets}
    assert len(left) > 3


def test_subclasses_and_parameters_have_no_compiled_route():
    class Sub(torch.Tensor):
        pass

    from zerocopy import registry

    exporters = registry.by_name("torch").fast_exporters
    assert "native" in exporters(torch.Tensor)
    for cls in (Sub, torch.nn.Parameter, torch.nn.Buffer if hasattr(torch.nn, "Buffer") else Sub):
        assert "native" not in exporters(cls)


@pytest.mark.parametrize("change", ["data", "set_", "resize_", "storage resize_", "drop"])
@pytest.mark.parametrize("target", ["ndarray", "torch", "capsule"])
def test_the_result_keeps_the_storage(change, target):
    for _ in range(5):
        tensor = torch.arange(100_000, dtype=torch.float32)
        result = memory_route(EXPORTER, importers()[target], copy=False)(tensor)
        if change == "data":
            tensor.data = torch.zeros(3)
        elif change == "set_":
            tensor.set_(torch.zeros(3))
        elif change == "resize_":
            with pytest.raises(RuntimeError, match="resiz"):
                tensor.resize_(10_000_000)
        elif change == "storage resize_":
            with pytest.raises(RuntimeError, match="resiz"):
                tensor.untyped_storage().resize_(0)
        del tensor
        gc.collect()
        others = [torch.full((100_000,), 7.0) for _ in range(4)]
        array = np.from_dlpack(dlpack.Handover(result)) if target == "capsule" else np.asarray(result)
        assert np.array_equal(array, np.arange(100_000, dtype=np.float32))
        del others


def test_a_tensor_resized_before_its_first_conversion_is_read_at_its_new_place():
    tensor = torch.arange(4.0)
    tensor.resize_(200_000)
    tensor[:] = 5
    result = memory_route(EXPORTER, core.NDArrayImporter())(tensor)
    assert result.ctypes.data == tensor.data_ptr()
    assert (result == 5).all()


@pytest.mark.hazard("robustness#function-modes")
@pytest.mark.parametrize("answer", [None, 3, "text", [], torch.zeros(3)])
def test_a_mode_that_overrides_functions_cannot_give_another_storage(answer):
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return answer

    tensor = torch.arange(4.0)
    with Mode():
        for importer in importers().values():
            with pytest.raises(BufferError, match=REFUSED):
                memory_route(EXPORTER, importer)(tensor)


@pytest.mark.hazard("robustness#storage-that-is-replaced")
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_storage_that_is_replaced_while_it_is_fixed_is_not_read(name):
    from torch.overrides import TorchFunctionMode

    other = torch.full((4,), 9, dtype=getattr(torch, name))

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if getattr(function, "__name__", "") == "detach":
                args[0].set_(other)
            return function(*args, **(kwargs or {}))

    for size in (4, 100_000):
        tensor = torch.ones(size, dtype=other.dtype)
        with Mode():
            result = memory_route(EXPORTER, IMPORTER, fallback=lambda x: None)(tensor)
        gc.collect()
        assert result is None or result.unique().tolist() in ([1], [9])


def test_a_storage_that_is_emptied_while_it_is_fixed_is_released():
    from torch.overrides import TorchFunctionMode

    other = torch.empty(0, dtype=torch.bfloat16)
    storage = other.untyped_storage()

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if getattr(function, "__name__", "") == "detach":
                args[0].set_(other)
            return function(*args, **(kwargs or {}))

    count = sys.getrefcount(storage)
    with Mode(), pytest.raises(BufferError, match=REFUSED):
        memory_route(EXPORTER, IMPORTER)(torch.ones(4, dtype=torch.bfloat16))
    assert sys.getrefcount(storage) == count


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(12.0)[::-1],
        lambda: np.arange(12.0).reshape(3, 4)[:, ::-1],
        lambda: as_strided(np.zeros(40, np.uint8)[1:33].view("f4"), (3,), (6,)),
        lambda: np.zeros(0),
        lambda: np.arange(3, dtype=">f4"),
    ],
)
def test_arrays_that_would_end_the_process_do_not_reach_torch(make):
    with pytest.raises(BufferError, match=REFUSED):
        memory_route(core.NDArrayExporter(), IMPORTER)(make())


def test_misaligned_and_reversed_capsules_reach_torch_as_copies():
    memory = np.arange(64.0)
    exporter = core.CapsuleExporter(lambda x: x)
    for fields in ({"strides": (-1,), "data": memory[9:].ctypes.data}, {"data": memory.ctypes.data + 4}):
        for version in (None, (1, 0)):
            source = exported(memory, shape=(5,), version=version, **fields)
            expected = memory_route(exporter, core.NDArrayImporter())(source.capsule()).copy()
            with pytest.raises(BufferError, match=REFUSED):
                memory_route(exporter, IMPORTER, copy=False)(source.capsule())
            source.deleted = 0
            result = memory_route(exporter, IMPORTER)(source.capsule())
            assert source.deleted == 1
            assert result.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1,) * MAX_NDIM])
@pytest.mark.parametrize(
    "name", ["bool", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "complex128"]
)
def test_every_dtype_and_0_d_in_both_directions(name, shape):
    # The core calls Tensor.numpy once for each storage, so NumPy's limit of dimensions applies.
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"torch has no {name}")
    tensor = torch.ones(shape, dtype=torch.float32).to(dtype)
    result = memory_route(EXPORTER, IMPORTER)(tensor)
    assert result.dtype == tensor.dtype
    assert result.shape == tensor.shape
    assert result.data_ptr() == tensor.data_ptr()


def test_writes_through_either_side_are_seen():
    tensor = torch.zeros(4)
    array = memory_route(EXPORTER, core.NDArrayImporter())(tensor)
    array[1] = 5
    assert tensor[1] == 5
    back = memory_route(core.NDArrayExporter(), IMPORTER)(array)
    back[2] = 6
    assert tensor[2] == 6


def test_torch_destroys_a_result_on_a_thread_of_its_own():
    libc = ctypes.CDLL(None)
    source = exported(np.arange(8.0))
    tensor = memory_route(core.CapsuleExporter(lambda x: x), IMPORTER)(source.capsule())
    held = tensor.__dlpack__()  # torch's own managed tensor holds the tensor
    del tensor
    assert source.deleted == 0
    managed = consume(held)
    del held
    thread, address = ctypes.c_void_p(), ctypes.c_void_p(ctypes.addressof(managed))
    assert libc.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(managed.deleter), address) == 0
    assert libc.pthread_join(thread, None) == 0
    assert source.deleted == 1


def test_a_storage_that_another_thread_changes_is_never_read_after_its_end():
    tensor, stop, wrong = torch.arange(50_000.0), threading.Event(), []

    def change():
        while not stop.is_set():
            tensor.data = torch.full((50_000,), 3.0)

    thread = threading.Thread(target=change)
    thread.start()
    for _ in range(300):
        result = memory_route(EXPORTER, core.NDArrayImporter(), fallback=lambda x: None)(tensor)
        if result is not None and not (result[1:] == 3).all() and result[2] != 2:
            wrong.append(result)
    stop.set()
    thread.join()
    assert not wrong


def test_types_of_ml_dtypes_are_fast_after_other_types(run_python) -> None:
    """The first bfloat16 imports ml_dtypes, when the route of the type exists already."""
    pytest.importorskip("ml_dtypes")
    process = run_python(
        """
import sys
import numpy as np, torch, zerocopy
from zerocopy import convert
for _ in range(2):
    convert(torch.zeros(3), "numpy")
assert "ml_dtypes" not in sys.modules
tensor = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
for _ in range(2):
    convert(tensor, "numpy")
calls = []
sys.setprofile(lambda frame, event, arg: calls.append(frame.f_code) if event == "call" else None)
result = convert(tensor, "numpy")
sys.setprofile(None)
assert not [code for code in calls if "zerocopy" in code.co_filename], calls
tensor[0] = 7
assert result.tolist() == [7, 2]
"""
    )
    assert process.returncode == 0, process.stderr


def test_the_key_of_tensors_on_devices_is_that_of_fake_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor on a device would start CUDA; fake tensors have its keys, and those of Python."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    plain = torch._C._dispatch_keys(torch.zeros(3)).raw_repr()
    with FakeTensorMode():
        fake = [torch._C._dispatch_keys(torch.empty(3, device=d)).raw_repr() for d in ("cpu", "cuda")]
    assert native._key_on_devices(torch, plain) == fake[1] ^ fake[0] ^ plain
    assert native._key_on_devices(torch, plain | 1 << 20) == 0
