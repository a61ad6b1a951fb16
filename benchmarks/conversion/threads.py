"""Throughput of two threads relative to one: ``python -m benchmarks.conversion.threads``.

Run it on a free-threaded Python and an idle machine. Each thread converts an object of its own, and a round
measures one thread, then two. The first row makes a list: it is the limit of the machine. Rows without
zerocopy are the limit of the framework: its objects may share a reference count.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from threading import Barrier
from time import perf_counter

ROUNDS = 25
#: Characters of the longest call.
WIDTH = 46
#: Seconds of one measurement of one thread.
SECONDS = 0.02

_ARRAY = "x = np.arange(1000, dtype='float32')"
_ARROW = f"{_ARRAY}; x = pa.array(x)"
_TABLE = f"{_ARRAY}; x = pa.table({{f'c{{i}}': x for i in range(10)}})"
_JAX = f"{_ARRAY}; import jax.numpy; x = jax.numpy.asarray(x)"

#: Setup and call of each row.
ROWS = [
    ("x = 1", "[x, x, x, x]"),
    (_ARRAY, "zc.convert(x, to='numpy')"),
    (_ARROW, "zc.convert(x, to='numpy')"),
    (_ARROW, "x.to_numpy()"),
    (_ARRAY, "zc.convert(x, to='pyarrow')"),
    (_ARRAY, "pa.array(x)"),
    (_TABLE, "zc.convert(x, to='numpy')"),
    (_JAX, "zc.convert(x, to='numpy')"),
    (_JAX, "np.asarray(x)"),
    (_ARRAY, "zc.convert(x, to='jax')"),
    (_ARRAY, "jax.numpy.from_dlpack(x)"),
]

Loop = Callable[[Barrier, int], tuple[float, float]]


def loop_of(setup: str, call: str) -> Loop:
    """Return a function that repeats a call on an object of its own, and returns when it began and ended."""
    lines = [
        "import numpy as np, pyarrow as pa, zerocopy as zc",
        "def loop(start, count):",
        f"    {setup}; {call}; start.wait(); began = perf_counter()",
        f"    for _ in range(count): {call}",
        "    return began, perf_counter()",
    ]
    names: dict[str, Loop] = {"perf_counter": perf_counter}  # type: ignore[dict-item]
    exec("\n".join(lines), names)  # the rows above, in a loop without a function call
    return names["loop"]


def calls_per_second(loops: list[Loop], count: int) -> float:
    """Return the calls of all threads in a second."""
    start = Barrier(len(loops), timeout=60)  # the others end if one raises
    with ThreadPoolExecutor(len(loops)) as threads:
        times = list(threads.map(lambda loop: loop(start, count), loops))
    return count * len(loops) / (max(end for _, end in times) - min(began for began, _ in times))


def main() -> None:
    """Print the time of a call in one thread, and the ratio of two threads to one."""
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        print("This Python has a GIL, so that two threads convert no more than one.")
    print(f"{'call':{WIDTH}} {'one thread':>13} {'two threads / one':>20}")
    for setup, call in ROWS:
        if "jax" in setup + call and not find_spec("jax"):
            continue
        shown = f"{call}, {setup.rpartition('x = ')[2].split('(')[0]}"
        setup = f"{setup}; import jax.numpy" if "jax" in call else setup
        loops = [loop_of(setup, call) for _ in range(2)]
        calls_per_second(loops, 100)
        count = int(SECONDS * calls_per_second(loops[:1], 100)) + 1
        one, ratios = [], []
        for _ in range(ROUNDS):
            one.append(calls_per_second(loops[:1], count))
            ratios.append(calls_per_second(loops, count) / one[-1])
        low, middle, high = statistics.quantiles(ratios, n=4)
        microseconds = 1e6 / statistics.median(one)
        print(f"{shown:{WIDTH}} {microseconds:10.2f} us {middle:10.2f} ({low:.2f} to {high:.2f})", flush=True)


if __name__ == "__main__":
    main()
