"""Marks for tests that differ on a free-threaded Python."""

from __future__ import annotations

import sysconfig

import pytest

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def with_gil(reason: str) -> pytest.MarkDecorator:
    """Skip a test on a free-threaded Python."""
    return pytest.mark.skipif(FREE_THREADED, reason=reason)
