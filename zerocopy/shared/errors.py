"""Errors of handles and of shared memory."""

from __future__ import annotations

from zerocopy.errors import ZeroCopyError


class HandleFormatError(ZeroCopyError, ValueError):
    """The bytes are not a handle, are damaged, or have the format of another version.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.Shared.from_bytes(b"abc")
    Traceback (most recent call last):
        ...
    zerocopy.shared.errors.HandleFormatError: Shared.from_bytes(): 3 bytes are too few for a handle.
      To fix: pass the bytes of a handle unchanged: bytes(shared)
    """

    code = "handle-format"


class StaleHandleError(ZeroCopyError, RuntimeError):
    """The memory of the handle is gone: its owner has freed it, has reused it, or has ended.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> shared = zc.share(np.arange(3))
    >>> data = bytes(shared)
    >>> shared.close()
    >>> zc.convert(zc.Shared.from_bytes(data), to="numpy")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    zerocopy.shared.errors.StaleHandleError: convert(zerocopy.shared.objects.SharedArray, to='numpy'): ...
      To fix: keep the Shared in its owner until every reader has opened it
    """

    code = "stale-handle"


class OtherHostError(ZeroCopyError, RuntimeError):
    """The handle was made on another machine, or in another PID namespace without a broker.

    Examples
    --------
    >>> issubclass(OtherHostError, RuntimeError)
    True
    """

    code = "other-host"


class HandleAccessError(ZeroCopyError, PermissionError):
    """The kernel, or this process's user, does not permit access to the owner's memory.

    Examples
    --------
    >>> issubclass(HandleAccessError, PermissionError)
    True
    """

    code = "handle-access"


class SharedMemoryError(ZeroCopyError, MemoryError):
    """There is no room for a segment, or no file descriptor; nothing was allocated.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.shared_empty(1 << 60, "uint8")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    zerocopy.shared.errors.SharedMemoryError: shared_empty((1152921504606846976,), 'uint8'): ...
    """

    code = "no-shared-memory"


def no_file_descriptor(error: Exception) -> SharedMemoryError:
    """Return the error for a process, or a machine, without a free file descriptor."""
    why = f"the process has no free file descriptor for shared memory ({error})"
    remedy = "raise the limit with ulimit -n, or close handles and drop results that are no longer needed"
    return SharedMemoryError("", why, remedy, code="no-file-descriptor")
