"""Random bytes, record arrays and switches for the tests of the CPU kernels."""

from __future__ import annotations

import numpy as np
import pytest

from zerocopy.layout import transposition

LENGTHS = (0, 1, 63, 64, 65, 127, 1000, 100_003)
#: Enough for the longest records of the tests at twice their size.
RANDOM = np.random.default_rng(4).integers(0, 256, 2 * LENGTHS[-1] * 256 + 4096, np.uint8)


def use_kernels(monkeypatch: pytest.MonkeyPatch, stores: str) -> None:
    """Use the kernels for records of any size, with "streaming" or "ordinary" stores."""
    monkeypatch.setattr(transposition, "MIN_KERNEL_BYTES", 0)
    monkeypatch.setattr(transposition, "MIN_STREAMING_BYTES", 0 if stores == "streaming" else 1 << 60)
