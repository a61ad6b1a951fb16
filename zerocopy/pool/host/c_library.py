"""The C library's allocator: whether it is glibc's, its settings, and the memory that it keeps."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tracemalloc
from functools import cache
from typing import Any

from zerocopy.errors import Reason

# malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -3, -4, -8

#: Names of CPython's raw allocator that mean the C library's.
_OWN = (b"pymalloc", b"malloc")
#: That of free-threaded builds, for Python's objects; it can have the raw memory too.
_OBJECTS_ONLY = b"mimalloc"
_REPLACEABLE = (
    *("malloc", "free", "realloc", "calloc", "aligned_alloc", "posix_memalign"),
    *("mallopt", "malloc_trim"),
)


class _SymbolInfo(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


@cache
def library() -> ctypes.CDLL:
    """Return the process-wide symbols: the C library's, unless another library overrides them."""
    return ctypes.CDLL(None)


def address(function: str, among: ctypes.CDLL | None = None) -> int:
    """Return the address of a function of the C library."""
    return ctypes.cast(getattr(among or library(), function), ctypes.c_void_p).value or 0


def file_of(function: int) -> str:
    """Return the file from which a function was loaded; empty if unknown."""
    info = _SymbolInfo()
    known = library().dladdr(ctypes.c_void_p(function), ctypes.byref(info))
    return os.path.realpath(os.fsdecode(info.file)) if known and info.file else ""


def refusal() -> Reason | None:
    """Return why the allocator of this process cannot be changed; None if it can."""
    if not sys.platform.startswith("linux"):
        why = f"the mode needs glibc, and the platform is {sys.platform}"
        return Reason(why, "leave host= out, or use Linux", code="not-glibc")
    if not hasattr(library(), "gnu_get_libc_version"):
        why = "the C library is not glibc (musl, as in Alpine), whose allocator has no such settings"
        remedy = "use an image with glibc: python:3.12-slim instead of python:3.12-alpine"
        return Reason(why, remedy, code="not-glibc")
    return _replaced() or _wrapped()


class _Loaded(ctypes.Structure):
    """The beginning of struct dl_phdr_info of link.h."""

    _fields_ = (("base", ctypes.c_void_p), ("file", ctypes.c_char_p))


_EACH_LOADED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)


def _libraries() -> list[str]:
    """Return the files of all loaded libraries, in the order of symbol lookup."""
    files: list[str] = []

    def append(info: Any, size: int, data: Any) -> int:
        files.append(os.fsdecode(info.contents.file or b""))
        return 0

    library().dl_iterate_phdr(_EACH_LOADED(append), None)
    return [file for file in files if "/" in file]  # omits the program and the kernel's vDSO


class _Symbol(ctypes.Structure):
    """Elf64_Sym of elf.h."""

    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_uint8),
        ("other", ctypes.c_uint8),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


def _is_stub(function: int) -> bool:
    """Whether a function is only a jump to the function of that name in another library.

    A program linked to fixed addresses, such as Debian's and Ubuntu's Python, has such a symbol for
    each function that it calls, without a section (System V ABI, AMD64, "Function Addresses").
    """
    info, symbol = _SymbolInfo(), ctypes.POINTER(_Symbol)()
    # 1: RTLD_DL_SYMENT, dlfcn.h.
    known = library().dladdr1(ctypes.c_void_p(function), ctypes.byref(info), ctypes.byref(symbol), 1)
    return bool(known) and bool(symbol) and symbol.contents.section == 0


def _definer(name: str) -> str:
    """Return the file of the first library that defines a function; empty if none does."""
    for file in _libraries():
        try:
            handle = ctypes.CDLL(file, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            definer = file_of(address(name, handle))
        except (OSError, AttributeError):  # unloaded meanwhile, or without that function
            continue
        if definer == os.path.realpath(file):
            return definer
    return ""


def _replaced() -> Reason | None:
    glibc = ctypes.CDLL("libc.so.6")
    for name in _REPLACEABLE:
        if address(name) == address(name, glibc):
            continue
        file = _definer(name) if _is_stub(address(name)) else file_of(address(name))
        if file != file_of(address(name, glibc)):
            return Reason(
                f"{name} comes from {file or 'an unknown file'} and not from glibc, and has other settings",
                "start without it (see LD_PRELOAD), or leave host= out: such allocators keep blocks too",
                code="other-allocator",
            )
    return None


def _wrapped() -> Reason | None:
    """Check that CPython's allocator is the C library's: NumPy 2.3 and later frees through it."""
    if tracemalloc.is_tracing():
        return Reason(
            "tracemalloc is running: it hides which allocator NumPy calls, and would miscount kept blocks",
            "stop it before: tracemalloc.stop(), no PYTHONTRACEMALLOC, no -X tracemalloc; it may start later",
            code="tracemalloc",
        )
    allocator_name: Any = getattr(ctypes.pythonapi, "_PyMem_GetCurrentAllocatorName", None)
    if allocator_name is None:
        why, remedy = "this Python does not report its allocator", "use CPython 3.11 to 3.14"
        return Reason(why, remedy, code="other-allocator")
    allocator_name.restype = ctypes.c_char_p
    name: bytes | None = allocator_name()
    if name in _OWN or (name == _OBJECTS_ONLY and _raw_memory_is_glibcs()):
        return None
    if name is not None and name.endswith(b"_debug"):
        why = (
            "Python uses its debugging allocator, through which NumPy frees, and which aborts on memory "
            "of other allocators"
        )
        return Reason(why, "start without PYTHONMALLOC=debug and without -X dev", code="other-allocator")
    why = f"Python's allocator is {name.decode() if name else 'a custom one'}, not the C library's"
    return Reason(why, "start without PYTHONMALLOC", code="other-allocator")


def _raw_memory_is_glibcs() -> bool:
    """Whether the memory of ``PyMem_RawMalloc`` is glibc's, which writes the size before each block."""
    allocate: Any = ctypes.pythonapi.PyMem_RawMalloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    free: Any = ctypes.pythonapi.PyMem_RawFree
    free.restype, free.argtypes = None, (ctypes.c_void_p,)
    block = allocate(_TRIED)
    if not block:
        return False
    header = ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value
    free(block)
    return _TRIED <= header & ~7 <= _TRIED + 8192  # three bits are flags; a mapped block has whole pages


#: Bytes of a block that glibc takes from its heap or maps.
_TRIED = 70_000


def mallopt(setting: int, value: int) -> bool:
    """Change a setting of the allocator; return whether the C library accepts it (mallopt(3))."""
    return bool(library().mallopt(ctypes.c_int(setting), ctypes.c_int(value)))


def huge_heap() -> bool:
    """Whether glibc takes its heap from hugetlbfs (``glibc.malloc.hugetlb=2`` or a size)."""
    return _tunables().get("glibc.malloc.hugetlb", "0") not in ("0", "1")


def _tunables() -> dict[str, str]:
    pairs = (part.partition("=") for part in os.environ.get("GLIBC_TUNABLES", "").split(":"))
    return {name: value for name, _, value in pairs}


def at_start(variable: str, tunable: str, default: int) -> int:
    """Return the initial value of a setting, which the C library does not report.

    It comes from its variable (mallopt(3), ENVIRONMENT VARIABLES), its tunable, or its default.
    """
    text = os.environ.get(variable) or _tunables().get(f"glibc.malloc.{tunable}")
    try:
        return int(text, 0) if text else default
    except ValueError:
        return default


def resident() -> int:
    """Return the resident set of this process, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def trim(keep: int = 0) -> int:
    """Return free memory to the system, except `keep` bytes at the end of the heap; return the shrinkage.

    The shrinkage is that of the resident set, in bytes.
    """
    before = resident()
    library().malloc_trim(ctypes.c_size_t(keep))
    return max(0, before - resident())


#: The totals of all heaps in the text of malloc_info(3), after the heaps themselves.
_TOTALS = re.compile(r'<(total|system) type="(\w+)"(?: count="\d+")? size="(\d+)"/>')


def heap() -> tuple[int, int, int]:
    """Return the bytes of glibc's heaps in use, free, and at most: the most that the heaps ever had.

    malloc_info(3) counts at each call the free blocks, and not those in use. It takes 4 us with 100,000
    blocks in use, and 0.6 ms with 50,000 free ones between them. It exists in every glibc since 2.10.
    """
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    open_memstream: Any = library().open_memstream
    open_memstream.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(open_memstream(ctypes.byref(text), ctypes.byref(size)))
    if not stream.value:
        raise MemoryError("malloc_info")
    library().malloc_info(ctypes.c_int(0), stream)
    library().fclose(stream)
    xml = ctypes.string_at(text, size.value).decode()
    library().free(text)
    parts = _TOTALS.findall(xml[xml.rfind("</heap>") :])
    totals = {(tag, kind): int(number) for tag, kind, number in parts}
    # glibc 2.43 has no fast blocks.
    free = totals.get(("total", "fast"), 0) + totals["total", "rest"]
    return max(0, totals["system", "current"] - free), free, totals["system", "max"]
