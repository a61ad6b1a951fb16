"""Run any number of hostile inputs: ``python -m tests.hostile --count 10000 --seed 0``.

The exit status is 1 if a promise does not hold for one of them.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

from helpers.hostile.runner import Report, run  # noqa: E402 - after the path is set

_PARTS_OF = 500


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="number of inputs")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; the others follow it")
    parser.add_argument("--family", default="", help="run only the inputs of this family")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    options = parser.parse_args()
    whole, last = Report(), options.seed + options.count
    starts = range(options.seed, last, _PARTS_OF)
    with ThreadPoolExecutor(options.jobs) as pool:
        for part in pool.map(lambda first: run(first, min(first + _PARTS_OF, last), options.family), starts):
            whole.counts += part.counts
            whole.codes += part.codes
            whole.findings |= part.findings
            whole.slow += part.slow
    print(whole)
    print("slow:", sorted(whole.slow, reverse=True)[:10])
    print("codes:", dict(whole.codes.most_common()))
    return 1 if whole.findings else 0


if __name__ == "__main__":
    sys.exit(main())
