"""Reading the pointer of a ``PyCapsule``."""

from __future__ import annotations

import ctypes
from typing import Any

# A private prototype; zerocopy.protocols.dlpack has the reason.
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def pointer(capsule: Any, name: bytes) -> int:
    """Return the address in a capsule of that name.

    Raises
    ------
    ValueError
        The object is not a capsule of that name; a consumed capsule has another name.
    """
    address: int = _get_pointer(capsule, name)
    return address
