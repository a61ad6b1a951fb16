"""``Source``: one object as its framework describes it, and the forms in which its memory passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zerocopy.errors import Reason
from zerocopy.strided_view import StridedView

if TYPE_CHECKING:
    from zerocopy.framework import Framework

Array = np.ndarray[Any, Any]


def type_name(obj: Any) -> str:
    """Return an object's type for messages, with its module unless it is a built-in."""
    cls = type(obj)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


#: Forms in which memory passes from a fast exporter to a fast importer; all but the last are the host's.
#: ``ndarray``: an ndarray that aliases, with any strides, read-only if immutable.
#: ``readonly``: an ndarray that is read-only whatever the object, since it is immutable.
#: ``capsule``: a legacy DLPack capsule, aligned to its item size, no stride negative.
#: ``versioned``: a DLPack 1.x capsule, no stride negative.
#: ``aligned``: as ``capsule``, at a multiple of 64 bytes.
#: ``columns``: of a table, a list of names and objects that have routes of their own.
#: ``arrow``: a ``pyarrow.Table`` of plain numbers: columns of one chunk each, with names that
#: are unique and not empty, no metadata. An exporter raises ValueError for any other.
#: ``cuda``: memory of NumPy's own types on a CUDA device, aligned to its item size, no stride
#: negative, as a pair ``(index, ask)``: the device's, and ``ask(stream) -> legacy capsule``, which
#: has the producer's work done before the stream's that comes next (DLPack, Python specification).
FORMS = ("ndarray", "readonly", "capsule", "versioned", "aligned", "columns", "arrow", "cuda")


@dataclass(slots=True, eq=False)
class Source:
    """One object as its framework describes it: its memory, and how to get at it.

    Attributes
    ----------
    name : str
        How to call the object in messages: ``"torch.Tensor"``.
    view : StridedView
        The memory that a reader would alias, or, where `reasons` says that none
        can be aliased, the shape, dtype and device that the copy will have.
    host : callable
        ``host() -> ndarray`` in ``view.dtype.storage``: an alias of host memory
        where there are no `reasons`, otherwise a copy with the right values.
        For memory on a device, ``host`` is not called.
    protocol : str
        What carries the memory out: ``"buffer"``, ``"dlpack"``, ``"cai"``, ...
    reasons : sequence of Reason
        Why the memory as it lies is not the values (a lazy conjugate, chunks,
        packed bits): a copy is needed whatever the target.
    refusal : Reason, optional
        Why no other framework may have it, though its memory is known: its own
        framework still copies and moves it.
    framework : Framework or None
        None for objects known by protocol alone.
    obj : object
        The object itself.
    to_host : callable, optional
        ``to_host(stream) -> ndarray``: device memory brought to the host, finished.
    producer : object, optional
        What speaks DLPack or the CUDA Array Interface for device memory.
    contiguous : callable, optional
        ``contiguous() -> object``: a fresh row-major copy on the same device.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> array = np.arange(3.0)
    >>> source = zc.Source("mine.Array", zc.view(array), host=lambda: array)
    >>> source.view.shape, source.protocol, source.reasons
    ((3,), 'buffer', ())
    """

    name: str
    view: StridedView
    host: Callable[[], Array]
    protocol: str = "buffer"
    reasons: Sequence[Reason] = ()
    refusal: Reason | None = None
    framework: Framework | None = None
    obj: Any = None
    to_host: Callable[[int | None], Array] | None = None
    producer: Any = None
    contiguous: Callable[[], Any] | None = None
