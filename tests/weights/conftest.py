"""Tests of a target that is not installed are skipped."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest) -> None:
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if isinstance(parameters.get("to"), str):
        pytest.importorskip(parameters["to"].partition(".")[0])
