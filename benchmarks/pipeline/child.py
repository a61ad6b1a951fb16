"""The process that runs one contender once, to measure its memory.

It prints one line, the peak of resident bytes minus those before the run::

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


def grown(label: str, inputs: Files, warm_up: Files) -> int:
    """Return the peak of resident bytes of one run minus those before it.

    An earlier run with a few flights imports, compiles and starts everything; with so few flights,
    allocators keep almost no memory of it.
    """
    (method,) = (method for method in METHODS if method.label == label)
    runner = Runner(method, cpu())
    with quiet():
        runner.run(warm_up)
        gc.collect()
        if not reset_peak():
            raise SystemExit("this system cannot reset the peak of a process")
        before = resident()
        outcome = runner.run(inputs)
        after = peak()
        del outcome
    return after - before


def main() -> None:
    """Measure, and print the result."""
    # Libraries that print to stdout must not disturb the result.
    label, inputs, warm_up = sys.argv[1:]
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(grown(label, Files(Path(inputs)), Files(Path(warm_up)))), file=answer, flush=True)


if __name__ == "__main__":
    main()
