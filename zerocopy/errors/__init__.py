"""The errors of zerocopy. Exceptions of frameworks are translated into them (promise P9).

A message has three parts: the call, why it failed, and how to fix it. Each class also derives from the
built-in exception that a caller would catch: ``except ImportError`` catches `FrameworkNotInstalledError`.
"""

from __future__ import annotations

from errno import ENOENT
from typing import Any

from zerocopy.errors.base import Fix as Fix, Reason as Reason, ZeroCopyError as ZeroCopyError


class UnknownFrameworkError(ZeroCopyError, LookupError):
    """``to`` is not the name of a known framework; the remedy has the nearest names.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.convert(b"abc", to="nunpy")
    Traceback (most recent call last):
        ...
    zerocopy.errors.UnknownFrameworkError: to='nunpy': it is not the name of a known framework.
      To fix: did you mean 'numpy'? choose from ...
    """

    code = "unknown-framework"


class FrameworkNotInstalledError(ZeroCopyError, ImportError):
    """The framework is not installed, or its import fails (see ``__cause__``).

    Examples
    --------
    >>> import zerocopy as zc
    >>> class Absent(zc.Framework):
    ...     name = "absent"
    >>> Absent().module()
    Traceback (most recent call last):
        ...
    zerocopy.errors.FrameworkNotInstalledError: to='absent': absent is not installed.
      To fix: pip install absent
    """

    code = "not-installed"


class UnsupportedConversionError(ZeroCopyError, TypeError):
    """The object cannot be converted to the target.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.convert("text", to="numpy")
    Traceback (most recent call last):
        ...
    zerocopy.errors.UnsupportedConversionError: convert(str, to='numpy'): str is not an array and
    supports no array protocol.
      To fix: ...
    """

    code = "unsupported"


class CopyRequiredError(ZeroCopyError, BufferError, ValueError):
    """``copy=False`` was passed, and the conversion needs a copy.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> zc.convert(memoryview(np.zeros(2, dtype=">f4")), to="numpy", copy=False)
    Traceback (most recent call last):
        ...
    zerocopy.errors.CopyRequiredError: convert(...): copy=False, but a copy is needed: the bytes are in the
    other order (>f4).
      To fix: ...
    """

    code = "copy-required"
    by_guard: bool = False  # of `forbid_copies`, for a call without ``copy=False``


class LossyConversionError(ZeroCopyError, ValueError):
    """The target would change values.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> zc.soa_to_aos({"id": np.array([300])}, [("id", "u1")])
    Traceback (most recent call last):
        ...
    zerocopy.errors.LossyConversionError: soa_to_aos(columns): field 'id' is uint8, which cannot hold int64.
      To fix: zc.convert(x['id'], "numpy", dtype="uint8") casts the column, and checks its values
    """

    code = "lossy"


class DeviceError(ZeroCopyError, RuntimeError):
    """The device does not exist, or its driver does not answer.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> zc.convert(np.zeros(3), to="numpy", device="cuda")
    Traceback (most recent call last):
        ...
    zerocopy.errors.DeviceError: convert(numpy.ndarray float64 (3,), to='numpy', device='cuda'): ...
      To fix: zc.convert(x, "numpy", device="cpu")
    """

    code = "device"


class OptionError(ZeroCopyError, ValueError):
    """An option has an invalid value; the remedy has the nearest valid one.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> zc.convert(np.zeros((2, 2)), to="numpy", layout="matix")
    Traceback (most recent call last):
        ...
    zerocopy.errors.OptionError: layout='matix': layout must be one of 'columns', 'matrix', 'records', not...
      To fix: did you mean layout="matrix"?
    """

    code = "option-value"


class DeviceOptionError(OptionError, DeviceError):
    """``device=`` does not name a device, or ``stream=`` is not a stream.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> zc.convert(np.zeros(2), to="numpy", device="cdua")
    Traceback (most recent call last):
        ...
    zerocopy.errors.DeviceOptionError: convert(...): it does not name a device.
      To fix: did you mean device="cuda"? ...
    """

    code = "device-name"


class PoolInstalledError(ZeroCopyError, RuntimeError):
    """A pool with other options is already installed.

    Examples
    --------
    >>> import zerocopy as zc
    >>> pool = zc.install_pool(host="off")
    >>> zc.install_pool(host="recycle")
    Traceback (most recent call last):
        ...
    zerocopy.errors.PoolInstalledError: install_pool(auto,host=recycle): a pool with other options is
    installed: auto.
      To fix: close it first: zc.installed_pool().close()
    >>> pool.close()
    """

    code = "pool-installed"


class PoolTooLateError(ZeroCopyError, RuntimeError):
    """A framework has already allocated, or has already read the variables that configure it.

    Raised with ``strict=True``; otherwise the pool's report has a row for it.

    Examples
    --------
    >>> error = PoolTooLateError("install_pool(auto,strict=1)", "torch: it has allocated", "call it first")
    >>> isinstance(error, RuntimeError), error.remedy
    (True, 'call it first')
    """

    code = "pool-too-late"


class PoolUnavailableError(ZeroCopyError, RuntimeError):
    """The pool needs a driver, a library (RMM) or a C library function that is not available.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.install_pool("driver", devices=[9999])
    Traceback (most recent call last):
        ...
    zerocopy.errors.PoolUnavailableError: ...
    """

    code = "pool-unavailable"


class PoolClosedError(ZeroCopyError, RuntimeError):
    """The pool is closed and serves no new requests.

    Examples
    --------
    >>> import zerocopy as zc
    >>> pool = zc.install_pool(host="off")
    >>> pool.close()
    >>> pool.refresh()
    Traceback (most recent call last):
        ...
    zerocopy.errors.PoolClosedError: refresh(): the pool was closed.
      To fix: install another one: zc.install_pool()
    """

    code = "pool-closed"


class PoolLimitError(ZeroCopyError, MemoryError):
    """An allocation would exceed the limit; the pool keeps working.

    Parameters
    ----------
    asked, why, remedy : str
        The parts of the message.
    requested, in_use, limit : int
        In bytes.
    source : str
        Where the limit is set: ``"limit="``, ``"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"``, ...

    Examples
    --------
    >>> error = PoolLimitError("allocate(2048)", "it would exceed the limit", requested=2048, limit=1024)
    >>> isinstance(error, MemoryError), error.requested, error.in_use, error.limit
    (True, 2048, 0, 1024)
    """

    code = "pool-limit"

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
        self.requested = requested
        self.in_use = in_use
        self.limit = limit
        self.source = source


class HandleFormatError(ZeroCopyError, ValueError):
    """The bytes are not a handle, are damaged, or have the format of another version.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.Shared.from_bytes(b"abc")
    Traceback (most recent call last):
        ...
    zerocopy.errors.HandleFormatError: Shared.from_bytes(): 3 bytes are too few for a handle.
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
    zerocopy.errors.StaleHandleError: convert(zerocopy.shared.objects.SharedArray, to='numpy'): ...
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
    zerocopy.errors.SharedMemoryError: shared_empty((1152921504606846976,), 'uint8'): ...
    """

    code = "no-shared-memory"


class ReadError(ZeroCopyError, OSError):
    """A file or row group cannot be read, has changed since the loader was created, or has other columns.

    Parameters
    ----------
    asked, why, remedy : str
        As for `ZeroCopyError`.
    code : str
        Stable name of the cause.
    file : str
        Path or URL of the file.
    row_group : int or None
        Number of the row group in the file; None for the whole file.

    Notes
    -----
    A file that does not exist raises `MissingFileError`, which is also a `FileNotFoundError`.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.loader("missing.parquet", to="numpy", batch_size=2)
    Traceback (most recent call last):
        ...
    zerocopy.errors.MissingFileError: loader('missing.parquet'): the file does not exist.
      To fix: pass an existing path, a glob such as "data/*.parquet", or a URL
    """

    code = "unreadable-file"
    # Attributes of Python: a pickle of the error lacks those of OSError.
    errno: int | None = None
    strerror: str | None = None
    filename: Any = None

    def __init__(
        self,
        asked: str,
        why: str,
        remedy: str = "",
        *,
        code: str = "",
        file: str = "",
        row_group: int | None = None,
    ) -> None:
        super().__init__(asked, why, remedy, code=code)
        self.filename = file or None
        self.file = file
        self.row_group = row_group


class MissingFileError(ReadError, FileNotFoundError):
    """A file does not exist, or no file matches a pattern.

    Examples
    --------
    >>> import zerocopy as zc
    >>> try:
    ...     zc.open_weights("missing.safetensors")
    ... except FileNotFoundError as error:
    ...     print(error.filename)
    missing.safetensors
    """

    code = "missing-file"
    errno: int | None = ENOENT


class LoaderStateError(ZeroCopyError, ValueError):
    """A state does not belong to this loader: it has another source, seed or batch size, or is damaged.

    Also raised by ``loader.state_dict()`` while worker processes iterate over copies of the loader.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> loader = zc.loader({"x": np.arange(9)}, to="numpy", batch_size=2)
    >>> loader.load_state_dict(zc.loader({"x": np.arange(9)}, to="numpy", batch_size=3).state_dict())
    Traceback (most recent call last):
        ...
    zerocopy.errors.LoaderStateError: load_state_dict(state): the state has batch_size=3, and this...
      To fix: create the loader with the source and the options of the one that made the state
    """

    code = "loader-state"


class LoaderUseError(ZeroCopyError, RuntimeError, TypeError):
    """A loader cannot be iterated again, counted, copied or pickled; `code` tells these apart.

    It is a TypeError, so that ``list(loader)`` and ``tqdm(loader)`` work without a length.

    Examples
    --------
    >>> import pyarrow as pa, zerocopy as zc
    >>> table = pa.table({"x": [1, 2]})
    >>> loader = zc.loader(table.to_reader(), to="numpy", batch_size=2)
    >>> list(loader)
    [{'x': array([1, 2])}]
    >>> list(loader)
    Traceback (most recent call last):
        ...
    zerocopy.errors.LoaderUseError: iter(loader): ... can be read only once, and was...
      To fix: pass a source that can be read again, such as a path or a table
    """

    code = "loader-iteration"


class ChannelTimeoutError(ZeroCopyError, TimeoutError):
    """No slot became free, or no item arrived, within ``timeout=``.

    Examples
    --------
    >>> import zerocopy as zc
    >>> channel = zc.channel({"t": ((), "f8")}, mode="latest")
    >>> channel.latest(timeout=0)
    Traceback (most recent call last):
        ...
    zerocopy.errors.ChannelTimeoutError: Channel.latest(): no item arrived within 0 seconds.
      To fix: pass a longer timeout=, or check that the writer runs
    """

    code = "channel-timeout"


class ChannelClosedError(ZeroCopyError, ConnectionError):
    """The other side of a channel has ended, or another process writes to the channel.

    A queue has no reader left, the writer ended without ``close()``, or the reader was closed.

    Examples
    --------
    >>> import zerocopy as zc
    >>> issubclass(zc.errors.ChannelClosedError, ConnectionError)
    True
    """

    code = "channel-closed"


class MonitorStateError(ZeroCopyError, RuntimeError):
    """The monitor of this process is running already, or was not started.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.monitor.snapshot()
    Traceback (most recent call last):
        ...
    zerocopy.errors.MonitorStateError: monitor.snapshot(): the monitor was not started.
      To fix: call zc.monitor.start() first
    """

    code = "monitor-not-started"


class MonitorFileError(ZeroCopyError, OSError):
    """The monitor cannot use its run directory, a file or the address of its page.

    Examples
    --------
    >>> import zerocopy as zc
    >>> error = zc.errors.MonitorFileError("--csv a.csv", "the file exists")
    >>> isinstance(error, OSError), error.code
    (True, 'monitor-file')
    """

    code = "monitor-file"
