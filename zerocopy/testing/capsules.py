"""Capsules and C callbacks through ctypes, which scripts of findings use too."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

# Private prototypes: ctypes.pythonapi shares one function object per name in the process.
get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
#: A deleter or a release callback. ctypes releases the GIL for the call, as threads without it call them.
Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
KEPT: list[Any] = []  #: callbacks and structs, which the other side may use until the process ends


def address_of(function: Callable[[int], None]) -> int | None:
    """Return the address of a function as a C callback."""
    KEPT.append(Callback(function))
    return ctypes.cast(KEPT[-1], ctypes.c_void_p).value
