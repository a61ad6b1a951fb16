"""Pickle protocol 5 with out-of-band buffers for the arrays and tables of every framework.

>>> import pickle
>>> import numpy as np, zerocopy.pickling
>>> batch = {"x": np.arange(6.0).reshape(2, 3), "name": "first"}
>>> buffers = []
>>> data = zerocopy.pickling.dumps(batch, buffer_callback=buffers.append)
>>> len(data) < 200, sum(buffer.raw().nbytes for buffer in buffers)
(True, 48)
>>> loaded = zerocopy.pickling.loads(data, buffers=buffers)
>>> np.shares_memory(loaded["x"], batch["x"])
True

``pickle``, ``copyreg``, ``copy`` and ``torch.save`` do not change when this module is imported. A process
that loads a pickle needs zerocopy and the frameworks of its objects; ``pickle.loads`` loads it too.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from zerocopy import registry
from zerocopy.errors import ZeroCopyError
from zerocopy.errors.tracebacks import public
from zerocopy.frames import from_frames, to_frames
from zerocopy.frames.hook import FramesHook
from zerocopy.framework import hook_of

__all__ = ["Pickler", "dump", "dumps", "load", "loads", "reducers"]

#: Protocol 5 (PEP 574) is the first with out-of-band buffers.
PROTOCOL = 5

# Hooks by type, and modules whose types have none. A framework that is imported later is added when the
# first of its objects is pickled.
_hooks: dict[type, FramesHook] = {}
_other_modules: set[str] = set()


@public
def dumps(
    obj: Any,
    protocol: int | None = None,
    *,
    buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
) -> bytes:
    """Pickle an object; arrays and tables in it, at any depth, become headers and frames.

    Parameters
    ----------
    obj : object
        Anything that ``pickle.dumps`` accepts.
    protocol : int, optional
        5 by default. Below 5, every object is pickled as by ``pickle.dumps``.
    buffer_callback : callable, optional
        As in ``pickle.dumps``: it is called with a ``pickle.PickleBuffer`` for each buffer, which aliases
        the object's memory and is then not in the result. ``list.append`` collects the buffers; send them
        in the same order. Default: the result has a copy of all buffers.

    Returns
    -------
    bytes
        The pickle. With `buffer_callback`, less than 2 kB for one array or a table of ten columns.

    Raises
    ------
    pickle.PicklingError, TypeError
        An object in `obj` cannot be pickled, as in ``pickle.dumps``.

    Notes
    -----
    Of a slice of a table or a view of a tensor only its own rows or elements are sent. Objects that
    frames would change are pickled by their own framework: tensors that require gradients, are of a
    subclass, lazily conjugated, quantized, sparse or on a device; sharded or weakly typed JAX arrays;
    Arrow's extension types of other libraries. NumPy and pandas pickle their objects themselves if they
    do so out of band. Two tensors that share memory are loaded as two tensors that do not, as with
    ``pickle.dumps``.

    Examples
    --------
    >>> import numpy as np, zerocopy.pickling
    >>> zerocopy.pickling.loads(zerocopy.pickling.dumps(np.arange(3)))
    array([0, 1, 2])
    """
    out = io.BytesIO()
    Pickler(out, protocol, buffer_callback=buffer_callback).dump(obj)
    return out.getvalue()


@public
def loads(data: Any, *, buffers: Iterable[Any] | None = None) -> Any:
    """Load an object that `dumps` pickled.

    As with ``pickle.loads``, the data must come from a trusted source.

    Parameters
    ----------
    data : bytes-like
        The pickle.
    buffers : iterable of buffers, optional
        The buffers that ``buffer_callback`` got, or buffers with the same content, in the same order.

    Returns
    -------
    object
        Its arrays and tables alias `buffers`. Over read-only buffers they are read-only in frameworks that
        have read-only arrays. torch does not: do not write to a tensor over read-only buffers.
        JAX and TensorFlow copy buffers that are not aligned to 64 bytes. A JAX array is committed to the CPU.

    Examples
    --------
    >>> import numpy as np, zerocopy.pickling
    >>> buffers = []
    >>> data = zerocopy.pickling.dumps(np.arange(3.0), buffer_callback=buffers.append)
    >>> zerocopy.pickling.loads(data, buffers=buffers)
    array([0., 1., 2.])
    """
    return pickle.loads(data, buffers=buffers)


@public
def dump(obj: Any, file: Any, protocol: int | None = None) -> None:
    """Pickle an object into a file, with all its memory.

    Parameters
    ----------
    obj : object
        Anything that ``pickle.dump`` accepts.
    file : file object
        Open for writing in binary mode. Memory is written without an intermediate copy.
    protocol : int, optional
        As for `dumps`.

    Examples
    --------
    >>> import io, numpy as np
    >>> file = io.BytesIO()
    >>> dump({"x": np.arange(3)}, file)
    >>> file.seek(0), load(file)
    (0, {'x': array([0, 1, 2])})
    """
    Pickler(file, protocol).dump(obj)


@public
def load(file: Any, *, buffers: Iterable[Any] | None = None) -> Any:
    """Load an object from a file; as `loads`.

    Parameters
    ----------
    file : file object
        Open for reading in binary mode.
    buffers : iterable of buffers, optional
        As for `loads`.

    Returns
    -------
    object
        As from `loads`.

    Examples
    --------
    >>> import io, numpy as np
    >>> load(io.BytesIO(dumps(np.arange(3))))
    array([0, 1, 2])
    """
    return pickle.load(file, buffers=buffers)


class Pickler(pickle.Pickler):
    """``pickle.Pickler`` that reduces arrays and tables to a header and frames.

    A subclass that overrides ``reducer_override`` calls ``super().reducer_override(obj)`` where it has no
    reducer of its own. ``class Both(Pickler, cloudpickle.Pickler)`` has the reducers of both.
    ``dispatch_table`` works as usual for all other types.

    Parameters
    ----------
    file : file object
        Open for writing in binary mode.
    protocol : int, optional
        5 by default. Below 5, every object is pickled as by ``pickle.Pickler``.
    **options
        As for ``pickle.Pickler``: ``fix_imports``, ``buffer_callback``.

    Examples
    --------
    >>> import io, numpy as np
    >>> out, buffers = io.BytesIO(), []
    >>> Pickler(out, buffer_callback=buffers.append).dump([np.zeros(1000), "text"])
    >>> len(out.getvalue()) < 200, len(buffers)
    (True, 1)
    """

    def __init__(self, file: Any, protocol: int | None = None, **options: Any) -> None:
        protocol = PROTOCOL if protocol is None else protocol
        super().__init__(file, protocol, **options)
        self._sends_frames = protocol >= PROTOCOL or protocol < 0

    def reducer_override(self, obj: Any) -> Any:
        """Return the reduction of an array or a table; NotImplemented for other objects."""
        hook = _hooks.get(type(obj))
        if hook is None:
            hook = _new_hook(type(obj))
        reduced = _reduced(hook, obj) if hook is not None and self._sends_frames else None
        if reduced is not None:
            return reduced
        # That of a class after this one in the method resolution order, such as cloudpickle's.
        following = getattr(super(), "reducer_override", None)
        return NotImplemented if following is None else following(obj)


def reducers() -> dict[type, Callable[[Any], Any]]:
    """Return reducers for a pickler's ``dispatch_table``, for the imported frameworks.

    Returns
    -------
    dict of type to callable
        Each takes an object and returns its reduction for protocol 5, as ``object.__reduce_ex__(5)`` does.

    Examples
    --------
    >>> import copyreg, io, pickle, numpy as np
    >>> pickler = pickle.Pickler(io.BytesIO(), protocol=5)
    >>> pickler.dispatch_table = {**copyreg.dispatch_table, **reducers()}
    >>> pickler.dump(np.zeros(3))
    """
    for framework in registry.imported():
        _add_types(framework)
    return {cls: partial(_reduce, hook) for cls, hook in _hooks.items()}


def _new_hook(cls: type) -> FramesHook | None:
    """Return the hook of a type that `_hooks` lacks, and add it; None if it has no hook."""
    module = getattr(cls, "__module__", None)
    if module in _other_modules or type(module) is not str:
        return None
    with suppress(ZeroCopyError):  # its version is too old, for example: it pickles its objects itself
        registry.by_type(cls)  # loads the framework's file
    for framework in registry.by_root(cls):
        _add_types(framework)
    if cls not in _hooks:
        _other_modules.add(module)
    return _hooks.get(cls)


def _add_types(framework: Any) -> None:
    hook = hook_of(framework, FramesHook)
    _hooks.update(dict.fromkeys(hook.types(), hook))


def _forget() -> None:
    _hooks.clear()
    _other_modules.clear()


registry.on_change(_forget)


def _reduced(hook: FramesHook, obj: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """Return an object's reduction to a header and frames; None if its own framework must pickle it."""
    try:
        if not hook.keeps_all(obj):
            return None
        split = to_frames(obj)
    except ZeroCopyError:
        return None
    buffers = [pickle.PickleBuffer(frame) for frame in split.frames]  # type: ignore[arg-type]
    return restore, (split.header, *buffers)


def _reduce(hook: FramesHook, obj: Any) -> Any:
    """Return an object's reduction; its own framework makes it if frames would change the object."""
    reduced = _reduced(hook, obj)
    if reduced is not None:
        return reduced
    own = copyreg.dispatch_table.get(type(obj))
    return obj.__reduce_ex__(PROTOCOL) if own is None else own(obj)


def restore(header: bytes, *frames: Any) -> Any:
    """Return the object of a header; pickles name this function."""
    return from_frames(header, frames)
