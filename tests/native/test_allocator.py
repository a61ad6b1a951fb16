"""The functions for NumPy's allocator in C, called through their addresses, without NumPy's arrays."""

import sys

import pytest
from helpers.tiers import sample_size

from zerocopy._native import core

if not hasattr(core, "allocator_functions"):
    pytest.skip("needs the compiled core", allow_module_level=True)

#: AddressSanitizer reuses freed blocks and returns NULL for impossible sizes, as the C library does.
ASAN_OPTIONS = (
    "allocator_may_return_null=1:detect_leaks=0:quarantine_size_mb=0:thread_local_quarantine_size_kb=0"
)

FUNCTIONS = """
import ctypes, os, random, resource, sys, threading
from zerocopy.pool.host import data_handler
allocator = data_handler._handler().allocator
originals = {name: getattr(allocator, name) for name in ("malloc", "calloc", "free")}
PAGE, K, M = os.sysconf("SC_PAGE_SIZE"), 1 << 10, 1 << 20
LAZY = 2 * PAGE
at = data_handler.load_compiled(originals, huge=2 * M, lazy=LAZY)
call = data_handler.callables(at)
libc = ctypes.CDLL(None)
word = ctypes.c_size_t
libc.free.argtypes = [word]
libc.free.restype = None

def needs_glibc():
    with open("/proc/self/maps") as maps:
        if not hasattr(libc, "gnu_get_libc_version") or "libasan" in maps.read():
            raise SystemExit("needs glibc's allocator")
"""


@pytest.fixture
def run_functions(run_python):
    """Return a function that runs code after `FUNCTIONS` in a subprocess."""
    if hasattr(sys, "gettotalrefcount"):
        pytest.skip(
            "debug builds of Python free through their debugging allocator; install_pool refuses them"
        )

    def run(code: str):
        completed = run_python(FUNCTIONS + code, ASAN_OPTIONS=ASAN_OPTIONS)
        if "needs glibc's allocator" in completed.stderr:
            pytest.skip("needs glibc's allocator")
        return completed

    return run


def test_blocks_are_aligned_and_writable_around_every_limit(run_functions):
    completed = run_functions(
        """
limits = [1, 64, K, PAGE, LAZY, M, 2 * M, 32 * M]
sizes = [max(0, n + step) for n in limits for step in (-65, -64, -9, -8, -7, -1, 0, 1, 8, 63, 64)]
held = []
for n in sizes:
    for name, args in (("fresh", [n]), ("zeroed", [1, n]), ("zeroed", [n, 1])):
        block = call[name](0, *args)
        assert block and block % 64 == 0, (name, n)
        assert name == "fresh" or ctypes.string_at(block, n).count(0) == n, (name, n)
        ctypes.memset(block, 0xAA, n)
        if n < M:
            held.append((block, n))
        else:
            libc.free(block)
# No block overlaps another: each keeps its content.
for i, (block, n) in enumerate(held):
    ctypes.memset(block, i % 251, n)
for i, (block, n) in enumerate(held):
    assert ctypes.string_at(block, n) == bytes([i % 251]) * n
ends = sorted((block, block + n) for block, n in held)
assert all(end <= start for (_, end), (start, _) in zip(ends, ends[1:]))
print("aligned")
"""
    )
    assert completed.stdout == "aligned\n", completed.stderr


def test_zeros_in_dirty_memory_are_zero_with_and_without_whole_pages(run_functions):
    """The block starts and ends anywhere in a page, and has no whole page or several."""
    completed = run_functions(
        """
r = random.Random(0)
sizes = [LAZY - 1, LAZY, LAZY + 1, 3 * PAGE - 64, 3 * PAGE, 3 * PAGE + 1, 100 * PAGE + 17]
reused = 0
for n in sizes * 20 + [r.randrange(1, 20 * PAGE) for _ in range(400)]:
    shift = call["fresh"](0, r.randrange(K, 2 * PAGE))  # moves the next block within its page
    dirty = call["fresh"](0, n)
    ctypes.memset(dirty, 0xAA, n)
    libc.free(dirty)
    for name in ("zeroed", "sparse"):
        block = call[name](0, *r.choice([(1, n), (n, 1)]))
        reused += block == dirty
        assert ctypes.string_at(block, n).count(0) == n, (name, n)
        assert name == "sparse" or block % 64 == 0
        ctypes.memset(block, 0xBB, n)
        libc.free(block)
    libc.free(shift)
print(reused > 100)
"""
    )
    assert completed.stdout == "True\n", completed.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux drops pages")
def test_pages_of_zeros_are_dropped(run_functions):
    completed = run_functions(
        """
from zerocopy.pool.host import c_library
needs_glibc()
libc.mallopt(-4, 0)  # M_MMAP_MAX: the block stays in the heap
libc.mallopt(-1, -1)  # M_TRIM_THRESHOLD
n = 64 * M
for name in ("zeroed", "sparse"):
    dirty = call["fresh"](0, n + M)  # larger, because the C library splits aligned blocks
    ctypes.memset(dirty, 0xAA, n + M)
    libc.free(dirty)
    before = c_library.resident()
    block = call[name](0, 1, n)
    dropped = before - c_library.resident()
    # With Python's debug allocator, the C library may take another part of the heap.
    assert dropped > n // 2 or not dirty <= block <= dirty + M, (dropped, dirty, block)
    assert not any(ctypes.string_at(block + i, 1)[0] for i in range(0, n, 1000))
    libc.free(block)
print("dropped")
"""
    )
    assert completed.stdout == "dropped\n", completed.stderr


@pytest.mark.hazard("robustness#locked-pages")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux drops pages")
def test_locked_pages_are_cleared(run_functions):
    """The kernel refuses to drop pages that are locked in memory."""
    completed = run_functions(
        """
n, reused = 10 * PAGE, 0
for _ in range(100):
    dirty = call["fresh"](0, n + PAGE)  # larger, because the C library splits aligned blocks
    ctypes.memset(dirty, 0xAA, n + PAGE)
    if libc.mlock(word(dirty), word(n + PAGE)):
        raise SystemExit("cannot lock")
    libc.free(dirty)
    block = call["zeroed"](0, 1, n)
    assert ctypes.string_at(block, n).count(0) == n
    reused += dirty <= block < dirty + PAGE
    libc.munlock(word(dirty), word(n + PAGE))
    if reused:
        break
print(reused)
"""
    )
    if "cannot lock" in completed.stderr:
        pytest.skip("the process may not lock memory")
    assert completed.stdout == "1\n", completed.stderr


def test_realloc_keeps_content(run_functions):
    """Random calls of the functions, compared with the expected content."""
    completed = run_functions(
        """
r = random.Random(1)
size = lambda: r.randrange(1, 1 << r.randrange(1, 21))
held = {}
for step in range(4000):
    if held and r.random() < 0.6:
        ptr = r.choice(list(held))
        content = held.pop(ptr)
        assert ctypes.string_at(ptr, len(content)) == content
        if r.random() < 0.5:
            libc.free(ptr)
            continue
        n = size()
        moved = call["resized"](0, ptr, n)
        assert moved % 64 == 0
        kept = content[:n]
        assert ctypes.string_at(moved, len(kept)) == kept
        ptr, content = moved, r.randbytes(n)
    else:
        n = size()
        if r.random() < 0.5:
            ptr = call["fresh"](0, n)
        else:
            ptr = call["zeroed"](0, *r.choice([(1, n), (n, 1)]))
            assert ctypes.string_at(ptr, n).count(0) == n
        assert ptr % 64 == 0
        content = r.randbytes(n)
    assert ptr not in held
    ctypes.memmove(ptr, content, n)
    held[ptr] = content
for ptr in held:
    libc.free(ptr)
# Memory of no size is still memory.
ptr = call["resized"](0, call["fresh"](0, 5000), 0)
assert ptr and ptr % 64 == 0
libc.free(ptr)
print("kept")
"""
    )
    assert completed.stdout == "kept\n", completed.stderr


@pytest.mark.hazard("robustness#sizes-that-overflow")
def test_impossible_sizes_return_null(run_functions):
    completed = run_functions(
        """
bits = 8 * ctypes.sizeof(word)
half, most = 1 << (bits - 2), (1 << bits) - 1
ptr = call["fresh"](0, 1000)
ctypes.memset(ptr, 7, 1000)
for n in (half, 2 * half, most - 64, most):
    assert call["resized"](0, ptr, n) == 0 and ctypes.string_at(ptr, 1000) == bytes([7] * 1000)
    assert call["fresh"](0, n) == 0 and call["zeroed"](0, 1, n) == 0 and call["sparse"](0, n, 1) == 0
root = 1 << (bits // 2)
wrapped = [(2 * half, 2), (2 * half + 1, 2), (3, 2 * half + 1), (most // 3 + 1, 3)]
for n, m in [(root, root), (most, most), *wrapped]:
    assert call["zeroed"](0, n, m) == 0 and call["sparse"](0, n, m) == 0
print("refused")
"""
    )
    assert completed.stdout == "refused\n", completed.stderr


@pytest.mark.hazard("robustness#resize-without-memory")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_content_matters_more_than_alignment(run_functions):
    """Without memory for an aligned block, realloc returns the content in a misaligned one."""
    completed = run_functions(
        """
needs_glibc()
libc.mallopt(-3, M)  # M_MMAP_THRESHOLD: a large block is a mapping, which grows in place
libc.malloc.restype, libc.malloc.argtypes = word, [word]
ptr = libc.malloc(100 * M)
assert ptr % 64 == 16
ctypes.memset(ptr, 7, 100 * M)
used = int(open("/proc/self/statm").read().split()[0]) * PAGE
resource.setrlimit(resource.RLIMIT_AS, (used + 60 * M, resource.RLIM_INFINITY))
moved = call["resized"](0, ptr, 140 * M)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
assert moved and moved % 64 == 16
print(ctypes.string_at(moved, 100 * M).count(7) == 100 * M)
"""
    )
    assert completed.stdout == "True\n", completed.stderr


def test_threads_without_the_gil(run_functions):
    """Large blocks do not touch NumPy's cache, so that threads can run in the functions at once."""
    completed = run_functions(
        f"ROUNDS = {sample_size(2000, 500)}"
        + """
types = {name: ctypes.CFUNCTYPE(word, *[word] * (2 if name == "fresh" else 3)) for name in at}
free_call = {name: types[name](at[name]) for name in at}
failed = []
def work(seed):
    r = random.Random(seed)
    try:
        for _ in range(ROUNDS):
            n = r.randrange(K, 1 << r.randrange(11, 20))
            block = free_call["zeroed"](0, 1, n)
            assert block % 64 == 0 and ctypes.string_at(block, n).count(0) == n
            ctypes.memset(block, seed, n)
            m = r.randrange(K, 2 * n + K)
            block = free_call["resized"](0, block, m)
            kept = min(n, m)
            assert block % 64 == 0 and ctypes.string_at(block, kept).count(seed) == kept
            libc.free(block)
            block = free_call["fresh"](0, n)
            ctypes.memset(block, seed, n)
            libc.free(block)
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 9)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(failed)
"""
    )
    assert completed.stdout == "[]\n", completed.stderr


def test_functions_work_after_a_fork(run_functions):
    completed = run_functions(
        """
block = call["fresh"](0, 5000)
ctypes.memset(block, 7, 5000)
child = os.fork()
moved = call["resized"](0, block, 50_000)
right = moved % 64 == 0 and ctypes.string_at(moved, 5000) == b"\\x07" * 5000
zeros = call["zeroed"](0, 3, LAZY)
right = right and ctypes.string_at(zeros, 3 * LAZY).count(0) == 3 * LAZY
if not child:
    os._exit(0 if right else 1)
print(right, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert completed.stdout == "True 0\n", completed.stderr


def test_wrong_arguments_are_refused(run_functions):
    completed = run_functions(
        """
from zerocopy._native import core
good = (originals["malloc"], originals["calloc"], 1 << 22, 1 << 25)
calls = [good[:3], (*good, 1), (0, *good[1:]), (good[0], 0, *good[2:]), (*good[:3], -1), (*good[:3], "1")]
for args in calls:
    try:
        core.allocator_functions(*args)
    except (TypeError, ValueError, OverflowError) as error:
        print(type(error).__name__)
# A refused call changes nothing, and the addresses stay the same.
assert call["zeroed"](0, 1, 100) and core.allocator_functions(*good) == at
"""
    )
    names = ["TypeError", "TypeError", "ValueError", "ValueError", "OverflowError", "TypeError"]
    assert completed.stdout.split() == names, completed.stderr
    assert completed.returncode == 0, completed.stderr


@pytest.mark.hazard("robustness#madvise-without-effect")
def test_self_test_passes_and_detects_wrong_functions(run_functions):
    completed = run_functions(
        """
print(data_handler.misbehaviour(originals) or "right")
load = data_handler.load_compiled
def broken(name, function):
    address = ctypes.cast(function, ctypes.c_void_p).value
    data_handler.load_compiled = lambda *args, **options: load(*args, **options) | {name: address}
    return data_handler.misbehaviour(originals)
three = ctypes.PYFUNCTYPE(word, word, word, word)
misaligned = three(lambda ctx, n, size: call["zeroed"](ctx, n, size + 16) + 16)
def ones(ctx, n, size):
    block = call["fresh"](ctx, n * size)
    ctypes.memset(block, 1, n * size)
    return block
dirty = three(ones)
print(broken("zeroed", misaligned))
print(broken("zeroed", dirty))
print(broken("sparse", dirty))
"""
    )
    lines = completed.stdout.splitlines()
    assert lines[0] == "right", completed.stderr
    assert lines[1].startswith("zeroed(100000) returned 0x")
    assert lines[2:] == ["zeroed(100000) is not zero", "sparse(100000) is not zero"]
