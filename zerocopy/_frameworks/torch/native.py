"""The compiled exporter and importer of tensors, over torch's DLPack C exchange API.

The API and ``to_dlpack`` export tensors that require grad or have lazy bits as if they did not
(docs/robustness.md). Calling the getters of these properties takes 100 of 130 ns. The compiled exporter
reads the tensor's dispatch key set instead, one word that differs for each of these properties, for
sparse, quantized and wrapped tensors, and for other devices. It also reads the address and size of the
storage. The offsets are determined by comparisons with torch's own functions (law 6); if not exactly one
agrees, the fast path in Python is used.
"""

from __future__ import annotations

import functools
import operator
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy

from zerocopy._native import core
from zerocopy.dtype import DType
from zerocopy.framework import version_numbers

_KNOWN = ((2, 9), (3,))
_WORDS_OF_A_TENSOR = 24  # c10::TensorImpl has about 200 bytes
_WORDS_OF_A_STORAGE = 8  # of c10::StorageImpl's 96 bytes or more


def exporter(torch: Any, on_stream: Callable[[Any, int], Any] | None = None) -> Any:
    """Return the compiled exporter of ``torch.Tensor``; None if this version of torch is not supported.

    ``on_stream(tensor, stream)`` exports a tensor on a device for a stream that is not torch's current one.
    """
    api = _api(torch)
    layout = None if api is None else find_layout(torch)
    if layout is None:
        return None
    tensor, storage = torch._C.TensorBase, torch._C.StorageBase
    try:
        return core.ExchangeExporter(
            api,
            **layout,
            requires_grad=tensor.__dict__["requires_grad"],
            storage=tensor.__dict__["untyped_storage"],
            resizable=storage.__dict__["resizable"],
            as_array=torch.Tensor.numpy,
            fix=_storage_fixer(torch),
            on_stream=on_stream,
            levels=vars(torch.autograd.forward_ad),
            level_name="_current_level",
        )
    except (KeyError, TypeError):
        return None  # missing or other descriptors


def importer(torch: Any, dtypes: Iterable[DType]) -> Any:
    """Return the compiled importer of tensors of `dtypes`; None if this version of torch is not supported."""
    api = _api(torch)
    if api is None:
        return None
    return core.ExchangeImporter(api, [(dtype.code, dtype.bits) for dtype in dtypes if dtype.lanes == 1])


def _api(torch: Any) -> Any:
    """Return the capsule of the exchange API; None without the compiled core."""
    known = _KNOWN[0] <= version_numbers(torch.__version__) < _KNOWN[1]
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None) if core is not None and known else None


def _storage_fixer(torch: Any) -> Callable[[Any], Any]:
    """Return a function after which torch refuses to resize a tensor's storage, for types that NumPy lacks.

    ``Tensor.numpy`` does so, once per storage; DLPack's exporters do not, and their results would
    read freed memory after ``resize_``.
    """
    as_ndarray = torch.Tensor.numpy
    same_width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}

    def fix(tensor: Any) -> None:
        as_ndarray(tensor.detach().view(same_width[tensor.element_size()]))

    return fix


def find_layout(torch: Any) -> dict[str, Any] | None:
    """Return the offsets of the words that the exporter reads; None if they are not unique.

    A new thread makes the tensors that are compared: torch keeps its modes for each thread, such as those
    of ``torch.func.vmap`` and ``torch.inference_mode``, in which tensors have other keys.
    """
    layouts: list[dict[str, Any] | None] = []
    thread = threading.Thread(target=lambda: layouts.append(_layout_in_this_thread(torch)))
    try:
        thread.start()
    except RuntimeError:
        return None  # no thread can start while the interpreter ends
    thread.join()
    return layouts[0] if layouts else None


def _layout_in_this_thread(torch: Any) -> dict[str, Any] | None:
    """Read tensors' memory through ``/proc/self/mem``, where a wrong address raises OSError alone."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:
        return None
    try:
        return _find_layout(torch, lambda address: struct.unpack("=Q", os.pread(memory, 8, address))[0])
    except (AttributeError, OSError, OverflowError, RuntimeError, struct.error):
        return None
    finally:
        os.close(memory)


def _find_layout(torch: Any, word: Callable[[int], int]) -> dict[str, Any] | None:
    of_tensors, of_storages = _offsets_of_tensors(torch, word), _offsets_of_storages(torch, word)
    return None if of_tensors is None or of_storages is None else of_tensors | of_storages


def _offsets_of_storages(torch: Any, word: Callable[[int], int]) -> dict[str, int] | None:
    """Return where a storage's object points at its memory's description, and the offsets in that."""
    # Memory of NumPy's has a context of another address; of torch's own memory both are one.
    foreign = [torch.from_numpy(numpy.zeros(n)) for n in (45, 77)]
    storages = [x.untyped_storage() for x in (torch.zeros(33), *foreign, torch.zeros(5)[1:])]
    pointer, offsets = object.__basicsize__, range(0, 8 * _WORDS_OF_A_STORAGE, 8)
    described = [[word(word(id(x) + pointer) + o) for o in offsets] for x in storages]
    data, size = (
        [o for i, o in enumerate(offsets) if all(words[i] == value for words, value in expected)]
        for expected in (
            [(words, x.data_ptr()) for words, x in zip(described, storages, strict=True)],
            [(words, x.nbytes()) for words, x in zip(described, storages, strict=True)],
        )
    )
    if len(data) != 1 or len(size) != 1:
        return None
    return {"storage_offset": pointer, "data_offset": data[0], "size_offset": size[0]}


def _offsets_of_tensors(torch: Any, word: Callable[[int], int]) -> dict[str, Any] | None:
    complex_ = torch.ones(3, dtype=torch.complex64)
    plain = [torch.zeros(3), torch.zeros((2, 3), dtype=torch.int64), torch.zeros(3).requires_grad_().detach()]
    lazy = [complex_.conj(), complex_.conj().imag, torch._efficientzerotensor(3)]
    with_grad = [torch.zeros(3) for _ in range(3)]
    impl_offset, offsets = object.__basicsize__, range(0, 8 * _WORDS_OF_A_TENSOR, 8)
    before = [[word(word(id(tensor) + impl_offset) + o) for o in offsets] for tensor in with_grad]
    for tensor in with_grad:
        tensor.requires_grad_()
    with torch.inference_mode():
        inference = torch.zeros(3)
    probes = [*plain, *lazy, inference, *with_grad]
    keys = [torch._C._dispatch_keys(tensor).raw_repr() for tensor in probes]
    if len({keys[0], *keys[3:7]}) != 5:
        return None  # the key set is the same for tensors that must differ
    impls = [word(id(tensor) + impl_offset) for tensor in probes]
    key_offsets = [
        o for o in offsets if all(word(impl + o) == key for impl, key in zip(impls, keys, strict=True))
    ]
    # The pointer to autograd's metadata is NULL in plain tensors, and becomes an address in those that
    # require grad. Words that the object does not use hold anything, but do not change then.
    meta_offsets = [
        o
        for i, o in enumerate(offsets)
        if not any(word(impl + o) for impl in impls[: len(plain)])
        and not any(words[i] for words in before)
        and all(word(impl + o) > sys.maxunicode for impl in impls[-len(with_grad) :])
    ]
    if len(key_offsets) != 1 or len(meta_offsets) != 1:
        return None
    return {
        "impl_offset": impl_offset,
        "key_offset": key_offsets[0],
        "meta_offset": meta_offsets[0],
        "keys": (keys[0], _key_on_devices(torch, keys[0])),
    }


def _key_on_devices(torch: Any, on_host: int) -> int:
    """Return the key set of plain tensors on CUDA devices; 0 if it is unknown.

    It is composed as the known key set of the host is, because a tensor on a device would start CUDA.
    """
    if torch.version.cuda is None:
        return 0
    key, key_set, composed = torch._C.DispatchKey, torch._C.DispatchKeySet, []
    for place in ("CPU", "CUDA"):
        names = (place, f"Autograd{place}", f"Autocast{place}", "ADInplaceOrView")
        bits = [key_set(getattr(key, name)).raw_repr() for name in names]
        composed.append(functools.reduce(operator.or_, bits))
    return composed[1] if composed[0] == on_host else 0
