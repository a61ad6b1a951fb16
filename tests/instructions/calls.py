"""The calls whose instructions are counted, and the program that runs them under ``valgrind``.

``python calls.py LIBRARY LOG NAME...`` imports everything and makes some calls first. A fork for each name
then makes `CALLS_COUNTED` calls between the functions of LIBRARY that start and stop Callgrind.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

#: The number of calls that are counted; of slow calls a tenth.
CALLS_COUNTED = 5_000
#: Calls before the count: routes are made, and CPython specialises the code.
WARM = 1_100

_ARRAYS = "x = np.arange(64.0)"
_ARROW = "x = pa.array(np.arange(64.0))"
_TENSOR = "x = torch.arange(64.0)"
_TABLE = "x = pa.table({name: np.arange(64.0) for name in 'abcd'})"
_RECORDS = "x = np.zeros(8, [('a', 'f8'), ('b', 'i4'), ('c', 'f4')])"

#: The empty call, which is subtracted from the others: the loop, and the call that stops the count.
EMPTY = "nothing"

#: Preparation and call by name.
CALLS: dict[str, tuple[str, str]] = {
    EMPTY: ("", "pass"),
    "numpy to numpy": (_ARRAYS, "convert(x, 'numpy')"),
    "numpy to pyarrow": (_ARRAYS, "convert(x, 'pyarrow')"),
    "numpy to torch": (_ARRAYS, "convert(x, 'torch')"),
    "pyarrow to numpy": (_ARROW, "convert(x, 'numpy')"),
    "pyarrow to torch": (_ARROW, "convert(x, 'torch')"),
    "torch to numpy": (_TENSOR, "convert(x, 'numpy')"),
    "torch to pyarrow": (_TENSOR, "convert(x, 'pyarrow')"),
    "copy=False": (_ARRAYS, "convert(x, 'torch', copy=False)"),
    "copy=True": (_ARRAYS, "convert(x, 'torch', copy=True)"),
    "writable=True": (_ARRAYS, "convert(x, 'torch', writable=True)"),
    "dtype of the array": (_ARRAYS, "convert(x, 'torch', dtype='float64')"),
    "dtype that casts": (_ARRAYS, "convert(x, 'torch', dtype='float32')"),
    "dict of arrays": ("x = {name: np.arange(64.0) for name in 'abcd'}", "convert(x, 'torch')"),
    "table to numpy": (_TABLE, "convert(x, 'numpy')"),
    "plan_for": (f"{_TABLE}; plan = zc.plan_for(x, 'numpy', columns=['a', 'b'])", "plan(x)"),
    "accepts": (f"{_ARRAYS}; function = zc.accepts('torch')(lambda x: x)", "function(x)"),
    "namespace": (_ARRAYS, "zc.namespace(x)"),
    "shares_memory": (f"{_ARRAYS}; y = x[8:]", "zc.shares_memory(x, y)"),
    "aos_to_soa": (_RECORDS, "zc.aos_to_soa(x)"),
    "soa_to_aos": (f"{_RECORDS}; y = zc.aos_to_soa(x)", "zc.soa_to_aos(y)"),
}
#: Calls of 30 us and more.
SLOW = {"dtype that casts", "namespace", "shares_memory"}


def prepare(name: str) -> Any:
    """Return a function that makes a number of calls."""
    setup, call = CALLS[name]
    loop = f"def run(count):\n  for _ in range(count): {call}"
    code = f"def prepared():\n {setup or 'pass'}\n {loop}\n return run"
    import numpy as np
    import pyarrow as pa

    import zerocopy as zc

    names: dict[str, Any] = {"np": np, "pa": pa, "zc": zc, "convert": zc.convert}
    if "torch" in code:  # its import takes as long as all counts
        import torch

        names["torch"] = torch
    exec(compile(code, name, "exec"), names)
    return names["prepared"]()


def main(library: str, log: Path, names: list[str]) -> None:
    """Count the calls, and write the process of each."""
    runs = {name: prepare(name) for name in names}
    for run in runs.values():
        run(WARM)
    callgrind = ctypes.CDLL(library)
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection takes as many instructions as the process has objects
    processes: dict[str, int] = {}
    for name, run in runs.items():
        child = os.fork()
        if not child:
            callgrind.stop()  # ctypes prepares each function at its first call
            run(WARM)
            callgrind.start()
            run(CALLS_COUNTED // (10 if name in SLOW else 1))
            callgrind.stop()
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            raise SystemExit(f"{name}: the call failed")
        processes[name] = child
    import zerocopy

    log.write_text(json.dumps({"package": zerocopy.__file__, "calls": processes}), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
