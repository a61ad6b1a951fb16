"""A fixture that checks the storage extent of each result of ``zc.convert``; also a plugin for any tests.

``PYTHONPATH=$PWD:$PWD/tests python -m pytest -p helpers.extent_plugin tests/frameworks``. It is not on in all
tests, because it replaces ``zc.convert``, and some tests count its calls or the references to its arguments.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

import zerocopy as zc
from helpers.storage_extent import check_extents


@pytest.fixture(autouse=True)
def checked_extents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace ``zc.convert`` by a function that also checks its result."""
    convert = zc.convert

    @functools.wraps(convert)
    def checked(*args: Any, **options: Any) -> Any:
        result = convert(*args, **options)
        if args and not isinstance(args[0], type(result)):
            check_extents(args[0], result)
        return result

    monkeypatch.setattr(zc, "convert", checked)
