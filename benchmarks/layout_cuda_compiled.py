"""What compilers make of the layout kernels for CUDA devices; no device is needed.

    python -m benchmarks.layout_cuda_compiled

It needs NVVM and ptxas, as ``pip install 'numba-cuda[cu12]'`` brings them. A file of results is
written, and the tables of docs/layouts-gpu.md are printed: no figure there is typed by hand.
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
_SAID = {
    "registers": r"Used (\d+) registers",
    "stack_bytes": r"(\d+) bytes stack frame",
    "spill_store_bytes": r"(\d+) bytes spill stores",
    "spill_load_bytes": r"(\d+) bytes spill loads",
}


# -- kernels ----------------------------------------------------------------------


def kernels() -> Iterator[dict[str, Any]]:
    """Yield what ptxas says of each kernel on each architecture."""
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
            # Whatever is compiled for, functions on the device ask which one there is.
            dispatcher.get_current_device = lambda cc=architecture: SimpleNamespace(compute_capability=cc)
            function = getattr(compiled, name).py_func
            ptx, _ = cuda.compile_ptx(function, signature, cc=architecture, device=False)
            arch = "sm_{}{}".format(*architecture)
            said = _assemble(ptx, arch)
            found = {key: int(re.search(pattern, said)[1]) for key, pattern in _SAID.items()}  # type: ignore[index]
            yield {"kernel": name, "architecture": arch, **found}


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
    """Return the path of ptxas: that of the wheels, or the one that a shell would find."""
    for name in _NVCC:
        try:
            files = importlib.metadata.files(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == "ptxas":
                return str(file.locate())
    found = shutil.which("ptxas")
    if found is None:
        raise SystemExit("there is no ptxas: pip install 'numba-cuda[cu12]' brings one")
    return found


def versions() -> dict[str, str]:
    """Return the versions of what compiles."""
    found = {}
    for name in ("numba", "numba-cuda", *_NVCC):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


# -- banks ------------------------------------------------------------------------


def tiles() -> Iterator[dict[str, Any]]:
    """Yield the tile of each layout, and reads in turn for an access of a warp to it.

    Computed from the plans: of the tasks that move words, half of 8 bytes a thread at a time.
    """
    for layout in LAYOUTS:
        size = layout.dtype.itemsize
        made = tile_plan(tuple(leaves(layout.dtype)), size)
        shift, mask = made.swizzle
        plain, swizzled = [], []
        for task in made.table.reshape(-1, len(ROW)):
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
            "shared_bytes": made.shared,
            "plain": round(float(np.mean(plain)), 2),
            "swizzled": round(float(np.mean(swizzled)), 2),
        }


def _in_turn(place: Any) -> int:
    """Return how many words of one bank are asked for, at most."""
    return int(np.bincount(np.unique(place // 4) % BANKS).max())


# -- the document -----------------------------------------------------------------


def compiled_table(told: list[dict[str, Any]]) -> str:
    """Return the table of registers."""
    names = list(dict.fromkeys(one["kernel"] for one in told))
    architectures = list(dict.fromkeys(one["architecture"] for one in told))
    registers = {(one["kernel"], one["architecture"]): one["registers"] for one in told}
    lines = [f"| kernel | {' | '.join(architectures)} |", "|---" * (1 + len(architectures)) + "|"]
    for name in names:
        lines.append(f"| `{name}` | {' | '.join(str(registers[name, arch]) for arch in architectures)} |")
    return "\n".join(lines)


def tiles_table(told: list[dict[str, Any]]) -> str:
    """Return the table of reads in turn."""
    lines = ["| records | bytes | bytes of a tile | plain | swizzled |", "|---" * 5 + "|"]
    for one in told:
        lines.append(
            f"| {one['records']} | {one['bytes']} | {one['shared_bytes']:,} "
            f"| {one['plain']:.2f} | {one['swizzled']:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Compile, write the results, print the tables."""
    day = datetime.now(UTC).date().isoformat()
    told = {
        "schema": 1,
        "command": "python -m benchmarks.layout_cuda_compiled",
        "date": day,
        "versions": versions(),
        "kernels": list(kernels()),
        "tiles": list(tiles()),
    }
    path = RESULTS / f"layout-cuda-compiled-{day}.json"
    path.write_text(json.dumps(told, indent=1) + "\n")
    print(path.name, compiled_table(told["kernels"]), tiles_table(told["tiles"]), sep="\n\n")


if __name__ == "__main__":
    main()
