"""``WeightFile``: one file of tensors, mapped privately; ``Tensor``: the place of one tensor in it."""

from __future__ import annotations

import errno
import glob
import math
import mmap
import os
import stat
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zerocopy import forks
from zerocopy.dtype import by_name, to_numpy
from zerocopy.errors import FrameworkNotInstalledError, MissingFileError, ReadError
from zerocopy.protocols.array_interface import ALIGNMENT, address, has_other_booleans
from zerocopy.protocols.private_map import private_map
from zerocopy.strided_view import MAX_NDIM

Array = NDArray[Any]

#: Headers are read up to this size by default, which is also the limit of the safetensors library.
MAX_HEADER = 100_000_000
_MAX_BYTES = 1 << 62
#: The size of one read. Smaller blocks are read without threads, which take longer to start.
_CHUNK = 16 << 20
_MOST_THREADS = 8

DAMAGED = "download or write the file again; it is damaged, cut off or not of this format"


class Tensor(NamedTuple):
    """The place and type of one tensor in a file.

    Attributes
    ----------
    name : str
    dtype : numpy.dtype
        The type of the loaded elements: a type of NumPy or ml_dtypes.
    shape : tuple of int
    file : str
        The path of the file that holds it.
    offset : int
        The first byte in the file; -1 if the bytes are compressed, and then no array aliases them.
    packed : str
        The file's name of a type that NumPy lacks, such as ``"Q4_K"``, else empty. The tensor is then
        an array of uint8 with the stored bytes.
    packed_shape : tuple of int
        The shape in elements of the type `packed`.
    order : str
        ``"F"`` for an array of NumPy in column-major order, else ``"C"``.
    read : callable or None
        Reads compressed bytes.

    Examples
    --------
    >>> import numpy as np
    >>> Tensor("w", np.dtype("float32"), (2, 3), "model.safetensors", 128).nbytes
    24
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    file: str
    offset: int
    packed: str = ""
    packed_shape: tuple[int, ...] = ()
    order: str = "C"
    read: Callable[[], Array] | None = None

    @property
    def nbytes(self) -> int:
        """Number of bytes of the loaded array."""
        return math.prod(self.shape) * self.dtype.itemsize


class WeightFile:
    """An open file of tensors.

    The mapping is private: the first write to a page copies the page for this process. Frameworks without
    read-only arrays can then write to it; the file does not change, and the write does not fault.

    Parameters
    ----------
    path : str
    max_header : int, optional
        The maximum length of a header in bytes. None: the limit of the format.
    """

    def __init__(self, path: str, max_header: int | None = None) -> None:
        self.path = path
        self._max_header = max_header
        try:
            # Opening a pipe would wait for a writer.
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise self.error("it is not a regular file", "pass the path of a file")
            self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError as error:
            fix = "pass the path of an existing file"
            if glob.has_magic(path):
                fix = f"pass the paths that a pattern matches: zc.open_weights(sorted(glob.glob({path!r})))"
            raise MissingFileError(self.asked, "the file does not exist", fix, file=path) from error
        except (OSError, ValueError) as error:
            if isinstance(error, ReadError):
                raise
            why = f"opening it raised {type(error).__name__}: {error}"
            fix = "pass the path of a file that this process can read"
            if getattr(error, "errno", 0) in (errno.EMFILE, errno.ENFILE):
                fix = "raise the limit with ulimit -n, or drop other results of open_weights"
            raise self.error(why, fix) from error
        weakref.finalize(self, os.close, self._fd).atexit = False
        status = os.fstat(self._fd)
        self.size: int = status.st_size
        self._changed = status.st_mtime_ns
        self._lock = forks.lock()
        self._map: mmap.mmap | None = None
        if not self.size:
            raise self.error("the file is empty: 0 bytes", "remove it, or write it again")

    def error(self, why: str, fix: str = DAMAGED, code: str = "") -> ReadError:
        """Return the error for this file."""
        return ReadError(self.asked, why, fix, code=code, file=self.path)

    def header_limit(self, default: int = MAX_HEADER) -> int:
        """Return the maximum length of a header in bytes."""
        return default if self._max_header is None else self._max_header

    def above_limit(self, nbytes: int, limit: int, why: str = "its header claims {:,} bytes") -> ReadError:
        """Return the error for a header above the limit; max_header=`nbytes` would read it."""
        why = f"{why.format(nbytes)}, more than the limit of {limit:,}"
        fix = f"zc.open_weights({self.path!r}, max_header={nbytes}) reads it, if you trust the file"
        return self.error(why, fix, code="header-limit")

    @property
    def asked(self) -> str:
        """The call, for errors."""
        return f"open_weights({self.path!r})"

    def check(self) -> None:
        """Raise `ReadError` if the file was changed or cut off since it was opened.

        Reading a page of a mapping past the end of its file would end the process (SIGBUS).
        """
        try:
            status = os.fstat(self._fd)
        except OSError as error:  # a network disk is gone, or the program has closed all descriptors
            raise self.error(f"the open file raised {error}", "open it again", "changed-file") from error
        if (status.st_size, status.st_mtime_ns) != (self.size, self._changed):
            why = f"the file was changed after it was opened: it had {self.size:,} bytes, and has "
            why += f"{status.st_size:,}"
            fix = "open it again; replace a file by renaming another to its name, which keeps the old one"
            raise self.error(why, fix, "changed-file")

    def read_bytes(self, offset: int, count: int) -> bytes:
        """Return bytes of the file.

        Raises
        ------
        ReadError
            The file ends before them, or cannot be read.
        """
        if count > self.size - offset:
            raise self.error(f"it has {self.size:,} bytes, and needs {offset + count:,}")
        memory = bytearray(count)
        self.read_into(memoryview(memory), offset)
        return bytes(memory)

    def read_into(self, memory: memoryview, offset: int) -> None:
        """Read bytes from `offset` until the memory is full, which no change of the file interrupts."""
        done = 0
        while done < len(memory):
            try:
                count = self._read(memory[done:], offset + done)
            except OSError as error:
                raise self.error(f"reading it raised {error}", "check the disk, or copy the file") from error
            if not count:
                raise self.error(f"it ends before byte {offset + len(memory):,}", code="changed-file")
            done += count

    def _read(self, memory: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._fd, [memory], offset)
        with self._lock:  # Windows has no reads at an offset
            os.lseek(self._fd, offset, os.SEEK_SET)
            data = os.read(self._fd, len(memory))
        memory[: len(data)] = data
        return len(data)

    @property
    def _memory(self) -> mmap.mmap:
        """The mapping, made at the first use and then shared by all arrays of the file."""
        if self._map is None:
            with self._lock:
                self._map = self._map or self._new_map()  # type: ignore[redundant-expr]  # another thread's
        return self._map

    def _new_map(self) -> mmap.mmap:
        try:
            return private_map(self._fd, self.size)
        except (OSError, ValueError) as error:
            fix = "raise the limit with ulimit -v, or copy the file to a local disk"
            raise self.error(f"the system does not map it: {error}", fix) from error

    def array(self, tensor: Tensor, writable: bool) -> Array:
        """Return a tensor as an array over the mapping, which it keeps; a compressed tensor is read.

        The caller has called `check`.

        Raises
        ------
        ReadError
            A tensor of booleans has other bytes than 0 and 1, or the bytes cannot be read.
        """
        if tensor.read is not None:
            array = tensor.read()
        elif tensor.nbytes == 0:
            # Not numpy.empty, which widens text of 0 bytes to 1 byte.
            array = np.ndarray(tensor.shape, tensor.dtype)
        else:
            order: Any = tensor.order
            array = np.ndarray(tensor.shape, tensor.dtype, self._memory, tensor.offset, order=order)
            array.flags.writeable = writable
        if any(map(has_other_booleans, _parts(array))):
            why = f"the tensor {tensor.name!r} has booleans with a byte other than 0 and 1"
            raise self.error(why, code="invalid-booleans")
        return array


def _parts(array: Array) -> list[Array]:
    """Return an array, or all fields of an array of records."""
    names = array.dtype.names
    return [array] if names is None else [part for name in names for part in _parts(array[name])]


def element_type(name: str, path: str) -> np.dtype[Any]:
    """Return NumPy's dtype of a name, such as ``"bfloat16"``, which ml_dtypes adds."""
    dtype = to_numpy(by_name(name))
    if dtype is None:
        why = f"it has tensors of {name}, a type that NumPy has with ml_dtypes only"
        raise FrameworkNotInstalledError(f"open_weights({path!r})", why, "pip install ml_dtypes")
    return dtype.newbyteorder("<") if dtype.isbuiltin == 1 else dtype


def check_shape(shape: Any, itemsize: int) -> str:
    """Return why an array cannot have a shape, or an empty text."""
    if type(shape) not in (list, tuple):
        return "its shape is not a list"
    if len(shape) > MAX_NDIM:
        return f"it has {len(shape)} dimensions, more than the {MAX_NDIM} of an array"
    nbytes = itemsize or 1
    for count in shape:
        if type(count) is not int or count < 0:
            return "its shape has a dimension that is not a number of at least 0"
        nbytes *= count or 1  # NumPy counts the bytes of an empty array so
    if nbytes >= _MAX_BYTES:
        return "its shape has too many elements"
    return ""


def packed_shape(shape: tuple[int, ...], elements: int, nbytes: int) -> tuple[int, ...] | None:
    """Return the shape in bytes of a tensor whose rows are blocks of `elements` in `nbytes` bytes each.

    None if the blocks do not divide a row.

    Examples
    --------
    >>> packed_shape((2, 64), 32, 18), packed_shape((2, 5), 2, 1)
    ((2, 36), None)
    """
    if not shape or shape[-1] % elements:
        return None
    return (*shape[:-1], shape[-1] // elements * nbytes)


def read_block(tensors: Sequence[tuple[WeightFile, Tensor]]) -> list[Array]:
    """Return arrays that each start at a multiple of 64 bytes; they share one new block of memory.

    The bytes are read with ``preadv``, not from a mapping: it takes no page faults of the file, and a file
    that is cut off meanwhile raises an error.

    Raises
    ------
    ReadError
        A file ends too early, or cannot be read.
    """
    starts, total = [], 0
    for _, tensor in tensors:
        starts.append(total)
        total += tensor.nbytes + -tensor.nbytes % ALIGNMENT
    memory = np.empty(total + ALIGNMENT, np.uint8)
    memory = memory[-address(memory) % ALIGNMENT :]
    reads = [
        (file, memory[start + part : start + min(part + _CHUNK, tensor.nbytes)].data, tensor.offset + part)
        for (file, tensor), start in zip(tensors, starts, strict=True)
        for part in range(0, tensor.nbytes, _CHUNK)
    ]
    threads = min(_MOST_THREADS, os.cpu_count() or 1, len(reads))
    if threads < 2 or total <= _CHUNK:
        for file, part, offset in reads:
            file.read_into(part, offset)
    else:
        with ThreadPoolExecutor(threads, "zerocopy-weights") as pool:
            list(pool.map(lambda read: read[0].read_into(read[1], read[2]), reads))
    return [_shaped(memory, start, tensor) for (_, tensor), start in zip(tensors, starts, strict=True)]


def _shaped(memory: Array, start: int, tensor: Tensor) -> Array:
    order: Any = tensor.order
    return np.ndarray(tensor.shape, tensor.dtype, memory[start : start + tensor.nbytes], order=order)
