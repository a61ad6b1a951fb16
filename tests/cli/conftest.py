"""Fixtures for the command's tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import zerocopy as zc
from zerocopy.framework import Framework


@pytest.fixture
def add() -> Callable[[Framework], None]:
    """Register frameworks for one test; a fixture of tests/conftest.py removes them."""
    return zc.register
