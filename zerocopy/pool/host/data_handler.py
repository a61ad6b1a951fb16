"""NumPy's default allocator, whose functions are replaced in place by those of the core (NEP 49).

NumPy keeps the current handler in a context variable, so that a handler set in one thread does
not apply to others. All threads begin with the default handler, which is one C struct. Each array
keeps its handler and is freed through the handler's ``free``, which therefore is not replaced.

NumPy calls its allocator from C, where a Python function cannot be used: arrays that outlive the
interpreter are freed after its end. The C library has ``aligned_alloc``, but neither an aligned
``calloc`` nor an aligned ``realloc``; the compiled core adds them:

- ``fresh(ctx, size)``: aligned malloc. Blocks below 1 KiB come from NumPy's own cache while its
  blocks are aligned; for large blocks it requests huge pages, as NumPy does.
- ``zeroed(ctx, n, size)``: aligned calloc. From :data:`LAZY` on, whole pages of the block are
  dropped instead of written: they read as zero, and take no memory until they are used.
- ``sparse(ctx, n, size)``: NumPy's calloc below :data:`LAZY`, ``zeroed`` from this size on.
- ``resized(ctx, ptr, size)``: aligned realloc.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from zerocopy.errors import Reason
from zerocopy.pool.host import c_library

# multiarray_api.h: the slots of PyDataMem_SetHandler and PyDataMem_DefaultHandler, since NumPy 1.22.
_SET_HANDLER, _DEFAULT_HANDLER = 304, 306
_CAPSULE = b"mem_handler"
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
    """NumPy's own functions, and the replacements."""

    originals: dict[str, int]
    compiled: dict[str, int]
    why_not_compiled: str


_FUNCTIONS = ("malloc", "calloc", "realloc", "free")
_REPLACED = "another package has replaced functions of NumPy's allocator since"
_state: _State | None = None
_enabled: set[str] = set()


def refusal() -> Reason | None:
    """Return why NumPy's allocator cannot be changed; None if it can."""
    state = _state
    if state is not None:
        if _is_foreign(state):
            return Reason(_REPLACED, "use only one of the two packages", code="other-allocator")
        return _needs_core()
    upgrade = "install NumPy 1.23 or later from PyPI or conda-forge; or use host='recycle'"
    try:
        handler = _handler()
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        why = f"NumPy {_numpy_version()} does not expose its default allocator ({error})"
        return Reason(why, upgrade, code="other-allocator")
    if handler.name != _NAME or handler.version != _VERSION:
        shown = f"{handler.name.decode(errors='replace')!r}, version {handler.version}"
        why = f"NumPy {_numpy_version()} has another default allocator: {shown}"
        return Reason(why, upgrade, code="other-allocator")
    home = os.path.realpath(_module().__file__)
    for name in _FUNCTIONS:
        file = c_library.file_of(getattr(handler.allocator, name) or 0)
        if file != home or handler.allocator.ctx:
            return Reason(
                f"the {name} of NumPy's default allocator is not NumPy's own ({file or 'unknown file'})",
                "use that package or host=, but not both",
                code="other-allocator",
            )
    return _needs_core()


def _needs_core() -> Reason | None:
    """Return why a free-threaded build cannot align arrays without the compiled functions; None if it can.

    NumPy reads ctx and the function one after the other. With the GIL, no thread is between the two reads
    while they are written; otherwise one could call ``aligned_alloc`` with NumPy's ctx. The compiled
    functions ignore ctx.
    """
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    state = _state
    state = _prepare() if state is None else state
    if state.compiled:
        return None
    return Reason(
        f"this is a free-threaded build, on which the mode needs the compiled core: {state.why_not_compiled}",
        "install zerocopy with its compiled core, or use host='recycle'",
        code="free-threaded",
    )


def enable(feature: str) -> None:
    """Make arrays ``"aligned"``, or large zeros ``"lazy"``; the caller holds `modes.CHANGING`."""
    _enabled.add(feature)
    _apply()


def aligns() -> bool:
    """Whether new arrays are aligned."""
    return "aligned" in _enabled


def disable(feature: str) -> str:
    """Undo `enable`; return the changes that remain."""
    _enabled.discard(feature)
    return _apply()


def new_handler(name: bytes) -> Any:
    """Return a handler of aligned arrays that no context uses yet; the caller holds `modes.CHANGING`."""
    global _state
    state = _state
    if state is None:
        _state = state = _prepare()
    ctx, changed = _aligned(state)
    functions = state.originals | changed
    raw = ctypes.pythonapi.PyMem_RawMalloc
    raw.restype, raw.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    handler = _Handler.from_address(raw(ctypes.sizeof(_Handler)))
    handler.name, handler.version = name, _VERSION
    handler.allocator = _Allocator(ctx, **functions)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.addressof(handler), _CAPSULE, None)


def set_handler(handler: Any) -> Any:
    """Set the handler of the current context; return the previous one."""
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_entry(_SET_HANDLER))(handler)


def why_not_compiled() -> str:
    """Return why the compiled functions cannot be used; empty if they can, or before the first `enable`."""
    state = _state
    return "" if state is None else state.why_not_compiled


def other_handler() -> str:
    """Return the name of the allocator that replaces the default one in this context; empty if none."""
    name: str | None = _module().get_handler_name()
    return name if name and name != _NAME.decode() else ""


def _apply() -> str:
    """Write the functions for the enabled features; return those that could not be changed."""
    global _state
    state = _state
    if state is None:
        if not _enabled:
            return ""
        _state = state = _prepare()
    if _is_foreign(state):
        return f"{_REPLACED}: it is not changed"
    allocator = _handler().allocator
    ctx, changed = _replacements(state)
    # Other threads may allocate meanwhile. Each write is one aligned store of eight bytes, and ctx is
    # 64 whenever malloc is aligned_alloc.
    if ctx:
        allocator.ctx = ctx
    for name, function in (state.originals | changed).items():
        if getattr(allocator, name) != function:
            setattr(allocator, name, function)
    if not ctx and allocator.ctx:
        allocator.ctx = None
    return ""


def _is_foreign(state: _State) -> bool:
    """Whether there are functions that are neither NumPy's nor the replacements."""
    allocator = _handler().allocator
    known = {*state.originals.values(), *state.compiled.values(), c_library.address("aligned_alloc")}
    return any(getattr(allocator, name) not in known for name in _FUNCTIONS)


def _replacements(state: _State) -> tuple[int | None, dict[str, int]]:
    """Return the ctx and the functions that differ from NumPy's own."""
    if "aligned" in _enabled:
        return _aligned(state)
    if "lazy" in _enabled and state.compiled:
        return None, {"calloc": state.compiled["sparse"]}
    return None, {}


def _aligned(state: _State) -> tuple[int | None, dict[str, int]]:
    core = state.compiled
    if core:
        return None, {"malloc": core["fresh"], "calloc": core["zeroed"], "realloc": core["resized"]}
    # ctx becomes the first argument, the alignment. NumPy's own functions ignore it.
    return 64, {"malloc": c_library.address("aligned_alloc")}


def _prepare() -> _State:
    """Keep NumPy's functions, and load the compiled ones."""
    allocator = _handler().allocator
    originals = {name: getattr(allocator, name) for name in _FUNCTIONS}
    from zerocopy import _native  # imports NumPy

    if not hasattr(_native.core, "allocator_functions"):
        return _State(originals, {}, _native.why_not or f"it has no such functions on {sys.platform}")
    if wrong := misbehaviour(originals):
        return _State(originals, {}, f"its self-test failed: {wrong}")
    huge = HUGE if _huge_pages() else NEVER
    # In hugetlbfs the kernel drops whole huge pages only, without an error for the rest.
    lazy = NEVER if c_library.huge_heap() else LAZY
    return _State(originals, load_compiled(originals, huge, lazy), "")


def _huge_pages() -> bool:
    """Whether NumPy requests huge pages: by NUMPY_MADVISE_HUGEPAGE, or by the kernel's version."""
    setting = getattr(_module(), "_get_madvise_hugepage", None)
    return bool(setting()) if setting is not None else True


def _numpy_version() -> str:
    return str(import_module("numpy").__version__)


def _module() -> Any:
    core = "numpy._core" if int(_numpy_version().partition(".")[0]) >= 2 else "numpy.core"
    return import_module(f"{core}._multiarray_umath")


def _handler() -> Any:
    """Return the default handler in NumPy's memory; raises ValueError for another capsule."""
    capsule = ctypes.py_object.from_address(_entry(_DEFAULT_HANDLER))
    return _Handler.from_address(_pointer(capsule.value, _CAPSULE))


def _entry(number: int) -> int:
    """Return an entry of the table of NumPy's C API: the address of a function or a variable."""
    table = _pointer(_module()._ARRAY_API, None)
    return ctypes.c_void_p.from_address(table + number * ctypes.sizeof(ctypes.c_void_p)).value or 0


def _pointer(capsule: Any, name: bytes | None) -> int:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    address: int = pointer(capsule, name)
    return address


#: From this size on glibc's calloc always maps new pages, which it does not write
#: (DEFAULT_MMAP_THRESHOLD_MAX), so that such zeros take no memory with it either.
LAZY = 32 << 20
#: From this size on NumPy requests huge pages (indicate_hugepages in its alloc.c).
HUGE = 4 << 20
NEVER = 2 * sys.maxsize + 1


def load_compiled(originals: dict[str, int], huge: int, lazy: int) -> dict[str, int]:
    """Return the addresses of the functions after setting NumPy's own functions and the thresholds.

    No thread may run in the functions meanwhile: call it before NumPy uses them.
    """
    from zerocopy import _native  # imports NumPy

    functions: Any = _native.core
    at: dict[str, int] = functions.allocator_functions(originals["malloc"], originals["calloc"], huge, lazy)
    return at


def callables(at: dict[str, int]) -> dict[str, Any]:
    """Return functions as Python callables that hold the GIL, which NumPy's cache requires."""
    word = ctypes.c_size_t
    return {name: ctypes.PYFUNCTYPE(word, *[word] * (2 if name == "fresh" else 3))(at[name]) for name in at}


# Below glibc's mmap threshold, so that a freed block is allocated again.
_TRIED = 100_000


def misbehaviour(originals: dict[str, int]) -> str:
    """Test on this kernel that dropped pages read as zero; return the first error, or "".

    Emulators such as QEMU may ignore the request to drop pages.
    """
    call = callables(load_compiled(originals, huge=_TRIED, lazy=_TRIED))
    word = ctypes.c_size_t
    free = ctypes.PYFUNCTYPE(None, word, word, word)(originals["free"])
    for name, counts in (("fresh", ()), ("zeroed", (1,)), ("sparse", (1,))):
        block = call[name](0, *counts, _TRIED)
        if not block or block % 64:
            return f"{name}({_TRIED}) returned {block:#x}"
        if name != "fresh" and ctypes.string_at(block, _TRIED).strip(b"\0"):
            return f"{name}({_TRIED}) is not zero"
        ctypes.memset(block, 0xAA, _TRIED)  # so that the next block is not zero by chance
        free(0, block, _TRIED)
    return ""
