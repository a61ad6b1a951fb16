"""Skips of tests that need a newer version of a package, with that version in the reason."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pytest

from zerocopy.framework import version_numbers


def has(package: str, release: str) -> bool:
    """Whether a package is installed in a version that is not older than `release`."""
    try:
        return version_numbers(version(package)) >= version_numbers(release)
    except PackageNotFoundError:
        return False


def _lacks(package: str, release: str, feature: str) -> str:
    """Return why a test cannot run, or an empty string."""
    if has(package, release):
        return ""
    installed = version(package) if has(package, "0") else "absent"
    return f"{package} {installed} lacks {feature}, which {release} has"


def needs(package: str, release: str, feature: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test where an older version is installed."""
    reason = _lacks(package, release, feature)
    return pytest.mark.skipif(bool(reason), reason=reason)


def require(package: str, release: str, feature: str) -> None:
    """Skip the running test where an older version is installed."""
    if reason := _lacks(package, release, feature):
        pytest.skip(reason)


#: NumPy 2.1 exports and imports versioned capsules, which can be read-only, and takes `copy`.
VERSIONED_CAPSULES = has("numpy", "2.1")
needs_versioned_capsules = needs("numpy", "2.1", "versioned capsules")


def numpy_capsule(array: np.ndarray[Any, Any], **options: Any) -> Any:
    """Return a capsule of NumPy, with the options of ``__dlpack__`` that its version has."""
    return array.__dlpack__(**(options if VERSIONED_CAPSULES else {}))


def text_of_numpy_2(texts: list[str]) -> list[np.ndarray[Any, Any]]:
    """Return text of variable width as one array of NumPy 2; none with NumPy 1, which lacks its type."""
    return [np.array(texts, np.dtypes.StringDType())] if has("numpy", "2.0") else []
