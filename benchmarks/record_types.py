"""Record types of the layout suite and of the tests.

This module imports NumPy only: the tests use it without the dependencies of the benchmarks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_MIXED = [("id", "i8"), ("price", "f8"), ("quantity", "i4"), ("flag", "u1")]
_PARTICLE = [
    ("id", "u8"),
    *((name, "f4") for name in ("x", "y", "z", "vx", "vy", "vz")),
    ("m", "f8"),
    ("q", "f4"),
    ("type", "u1"),
    ("flags", "u2"),
    ("cell", "i4"),
    ("t", "f8"),
]


class Layout(NamedTuple):
    """A named record type."""

    name: str
    dtype: np.dtype[Any]

    @property
    def case(self) -> str:
        """The name of its row, with the size of a record."""
        return f"{self.name} ({self.dtype.itemsize} bytes)"


PARTICLE = Layout("particle", np.dtype(_PARTICLE))

LAYOUTS = (
    Layout("x, y, z: f4", np.dtype([(name, "f4") for name in "xyz"])),
    Layout("8 x f4", np.dtype([(f"f{i}", "f4") for i in range(8)])),
    Layout("i8, f8, i4, u1", np.dtype(_MIXED)),
    Layout("i8, f8, i4, u1, aligned", np.dtype(_MIXED, align=True)),
    PARTICLE,
    Layout("particle, aligned", np.dtype(_PARTICLE, align=True)),
    Layout("64 x f4", np.dtype([(f"f{i}", "f4") for i in range(64)])),
    Layout("particle, big-endian", PARTICLE.dtype.newbyteorder(">")),
    Layout("S10, 3 x f4, u1", np.dtype([("name", "S10"), *((n, "f4") for n in "xyz"), ("type", "u1")])),
)
