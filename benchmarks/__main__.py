"""``python -m benchmarks``."""

import importlib.util
import os
import sys

_NEEDED = ("click", "numpy", "psutil", "rich")


def _start() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(
            f"python -m benchmarks needs {', '.join(missing)}: pip install {' '.join(missing)}\n"
            "(with all contenders: pip install -U pip && pip install -e . --group bench)"
        )
    _pool()
    from benchmarks.cli import main

    main(prog_name="python -m benchmarks")


def _pool() -> None:
    """Exit with one line if the pool that ZEROCOPY_POOL configures cannot be installed at import."""
    if not os.environ.get("ZEROCOPY_POOL"):
        return
    try:
        import zerocopy  # noqa: F401
    except Exception as error:
        # Compared by name: the import failed, so that the class is not available here.
        if not any(base.__name__ == "ZeroCopyError" for base in type(error).__mro__):
            raise
        sys.stderr.write(f"Error: {' '.join(str(error).split())}\n")
        sys.exit(2)


if __name__ == "__main__":
    _start()
