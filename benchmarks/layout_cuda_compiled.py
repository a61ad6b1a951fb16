"""Registers and bank conflicts of the compiled layout kernels for CUDA; needs no device.

    python -m benchmarks.layout_cuda_compiled

It needs NVVM and ptxas, which ``pip install 'numba-cuda[cu12]'`` installs. It writes a file of
results and prints the tables of docs/layouts-gpu.md: figures there are not typed by hand.
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
from zerocopy.layout.cuda.plan import ALIGNED, KIND, LENGTH, OFFSET, ROW, SHIFTED, START, STOP, WARP, plan
from zerocopy.layout.schema import leaves

RESULTS = Path(__file__).parent / "results"
ARCHITECTURES = ((7, 0), (7, 5), (8, 0), (8, 6), (9, 0))
BANKS = 32

#: Distributions that contain NVVM and ptxas.
_NVCC = ("nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc")
_PTXAS_OUTPUT = {
    "registers": r"Used (\d+) registers",
    "stack_bytes": r"(\d+) bytes stack frame",
    "spill_store_bytes": r"(\d+) bytes spill stores",
    "spill_load_bytes": r"(\d+) bytes spill loads",
}


# -- kernels ----------------------------------------------------------------------


def kernels() -> Iterator[dict[str, Any]]:
    """Yield the figures of ptxas for each kernel on each architecture."""
    from numba import cuda, types

    from zerocopy.layout.cuda import kernels as compiled

    dispatcher: Any = importlib.import_module("numba.cuda.dispatcher")
    integers = {n: types.Array(getattr(types, n), 1, "C") for n in ("uint8", "uint16", "uint32", "uint64")}
    byte, half, word, pair = integers.values()
    tasks, number = types.Array(types.int64, 1, "C"), types.int64
    tile = (byte, pair, byte, word, pair, tasks, *(number,) * 7)
    direct = (byte, half, word, byte, word, pair, tasks, *(number,) * 4)
    arguments = {
        "to_columns": tile,
        "to_rows": (*tile, types.boolean),
        "to_columns_direct": direct,
        "to_rows_direct": direct,
    }
    for name, signature in arguments.items():
        for architecture in ARCHITECTURES:
            # Numba looks up the current device even when it compiles for another one.
            dispatcher.get_current_device = lambda cc=architecture: SimpleNamespace(compute_capability=cc)
            function = getattr(compiled, name).py_func
            ptx, _ = cuda.compile_ptx(function, signature, cc=architecture, device=False)
            arch = "sm_{}{}".format(*architecture)
            output = _assemble(ptx, arch)
            figures = {key: int(re.search(pattern, output)[1]) for key, pattern in _PTXAS_OUTPUT.items()}  # type: ignore[index]
            yield {"kernel": name, "architecture": arch, **figures}


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
    """Return the path of ptxas in the installed distributions or on PATH."""
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
        raise SystemExit("ptxas is not installed. To fix: pip install 'numba-cuda[cu12]'")
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
    """Yield the tile of each record type, with the serialised reads of one access by a warp.

    They are computed from the plans, for the tasks that move words: 4 bytes of each thread at a time.
    """
    for layout in LAYOUTS:
        size = layout.dtype.itemsize
        record_plan = plan(tuple(leaves(layout.dtype)), size)
        shift, mask = record_plan.swizzle
        plain, swizzled = [], []
        for task in record_plan.table.reshape(-1, len(ROW)):
            if task[KIND] not in (ALIGNED, SHIFTED):
                continue
            for start in range(task[START], task[STOP], 8 * WARP):
                for half in (0, 4):
                    byte = start + 8 * np.arange(WARP) + half
                    byte = byte[byte < task[STOP]]
                    at = byte // task[LENGTH] * size + task[OFFSET] + byte % task[LENGTH]
                    for address in (at,) if task[KIND] == ALIGNED else (at, at + 3):
                        plain.append(_serialised(address))
                        swizzled.append(_serialised(address ^ (address >> shift & mask)))
        yield {
            "records": layout.name,
            "bytes": size,
            "shared_bytes": record_plan.shared,
            "plain": round(float(np.mean(plain)), 2),
            "swizzled": round(float(np.mean(swizzled)), 2),
        }


def _serialised(address: Any) -> int:
    """Return the most words that are read from one bank."""
    return int(np.bincount(np.unique(address // 4) % BANKS).max())


# -- the document -----------------------------------------------------------------


def compiled_table(kernels: list[dict[str, Any]]) -> str:
    """Return the table of registers."""
    names = list(dict.fromkeys(one["kernel"] for one in kernels))
    architectures = list(dict.fromkeys(one["architecture"] for one in kernels))
    registers = {(one["kernel"], one["architecture"]): one["registers"] for one in kernels}
    lines = [f"| kernel | {' | '.join(architectures)} |", "|---" * (1 + len(architectures)) + "|"]
    for name in names:
        lines.append(f"| `{name}` | {' | '.join(str(registers[name, arch]) for arch in architectures)} |")
    return "\n".join(lines)


def tiles_table(tiles: list[dict[str, Any]]) -> str:
    """Return the table of serialised reads."""
    lines = ["| records | bytes | bytes of a tile | plain | swizzled |", "|---" * 5 + "|"]
    for one in tiles:
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
