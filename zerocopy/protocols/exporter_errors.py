"""Errors about exporters that raise, violate their protocol, or call each other without end.

The addresses, shapes and strides that exporters report are checked before memory is read.
"""

from __future__ import annotations

import errno
import os
import platform
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import TypeGuard

from zerocopy.errors import ReadError, UnsupportedConversionError, ZeroCopyError

#: How deep protocol methods may convert other producers. A method that converts its own object, and
#: one that fails and is repeated at each level, would otherwise take exponential time.
MAX_NESTING = 8

_calls = threading.local()

#: The code of functions that call exporters.
_callers: set[CodeType] = set()

_CO_VARARGS = 0x04  # inspect.CO_VARARGS, whose module takes milliseconds to import


def malformed(asked: str, why: str, remedy: str = "fix the exporter") -> UnsupportedConversionError:
    """Return the error for an exporter that violates its protocol."""
    return UnsupportedConversionError(asked, why, remedy, code="invalid-producer")


def is_error(error: BaseException) -> TypeGuard[Exception]:
    """Whether an exception is an error of the code that was called.

    Only such an error may lead to another attempt or become one of zerocopy's. Requests to end, such as
    Ctrl-C, must reach the caller unchanged, and so must exceptions that arrive from outside while the code
    runs: those of signal handlers, of trace functions, and of other threads (``PyThreadState_SetAsyncExc``).

    Extensions in Rust raise ``pyo3_runtime.PanicException``, which does not derive from ``Exception``
    (PyO3, "PanicException"), for values that they do not support.
    """
    if not isinstance(error, Exception):
        return type(error).__name__ == "PanicException"
    last = trace = error.__traceback__
    if trace is not None and _is_running(trace.tb_frame):
        trace = trace.tb_next
    while trace is not None:
        if _is_handler(trace.tb_frame):
            return False
        last, trace = trace, trace.tb_next
    return last is None or not _is_asynchronous(error, last)


def check_descriptors(error: Exception, name: str) -> None:
    """Raise OSError if the import of a module failed because no file descriptor is free."""
    for number in (errno.EMFILE, errno.ENFILE):
        if os.strerror(number) in str(error):  # the dynamic loader raises ImportError
            raise OSError(number, f"{os.strerror(number)}: {name} was not imported") from error


def _is_running(frame: FrameType) -> bool:
    """Whether a frame is among the callers of `is_error`, which handle the exception.

    Their ``f_locals`` would be copies that hold the exception: reference cycles before Python 3.13.
    """
    caller = sys._getframe(1).f_back
    for _ in range(3):
        if caller is frame:
            return True
        caller = caller and caller.f_back
    return False


def _is_handler(frame: FrameType) -> bool:
    """Whether a frame is of a signal handler or trace function: its caller's frame or code is an argument."""
    caller, code = frame.f_back, frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & _CO_VARARGS)
    if count == 0:
        return False
    values = frame.f_locals
    for name in code.co_varnames[:count]:
        value = values.get(name)
        for item in value if type(value) is tuple else (value,):
            # After a trace function has raised in the first frame of a call from C, its frame has no caller.
            if type(item) is FrameType if caller is None else item is caller or item is caller.f_code:
                return True
    return False


def _is_asynchronous(error: Exception, last: TracebackType) -> bool:
    """Whether an exception came from another thread: without arguments, after an instruction.

    The interpreter checks for such exceptions after calls and jumps, and when a function starts.
    """
    # C code raises MemoryError and StopIteration without arguments; TensorFlow's errors have text instead.
    if error.args or isinstance(error, (MemoryError, StopIteration)) or str(error):
        return False
    from opcode import opname

    code, place = last.tb_frame.f_code.co_code, last.tb_lasti
    names = ("CALL", "PRECALL", "RESUME", "JUMP", "POP_JUMP")
    return 0 <= place < len(code) and opname[code[place]].startswith(names)


class ignored_errors:
    """A context that ends at an error of the code that it calls, as ``contextlib.suppress`` does."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        return error is not None and is_error(error)


@contextmanager
def as_read_errors(read_error: Callable[[BaseException], ReadError]) -> Iterator[None]:
    """Raise ``read_error(error)`` for an error of a library that reads files, but not for zerocopy's own."""
    try:
        yield
    except (ZeroCopyError, MemoryError):
        raise
    except BaseException as error:
        if not is_error(error):
            raise
        raise read_error(error) from error


def raised(asked: str, error: BaseException) -> UnsupportedConversionError:
    """Return the error for an exporter that raised `error`."""
    why = f"the exporter raised {type(error).__name__}: {error}"
    remedy = "see the exporter's message above"
    return UnsupportedConversionError(asked, why, remedy, code="producer-raised")


def _calls_on_stack(frame: FrameType | None) -> int:
    """Return the number of functions on the stack that call exporters."""
    count = 0
    while frame is not None:
        count += frame.f_code in _callers
        frame = frame.f_back
    return count


class calling:
    """A context for calls of an exporter's methods: it translates exceptions and bounds their nesting."""

    __slots__ = ("__weakref__", "_asked", "_depth", "_outer")

    def __init__(self, asked: str) -> None:
        self._asked = asked

    def __enter__(self) -> None:
        # If an exception of a signal handler arrives meanwhile, __exit__ may never run. So the references are
        # weak, and as a kept traceback holds objects too, a limit that is exceeded is checked on the stack.
        self._outer = getattr(_calls, "innermost", None)
        outer = self._outer and self._outer()
        self._depth = 1 if outer is None else outer._depth + 1
        caller = sys._getframe(1)
        _callers.add(caller.f_code)
        if self._depth > MAX_NESTING:
            self._depth = _calls_on_stack(caller)
        if self._depth > MAX_NESTING:
            raise UnsupportedConversionError(
                self._asked,
                f"the exporter converts another exporter, and so on, more than {MAX_NESTING} times",
                "export the memory itself from the innermost object: numpy.asarray of its values",
                code="nested-exporters",
            )
        _calls.innermost = weakref.ref(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        _calls.innermost = self._outer
        if error is None or not is_error(error) or isinstance(error, MemoryError):
            return
        if isinstance(error, ZeroCopyError) and error.code == "nested-exporters":
            return  # the same cause at each level, so one message
        raise raised(self._asked, error) from error


#: NumPy's limit (``NPY_MAXDIMS`` since 2.0). DLPack has none, so a wrong count would be read as
#: billions of dimensions.
MAX_NDIM = 64
#: On x86-64, the addresses of a process have at most 56 bits (five-level paging). On arm64, the highest
#: byte can be a tag.
_ADDRESSES = 1 << (57 if platform.machine() in ("x86_64", "AMD64") else 64)
_SIZES = 1 << 63  # sizes and strides in bytes are int64 in every framework


def check_ndim(asked: str, ndim: int) -> None:
    """Refuse a number of dimensions that is negative or above `MAX_NDIM`."""
    if ndim < 0:
        raise malformed(asked, f"its number of dimensions is {ndim}")
    if ndim > MAX_NDIM:
        raise UnsupportedConversionError(
            asked,
            f"it has {ndim} dimensions and zerocopy reads at most {MAX_NDIM}",
            "reshape it, or squeeze dimensions of size 1",
            code="too-many-dimensions",
        )


def check_layout(asked: str, ptr: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> None:
    """Refuse a layout that no memory can have; the bytes themselves cannot be checked.

    Raises
    ------
    UnsupportedConversionError
        An extent is negative, the sizes do not match, a size or an address is too large,
        or elements lie at or below address 0.
    """
    check_ndim(asked, len(shape))
    if len(strides) != len(shape):
        raise malformed(asked, f"it has {len(shape)} dimensions and {len(strides)} strides")
    if shape and min(shape) < 0:
        raise malformed(asked, f"its shape {tuple(shape)} has a negative extent")
    size, low, high = itemsize, ptr, ptr + itemsize
    for extent, stride in zip(shape, strides, strict=True):
        # Empty dimensions are left out, as in NumPy: a slice of the array could have the other ones.
        size *= extent or 1
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    if size >= _SIZES:
        raise malformed(asked, f"its shape {tuple(shape)} has more than 2^63 bytes")
    if 0 in shape:
        return
    if low <= 0 or high > _ADDRESSES or high - low >= _SIZES:
        where = "NULL" if not ptr else f"{ptr:#x}"
        why = f"its data pointer is {where} for shape {tuple(shape)} and strides of {tuple(strides)} bytes"
        raise malformed(asked, why)
