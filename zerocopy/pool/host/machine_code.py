"""Four functions for NumPy's allocator, as machine code for x86-64.

NumPy calls its allocator from C, where a Python function cannot be used: arrays that outlive the
interpreter are freed after its end. The C library has ``aligned_alloc``, but neither an aligned
``calloc`` nor an aligned ``realloc``; these functions add them.

- ``fresh(ctx, size)``: aligned malloc. Blocks below 1 KiB come from NumPy's own cache while its
  blocks are aligned; for large blocks it requests huge pages, as NumPy does.
- ``zeroed(ctx, n, size)``: aligned calloc. From :data:`LAZY` on, whole pages of the block are
  dropped instead of written: they read as zero, and take no memory until they are used.
- ``sparse(ctx, n, size)``: NumPy's calloc below :data:`LAZY`, ``zeroed`` from there on.
- ``resized(ctx, ptr, size)``: aligned realloc.

The page is written, then made executable and read-only, and never unmapped, because a thread may
run in it. A test assembles the text below and compares the bytes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
from typing import Any

from zerocopy.pool.host import c_library

#: From this size on glibc's calloc always maps new pages, which need no writing
#: (DEFAULT_MMAP_THRESHOLD_MAX), so that such zeros take no memory in either case.
LAZY = 32 << 20
#: From this size on NumPy requests huge pages (indicate_hugepages in its alloc.c).
HUGE = 4 << 20
NEVER = 2**64 - 1

#: Values at the beginning of the page: addresses, then sizes.
SLOTS = (
    *("default_malloc", "default_calloc", "malloc", "free", "aligned_alloc", "realloc"),
    *("memset", "memcpy", "madvise", "huge", "lazy"),
)
#: Offset of the code in the page.
START = 128

# System V calls: arguments in rdi, rsi, rdx, the result in rax; rbx, r12, r13 survive a call,
# and rsp is a multiple of 16 before one. endbr64 marks where indirect calls may land.
CODE = """
fresh:                          # (ctx, size)
  f30f1efa       endbr64
  4881fe00040000 cmp rsi, 1024  # below that NumPy has a cache
  731f           jae block
  53             push rbx       # keeps the size
  4889f3         mov rbx, rsi
  ff1569ffffff   call [rip + default_malloc]
  a83f           test al, 63    # aligned, or NULL?
  0f8482000000   je done        # then return it
  4889c7         mov rdi, rax   # if not, free it to the C library, not to the
  ff1570ffffff   call [rip + free]  # cache, where aligned blocks then accumulate
  4889de         mov rsi, rbx
  5b             pop rbx
block:                          # (-, size), any size
  53             push rbx       # keeps the size
  4889f3         mov rbx, rsi
  4881fe00001000 cmp rsi, 0x100000
  7322           jae exact
  4883c347       add rbx, 71    # with its header of 8 bytes, a block of the C library then has a
  4883e3c0       and rbx, -64   # size of a multiple of 64: the block after an aligned one is aligned,
  4883eb08       sub rbx, 8     # and malloc, which is faster than aligned_alloc, often suffices
  4889df         mov rdi, rbx
  ff1542ffffff   call [rip + malloc]
  a83f           test al, 63
  744f           je done
  4889c7         mov rdi, rax
  ff153dffffff   call [rip + free]
exact:
  bf40000000     mov edi, 64
  4889de         mov rsi, rbx
  ff1537ffffff   call [rip + aligned_alloc]
  4885c0         test rax, rax
  7433           je done        # out of memory: NULL
  483b1d53ffffff cmp rbx, [rip + huge]
  722a           jb done
  50             push rax       # keeps the block
  4883ec08       sub rsp, 8     # to align the stack to 16
  488db8ff0f0000 lea rdi, [rax + 4095]
  4881e700f0ffff and rdi, -4096 # its first whole page
  488d3418       lea rsi, [rax + rbx]
  4829fe         sub rsi, rdi   # the length from there on
  ba0e000000     mov edx, 14    # MADV_HUGEPAGE; a failure has no effect
  ff1524ffffff   call [rip + madvise]
  4883c408       add rsp, 8
  58             pop rax
done:
  5b             pop rbx
  c3             ret
zeroed:                         # (ctx, n, size)
  f30f1efa       endbr64
  4889f0         mov rax, rsi
  48f7e2         mul rdx        # size in bytes; sets overflow if it does not fit
  0f8092000000   jo nothing
  53             push rbx       # keeps the bytes
  4154           push r12       # keeps the block
  4155           push r13       # keeps the first whole page
  4889c3         mov rbx, rax
  4889c6         mov rsi, rax
  e83dffffff     call fresh     # rdi is still ctx
  4989c4         mov r12, rax
  4885c0         test rax, rax
  7471           je cleared     # out of memory: NULL
  483b1dfefeffff cmp rbx, [rip + lazy]
  725a           jb clear
  488db8ff0f0000 lea rdi, [rax + 4095]
  4881e700f0ffff and rdi, -4096 # from the first whole page
  4989fd         mov r13, rdi
  488d3418       lea rsi, [rax + rbx]
  4881e600f0ffff and rsi, -4096 # to the end of the last one
  4829fe         sub rsi, rdi
  ba04000000     mov edx, 4     # MADV_DONTNEED: anonymous pages are zero afterwards
  ff15c2feffff   call [rip + madvise]
  85c0           test eax, eax
  752c           jne clear      # refused, as for locked memory: clear it
  4c89e7         mov rdi, r12   # clear the part before the first whole page
  31f6           xor esi, esi
  4c89ea         mov rdx, r13
  4c29e2         sub rdx, r12
  ff159dfeffff   call [rip + memset]
  498d141c       lea rdx, [r12 + rbx]  # and the part after the last one
  4889d7         mov rdi, rdx
  4881e700f0ffff and rdi, -4096
  4829fa         sub rdx, rdi
  31f6           xor esi, esi
  ff1584feffff   call [rip + memset]
  eb0e           jmp cleared
clear:
  4c89e7         mov rdi, r12
  31f6           xor esi, esi
  4889da         mov rdx, rbx
  ff1574feffff   call [rip + memset]
cleared:
  4c89e0         mov rax, r12
  415d           pop r13
  415c           pop r12
  5b             pop rbx
  c3             ret
nothing:
  31c0           xor eax, eax
  c3             ret
sparse:                         # (ctx, n, size)
  f30f1efa       endbr64
  4889d1         mov rcx, rdx   # mul writes rdx
  4889f0         mov rax, rsi
  48f7e2         mul rdx
  4889ca         mov rdx, rcx
  70eb           jo nothing
  483b056ffeffff cmp rax, [rip + lazy]
  0f833cffffff   jae zeroed
plain:
  ff251bfeffff   jmp [rip + default_calloc]
resized:                        # (ctx, ptr, size)
  f30f1efa       endbr64
  53             push rbx       # keeps the size
  4154           push r12       # keeps the result of realloc
  4155           push r13       # keeps the aligned block
  4889d3         mov rbx, rdx
  4889f7         mov rdi, rsi
  4889d6         mov rsi, rdx
  ff1523feffff   call [rip + realloc]
  4989c4         mov r12, rax
  a83f           test al, 63    # aligned; or NULL, and the old block is unchanged
  742b           je moved
  4889de         mov rsi, rbx
  e898feffff     call block
  4885c0         test rax, rax
  741e           je moved       # out of memory: the content matters more than the alignment
  4989c5         mov r13, rax
  4889c7         mov rdi, rax
  4c89e6         mov rsi, r12
  4889da         mov rdx, rbx
  ff150dfeffff   call [rip + memcpy]
  4c89e7         mov rdi, r12
  ff15e4fdffff   call [rip + free]
  4d89ec         mov r12, r13
moved:
  4c89e0         mov rax, r12
  415d           pop r13
  415c           pop r12
  5b             pop rbx
  c3             ret
"""

_ENTRIES = ("fresh", "zeroed", "sparse", "resized")


class NoMachineCodeError(Exception):
    """The functions cannot be used here, for the reason in the message."""


def listing() -> list[tuple[str, bytes, str]]:
    """Return the lines of :data:`CODE`: label (or empty), bytes, instruction."""
    lines = []
    for line in filter(None, (line.partition("#")[0].rstrip() for line in CODE.splitlines())):
        label = line.rstrip(":") if not line.startswith(" ") else ""
        digits, _, instruction = ("", "", "") if label else line.strip().partition(" ")
        lines.append((label, bytes.fromhex(digits), instruction.strip()))
    return lines


def load(originals: dict[str, int], huge: int, lazy: int) -> dict[str, int]:
    """Load the functions into memory, and return their addresses."""
    if platform.machine() != "x86_64" or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise NoMachineCodeError(f"it is x86-64 code, and the machine is {platform.machine()}")
    slots = [originals.get(name) or c_library.address(name) for name in SLOTS[:-2]]
    image = struct.pack(f"<{len(SLOTS)}Q", *slots, huge, lazy).ljust(START, b"\0")
    at: dict[str, int] = {}
    for label, code, _ in listing():
        if label:
            at[label] = len(image)
        image += code
    page = _executable(image)
    return {name: page + at[name] for name in _ENTRIES}


def _executable(image: bytes) -> int:
    """Return the address of a page with that content, executable and read-only."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size = ctypes.c_size_t(mmap.PAGESIZE)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    page = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, ctypes.c_long(0))
    if page in (None, NEVER):
        raise NoMachineCodeError(f"the system provides no page for it ({os.strerror(ctypes.get_errno())})")
    ctypes.memmove(page, image, len(image))
    # SELinux (execmem), systemd's MemoryDenyWriteExecute and prctl(PR_SET_MDWE) refuse this.
    if libc.mprotect(ctypes.c_void_p(page), size, mmap.PROT_READ | mmap.PROT_EXEC):
        message = os.strerror(ctypes.get_errno())
        libc.munmap(ctypes.c_void_p(page), size)
        raise NoMachineCodeError(f"the system allows no executable page ({message})")
    return int(page)


def functions(at: dict[str, int]) -> dict[str, Any]:
    """Return the functions as Python callables that hold the GIL, which NumPy's cache requires."""
    word = ctypes.c_size_t
    return {name: ctypes.PYFUNCTYPE(word, *[word] * (2 if name == "fresh" else 3))(at[name]) for name in at}


# Around the limits of NumPy's cache, of a page, and of dropping pages.
_TRIED = (1, 100, 1023, 1024, 5000, 100_000)
_TRIED_LAZY = 64 << 10


def misbehaviour(originals: dict[str, int]) -> str:
    """Test each function, and return the first error; empty if there is none.

    The tests use low thresholds, so that they touch few pages.
    """
    call = functions(load(originals, huge=_TRIED_LAZY, lazy=_TRIED_LAZY))
    free = ctypes.PYFUNCTYPE(None, ctypes.c_size_t)(c_library.address("free"))
    for size in _TRIED:
        block = call["fresh"](0, size)
        if not block or block % 64:
            return f"fresh({size}) returned {block:#x}"
        ctypes.memset(block, 0xAA, size)  # so that the next block is not zero by chance
        free(block)
        for name in ("zeroed", "sparse"):
            block = call[name](0, 1, size)
            wanted = name == "zeroed" or size >= _TRIED_LAZY
            if not block or (wanted and block % 64):
                return f"{name}({size}) returned {block:#x}"
            if ctypes.string_at(block, size).strip(b"\0"):
                return f"{name}({size}) is not zero"
            ctypes.memset(block, 0xAA, size)
            content = ctypes.string_at(block, size)
            for other in (size * 3, max(1, size // 2)):
                block = call["resized"](0, block, other)
                if not block or block % 64:
                    return f"resized({other}) returned {block:#x}"
                kept = min(size, other, max(1, size // 2) if other < size else size)
                if ctypes.string_at(block, kept) != content[:kept]:
                    return f"resized({other}) lost the content"
            free(block)
    if call["zeroed"](0, 2**40, 2**40) or call["sparse"](0, 2**40, 2**40):
        return "an allocation of 2**80 bytes succeeded"
    return ""
