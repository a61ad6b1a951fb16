"""Random bytes, and a choice of the implementation that copies records, for tests of layouts on the CPU."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from helpers.tiers import sample_size
from zerocopy._native import core
from zerocopy.layout import rows

LENGTHS = (0, 1, 63, 64, 65, 127, 1000, sample_size(100_003, 5_003))
#: Enough for the longest records of the tests at twice their size, and for 300 of the widest.
RANDOM = np.random.default_rng(4).integers(0, 256, max(2 * LENGTHS[-1] * 256 + 4096, 300 * 20_000), np.uint8)

#: The core with stores that bypass the caches, and with ordinary ones; Numba and NumPy without the core.
#: Streaming runs with each instruction set that this processor has.
NARROWER = tuple(f"streaming, {isa}" for isa in core.isas[1:]) if core is not None else ()
IMPLEMENTATIONS = ("streaming", *NARROWER, "ordinary", "numba", "numpy")


def use(monkeypatch: pytest.MonkeyPatch, implementation: str) -> None:
    """Copy records of any size with one implementation; skip the test if it is not installed."""
    for module in ("zerocopy.layout.aos_to_soa", "zerocopy._engine.soa_to_aos"):
        monkeypatch.setattr(f"{module}.core", None)  # its functions for small inputs would copy them
    kind, _, isa = implementation.partition(", ")
    if kind in ("streaming", "ordinary"):
        if core is None:
            pytest.skip("needs the compiled core")
        monkeypatch.setattr(rows, "core", core)
        monkeypatch.setattr(rows, "MIN_STREAMING_BYTES", 0 if kind == "streaming" else 1 << 60)
        core.isa(isa or core.isas[0])  # until the next test of an implementation
        return
    if implementation == "numba" and importlib.util.find_spec("numba") is None:
        pytest.skip("needs Numba")
    monkeypatch.setattr(rows, "core", None)
    monkeypatch.setattr(rows, "MIN_NUMBA_BYTES", 0 if implementation == "numba" else 1 << 60)
