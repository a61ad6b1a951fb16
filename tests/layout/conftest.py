"""The implementations that copy records."""

from __future__ import annotations

import pytest
from helpers.kernel_cases import IMPLEMENTATIONS, use


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Copy records with the compiled core, Numba or NumPy; all give the same bits."""
    use(monkeypatch, request.param)
    return str(request.param)
