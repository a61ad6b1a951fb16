"""``PyCapsule``: what every protocol here passes its struct in."""

from __future__ import annotations

import ctypes
from typing import Any

# A prototype of our own, for the reason given in zerocopy.protocols.dlpack.
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def pointer(capsule: Any, name: bytes) -> int:
    """Return the address in a capsule of that name.

    Raises
    ------
    ValueError
        It is no capsule, or one of another name: consumed already, perhaps.
    """
    address: int = _get_pointer(capsule, name)
    return address
