"""Build hooks: the project's URLs, and the core in C, ``zerocopy._native._core``.

Without a compiler the wheel is pure Python. The environment variable ``ZEROCOPY_NATIVE`` decides: if it is
unset, compile on Linux if possible; ``0``, never compile; ``1``, fail if the core cannot be compiled.
``ZEROCOPY_CFLAGS`` adds flags for the compiler and the linker.
``python hatch_build.py`` compiles into the source tree, as an editable installation does.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # `python hatch_build.py` compiles without hatchling
    BuildHookInterface = MetadataHookInterface = object

ROOT = Path(__file__).resolve().parent
NATIVE = ROOT / "zerocopy" / "_native"
MODULE = "zerocopy._native._core"
LIBRARY = "_core" + sysconfig.get_config_var("EXT_SUFFIX")
FLAGS = ["-std=c11", "-O2", "-g0", "-fvisibility=hidden", "-fno-strict-aliasing", "-Wall", "-Wextra"]
# -fno-plt: a call of another library is one jump instead of two.
FLAGS += ["-fno-plt"]
FLAGS += ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]

# Without local symbols, a tenth of the library. Sanitizers and debuggers need them, and set ZEROCOPY_CFLAGS.
LINK_FLAGS = ["-Wl,-s"] if sys.platform == "linux" else []


class Addresses(MetadataHookInterface):
    """The project's URLs, from the one address of the repository in pyproject.toml; none without one."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add ``urls``."""
        address = self.config["repository"].rstrip("/")
        pages = {"Repository": "", "Documentation": "/blob/main/docs/index.md", "Issues": "/issues"}
        pages["Changelog"] = "/blob/main/CHANGELOG.md"
        metadata["urls"] = {name: address + page for name, page in pages.items()} if address else {}


class CompiledCore(BuildHookInterface):
    """Compile the core for wheels and for editable installations."""

    PLUGIN_NAME = "custom"
    scratch: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library to the wheel, or write it into the source tree if the wheel is editable."""
        is_editable = version == "editable"
        if is_editable:
            # Otherwise the library of an earlier installation remains if this one has no core.
            (NATIVE / LIBRARY).unlink(missing_ok=True)
        setting = _setting()
        if setting == "0" or (setting == "" and _unsupported()):
            return
        self.scratch = tempfile.TemporaryDirectory(prefix="zerocopy-core-")
        try:
            library = compile_core(Path(self.scratch.name))
        except (Exception, SystemExit) as error:
            if setting == "1":
                raise RuntimeError(f"ZEROCOPY_NATIVE=1, but the core cannot be compiled: {error}") from error
            self.app.display_warning(
                f"zerocopy is built without its compiled core and will be slower: {error}\n"
                "Install a C compiler and Python's headers and build again, or set ZEROCOPY_NATIVE=0 to "
                "build without the core."
            )
            return
        if is_editable:
            put_in_place(library)
        else:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(library)] = f"zerocopy/_native/{LIBRARY}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the library that `initialize` compiled; the wheel has a copy."""
        if self.scratch is not None:
            self.scratch.cleanup()


def _setting() -> str:
    """Return ``ZEROCOPY_NATIVE``: an empty string, "0" or "1"."""
    setting = os.environ.get("ZEROCOPY_NATIVE", "")
    if setting not in ("", "0", "1"):
        raise ValueError(f"ZEROCOPY_NATIVE is {setting!r}; set it to 0 or 1, or unset it")
    return setting


def _unsupported() -> str:
    """Return why the core is not compiled here by default, or an empty string."""
    if sys.implementation.name != "cpython":
        return f"the core is for CPython; this is {sys.implementation.name}"
    return "" if sys.platform == "linux" else f"the core is tested on Linux only; this is {sys.platform}"


def compile_core(scratch: Path) -> Path:
    """Compile the core into the empty folder `scratch`, and return the library's path."""
    import numpy
    from setuptools import Distribution, Extension

    if sys.implementation.name != "cpython":
        raise RuntimeError(_unsupported())
    if int(numpy.__version__.partition(".")[0]) < 2:
        # NumPy 2 cannot load a library compiled with NumPy 1's headers; the reverse works.
        raise RuntimeError(f"it requires the headers of NumPy 2; this is NumPy {numpy.__version__}")
    digest = runpy.run_path(str(NATIVE / "sources.py"))["digest"](NATIVE)
    extra_flags = os.environ.get("ZEROCOPY_CFLAGS", "").split()
    extension = Extension(
        MODULE,
        # Relative paths, because the library would otherwise contain the path of the source tree.
        [str(path.relative_to(ROOT)) for path in sorted(NATIVE.glob("*.c"))],
        include_dirs=[numpy.get_include()],
        define_macros=[("ZEROCOPY_SOURCES", f'"{digest}"')],
        extra_compile_args=[*([] if os.name == "nt" else FLAGS), *extra_flags],
        extra_link_args=extra_flags or LINK_FLAGS,
    )
    command = Distribution({"name": "zerocopy", "ext_modules": [extension]}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(scratch / "lib"), str(scratch / "temp")
    with contextlib.chdir(ROOT):
        command.ensure_finalized()
        command.run()
        return Path(command.get_ext_fullpath(MODULE))


def put_in_place(library: Path) -> Path:
    """Move the library into the source tree; a process that has loaded the old one continues to use it."""
    target = NATIVE / LIBRARY
    with tempfile.TemporaryDirectory(dir=NATIVE) as folder:
        os.replace(shutil.copy2(library, folder), target)
    return target


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="zerocopy-core-") as scratch:
        sys.stdout.write(f"{put_in_place(compile_core(Path(scratch)))}\n")
