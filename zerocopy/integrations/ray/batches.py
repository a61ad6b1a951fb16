"""``batch``: a function of any framework for ``map_batches`` of Ray Data."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from zerocopy import registry
from zerocopy._engine.convert import convert
from zerocopy.errors import UnsupportedConversionError, ZeroCopyError
from zerocopy.frames import from_frames, to_frames
from zerocopy.framework import Framework
from zerocopy.integrations.ray.private_memory import writable_frame
from zerocopy.integrations.ray.serializers import needs_private_memory
from zerocopy.source import type_name


def batch(fn: Any, to: Any = "jax", **options: Any) -> Any:
    """Return a function for ``map_batches`` of Ray Data whose batches are arrays or tables of a framework.

    Parameters
    ----------
    fn : callable or class
        Takes a batch: a dict of arrays, or a table if the framework has tables. Returns or yields dicts of
        arrays of any framework, or tables of any framework. Of a class, Ray Data creates one instance for
        each actor, and calls it.
    to : str or module, default "jax"
        The framework of the batches that `fn` gets, as in :func:`zerocopy.convert`.
    **options
        Options of :func:`zerocopy.convert` for these batches, such as ``dtype="float32"``, ``nulls=0`` or
        ``columns=["x"]``.

    Returns
    -------
    callable or class
        Pass it to ``map_batches``, with any ``batch_format``. It can be pickled if `fn` can.

    Raises
    ------
    UnknownFrameworkError
        `to` names no known framework.
    TypeError
        `fn` cannot be called, or is asynchronous.

    Notes
    -----
    Batches alias Ray's object store where `convert` aliases. `fn` may write to a batch of torch: its memory
    is private, as after `zerocopy.integrations.ray.install`. The results become a dict of NumPy arrays or a
    ``pyarrow.Table``, which alias the arrays of `fn`; Ray copies them into its store.

    Examples
    --------
    >>> import numpy as np
    >>> def double(columns):
    ...     return {"y": columns["x"] * 2}
    >>> batch(double, to="torch")({"x": np.arange(3.0)})
    {'y': array([0., 2., 4.])}
    """
    framework = registry.by_name(to)
    if not callable(fn):
        raise TypeError(f"batch(fn): fn must be a function or a class, not {type_name(fn)}")
    call = getattr(fn, "__call__", fn)  # noqa: B004 - of an instance or a class with __call__
    if any(map(_is_asynchronous, (fn, call))):
        raise TypeError("batch(fn): fn is asynchronous; pass a function or class that is not")
    target = to if isinstance(to, str) else framework.name
    return _subclass(fn, target, options) if isinstance(fn, type) else _Function(fn, target, options)


def _is_asynchronous(fn: Any) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn)


class _Function:
    """A function with conversions before and after it."""

    def __init__(self, fn: Callable[..., Any], to: str, options: Mapping[str, Any]) -> None:
        self._fn, self._to, self._options = fn, to, options
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)  # Ray Data shows it

    def __call__(self, columns: Any, *args: Any, **kwargs: Any) -> Any:
        return _returned(self._fn(_received(columns, self._to, self._options), *args, **kwargs))


def _subclass(cls: type, to: str, options: Mapping[str, Any]) -> type:
    """Return a subclass whose calls are converted; Ray Data creates one instance for each actor."""

    class Converted(cls):  # type: ignore[misc]
        @functools.wraps(cls.__call__)
        def __call__(self, columns: Any, *args: Any, **kwargs: Any) -> Any:
            return _returned(super().__call__(_received(columns, to, options), *args, **kwargs))

    Converted.__name__ = Converted.__qualname__ = cls.__name__
    return Converted


# -- a batch of Ray as one of the framework --------------------------------------------


def _received(columns: Any, to: str, options: Mapping[str, Any]) -> Any:
    if "writable" not in options and needs_private_memory(to):
        columns = _private(columns)
    return convert(columns, to, **options)


def _private(columns: Any) -> Any:
    """Return a batch over memory that the caller may write to without changing Ray's store."""
    if isinstance(columns, Mapping):
        return {name: _private(column) for name, column in columns.items()}
    flags = getattr(columns, "flags", None)
    if getattr(flags, "writeable", None) is True:
        return columns
    try:
        split = to_frames(columns)
    except ZeroCopyError:
        return columns  # convert() raises an error for it, with the name of the column
    return from_frames(split.header, [writable_frame(frame) for frame in split.frames])


# -- a result as a batch of Ray ----------------------------------------------------------


def _returned(result: Any) -> Any:
    return _each(result) if inspect.isgenerator(result) else _as_batch(result)


def _each(results: Iterator[Any]) -> Generator[Any, None, None]:
    for result in results:
        yield _as_batch(result)


def _as_batch(result: Any) -> Any:
    """Return a dict of NumPy arrays for a dict, and a ``pyarrow.Table`` for a table."""
    if isinstance(result, Mapping):
        if any(_has_tables(registry.by_type(type(value))) for value in result.values()):
            return convert(dict(result), "pyarrow")
        return convert(dict(result), "numpy", leaves="keep")
    if _has_tables(registry.by_type(type(result))):
        return convert(result, "pyarrow.Table")
    raise UnsupportedConversionError(
        "batch(fn)",
        f"fn returned {type_name(result)}, and Ray Data needs columns with names",
        'return {"name": array}, or a table',
        code="container-type",
    )


def _has_tables(framework: Framework | None) -> bool:
    return framework is not None and framework.tables
