"""Registers, instructions and bank conflicts of the layout kernels for CUDA; needs no device.

    python -m benchmarks.layout_cuda_compiled

Requires NVVM, ptxas and nvdisasm: ``pip install 'numba-cuda[cu12]' nvidia-cuda-nvdisasm``. Writes a file of
results and prints the tables of docs/layouts-gpu.md, which are generated from it.
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
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.record_types import LAYOUTS
from benchmarks.sass_loops import innermost_loops
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

#: The architecture whose loops are counted.
DISASSEMBLED = "sm_90"

#: Wheels that have the compiler's programs.
_WHEELS = ("nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc", "nvidia-cuda-nvdisasm")
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
            report, sass = _assemble(ptx, arch)
            usage = {key: int(re.search(pattern, report)[1]) for key, pattern in _PATTERNS.items()}  # type: ignore[index]
            loops = [asdict(loop) for loop in innermost_loops(sass)] if sass else None
            yield {"kernel": name, "architecture": arch, **usage} | ({"loops": loops} if loops else {})


def _assemble(ptx: str, architecture: str) -> tuple[str, str]:
    """Return what ptxas reports of a kernel, and its machine code on DISASSEMBLED."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        compiled = str(source.with_suffix(".cubin"))
        command = [_program("ptxas"), "-v", f"-arch={architecture}", str(source), "-o", compiled]
        completed = subprocess.run(command, capture_output=True, text=True, check=True)
        sass = ""
        if architecture == DISASSEMBLED:
            command = [_program("nvdisasm"), "-c", compiled]
            sass = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return completed.stdout + completed.stderr, sass


def _program(program: str) -> str:
    """Return the path of ptxas or nvdisasm, from the wheels or from PATH."""
    for name in _WHEELS:
        try:
            files = importlib.metadata.files(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == program:
                return str(file.locate())
    path = shutil.which(program)
    if path is None:
        raise SystemExit(f"{program} is not installed: pip install 'numba-cuda[cu12]' nvidia-cuda-nvdisasm")
    return path


def versions() -> dict[str, str]:
    """Return the versions of the compilers."""
    installed = {}
    for name in ("numba", "numba-cuda", *_WHEELS):
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


#: How a loop accesses the records in the tile, by the size and number of its accesses for 8 bytes of a
#: column. Words that straddle two words of the tile are stored byte by byte.
_ACCESSES = {
    ("", 2): "whole words",
    ("", 4): "two words",
    (".U16", 4): "halves",
    (".U8", 8): "bytes",
}


def loops_table(results: list[dict[str, Any]]) -> str:
    """Return the table of instructions for 8 bytes of a column, of the kernels with shared memory."""
    counts: dict[tuple[str, str], dict[bool, float]] = {}
    for one in results:
        for loop in one.get("loops", []) if one["kernel"] in ("to_columns", "to_rows") else []:
            shared = [name for name in loop["memory"] if name.startswith(("LDS", "STS"))]
            columns = [name for name in loop["memory"] if name not in shared]
            pairs = sum(name.endswith(".64") for name in columns)
            if not shared or not pairs or columns[0][:2] == shared[0][:2]:
                continue
            is_load = (one["kernel"] == "to_columns") == columns[0].startswith("LDG")
            access = _ACCESSES[shared[0][3:], len(shared) // pairs]
            key = one["kernel"], "the tile" if is_load else access
            kinds = counts.setdefault(key, {})
            kind = len(columns) == pairs
            # Of several loops of a kind, the shortest: the other ones handle the end of a range.
            kinds[kind] = min(loop["instructions"] / pairs, kinds.get(kind, float("inf")))
    lines = ["| kernel | access to the records | with STEP | without |", "|---" * 4 + "|"]
    for (kernel, access), kinds in counts.items():
        with_step, without = (f"{kinds[kind]:.1f}" if kind in kinds else "" for kind in (True, False))
        lines.append(f"| `{kernel}` | {access} | {with_step} | {without} |")
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
    tables = (
        compiled_table(results["kernels"]),
        loops_table(results["kernels"]),
        tiles_table(results["tiles"]),
    )
    print(path.name, *tables, sep="\n\n")


if __name__ == "__main__":
    main()
