"""``host="aligned"`` and ``"recycle"`` where the compiled core is missing, refused, or restricted."""

import pytest
from helpers.free_threaded import with_gil

from zerocopy._native import core
from zerocopy.pool.host import c_library

pytestmark = pytest.mark.skipif(c_library.refusal() is not None, reason=str(c_library.refusal()))

native = pytest.mark.skipif(not hasattr(core, "allocator_functions"), reason="needs the compiled core")

PURE = """
import gc, threading
import numpy as np
from zerocopy.pool.host import data_handler, parse
before = np.ones(100_000)
(mode,) = parse("aligned")
mode.install()
print(mode.describe())
sizes = (1, 100, 1000, 1024, 10**5, 2**23)
held = [np.empty(n, np.uint8) for n in sizes] + [np.ones(n) for n in sizes]
assert not [a for a in held if a.ctypes.data % 64]
for n in sizes:
    dirty = np.empty(n, np.uint8)
    dirty.fill(1)
    del dirty
    assert not np.zeros(n, np.uint8).any()
grown = np.arange(1000)
grown.resize(10**6, refcheck=False)  # Python 3.14 counts fewer references
assert grown.sum() == 499500
print(mode.restore() != "", data_handler._handler().allocator.ctx)
del before, held
assert np.ones(100).sum() == 100
"""


@with_gil("the mode needs the compiled core on a free-threaded Python")
def test_alignment_without_the_compiled_core(run_python):
    """The C library's aligned_alloc is used directly; the description has the reason."""
    completed = run_python(PURE, ZEROCOPY_NATIVE="0")
    assert completed.returncode == 0, completed.stderr
    description, restored = completed.stdout.splitlines()
    missing = "(ZEROCOPY_NATIVE=0 is set)"
    assert f"except zeros and resized arrays, which need the compiled core {missing}" in description
    assert f"written at once, which the compiled core avoids {missing}" in description
    assert restored == "True None"


@with_gil("the mode needs the compiled core on a free-threaded Python")
@pytest.mark.hazard("robustness#madvise-without-effect")
@native
def test_failed_self_test_uses_the_c_library_alone(run_python):
    """An emulator may ignore the request to drop pages: then NumPy does not get the compiled functions."""
    broken = """
from zerocopy.pool.host import data_handler
data_handler.misbehaviour = lambda originals: "zeroed(100000) is not zero"
"""
    completed = run_python(broken + PURE)
    assert completed.returncode == 0, completed.stderr
    assert "(its self-test failed: zeroed(100000) is not zero)" in completed.stdout
    assert completed.stdout.endswith("True None\n")


@native
def test_executable_pages_are_not_needed(run_python):
    """Linux 6.3 and later can be configured to refuse new executable pages."""
    completed = run_python(
        """
import ctypes
from zerocopy._native import core
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
if ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0):
    raise SystemExit("old kernel")
"""
        + """
import numpy as np
from zerocopy.pool.host import parse
(mode,) = parse("aligned")
mode.install()
print(np.zeros(10**5).ctypes.data % 64, mode.describe())
"""
    )
    if "old kernel" in completed.stderr:
        pytest.skip("the kernel cannot refuse them")
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("0 aligned: NumPy's arrays are 64-byte aligned; ")


@with_gil("the mode needs the compiled core on a free-threaded Python")
def test_zeros_without_the_compiled_core(run_python):
    """NumPy's own calloc writes zeros in kept blocks; the description has the reason."""
    completed = run_python(
        """
import numpy as np
from zerocopy.pool.host import parse
M = 1 << 20
(mode,) = parse("recycle")
mode.install()
x = np.empty(64 * M, np.uint8)
x.fill(1)
del x
print(np.zeros(64 * M, np.uint8).any(), mode.describe())
""",
        ZEROCOPY_NATIVE="0",
    )
    zeros = (
        "zeros in kept blocks are written at once, which the compiled core avoids (ZEROCOPY_NATIVE=0 is set)"
    )
    assert completed.stdout.startswith("False recycle: "), completed.stderr
    assert completed.stdout.endswith(f"; {zeros}\n")
