"""Errors about exporters that raise or violate their protocol."""

from __future__ import annotations

from typing import TypeGuard

from zerocopy.errors import UnsupportedConversionError


def malformed(asked: str, why: str, remedy: str = "fix the exporter") -> UnsupportedConversionError:
    """Return the error for an exporter that violates its protocol."""
    return UnsupportedConversionError(asked, why, remedy, code="invalid-producer")


def is_error(error: BaseException) -> TypeGuard[Exception]:
    """Whether an exception is an error of a library, and not a request to end, such as Ctrl-C.

    Extensions in Rust raise ``pyo3_runtime.PanicException``, which does not derive from ``Exception``
    (PyO3, "PanicException"), for values that they do not support.
    """
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def raised(asked: str, error: Exception) -> UnsupportedConversionError:
    """Return the error for an exporter that raised `error`."""
    why = f"the exporter raised {type(error).__name__}: {error}"
    remedy = "see the exporter's message above"
    return UnsupportedConversionError(asked, why, remedy, code="producer-raised")
