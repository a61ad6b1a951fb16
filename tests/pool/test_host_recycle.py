"""``host="recycle"``: kept blocks, observed by addresses, page faults and resident memory."""

import pytest

from zerocopy.pool.host import c_library

pytestmark = pytest.mark.skipif(c_library.refusal() is not None, reason=str(c_library.refusal()))

RECYCLE = """
import resource, threading
import numpy as np
from zerocopy.pool.host import c_library, parse
M = 1 << 20
(mode,) = parse("recycle")

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def touched(nbytes):
    '''Fill a fresh block, and return its address and how many pages were faulted in.'''
    before = faults()
    x = np.empty(nbytes, np.uint8)
    x.fill(1)
    return x.ctypes.data, faults() - before
"""


def test_large_block_is_reused_with_its_pages(run_python):
    completed = run_python(
        RECYCLE
        + """
touched(64 * M)
plain = touched(64 * M)[1]
mode.install()
first, _ = touched(64 * M)
again = [touched(64 * M) for _ in range(5)]
assert {at for at, _ in again} == {first}
# A new block has about 30 faults with huge pages, and 16384 without.
print(plain >= 30, sum(n for _, n in again) < 10)
"""
    )
    assert completed.stdout == "True True\n", completed.stderr


def test_blocks_of_any_size_are_kept_in_threads(run_python):
    completed = run_python(
        RECYCLE
        + """
mode.install()
def work():
    touched(200 * M)
    found.append(touched(200 * M)[1])
found = []
for _ in range(3):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
print(max(found) < 10)
"""
    )
    assert completed.stdout == "True\n", completed.stderr


def test_torch_reuses_kept_blocks(run_python):
    pytest.importorskip("torch")
    completed = run_python(
        RECYCLE
        + """
import torch
mode.install()
def fill():
    before = faults()
    x = torch.full((16 * M,), 1.0)
    return faults() - before
# 64 MB are 16384 pages. A heap needs about ten calls to become stable: see docs/host-memory.md.
print(min(fill() for _ in range(30)) < 100)
"""
    )
    assert completed.stdout == "True\n", completed.stderr


@pytest.mark.parametrize("name", ["recycle", "aligned"])
def test_trim_returns_memory(run_python, name):
    completed = run_python(
        RECYCLE.replace('"recycle"', repr(name))
        + """
mode.install()
base = c_library.resident()
held = np.ones(M)
blocks = [np.ones(4 * M) for _ in range(4)]
above = np.ones(1000)
del blocks
kept = c_library.resident() - base
given = mode.trim() + mode.trim()  # twice: the first call may leave some memory
left = c_library.resident() - base
assert (held == 1).all() and (above == 1).all()
assert kept > 120 * M, kept
assert given > 90 * M, given
assert left < 40 * M, left
assert mode.trim() < 32 * M
print("trimmed")
"""
    )
    assert completed.stdout == "trimmed\n", completed.stderr


def test_restore_reports_what_glibc_cannot_undo(run_python):
    completed = run_python(
        RECYCLE
        + """
mode.install()
touched(128 * M)
held = np.full(16 * M, 3, np.uint8)
assert "until trim()" in mode.describe()
before = c_library.resident()
lost = mode.restore()
assert before - c_library.resident() > 100 * M
assert mode.restore() == ""
assert (held == 3).all()
del held
# Blocks above the threshold are mappings again, unmapped by free().
before = c_library.resident()
touched(128 * M)
assert c_library.resident() - before < 8 * M
print(lost)
mode.install()
first = touched(64 * M)[0]
assert touched(64 * M) == (first, 0)
"""
    )
    assert completed.returncode == 0, completed.stderr
    assert "no longer adapts its mmap threshold" in completed.stdout


def test_two_modes_share_settings(run_python):
    completed = run_python(
        RECYCLE
        + """
aligned, recycle = parse("aligned+recycle")
for mode in (aligned, recycle):
    mode.install()
touched(64 * M)
assert aligned.restore() == "" and recycle.installed
first = touched(64 * M)[0]
assert touched(64 * M) == (first, 0)
print(recycle.restore() != "")
"""
    )
    assert completed.stdout == "True\n", completed.stderr
