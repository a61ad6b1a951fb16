"""Build hook: compile the core in C, ``zerocopy._native._core``; without a compiler the wheel is pure Python.

The environment variable ``ZEROCOPY_NATIVE`` decides: unset, compile if possible; ``0``, never; ``1``, fail
if it cannot be compiled. ``python hatch_build.py`` compiles in place.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent
MODULE = "zerocopy._native._core"
FLAGS = ["-std=c11", "-O2", "-g0", "-fvisibility=hidden", "-fno-strict-aliasing", "-Wall", "-Wextra"]
# Calls of other libraries are one jump instead of two.
FLAGS += ["-fno-plt"]
FLAGS += ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]


def compile_core(build_lib: Path) -> Path:
    """Compile the extension into the tree `build_lib`, and return the library's path."""
    import numpy
    from setuptools import Distribution, Extension

    sources = sorted((ROOT / "zerocopy" / "_native").glob("*.c"))
    extension = Extension(
        MODULE,
        [str(path.relative_to(ROOT)) for path in sources],
        include_dirs=[numpy.get_include()],
        extra_compile_args=[*FLAGS, *os.environ.get("ZEROCOPY_CFLAGS", "").split()],
        extra_link_args=os.environ.get("ZEROCOPY_CFLAGS", "").split(),
    )
    command = Distribution({"name": "zerocopy", "ext_modules": [extension]}).get_command_obj("build_ext")
    command.force = True
    command.build_lib, command.build_temp = str(build_lib), str(ROOT / "build" / "native")
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath(MODULE))


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.stdout.write(f"{compile_core(ROOT)}\n")
