"""One vocabulary of errors, whatever the frameworks raise below (promise P9).

Every error says three things: what was asked, why not, and what to do. Each one
also derives from the built-in that a caller who has never heard of us would
catch: ``except ImportError`` works for a framework that is not installed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a conversion copies or refuses, and what to do about it.

    Examples
    --------
    >>> Reason("the strides are negative", "pass numpy.ascontiguousarray(x)").why
    'the strides are negative'
    """

    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.why} ({self.remedy})" if self.remedy else self.why


class ZeroCopyError(Exception):
    """Base of all errors raised by zerocopy.

    Parameters
    ----------
    asked : str
        What was asked, as the call that was made.
    why : str
        Why it cannot be done.
    remedy : str
        What to do instead.

    Examples
    --------
    >>> print(ZeroCopyError("convert(x, to='torch')", "x is a string", "pass an array"))
    convert(x, to='torch'): x is a string.
      To fix: pass an array
    """

    def __init__(self, asked: str, why: str, remedy: str = "") -> None:
        # All three go to args, so that the error survives pickling between processes.
        super().__init__(asked, why, remedy)
        self.asked = asked
        self.why = why
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.asked}: {self.why.rstrip('.')}." if self.asked else f"{self.why.rstrip('.')}."
        return f"{text}\n  To fix: {self.remedy}" if self.remedy else text


class UnknownFrameworkError(ZeroCopyError, LookupError):
    """``to`` names no framework that is known."""


class FrameworkNotInstalledError(ZeroCopyError, ImportError):
    """The framework is known, and not installed (or its import fails: see the cause)."""


class UnsupportedConversionError(ZeroCopyError, TypeError):
    """There is no route: the message lists what was tried."""


class CopyRequiredError(ZeroCopyError, BufferError, ValueError):
    """``copy=False`` was asked, and the conversion needs a copy."""


class LossyConversionError(ZeroCopyError, ValueError):
    """The target would change values."""


class DeviceError(ZeroCopyError, RuntimeError):
    """The device does not exist, or its driver does not answer."""


class PoolOptionError(ZeroCopyError, ValueError):
    """An option of ``install_pool`` cannot be read, is not known, or contradicts another."""


class PoolInstalledError(ZeroCopyError, RuntimeError):
    """A pool with other options is installed already."""


class PoolTooLateError(ZeroCopyError, RuntimeError):
    """A framework has allocated already, or has read the variables that would have told it."""


class PoolUnavailableError(ZeroCopyError, RuntimeError):
    """What the pool is made of is not here: no driver, no RMM, no C library that can do it."""


class PoolClosedError(ZeroCopyError, RuntimeError):
    """The pool was closed, and serves no new requests."""


class PoolLimitError(ZeroCopyError, MemoryError):
    """An allocation would pass the limit; the pool works on.

    Parameters
    ----------
    asked, why, remedy : str
        As of every error.
    requested, in_use, limit : int
        In bytes.
    source : str
        Where the limit comes from: ``"limit="``, ``"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"``, ...
    """

    def __init__(
        self,
        asked: str,
        why: str,
        remedy: str = "",
        requested: int = 0,
        in_use: int = 0,
        limit: int = 0,
        source: str = "",
    ) -> None:
        super().__init__(asked, why, remedy)
        self.args = (asked, why, remedy, requested, in_use, limit, source)
        self.requested = requested
        self.in_use = in_use
        self.limit = limit
        self.source = source
