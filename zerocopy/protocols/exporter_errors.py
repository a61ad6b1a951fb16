"""Errors about exporters that raise, violate their protocol, or call each other without end."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TypeGuard

from zerocopy.errors import UnsupportedConversionError, ZeroCopyError

#: How deep protocol methods may convert other producers. A method that converts its own object, and
#: one that fails and is repeated at each level, would otherwise take exponential time.
MAX_NESTING = 8

_calls = threading.local()


def malformed(asked: str, why: str, remedy: str = "fix the exporter") -> UnsupportedConversionError:
    """Return the error for an exporter that violates its protocol."""
    return UnsupportedConversionError(asked, why, remedy, code="invalid-producer")


def is_error(error: BaseException) -> TypeGuard[Exception]:
    """Whether an exception is an error of a library, and not a request to end, such as Ctrl-C.

    Extensions in Rust raise ``pyo3_runtime.PanicException``, which does not derive from ``Exception``
    (PyO3, "PanicException"), for values that they do not support.
    """
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def raised(asked: str, error: BaseException) -> UnsupportedConversionError:
    """Return the error for an exporter that raised `error`."""
    why = f"the exporter raised {type(error).__name__}: {error}"
    remedy = "see the exporter's message above"
    return UnsupportedConversionError(asked, why, remedy, code="producer-raised")


class calling:
    """A context for calls of an exporter's methods: it translates exceptions and bounds their nesting."""

    __slots__ = ("_asked",)

    def __init__(self, asked: str) -> None:
        self._asked = asked

    def __enter__(self) -> None:
        depth = getattr(_calls, "depth", 0)
        if depth >= MAX_NESTING:
            raise UnsupportedConversionError(
                self._asked,
                f"the exporter converts another exporter, and so on, more than {MAX_NESTING} times",
                "export the memory itself from the innermost object: numpy.asarray of its values",
                code="nested-exporters",
            )
        _calls.depth = depth + 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        _calls.depth -= 1
        if error is None or not is_error(error) or isinstance(error, MemoryError):
            return
        if isinstance(error, ZeroCopyError) and error.code == "nested-exporters":
            return  # the same cause at each level, so one message
        raise raised(self._asked, error) from error
