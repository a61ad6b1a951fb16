"""The compiled core for tests that use it alone, with capsules whose every field can be wrong."""

from __future__ import annotations

import atexit
import ctypes
from typing import Any

import numpy as np
import pytest

from zerocopy._native import core
from zerocopy.dtype import NATIVE_NAMES, by_name
from zerocopy.protocols import dlpack
from zerocopy.protocols.array_interface import aligned_copy, aligned_empty
from zerocopy.protocols.exporter_errors import is_error

__all__ = ["aligned_copy", "aligned_empty", "core"]

REFUSED = "the route does not support this object"
ALL_DTYPES = [np.dtype(name) for name in sorted(NATIVE_NAMES)]
ALL_PAIRS = [(by_name(dtype.name).code, by_name(dtype.name).bits) for dtype in ALL_DTYPES]

_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
_alive: list[Exported] = []
atexit.register(lambda: [each.drop() for each in _alive])
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def require_core() -> None:
    """Skip the module without the extension; otherwise declare the dtypes and the functions."""
    if core is None:
        pytest.skip("needs the compiled core", allow_module_level=True)
    declare()


def declare() -> None:
    """Declare NumPy's numeric dtypes and the functions in Python to the core, as zerocopy itself does."""
    for dtype in [*ALL_DTYPES, *map(np.dtype, "lLqQ")]:
        standard = by_name(dtype.name)
        core.set_dtype(dtype, standard.code, standard.bits)
    core.set_copy_function(aligned_copy)
    core.set_error_test(is_error)


def memory_route(exporter: Any, importer: Any, **options: Any) -> Any:
    """Return a MemoryRoute to a target of mutable objects that marks read-only ones, as NumPy."""
    return core.MemoryRoute(exporter, importer, **{"mutable": True, "marks_readonly": True} | options)


def keep_capsule(got: list[Any]) -> Any:
    """Return an importer that appends the capsule, unconsumed, to `got`, and takes any layout."""

    def function(capsule: Any) -> Any:
        got.append(capsule)
        return capsule

    return core.CapsuleImporter(function, dtypes=ALL_PAIRS, alignment=1, layout="compact", arguments=())


class Exported:
    """A managed tensor with a counting deleter in a capsule; its memory lives as long as this object.

    `fields` are those of ``DLTensor``, `flags` and `version`; `shape` and `strides` are sequences or None.
    """

    def __init__(self, *, name: bytes | None = None, deleter: bool = True, **fields: Any) -> None:
        self.deleted = 0
        version, flags = fields.pop("version", None), fields.pop("flags", 0)
        self.name = name or (dlpack.LEGACY if version is None else dlpack.VERSIONED)
        struct = dlpack.DLManagedTensor if version is None else dlpack.DLManagedTensorVersioned
        self.managed = struct()
        if version is not None:
            self.managed.major, self.managed.minor, self.managed.flags = *version, flags
        tensor, self._held = self.managed.dl_tensor, []
        tensor.device_type, tensor.lanes = 1, 1
        tensor.ndim = len(fields.get("shape") or ())
        for key in ("shape", "strides"):
            values = fields.pop(key, None)
            if values is not None:
                numbers = (ctypes.c_int64 * max(len(values), 1))(*values)
                self._held.append(numbers)
                setattr(tensor, key, numbers)
        for key, value in fields.items():
            setattr(tensor, key, value)
        self._deleter, self._destructor = _Deleter(self._delete), _Destructor(self._destroy)
        if deleter:
            self.managed.deleter = ctypes.cast(self._deleter, ctypes.c_void_p)
        self.array: Any = None
        self.on_delete: Any = None
        self.capsules: list[Any] = []

    def _delete(self, address: int) -> None:
        assert address == ctypes.addressof(self.managed)
        self.deleted += 1
        if self.on_delete is not None:
            self.on_delete()

    def _destroy(self, capsule: int) -> None:
        if _is_valid(capsule, self.name) and self.managed.deleter:
            self._delete(_get_pointer(capsule, self.name))

    def capsule(self) -> Any:
        """Return a new capsule, kept until `drop`; its destructor deletes an unconsumed tensor."""
        destructor = ctypes.cast(self._destructor, ctypes.c_void_p)
        # Held here, because a destructor in Python must not run while an exception is set.
        self.capsules.append(_new_capsule(ctypes.addressof(self.managed), self.name, destructor))
        _alive.append(self)  # the deleter may run after a test has dropped this object
        return self.capsules[-1]

    def drop(self) -> None:
        """Drop the references to capsules, which runs the destructors of those without others."""
        self.capsules.clear()


def exported(array: Any, **fields: Any) -> Exported:
    """Return an `Exported` over a native array, which it keeps alive, with some fields changed."""
    standard = by_name(array.dtype.name)
    right = {
        "data": array.ctypes.data,
        "shape": array.shape,
        "strides": tuple(stride // array.itemsize for stride in array.strides),
        "code": standard.code,
        "bits": standard.bits,
    }
    result = Exported(**right | fields)
    result.array = array
    return result


def consume(capsule: Any) -> Any:
    """Rename a capsule as a consumer does, and return its legacy struct."""
    managed = dlpack.DLManagedTensor.from_address(_get_pointer(id(capsule), dlpack.LEGACY))
    _set_name(capsule, b"used_dltensor")
    return managed


def delete(managed: Any) -> None:
    """Call a managed tensor's deleter without the GIL, as a consumer in C does."""
    _Deleter(managed.deleter)(ctypes.addressof(managed))
