"""NumPy's default allocator, whose functions are exchanged in place (NEP 49).

NumPy keeps the handler that new arrays use in a context variable: one that is set in a thread
is not seen in others. All of them begin with the default handler, which is one C struct of the
process. Each array keeps the handler that it was allocated with, and is freed through its
``free``: so that function stays NumPy's own, and frees what came before, meanwhile and after.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from zerocopy.errors import Reason
from zerocopy.pool.host import c_library, machine_code
from zerocopy.pool.host.machine_code import NoMachineCodeError

# multiarray_api.h: the slot of PyDataMem_DefaultHandler, since NumPy 1.22.
_DEFAULT_HANDLER = 306
_VERSION = 1
_NAME = b"default_allocator"


class _Allocator(ctypes.Structure):
    """PyDataMemAllocator of ndarraytypes.h."""

    _fields_ = (
        ("ctx", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


class _Handler(ctypes.Structure):
    """PyDataMem_Handler of ndarraytypes.h."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("allocator", _Allocator),
    )


@dataclass
class _State:
    """What was found, and what was made of it."""

    originals: dict[str, int]
    stubs: dict[str, int]
    why_no_stubs: str


_FUNCTIONS = ("malloc", "calloc", "realloc", "free")
_MEANWHILE = "something else exchanged functions of NumPy's allocator meanwhile"
_state: _State | None = None
_wanted: set[str] = set()


def refusal() -> Reason | None:
    """Return why NumPy's allocator is not as expected; None if it is."""
    if _state is not None:
        return Reason(_MEANWHILE, "leave one of the two out") if _foreign(_state) else None
    upgrade = "install NumPy 1.23 or later from PyPI or conda-forge; or use host='recycle'"
    try:
        handler = _handler()
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        return Reason(f"NumPy {np.__version__} shows no default allocator ({error})", upgrade)
    if handler.name != _NAME or handler.version != _VERSION:
        told = f"{handler.name.decode(errors='replace')!r}, version {handler.version}"
        return Reason(f"NumPy {np.__version__} has another default allocator: {told}", upgrade)
    home = os.path.realpath(_module().__file__)
    for name in _FUNCTIONS:
        file = c_library.file_of(getattr(handler.allocator, name) or 0)
        if file != home or handler.allocator.ctx:
            return Reason(
                f"the {name} of NumPy's default allocator is not NumPy's own ({file or 'from no file'})",
                "see which package exchanged it before, and leave one of the two out",
            )
    return None


def want(what: str) -> None:
    """Have arrays ``"aligned"``, or large zeros ``"lazy"``; the caller holds the lock of changes."""
    _wanted.add(what)
    _serve()


def unwant(what: str) -> str:
    """Take that back, and return what could not be."""
    _wanted.discard(what)
    return _serve()


def without_stubs() -> str:
    """Return why there is no machine code of ours here; nothing if there is, or nothing was asked yet."""
    return _state.why_no_stubs if _state is not None else ""


def other_handler() -> str:
    """Return the name of the allocator that this context uses in place of the default one, if it does."""
    name: str | None = _module().get_handler_name()
    return name if name and name != _NAME.decode() else ""


def _serve() -> str:
    """Write the functions for what is wanted."""
    global _state
    if _state is None:
        if not _wanted:
            return ""
        _state = _prepare()
    if _foreign(_state):
        return f"{_MEANWHILE}: it is left as it is"
    allocator = _handler().allocator
    ctx, changed = _chosen(_state)
    # Other threads may allocate in between. Each write is one store of eight bytes at a multiple of
    # eight, and aligned_alloc sees its 64 from the first call to the last.
    if ctx:
        allocator.ctx = ctx
    for name, function in (_state.originals | changed).items():
        if getattr(allocator, name) != function:
            setattr(allocator, name, function)
    if not ctx and allocator.ctx:
        allocator.ctx = None
    return ""


def _foreign(state: _State) -> bool:
    """Whether there are functions that are neither NumPy's nor ours."""
    allocator = _handler().allocator
    known = {*state.originals.values(), *state.stubs.values(), c_library.address("aligned_alloc")}
    return any(getattr(allocator, name) not in known for name in _FUNCTIONS)


def _chosen(state: _State) -> tuple[int | None, dict[str, int]]:
    """Return the context, and the functions that are not NumPy's own."""
    stubs = state.stubs
    if "aligned" in _wanted and stubs:
        return None, {"malloc": stubs["fresh"], "calloc": stubs["zeroed"], "realloc": stubs["resized"]}
    if "aligned" in _wanted:
        # Its first argument is the alignment: ctx. NumPy's own functions look at no ctx.
        return 64, {"malloc": c_library.address("aligned_alloc")}
    if "lazy" in _wanted and stubs:
        return None, {"calloc": stubs["sparse"]}
    return None, {}


def _prepare() -> _State:
    """Keep what is there, and make the machine code."""
    allocator = _handler().allocator
    originals = {name: getattr(allocator, name) for name in _FUNCTIONS}
    defaults = {f"default_{name}": originals[name] for name in ("malloc", "calloc")}
    try:
        wrong = machine_code.misbehaviour(defaults)
        if wrong:
            raise NoMachineCodeError(f"a trial of them failed: {wrong}")
        huge = machine_code.HUGE if _huge_pages() else machine_code.NEVER
        # Of hugetlbfs the kernel drops whole huge pages only, and says nothing of the rest.
        lazy = machine_code.NEVER if c_library.huge_heap() else machine_code.LAZY
        return _State(originals, machine_code.load(defaults, huge, lazy), "")
    except NoMachineCodeError as error:
        return _State(originals, {}, str(error))


def _huge_pages() -> bool:
    """Whether NumPy asks for huge pages: NUMPY_MADVISE_HUGEPAGE, or by its kernel."""
    ask = getattr(_module(), "_get_madvise_hugepage", None)
    return bool(ask()) if ask is not None else True


def _module() -> Any:
    """Return NumPy's compiled module."""
    core = "numpy._core" if int(np.__version__.partition(".")[0]) >= 2 else "numpy.core"
    return import_module(f"{core}._multiarray_umath")


def _handler() -> Any:
    """Return the default handler as it lies in NumPy's memory.

    Raises
    ------
    ValueError
        A capsule is not what it should be.
    """
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = pointer(_module()._ARRAY_API, None)
    variable = ctypes.c_void_p.from_address(table + _DEFAULT_HANDLER * ctypes.sizeof(ctypes.c_void_p))
    capsule = ctypes.py_object.from_address(variable.value or 0)
    return _Handler.from_address(pointer(capsule.value, b"mem_handler"))
