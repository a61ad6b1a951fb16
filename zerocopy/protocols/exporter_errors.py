"""Errors about exporters that raise or violate their protocol."""

from __future__ import annotations

from zerocopy.errors import UnsupportedConversionError


def malformed(asked: str, why: str, remedy: str = "fix the exporter") -> UnsupportedConversionError:
    """Return the error for an exporter that violates its protocol."""
    return UnsupportedConversionError(asked, why, remedy, code="invalid-producer")


def raised(asked: str, error: Exception) -> UnsupportedConversionError:
    """Return the error for an exporter that raised `error`."""
    why = f"the exporter raised {type(error).__name__}: {error}"
    remedy = "see the exporter's message above"
    return UnsupportedConversionError(asked, why, remedy, code="producer-raised")
