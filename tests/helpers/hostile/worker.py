"""Run seeds in forks of this process; write one JSON line for each: ``python worker.py FOLDER FIRST LAST``.

Frameworks are imported once, before the fork. A child writes a line before each seed, so a child that
dies or hangs names its seed; the next child continues after it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

SECONDS_PER_CASE = 60
#: Where the report of a crash begins.
_MARKS = ("Fatal Python error", "Timeout (", "Traceback", "ERROR: AddressSanitizer", "runtime error:")
_MODULES = (
    "torch",
    "jax",
    "tensorflow",
    "pandas",
    "polars",
    "duckdb",
    "nanoarrow",
    "pyarrow.parquet",
    "numba",
)


def main(folder: Path, first: int, last: int, family: str) -> None:
    """Run the seeds from `first` to before `last`, of one family or of all."""
    for name in _MODULES:
        __import__(name)
    warnings.simplefilter("ignore")
    log, errors = folder / "log", folder / "errors"
    while first < last:
        child = os.fork()
        if not child:
            os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            _run(log, first, last, family)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        lines = log.read_text().splitlines() if log.exists() else []
        entry = json.loads(lines[-1]) if lines else {}
        if status == 0:
            break
        if not lines or "kind" in entry:
            raise RuntimeError(
                f"exit status {status} outside a case: {errors.read_text(errors='replace')[-3000:]}"
            )
        trace = errors.read_text(errors="replace")
        kind = "hang" if "Timeout (" in trace else "crash"
        start = max(0, *(trace.rfind(mark) for mark in _MARKS))
        detail = f"{kind}, exit status {status}: {trace[start : start + 1500]}"
        _write(log, {"seed": entry["seed"], "kind": kind, "detail": detail, "seconds": 0})
        first = entry["seed"] + 1


def _run(log: Path, first: int, last: int, family: str) -> None:
    """Run seeds, then end this process."""
    from helpers.hostile import files
    from helpers.hostile.check import check
    from helpers.hostile.generate import case, family_of

    try:
        for seed in range(first, last):
            if family and family_of(seed) != family:
                continue
            _write(log, {"seed": seed, "family": family_of(seed)})
            faulthandler.dump_traceback_later(SECONDS_PER_CASE, exit=True)
            start = time.perf_counter()
            outcome = check(case(seed))
            faulthandler.cancel_dump_traceback_later()
            seconds = round(time.perf_counter() - start, 3)
            _write(
                log, {"seed": seed, "kind": outcome.kind, "detail": outcome.detail[:2000], "seconds": seconds}
            )
        files.remove_files()
    except BaseException:  # noqa: BLE001 - a fork must not return to the loop of its parent
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(70)
    # Structs whose release functions are Python code must not be released while Python ends.
    os._exit(0)


def _write(log: Path, entry: dict[str, object]) -> None:
    with log.open("a") as out:
        out.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    faulthandler.enable()
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
