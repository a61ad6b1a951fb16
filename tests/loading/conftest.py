"""Garbage collection skips the frameworks' objects, which otherwise take most of the time of these tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _frozen_objects() -> Iterator[None]:
    """Collect only objects that the test has created."""
    gc.freeze()
    yield
    gc.unfreeze()
