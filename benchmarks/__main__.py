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
            "(all that is compared, too: pip install -e '.[bench]')"
        )
    _pool()
    from benchmarks.cli import main

    main(prog_name="python -m benchmarks")


def _pool() -> None:
    """Say in a line that the pool which the environment asks for cannot be: it is made at the import."""
    if not os.environ.get("ZEROCOPY_POOL"):
        return
    try:
        import zerocopy  # noqa: F401
    except Exception as error:
        # By its base's name: of a package that is not imported there is no class to name.
        if not any(base.__name__ == "ZeroCopyError" for base in type(error).__mro__):
            raise
        sys.stderr.write(f"Error: {' '.join(str(error).split())}\n")
        sys.exit(2)


if __name__ == "__main__":
    _start()
