"""Tracebacks of refusals: they end at the caller's line.

Each public function that can refuse removes zerocopy's own frames, and the attempts that preceded the
refusal. Exceptions of frameworks, and those that the caller handles, stay in the chain.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

from zerocopy.errors import ZeroCopyError

_PACKAGE = __name__.removesuffix("errors.tracebacks")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def shorten(error: BaseException) -> None:
    """Remove zerocopy's own frames and attempts from the traceback of a refusal.

    A public function calls it in its ``except`` clause and then uses a bare ``raise``, to which CPython
    adds no frame, so the traceback ends at the caller's line. With the environment variable
    ``ZEROCOPY_TRACEBACK=full``, the traceback stays as it is.
    """
    if os.environ.get("ZEROCOPY_TRACEBACK") == "full":
        return
    error.__traceback__ = None
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        context = link.__context__
        while context is not None and _is_own(context.__traceback__):
            context = context.__context__
        link.__context__ = context  # what the caller was handling
        if context is None:
            link.__suppress_context__ = True
        link = link.__cause__
        while link is not None and (frames := link.__traceback__) is not None and _is_own(frames):
            link.__traceback__ = frames.tb_next


def not_transformed(function: _Function) -> _Function:
    """Mark a function, or a class of callables, that TensorFlow's autograph calls as it is.

    Inside ``tf.function``, autograph would transform zerocopy's code, warn about what it cannot transform,
    and raise IndexError for refusals, because their tracebacks have no frames. The attribute is that of
    ``tf.autograph.experimental.do_not_convert``, which needs TensorFlow (``autograph_artifact`` in
    tensorflow/python/autograph/impl/api.py). As there, ``functools.wraps`` copies it to a wrapper.
    """
    function.autograph_info__ = {}  # type: ignore[attr-defined]
    return function


def public(function: _Function) -> _Function:
    """Return a public function whose refusals have short tracebacks, and which names its options."""

    @not_transformed
    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except ZeroCopyError as error:
            shorten(error)
            raise
        except TypeError as error:
            if options and error.__traceback__ is not None and error.__traceback__.tb_next is None:
                _name_options(error, function, options)  # raised before the function ran
            raise

    return call  # type: ignore[return-value]


def _name_options(error: TypeError, function: Callable[..., Any], passed: Iterable[str]) -> None:
    """Let the error for a keyword that a function does not take name those that it takes."""
    import inspect

    from zerocopy.errors.invalid_option import unknown_option

    parameters = inspect.signature(function).parameters.values()
    names = [
        each.name for each in parameters if each.kind is not each.POSITIONAL_ONLY and each.name != "self"
    ]
    unknown = [name for name in passed if name not in names]
    if unknown:
        error.args = (unknown_option(function.__name__, unknown[0], names),)


def _is_own(traceback: TracebackType | None) -> bool:
    """Whether zerocopy caught an exception: a traceback begins with the frame that caught it."""
    if traceback is None:
        return True  # caught by the compiled core
    return f"{traceback.tb_frame.f_globals.get('__name__')}.".startswith(_PACKAGE)
