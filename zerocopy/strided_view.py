"""``StridedView``: the address, layout and owner of one block of memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from zerocopy.device import Device, same_memory_space
from zerocopy.dtype import DType
from zerocopy.errors import UnsupportedConversionError

# The exact overlap problem is NP-complete; NumPy takes about 10 ms for this many steps.
_MAX_WORK: Any = 100_000
#: Only a stride that is never used is larger: over one element, or in an empty view.
_INT64 = 1 << 63
#: Most dimensions of an ndarray (NPY_MAXDIMS).
MAX_NDIM = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0b1" else 32
_TOO_HARD = getattr(np, "exceptions", np).TooHardError  # NumPy 1.25 moved it


@dataclass(frozen=True, slots=True, eq=False, init=False)
class StridedView:
    """The address, layout, device and owner of one block of memory.

    Attributes
    ----------
    ptr : int
        Address of the element at index (0, 0, ...). It is an address of the device:
        the CPU can read it only if ``device.is_host``.
    shape : tuple of int
        Number of elements in each dimension.
    strides : tuple of int
        Bytes (not elements) between neighbours in each dimension; can be negative or 0.
    dtype : DType
        Type of the elements.
    device : Device
        Device of the memory.
    readonly : bool
        Whether the producer declares the memory immutable.
    owner : object
        Keeps the memory alive: hold it while ``ptr`` is in use.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> v = zc.view(np.zeros((2, 3), dtype=np.int16))
    >>> v.shape, v.strides, str(v.dtype), str(v.device), v.nbytes
    ((2, 3), (6, 2), 'int16', 'cpu', 12)
    """

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: Device
    readonly: bool
    owner: Any

    # A frozen dataclass calls object.__setattr__ for each field, which takes twice as long.
    def __init__(
        self,
        ptr: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: DType,
        device: Device,
        readonly: bool,
        owner: Any,
    ) -> None:
        _set_ptr(self, ptr)
        _set_shape(self, shape)
        _set_strides(self, strides)
        _set_dtype(self, dtype)
        _set_device(self, device)
        _set_readonly(self, readonly)
        _set_owner(self, owner)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes, without gaps between them."""
        return self.size * self.dtype.itemsize

    @property
    def bounds(self) -> tuple[int, int]:
        """First address in use and the address after the last; equal for an empty view."""
        low = high = self.ptr
        if 0 in self.shape:
            return low, high
        for count, stride in zip(self.shape, self.strides, strict=True):
            reach = (count - 1) * stride
            low, high = (low + reach, high) if reach < 0 else (low, high + reach)
        return low, high + self.dtype.itemsize

    @property
    def c_contiguous(self) -> bool:
        """Whether the elements follow each other in row-major order.

        Strides of dimensions of size 1, and of an empty view, are ignored: frameworks
        store arbitrary values there.
        """
        return _dense(self.shape, self.strides, self.dtype.itemsize)

    @property
    def compact(self) -> bool:
        """Whether some order of the dimensions is contiguous (a transposed array is)."""
        if self.c_contiguous:  # of one dimension: in a third of the time
            return True
        order = sorted(range(self.ndim), key=lambda i: (self.strides[i], self.shape[i]), reverse=True)
        return _dense(
            tuple(self.shape[i] for i in order),
            tuple(self.strides[i] for i in order),
            self.dtype.itemsize,
        )

    @property
    def run_bytes(self) -> int:
        """Bytes up to the first gap between elements, in the order of their addresses; `nbytes` without gaps.

        Dimensions of stride 0 repeat elements and are left out.

        Examples
        --------
        >>> import numpy as np, zerocopy as zc
        >>> x = np.zeros((4, 6), dtype=np.int16)
        >>> zc.view(x).run_bytes, zc.view(x.T).run_bytes, zc.view(x[:, :2]).run_bytes
        (48, 48, 4)
        """
        steps = sorted((abs(s), n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1 and s)
        run = self.dtype.itemsize
        for stride, count in steps:
            if stride != run:
                return run
            run *= count
        return self.nbytes

    @property
    def has_negative_strides(self) -> bool:
        """Whether a dimension of more than one element has a negative stride."""
        if not self.strides or min(self.strides) >= 0:
            return False
        return any(s < 0 and n > 1 for n, s in zip(self.shape, self.strides, strict=True))

    @property
    def has_fractional_strides(self) -> bool:
        """Whether a stride is not a multiple of the item size, as in a field of packed records.

        DLPack cannot express such strides: it counts in elements (dlpack.h, ``DLTensor.strides``).
        """
        itemsize = self.dtype.itemsize
        for count, stride in zip(self.shape, self.strides, strict=True):
            if stride % itemsize and count > 1:
                return True
        return False

    def is_aligned(self, alignment: int) -> bool:
        """Whether the first element's address is a multiple of `alignment`; always true for an empty view.

        Parameters
        ----------
        alignment : int
            In bytes.

        Returns
        -------
        bool
            True if the address is a multiple of `alignment`, or the view is empty.
        """
        return self.ptr % alignment == 0 or 0 in self.shape

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface, version 3; types that NumPy lacks appear as unsigned integers."""
        if not self.device.is_host:
            # AttributeError: hasattr() and NumPy then find no interface.
            raise AttributeError(f"the memory is on {self.device}, which NumPy cannot read")
        if not self.ptr and self.size:
            raise UnsupportedConversionError(
                "StridedView.numpy()",
                f"{self.nbytes:,} bytes at address 0 are not memory",
                "fix the exporter: a buffer of it is NULL",
                code="null-address",
            )
        if self.ndim > MAX_NDIM:  # see producer._Interface
            raise UnsupportedConversionError(
                "StridedView.numpy()",
                f"it has {self.ndim} dimensions, and arrays of NumPy {np.__version__} at most {MAX_NDIM}",
                "reshape it, or squeeze dimensions of size 1",
                code="too-many-dimensions",
            )
        in_range = [stride if -_INT64 <= stride < _INT64 else 0 for stride in self.strides]
        return {
            "shape": self.shape,
            "strides": tuple(in_range),
            "typestr": self.dtype.storage.str,
            "data": (self.ptr, self.readonly),
            "version": 3,
        }

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return host memory as a NumPy array.

        Returns
        -------
        numpy.ndarray
            In ``dtype.storage``. It aliases the memory, keeps it alive, and is read-only if the view is.

        Raises
        ------
        AttributeError
            The memory is on a device that NumPy cannot read.
        UnsupportedConversionError
            The view has elements, and the address is 0.
        """
        if self.ptr == 0 and not self.size:  # some producers pass NULL, which NumPy rejects
            return np.empty(self.shape, self.dtype.storage)
        return np.asarray(self)

    def __repr__(self) -> str:
        access = "read-only" if self.readonly else "writable"
        return (
            f"StridedView({self.dtype} {self.shape}, strides={self.strides} bytes, "
            f"{self.device}, {access}, ptr={self.ptr:#x})"
        )


_set_ptr, _set_shape, _set_strides, _set_dtype, _set_device, _set_readonly, _set_owner = (
    getattr(StridedView, name).__set__ for name in StridedView.__slots__
)


def _dense(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    if len(shape) == 1:  # a column: tables have thousands
        return strides[0] == itemsize or shape[0] < 2
    if 0 in shape:
        return True
    expected = itemsize
    for count, stride in zip(reversed(shape), reversed(strides), strict=True):
        if count != 1:
            if stride != expected:
                return False
            expected *= count
    return True


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the row-major strides, in bytes, of an array of that shape.

    Examples
    --------
    >>> contiguous_strides((2, 3), 4)
    (12, 4)
    """
    if len(shape) == 1:  # a column: tables have thousands
        return (itemsize,)
    strides, step = [], itemsize
    for count in reversed(shape):
        strides.append(step)
        step *= max(count, 1)
    return tuple(reversed(strides))


def overlap(a: StridedView, b: StridedView) -> bool:
    """Return whether two blocks of memory have a byte in common; True if that is not proved wrong."""
    if not same_memory_space(a.device, b.device):
        return False
    (low_a, high_a), (low_b, high_b) = a.bounds, b.bounds
    if max(low_a, low_b) >= min(high_a, high_b):
        return False
    if a.compact and b.compact:
        return True
    # The bounds overlap and there are gaps: an exact answer needs a solver. NumPy's uses
    # addresses and strides only, so it also serves device memory.
    try:
        return bool(np.shares_memory(_as_array(a), _as_array(b), max_work=_MAX_WORK))
    except _TOO_HARD:
        return True  # not proved disjoint


class _Addresses:
    """Array-interface wrapper used only for address arithmetic; its memory is never read."""

    def __init__(self, view: StridedView) -> None:
        self.__array_interface__ = {
            "shape": view.shape,
            "strides": view.strides,
            "typestr": f"|V{view.dtype.itemsize}",
            "data": (view.ptr, True),
            "version": 3,
        }


def _as_array(view: StridedView) -> np.ndarray[Any, Any]:
    return np.asarray(_Addresses(view))
