"""DLPack of zerocopy's own types: ``__dlpack__``, ``__dlpack_device__`` and the C exchange API.

The compiled core has the table of functions of the C exchange API; without the core, the types lack that
attribute. The public name ``StridedView`` is imported from here, so that its type has all three.
"""

from __future__ import annotations

from typing import Any

from zerocopy._native import core
from zerocopy.device import HOST
from zerocopy.protocols import dlpack
from zerocopy.protocols.dlpack import Capsule
from zerocopy.strided_view import StridedView as StridedView

_API = None if core is None else core.exchange_api(StridedView, dlpack.read)


def add_to(cls: Any) -> None:
    """Give a type DLPack: `StridedView`, or a type with a method ``__zerocopy_view__``."""
    cls.__dlpack__, cls.__dlpack_device__ = _export, _device
    if _API is not None:
        cls.__dlpack_c_exchange_api__ = _API


def _view_of(obj: Any) -> StridedView:
    return obj if isinstance(obj, StridedView) else obj.__zerocopy_view__()  # type: ignore[no-any-return]


def _device(self: Any) -> tuple[int, int]:
    """Return the type and the index of the memory's device; those of the host for page-locked memory."""
    device = _view_of(self).device
    return HOST if device.is_host else device


def _export(
    self: Any,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Capsule:
    """Return a capsule of the memory (array API 2024.12, ``array.__dlpack__``).

    Parameters
    ----------
    stream : int, optional
        The consumer's stream, for memory on a CUDA device.
    max_version : tuple of int, optional
        The highest version of DLPack that the consumer takes. Default: a capsule without a version, which
        cannot mark memory as read-only.
    dl_device : tuple of int, optional
        Type and index of the device on which the consumer wants the memory. Default: where it is.
    copy : bool, optional
        True copies the memory. Otherwise the capsule is an alias.

    Returns
    -------
    PyCapsule
        It keeps the memory alive.

    Raises
    ------
    BufferError
        DLPack, or its version without read-only flags, cannot describe the memory; or it is on another
        device than `dl_device`.
    """
    view = _view_of(self)
    if dl_device is not None and tuple(dl_device) != _device(view):
        raise BufferError(f"the memory is on {view.device}: copy it with zerocopy.convert(x, to, device=...)")
    if not view.device.is_host:
        return _of_owner(view, stream=stream, max_version=max_version, copy=copy)
    if view.dtype.bits * view.dtype.lanes != view.dtype.itemsize * 8:
        raise BufferError(f"{view.dtype} has elements of less than a byte, which DLPack stores packed")
    if view.has_negative_strides:  # consumers abort: pytorch/pytorch#188023
        raise BufferError("a stride is negative: copy the array first, or use zerocopy.convert(x, to)")
    if view.readonly and not copy and (max_version is None or tuple(max_version) < (1, 0)):
        raise BufferError("the memory is read-only, which DLPack before 1.0 cannot mark: copy=True copies it")
    array = view.numpy()
    if max_version is None or not dlpack.NUMPY_TAKES_VERSIONED:
        return dlpack.export(array.copy() if copy else array, view.dtype)
    capsule = array.__dlpack__(max_version=max_version, copy=copy)
    return capsule if view.dtype.in_numpy else dlpack.retype(capsule, view.dtype)


def _of_owner(view: StridedView, **options: Any) -> Capsule:
    """Return the capsule of memory on a device from its owner, if the owner exports exactly this memory."""
    if options.pop("copy"):
        raise BufferError(f"the memory is on {view.device}: copy the array that the view was made from")
    producer = view.owner
    if hasattr(type(producer), "__dlpack__"):
        given = {name: value for name, value in options.items() if value is not None}
        capsule = producer.__dlpack__(**given)
        exported, parts = dlpack.read(capsule), ("ptr", "shape", "strides", "dtype")
        if all(getattr(exported, name) == getattr(view, name) for name in parts):
            return capsule
    raise BufferError(f"the view has no exporter for {view.device}: pass the array that it was made from")


add_to(StridedView)
