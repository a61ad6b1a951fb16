"""The counters in Python give the rows of the compiled core."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerocopy import monitor
from zerocopy._native import core
from zerocopy.monitor.counters import MAX_ENTRIES, MAX_SITES, Counters

PROGRAM = """
import dataclasses, threading
import numpy as np, pyarrow as pa, zerocopy as zc
from zerocopy.monitor.recorder import Recorder

class Producer:
    def __init__(self, fails): self.fails = fails
    def __dlpack_device__(self): return 1, 0
    def __dlpack__(self, **options):
        zc.convert(memoryview(bytes(9)), "numpy", copy=True)
        if self.fails: raise ValueError("no")
        return np.zeros(3).__dlpack__()

def attempt(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception:
        pass

def work():
    table = pa.table({"x": np.arange(8.0), "y": np.arange(8.0)})
    convert = zc.plan_for(table, "numpy", columns=["y"])
    for _ in range(9):
        attempt(zc.convert, np.arange(4.0), "numpy")
        attempt(zc.convert, np.arange(4.0), "numpy", copy=True)
        attempt(zc.convert, np.arange(4.0), "pyarrow")
        attempt(zc.convert, np.arange(4.0)[::2], "pyarrow")
        attempt(zc.convert, np.arange(4.0)[::2], "pyarrow", copy=False)
        attempt(zc.convert, pa.array([1.0, 2.0]), "numpy", writable=True)
        attempt(zc.convert, table, "numpy")
        attempt(zc.convert, table, "numpy", layout="matrix")
        attempt(zc.convert, [pa.array([1.0]), {"a": np.arange(2)}], "numpy")
        attempt(zc.convert, [np.arange(3.0), "text"], "pyarrow")
        attempt(zc.convert, np.zeros(0), "pyarrow")
        attempt(zc.convert, Producer(False), "numpy")
        attempt(zc.convert, Producer(True), "numpy")
        attempt(zc.convert, 3, "no such framework")
        attempt(convert, table)

for sites in (True, False):
    recorder = Recorder(sites)
    recorder.start()
    work()
    thread = threading.Thread(target=zc.convert, args=(bytes(5), "numpy"))
    thread.start()
    thread.join()
    recorder.stop()
    for row in sorted(map(repr, (dataclasses.replace(row, seconds=None) for row in recorder.rows()))):
        print(row)
"""


@pytest.mark.skipif(core is None, reason="needs the compiled core")
def test_rows_are_those_of_the_core(run_python) -> None:
    pytest.importorskip("pyarrow")
    compiled, pure = run_python(PROGRAM, ZEROCOPY_NATIVE="1"), run_python(PROGRAM, ZEROCOPY_NATIVE="0")
    assert compiled.returncode == pure.returncode == 0, compiled.stderr + pure.stderr
    assert compiled.stdout.splitlines() == pure.stdout.splitlines()
    assert len(pure.stdout.splitlines()) > 15


def test_entries_are_limited() -> None:
    counters = Counters()
    pair = ("a", "b")
    assert counters.record_call(pair, False, False, False, 1) == (None, -1, False)  # not started
    counters.start_recording(str(Path(monitor.__file__).parent), ("<frozen",))
    counters.set_sites(True)
    for number in range(MAX_SITES + 50):
        text = "counters.record_call(pair, False, False, False, 1)"
        exec(compile(text, f"<cell {number}>", "exec"), {"counters": counters, "pair": pair})
    entries = counters.recorded()
    assert len(entries) == MAX_SITES + 1
    assert [counts[4] for code, _, _, counts in entries if code is None] == [50]
    for number in range(MAX_ENTRIES):
        counters.record_call((str(number), "b"), False, True, False, 1)
    assert len(counters.recorded()) == MAX_ENTRIES
    counters.reset_records()
    assert not any(any(counts) for *_, counts in counters.recorded())
    counters.stop_recording()
    assert counters.recorded() == []


def test_bytes_of_a_capsule() -> None:
    np = pytest.importorskip("numpy")
    for array in (np.zeros((2, 3)), np.zeros((0, 4), "i2"), np.array(1j)):
        assert Counters().capsule_bytes(array.__dlpack__()) == array.nbytes
        assert Counters().capsule_bytes(array.__dlpack__(max_version=(1, 0))) == array.nbytes
