"""``python -m benchmarks``."""

import importlib.util
import sys

_NEEDED = ("click", "numpy", "psutil", "rich")


def _start() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(
            f"python -m benchmarks needs {', '.join(missing)}: pip install {' '.join(missing)}\n"
            "(all that is compared, too: pip install -e '.[bench]')"
        )
    from benchmarks.cli import main

    main(prog_name="python -m benchmarks")


if __name__ == "__main__":
    _start()
