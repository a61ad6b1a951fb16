"""``shared_collate``: batches of a DataLoader's workers in shared memory."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._engine.convert import convert
from zerocopy._engine.explain import explain
from zerocopy._engine.target import resolve
from zerocopy.errors import SharedMemoryError, UnsupportedConversionError, ZeroCopyError
from zerocopy.frames import Frames, from_frames, to_frames
from zerocopy.integrations.multiprocessing.reducing import MINIMUM, by_handle
from zerocopy.shared.share import shared_empty
from zerocopy.shared.tickets import Tickets
from zerocopy.source import Array, type_name
from zerocopy.tables.result import Encoded, Masked, rebuild, stack_results

_ASKED = "shared_collate()"
_PROTOCOLS = ("__dlpack__", "__array_interface__", "__arrow_c_array__", "__arrow_c_stream__")
#: Separate from those of `install`: a worker does not wait at its end, because the loader reads no more.
_tickets = Tickets()


def shared_collate(to: Any = "torch", *, stack: bool = True) -> Callable[[Any], Any]:
    """Return a collate function that sends batches from a DataLoader's workers in shared memory.

    Parameters
    ----------
    to : str, module or type
        The framework of the batches, as in :func:`zerocopy.convert`. Arrays of 512 KiB or more are
        aliased in the main process wherever ``convert`` aliases host memory.
    stack : bool
        Whether the function gets a list of samples and stacks them, as ``torch.utils.data.default_collate``
        does.
        False for ``DataLoader(batch_size=None)``, whose dataset returns whole batches: an array is
        then copied once, and one of :func:`zerocopy.shared_empty` not at all.

    Returns
    -------
    callable
        Pass it as ``collate_fn``; it is picklable. Samples are arrays of any framework, numbers,
        strings, and dicts, lists, tuples and named tuples of them. As with ``default_collate``, a batch
        of tuples is a list, strings stay a list, and Python's floats become float64.

    Raises
    ------
    UnsupportedConversionError
        The returned function raises it if samples differ in shape, dtype, length or keys, or have
        another type.
        An object that the framework cannot hold raises the error of ``convert``. From a worker, torch
        raises such errors as ``RuntimeError``.

    Notes
    -----
    Each sample is copied once, into a segment that the worker reuses when the main process has dropped
    the batch. A worker needs about ``prefetch_factor + 2`` segments for each array.
    A write to a batch changes it in the main process only.

    Examples
    --------
    >>> import numpy as np
    >>> from zerocopy.integrations.multiprocessing import shared_collate
    >>> collate = shared_collate("numpy")  # DataLoader(dataset, 2, num_workers=2, collate_fn=collate)
    >>> collate([{"x": np.zeros(3), "y": 1}, {"x": np.ones(3), "y": 2}])
    {'x': array([[0., 0., 0.],
           [1., 1., 1.]]), 'y': array([1, 2])}
    """
    framework = resolve(to)
    return _Collate(to if isinstance(to, str) else framework.name, stack)


class _Collate:
    """The function that `shared_collate` returns; a class, so that it is picklable."""

    def __init__(self, to: str, stack: bool) -> None:
        self._to, self._stack = to, stack

    def __call__(self, samples: Any) -> Any:
        in_worker = _in_worker()
        finish = self._send if in_worker else self._convert
        if not self._stack:
            return _map(samples, finish)
        if not isinstance(samples, Sequence) or not len(samples):
            why = f"it got {type_name(samples)}, and not a list of samples"
            raise _refused(why, "pass stack=False with DataLoader(batch_size=None)")
        return _stacked(samples, finish, shared_empty if in_worker else _empty)

    def _convert(self, obj: Any) -> Any:
        return convert(obj, self._to)

    def _send(self, obj: Any) -> _Leaf:
        try:
            return _Leaf(to_frames(obj), self._to)
        except ZeroCopyError as error:
            plan = explain(obj, self._to)  # type: ignore[arg-type]
            if plan.error is not None:
                raise plan.error from error
            return _Leaf(bytes(ForkingPickler.dumps(obj)), self._to)


class _Leaf:
    """An array of a batch in a worker; its pickle is loaded as the array in the target framework.

    It is split or pickled before: an error in the thread of the queue is lost, and the main process waits.
    """

    __slots__ = ("_sent", "_to")

    def __init__(self, sent: Frames | bytes, to: str) -> None:
        self._sent, self._to = sent, to

    def __reduce__(self) -> Any:
        split = self._sent
        if isinstance(split, bytes):
            return _unpickle, (split, self._to)
        buffers = [pickle.PickleBuffer(frame) for frame in split.frames]  # type: ignore[arg-type]
        reduced = by_handle((_restore, (split.header, self._to, *buffers)), _tickets)
        if reduced is None:  # bytearray: the loaded array is writable
            return _restore, (split.header, self._to, *(bytearray(frame) for frame in split.frames))
        return reduced


def _restore(header: bytes, to: str, *frames: Any) -> Any:
    """Return an array in the target framework; pickles name this function."""
    return from_frames(header, frames, to)


def _unpickle(data: bytes, to: str) -> Any:
    """Return an object without frames, such as a sparse one, in the target; pickles name this function."""
    return convert(pickle.loads(data), to)


def _in_worker() -> bool:
    """Whether this process is a DataLoader's worker."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def _is_leaf(obj: Any) -> bool:
    """Whether an object is an array, a table, or another producer of memory."""
    cls = type(obj)
    return registry.by_type(cls) is not None or any(hasattr(cls, name) for name in _PROTOCOLS)


def _map(sample: Any, finish: Callable[[Any], Any]) -> Any:
    """Return a sample with its arrays and tables finished, as ``default_convert`` walks it."""
    if isinstance(sample, Mapping):
        return _like(sample, {key: _map(value, finish) for key, value in sample.items()})
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*(_map(value, finish) for value in sample))
    if isinstance(sample, (list, tuple)):
        return type(sample)([_map(value, finish) for value in sample])
    if isinstance(sample, Masked):
        return rebuild(sample, lambda leaf, _: finish(leaf))
    if isinstance(sample, Encoded):
        column: Encoded = rebuild(sample, lambda leaf, _: finish(leaf))
        return column if sample.mask is None else replace(column, mask=finish(sample.mask))
    return finish(sample) if _is_leaf(sample) else sample


def _stacked(samples: Sequence[Any], finish: Callable[[Any], Any], empty: Callable[..., Array]) -> Any:
    """Return the batch of samples, whose arrays are stacked into memory of `empty`."""
    first = samples[0]
    if isinstance(first, (str, bytes)):
        return list(samples)
    if isinstance(first, Mapping):
        if any(not isinstance(each, Mapping) or each.keys() != first.keys() for each in samples):
            raise _refused("samples have different keys", "return the same keys for each sample")
        parts = {key: [each[key] for each in samples] for key in first}
        return _like(first, {key: _stacked(part, finish, empty) for key, part in parts.items()})
    if isinstance(first, (list, tuple)):
        if any(not isinstance(each, type(first)) or len(each) != len(first) for each in samples):
            raise _refused("samples have different lengths", "return equally many items for each sample")
        items = [_stacked(part, finish, empty) for part in zip(*samples, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else items
    if isinstance(first, (bool, int, float, complex)):
        return finish(_numbers(samples))
    if isinstance(first, (Encoded, Masked)):
        return _map(stack_results(samples, lambda parts: _stacked(parts, lambda obj: obj, empty)), finish)
    if not _is_leaf(first):
        why = f"samples are of type {type_name(first)}, and not arrays, numbers, strings or containers"
        raise _refused(why, "return arrays from the dataset")
    return finish(_stack(samples, empty))


def _numbers(samples: Sequence[Any]) -> Array:
    numbers = np.asarray(samples)
    if numbers.dtype.hasobject or numbers.ndim != 1:
        raise _refused(
            "samples are not all numbers of 64 bits", "return arrays of the dtype from the dataset"
        )
    return numbers


def _stack(samples: Sequence[Any], empty: Callable[..., Array]) -> Array:
    """Copy each sample into one array, once."""
    arrays: list[Array] = [convert(sample, "numpy") for sample in samples]
    shape, dtype = arrays[0].shape, arrays[0].dtype
    for place, array in enumerate(arrays):
        if array.shape != shape or array.dtype != dtype:
            why = f"sample 0 is {dtype}{list(shape)} and sample {place} is {array.dtype}{list(array.shape)}"
            raise _refused(why, "return arrays of one shape and dtype from the dataset")
    if any(isinstance(array, np.ma.MaskedArray) for array in arrays):
        return np.ma.stack(arrays)
    size = (len(arrays), *shape)
    batch = _large(size, dtype, empty) if len(arrays) * arrays[0].nbytes >= MINIMUM else _empty(size, dtype)
    for place, array in enumerate(arrays):
        batch[place] = array
    return batch


def _large(shape: tuple[int, ...], dtype: Any, empty: Callable[..., Array]) -> Array:
    _tickets.has_room(0)  # frees segments that were received, so that one of them is used again
    try:
        return empty(shape, dtype)
    except SharedMemoryError:
        return _empty(shape, dtype)  # sent as bytes


def _empty(shape: tuple[int, ...], dtype: Any) -> Array:
    return np.empty(shape, dtype)


def _like(first: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """Return items in a mapping of the same type, or in a dict if that cannot be created from one."""
    try:
        return type(first)(items)  # type: ignore[call-arg]
    except (TypeError, ZeroCopyError):
        return items


def _refused(why: str, remedy: str) -> UnsupportedConversionError:
    return UnsupportedConversionError(_ASKED, why, remedy, code="unequal-samples")
