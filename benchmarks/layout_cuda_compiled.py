"""Registers, stack and bank conflicts of the layout kernels for CUDA; needs no device.

    python -m benchmarks.layout_cuda_compiled

Requires NVVM and ptxas: ``pip install 'numba-cuda[cu12]'``. Writes a file of results and prints the
tables of docs/layouts-gpu.md, which are generated from it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.record_types import LAYOUTS
from zerocopy.layout.cuda.tile_plan import (
    ACCESS,
    ALIGNED,
    LENGTH,
    OFFSET,
    ROW,
    SHIFTED,
    START,
    STOP,
    WARP,
    tile_plan,
)
from zerocopy.layout.schema import leaves

RESULTS = Path(__file__).parent / "results"
ARCHITECTURES = ((7, 0), (7, 5), (8, 0), (8, 6), (9, 0))
BANKS = 32

#: Wheels that have NVVM and ptxas.
_NVCC = ("nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc")
_PATTERNS = {
    "registers": r"Used (\d+) registers",
    "stack_bytes": r"(\d+) bytes stack frame",
    "spill_store_bytes": r"(\d+) bytes spill stores",
    "spill_load_bytes": r"(\d+) bytes spill loads",
}


# -- kernels ----------------------------------------------------------------------


def kernels() -> Iterator[dict[str, Any]]:
    """Yield the resources that ptxas reports for each kernel on each architecture."""
    from numba import cuda, types

    from zerocopy.layout.cuda import kernels as compiled

    dispatcher: Any = importlib.import_module("numba.cuda.dispatcher")
    integers = {n: types.Array(getattr(types, n), 1, "C") for n in ("uint8", "uint16", "uint32", "uint64")}
    byte, half, word, pair = integers.values()
    tasks, number = types.Array(types.int64, 1, "C"), types.int64
    tiled = (byte, pair, byte, word, pair, tasks, *(number,) * 7, types.boolean)
    direct = (byte, half, word, byte, word, pair, tasks, *(number,) * 4)
    arguments = {"to_columns": tiled, "to_rows": tiled, "to_columns_direct": direct, "to_rows_direct": direct}
    for name, signature in arguments.items():
        for architecture in ARCHITECTURES:
            # Device functions are compiled for the current device, which is replaced here.
            dispatcher.get_current_device = lambda cc=architecture: SimpleNamespace(compute_capability=cc)
            function = getattr(compiled, name).py_func
            ptx, _ = cuda.compile_ptx(function, signature, cc=architecture, device=False)
            arch = "sm_{}{}".format(*architecture)
            report = _assemble(ptx, arch)
            usage = {key: int(re.search(pattern, report)[1]) for key, pattern in _PATTERNS.items()}  # type: ignore[index]
            yield {"kernel": name, "architecture": arch, **usage}


def _assemble(ptx: str, architecture: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        command = [
            _ptxas(),
            "-v",
            f"-arch={architecture}",
            str(source),
            "-o",
            str(source.with_suffix(".cubin")),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def _ptxas() -> str:
    """Return the path of ptxas, from the wheels or from PATH."""
    for name in _NVCC:
        try:
            files = importlib.metadata.files(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == "ptxas":
                return str(file.locate())
    path = shutil.which("ptxas")
    if path is None:
        raise SystemExit("ptxas is not installed: pip install 'numba-cuda[cu12]'")
    return path


def versions() -> dict[str, str]:
    """Return the versions of the compilers."""
    installed = {}
    for name in ("numba", "numba-cuda", *_NVCC):
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


# -- banks ------------------------------------------------------------------------


def tiles() -> Iterator[dict[str, Any]]:
    """Yield each record type's tile, and the mean number of serialised reads per access of a warp.

    Computed from the plans, for tasks that copy words, 4 of a thread's 8 bytes at a time.
    """
    for layout in LAYOUTS:
        size = layout.dtype.itemsize
        planned = tile_plan(tuple(leaves(layout.dtype)), size)
        shift, mask = planned.swizzle
        plain, swizzled = [], []
        for task in planned.table.reshape(-1, len(ROW)):
            if task[ACCESS] not in (ALIGNED, SHIFTED):
                continue
            for start in range(task[START], task[STOP], 8 * WARP):
                for half in (0, 4):
                    byte = start + 8 * np.arange(WARP) + half
                    byte = byte[byte < task[STOP]]
                    at = byte // task[LENGTH] * size + task[OFFSET] + byte % task[LENGTH]
                    for place in (at,) if task[ACCESS] == ALIGNED else (at, at + 3):
                        plain.append(_in_turn(place))
                        swizzled.append(_in_turn(place ^ (place >> shift & mask)))
        yield {
            "records": layout.name,
            "bytes": size,
            "shared_bytes": planned.shared,
            "plain": round(float(np.mean(plain)), 2),
            "swizzled": round(float(np.mean(swizzled)), 2),
        }


def _in_turn(place: Any) -> int:
    """Return the largest number of words in one bank, which are read one after the other."""
    return int(np.bincount(np.unique(place // 4) % BANKS).max())


# -- the document -----------------------------------------------------------------


def compiled_table(results: list[dict[str, Any]]) -> str:
    """Return the table of registers."""
    names = list(dict.fromkeys(one["kernel"] for one in results))
    architectures = list(dict.fromkeys(one["architecture"] for one in results))
    registers = {(one["kernel"], one["architecture"]): one["registers"] for one in results}
    lines = [f"| kernel | {' | '.join(architectures)} |", "|---" * (1 + len(architectures)) + "|"]
    for name in names:
        lines.append(f"| `{name}` | {' | '.join(str(registers[name, arch]) for arch in architectures)} |")
    return "\n".join(lines)


def tiles_table(results: list[dict[str, Any]]) -> str:
    """Return the table of serialised reads."""
    lines = ["| records | bytes | bytes of a tile | not swizzled | swizzled |", "|---" * 5 + "|"]
    for one in results:
        lines.append(
            f"| {one['records']} | {one['bytes']} | {one['shared_bytes']:,} "
            f"| {one['plain']:.2f} | {one['swizzled']:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Compile, write the results, print the tables."""
    day = datetime.now(UTC).date().isoformat()
    results = {
        "schema": 1,
        "command": "python -m benchmarks.layout_cuda_compiled",
        "date": day,
        "versions": versions(),
        "kernels": list(kernels()),
        "tiles": list(tiles()),
    }
    path = RESULTS / f"layout-cuda-compiled-{day}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(path.name, compiled_table(results["kernels"]), tiles_table(results["tiles"]), sep="\n\n")


if __name__ == "__main__":
    main()
