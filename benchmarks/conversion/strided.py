"""Reads of a strided alias, compared with reads of a copy: ``python -m benchmarks.conversion.strided``.

The alias and the copy take turns in one process. Each read is complete before the clock stops.
"""

from __future__ import annotations

from importlib.util import find_spec
from math import prod

import zerocopy as zc
from benchmarks.conversion.subjects import aligned_values
from benchmarks.machine import machine, versions
from benchmarks.timing import Pace, Statement, measure

PACE = Pace(rounds=15, block=20_000_000, patience=3_000_000_000)

#: By name: shape and type of an array, and the part of it whose alias is strided.
SOURCES = {
    "2048 x 2048 float32, transposed": ((2048, 2048), "float32", lambda x: x.T),
    "512 x 512 float32, transposed": ((512, 512), "float32", lambda x: x.T),
    "1024 x 1024 pixels, 3 of 4 bytes": ((1024, 1024, 4), "uint8", lambda x: x[..., :3]),
    "2048 x 2048 float32, every second column": ((2048, 2048), "float32", lambda x: x[:, ::2]),
}
_LARGE, _SMALL, _PIXELS, _COLUMNS = SOURCES
#: The target, the source and the read of each row; ``run`` and ``total`` are jitted by JAX.
ROWS = [
    ("jax", _LARGE, "run(x).block_until_ready()"),
    ("jax", _LARGE, "total(x).block_until_ready()"),
    ("jax", _SMALL, "run(x).block_until_ready()"),
    ("torch", _PIXELS, "x.float()"),
    ("numpy", _PIXELS, "x * 2 + 1"),
    ("torch", _COLUMNS, "x.sum()"),
    ("torch", _LARGE, "x * 2 + 1"),
    ("torch", _LARGE, "x.sum()"),
    ("numpy", _LARGE, "x * 2 + 1"),
    ("numpy", _LARGE, "x.sum()"),
]


def main() -> None:
    """Print the time of a read of the alias and of the copy, and their ratio."""
    where, numbers = machine(), versions(["jax", "torch", "numpy"], ours=False)
    of_frameworks = ", ".join(" ".join(pair) for pair in numbers.items())
    print(f"{where['python']}, {of_frameworks}; {where['threads']} threads of {where['cpu']}")
    print(f"{'target':7}{'source':42}{'read':30}{'alias':>10}{'copy':>10}{'ratio':>7}")
    for target, source, read in ROWS:
        if not find_spec(target):
            continue
        jitted = {}
        if target == "jax":
            import jax

            jitted = {"run": jax.jit(lambda x: x * 2 + 1), "total": jax.jit(lambda x: x.sum())}
        shape, dtype, part = SOURCES[source]
        array = part(aligned_values(prod(shape), dtype).reshape(shape))
        copies = {"alias": False, "copy": True}
        statements = {
            label: Statement(read, jitted | {"x": zc.convert(array, target, copy=copy)})
            for label, copy in copies.items()
        }
        timings = measure(statements, PACE)
        alias, copy = (timings[label].median / 1e3 for label in copies)
        print(f"{target:7}{source:42}{read:30}{alias:7.0f} us{copy:7.0f} us{alias / copy:7.1f}", flush=True)


if __name__ == "__main__":
    main()
