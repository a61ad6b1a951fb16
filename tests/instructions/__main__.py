"""Count the instructions of 20 calls: ``python -m tests.instructions --against main``.

Times on a shared machine vary by more than a small loss of speed; instructions do not. The counts belong to
one environment: with another Python, framework or compiler, compare two commits with ``--against``. Without
it, the working tree is compared with ``counts.json``, if this is the environment of that file; ``--record``
writes it. The exit status is 1 if a call takes over 2% more instructions.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.instructions.calls import CALLS, EMPTY
from tests.instructions.measure import (
    ROOT,
    TOLERANCE,
    CannotCount,
    Counts,
    checkout,
    compile_core,
    count,
    environment,
    slower,
    table,
)

RECORDED = Path(__file__).with_name("counts.json")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.instructions", description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="compare with the tree of this commit")
    parser.add_argument("--record", action="store_true", help="write the counts to counts.json")
    parser.add_argument("--only", nargs="+", default=[], metavar="CALL", choices=[*CALLS.keys() - {EMPTY}])
    options = parser.parse_args()
    try:
        here = environment()
        with tempfile.TemporaryDirectory(prefix="zerocopy-before-") as folder:
            before = _before(options.against, options.only, here, Path(folder))
        compile_core(ROOT)
        after = count(ROOT, options.only)
    except CannotCount as error:
        parser.error(str(error))
    if options.record:
        text = json.dumps({"environment": here, "counts": after}, indent=1)
        RECORDED.write_text(f"{text}\n", encoding="utf-8")
    print(table(before, after))
    if slow := slower(before, after):
        print(f"{len(slow)} calls take over {TOLERANCE:.0%} more instructions: {', '.join(sorted(slow))}")
    return 1 if slow else 0


def _before(commit: str | None, only: list[str], here: dict[str, str], folder: Path) -> Counts:
    """Return the counts to compare with."""
    if commit:
        return count(checkout(commit, folder), only)
    recorded = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    if recorded.get("environment") == here:
        return recorded["counts"]
    print(f"counts.json is of another environment than {here}: compare two trees with --against COMMIT")
    return {}


if __name__ == "__main__":
    sys.exit(main())
