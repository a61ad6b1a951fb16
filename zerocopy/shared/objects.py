"""``Shared``: the Python object that has a handle, as ``share`` returns it and ``convert`` takes it."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from zerocopy import registry
from zerocopy._engine.convert import convert
from zerocopy.describe import describe_array
from zerocopy.errors import StaleHandleError, UnsupportedConversionError, ZeroCopyError
from zerocopy.errors.tracebacks import public
from zerocopy.formatting import printable
from zerocopy.framework import Framework
from zerocopy.protocols import own_dlpack
from zerocopy.shared.handle import DEVICE, MAPPING, TABLE, Handle, parse
from zerocopy.shared.reading import framework_of, open_array, open_mapping, open_table
from zerocopy.shared.segment import count_handle
from zerocopy.source import Source, type_name
from zerocopy.strided_view import StridedView
from zerocopy.tables.column import Table
from zerocopy.tables.hub import hub


class Shared:
    """An array or table in shared memory, located by a handle: :func:`zerocopy.share` returns it.

    Send it to other processes of the machine by pickle, or its handle as ``bytes(shared)`` and
    `from_bytes`. They open it with :func:`zerocopy.convert`. The memory stays while this object lives in
    its owner, and while a reader uses a result. As a context manager, it is closed at the end.

    Attributes
    ----------
    nbytes : int
        Size of the object's memory in bytes.
    copied_bytes : int
        Bytes that ``share`` copied: 0 if the object was in shared memory already. 0 in other processes.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> with zc.share(np.arange(3.0)) as shared:
    ...     shared, zc.convert(shared, to="numpy")
    (<zerocopy.Shared numpy: 24 bytes>, array([0., 1., 2.]))
    """

    __slots__ = ("__weakref__", "_closed", "_handle", "_keep", "copied_bytes", "nbytes")

    def __init__(self, handle: Handle, keep: Any = None, copied_bytes: int = 0) -> None:
        self._handle, self._closed = handle, False
        self._keep = keep  # the blocks or mappings that hold the memory in this process
        self.nbytes: int = handle.nbytes
        self.copied_bytes: int = copied_bytes
        if keep is not None:
            count_handle(self)

    @property
    def handle(self) -> Handle:
        """The handle's fields.

        Raises
        ------
        StaleHandleError
            This object was closed.
        """
        if self._closed:
            why, remedy = "the handle was closed in this process", "use it before shared.close()"
            raise StaleHandleError("", why, remedy)
        return self._handle

    @property
    def framework(self) -> str:
        """The ``to`` that restores the object in the framework that it was shared from."""
        try:
            return framework_of(self.handle)
        except ZeroCopyError as error:
            raise error.with_context(asked=error.asked or "Shared.framework") from error.__cause__

    @property
    def closed(self) -> bool:
        """Whether the handle was closed in this process."""
        return self._closed

    def close(self) -> None:
        """Give up the memory, unless results of it are in use; the handle becomes stale everywhere.

        A copy of this object (`copy.copy`, `copy.deepcopy`) keeps the memory until it is closed too. In
        a reader, closing has no effect on other processes. Closing again has no effect.
        """
        self._closed, self._keep = True, None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __bytes__(self) -> bytes:
        return self.handle.pack()

    @staticmethod
    @public
    def from_bytes(data: bytes) -> Shared:
        """Return a `Shared` with the handle that ``bytes(shared)`` gave; the memory is not opened yet.

        Parameters
        ----------
        data : bytes-like

        Returns
        -------
        Shared

        Raises
        ------
        HandleFormatError
            The bytes are not a handle, are damaged, or have the format of another version.
        TypeError
            `data` is not bytes-like.

        Examples
        --------
        >>> import numpy as np, zerocopy as zc
        >>> shared = zc.share(np.arange(3.0))
        >>> zc.Shared.from_bytes(bytes(shared)).nbytes
        24
        """
        return restore(bytes(memoryview(data)))

    def __zerocopy_open__(self, target: str = "") -> Any:
        """Return the object that the memory holds; each subclass has its own."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return restore, (bytes(self),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shared):
            return NotImplemented
        return self._handle == other._handle

    def __hash__(self) -> int:
        return hash(self._handle)

    def __copy__(self) -> Self:
        return type(self)(self.handle, self._keep, self.copied_bytes)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()

    def __repr__(self) -> str:
        if self.closed:
            return "<zerocopy.Shared closed>"
        try:
            kind = self.framework
        except (ZeroCopyError, OSError):
            kind = "stale"
        return printable(f"<zerocopy.Shared {kind}: {self.nbytes:,} bytes>")


class SharedArray(Shared):
    """An array in shared memory."""

    __slots__ = ()

    def __zerocopy_open__(self, target: str = "") -> Any:
        """Return the array over the memory, read-only; ``convert`` calls it."""
        return open_array(self.handle)

    def __zerocopy_view__(self) -> StridedView:
        """Return a view of the memory, for DLPack."""
        return describe_array(open_array(self.handle)).view

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a read-only NumPy array that aliases the memory, or a copy for `dtype` or `copy`."""
        array = convert(self, "numpy", copy=False if copy is False else None)
        same = dtype is None or array.dtype == dtype
        if copy is False and not same:
            raise ValueError(f"the array is {array.dtype}, and {dtype} requires a copy")
        return array.astype(dtype) if not same else array.copy() if copy else array


own_dlpack.add_to(SharedArray)


class SharedTable(Shared):
    """A table or a column in shared memory."""

    __slots__ = ()

    def __zerocopy_open__(self, target: str = "") -> Any:
        """Return the table over the memory, as one of its own framework or pyarrow; ``convert`` calls it."""
        return open_table(self.handle, target)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Export the table or the column as a stream (Arrow PyCapsule Interface), through pyarrow."""
        data = convert(self, "pyarrow")
        if not hasattr(data, "__arrow_c_stream__"):  # a column of one chunk
            data = hub().module().chunked_array([data])
        return data.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        """Export the schema of the stream."""
        data = convert(self, "pyarrow")
        return (data.schema if hasattr(data, "schema") else data.type).__arrow_c_schema__()

    def __array__(self, *_: object, **__: object) -> Any:
        asked, why = "numpy.asarray(zerocopy.Shared)", "it holds a table"
        fix = 'use zc.convert(x, "pandas"), or zc.convert(x, "numpy", layout="matrix")'
        raise UnsupportedConversionError(asked, why, fix, code="not-an-array")


class SharedMapping(Shared):
    """Arrays in shared memory by their names: those of weights."""

    __slots__ = ()

    @property
    def framework(self) -> str:
        """The ``to`` that restores the arrays."""
        return "numpy"

    def __zerocopy_open__(self, target: str = "") -> Any:
        """Return a dict of the arrays over the memory, read-only; ``convert`` calls it."""
        return open_mapping(self.handle)


class SharedDeviceArray(Shared):
    """An array in CUDA memory."""

    __slots__ = ()

    def __zerocopy_open__(self, target: str = "") -> Any:
        """Return the array over the memory, as an object of its framework or of CUDA's interface."""
        from zerocopy.shared.cuda.opening import open_device_array

        return open_device_array(self.handle)


def restore(data: bytes) -> Shared:
    """Return the `Shared` of a handle's bytes; see `Shared.from_bytes`. Pickles name this function."""
    handle = parse(data)
    if handle.flags & DEVICE:
        return SharedDeviceArray(handle)
    if handle.flags & MAPPING:
        return SharedMapping(handle)
    return (SharedTable if handle.flags & TABLE else SharedArray)(handle)


class SharedFramework(Framework):
    """Makes `Shared` objects sources of ``convert``, ``explain`` and ``view``; it is not a target."""

    name = "zerocopy"
    kind = "source"
    kinds: Mapping[str, Any] = {"SharedTable": lambda x: _kind_of_table(x)}
    root_modules: tuple[str, ...] = (__name__.partition(".")[0],)

    def owns(self, cls: type) -> bool:
        return issubclass(cls, Shared) and not issubclass(cls, SharedMapping)

    def source(self, obj: Any) -> Source:
        opened = obj.__zerocopy_open__()
        source = describe_array(opened)
        source.name = type_name(obj)
        return source

    def table(self, obj: Any, index: bool | None = None) -> Table | None:
        if isinstance(obj, SharedDeviceArray):
            return None
        opened = obj.__zerocopy_open__()
        framework = registry.by_type(type(opened))
        assert framework is not None
        return framework.table(opened, index)

    def fast_exporters(self, cls: type) -> dict[str, Any]:
        return {"handle": cls.__zerocopy_open__}  # type: ignore[attr-defined]


def _kind_of_table(shared: Any) -> str:
    table = SharedFramework().table(shared)
    return "column" if table is not None and table.single else "table"


registry.add(SharedFramework())
