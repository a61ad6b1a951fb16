"""The process that one contender runs in once, to see how much memory it takes.

It writes one line, the bytes at the peak of a run beyond what was resident before it::

    python -m benchmarks.pipeline.child LABEL FOLDER-OF-FILES FOLDER-OF-A-FEW-FLIGHTS
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from benchmarks.machine import peak, reset_peak, resident
from benchmarks.pipeline.contenders import METHODS
from benchmarks.pipeline.data import Files
from benchmarks.pipeline.run import Runner, quiet
from benchmarks.pipeline.stages import cpu


def grown(label: str, given: Files, few: Files) -> int:
    """Return the bytes at the peak of one run, beyond what was resident before it.

    Before it there is one of a few flights: enough that everything is imported, compiled and
    started, and so few that allocators keep next to nothing of it.
    """
    (method,) = (method for method in METHODS if method.label == label)
    runner = Runner(method, cpu())
    with quiet():
        runner.run(few)
        gc.collect()
        if not reset_peak():
            raise SystemExit("this system does not start the peak of a process anew")
        before = resident()
        outcome = runner.run(given)
        after = peak()
        del outcome
    return after - before


def main() -> None:
    """Measure, and say it."""
    # What libraries print must not stand where the answer is expected.
    label, given, few = sys.argv[1:]
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(grown(label, Files(Path(given)), Files(Path(few)))), file=answer, flush=True)


if __name__ == "__main__":
    main()
