"""Fixtures of the command's tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import zerocopy as zc
from zerocopy.framework import Framework


@pytest.fixture
def add() -> Callable[[Framework], None]:
    """Register frameworks for one test; conftest takes them away again."""
    return zc.register
