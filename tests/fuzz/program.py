"""Fuzz one target with Atheris: ``python program.py TARGET CORPUS [options of libFuzzer]``."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).parents[2])]


def main() -> None:
    """Write the seeds into the corpus, and fuzz."""
    name, corpus = sys.argv[1], Path(sys.argv[2])
    warnings.simplefilter("ignore")
    # Modules that a function imports later are instrumented too, because each seed is read here.
    with atheris.instrument_imports(include=["zerocopy"], enable_loader_override=False):
        from tests.fuzz.targets import TARGETS

        target = TARGETS[name]()
        for i, seed in enumerate(target.seeds()):
            target.read(seed)
            (corpus / f"seed-{i}").write_bytes(seed)
    atheris.Setup([sys.argv[0], str(corpus), *sys.argv[3:]], target.read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
