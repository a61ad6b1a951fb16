"""``aligned_numpy``: the context in which NumPy's arrays are aligned, through a handler of NEP 49.

NumPy keeps the current handler in a context variable, and each array keeps the handler that allocated it. The
handler has the functions of ``host="aligned"``, and NumPy's own ``free``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache
from typing import Any

from zerocopy.errors import PoolUnavailableError
from zerocopy.errors.tracebacks import public
from zerocopy.pool.host import c_library, data_handler
from zerocopy.pool.host.modes import CHANGING

_NAME = b"zerocopy_aligned"
#: The number of blocks that a context is in, which may overlap without nesting, and the handler before them.
_blocks: ContextVar[tuple[int, Any]] = ContextVar("zerocopy.aligned_numpy", default=(0, None))


@public
def aligned_numpy() -> AbstractContextManager[None]:
    """Return a context in which NumPy allocates arrays at multiples of 64 bytes.

    Returns
    -------
    context manager
        For ``with``. It ends with the block, also after an exception.

    Raises
    ------
    PoolUnavailableError
        The platform has no such allocator, or another package has replaced NumPy's.

    Notes
    -----
    It holds for the thread and the task of asyncio that enter the block. Tasks, ``asyncio.to_thread`` and, on
    free-threaded builds of Python 3.14 and later, threads that start in the block inherit it. Arrays may
    outlive it; resized later, they stay aligned. Slices, ``numpy.frombuffer`` and unpickled arrays have other
    addresses. Without the compiled core, ``numpy.zeros`` and ``ndarray.resize`` are not aligned.
    :func:`zerocopy.install_pool` with ``host="aligned"`` is for the whole process.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> with zc.aligned_numpy():
    ...     x = np.ones(1000)
    >>> x.ctypes.data % 64
    0
    """
    with CHANGING:
        capsule = _capsule()
    return _Scope(capsule)


class _Scope(AbstractContextManager[None]):
    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __enter__(self) -> None:
        depth, first = _blocks.get()
        before = data_handler.set_handler(self._capsule)
        _blocks.set((depth + 1, first if depth else before))

    def __exit__(self, *raised: object) -> None:
        depth, first = _blocks.get()
        if depth == 1:
            data_handler.set_handler(first)
        if depth:  # a generator may end in a context that never entered its block
            _blocks.set((depth - 1, first if depth > 1 else None))


@cache
def _capsule() -> Any:
    """Return the handler, whose memory is never freed: arrays can outlive the interpreter's objects."""
    reason = c_library.refusal() or data_handler.refusal()
    if reason is not None:
        raise PoolUnavailableError("aligned_numpy()", reason.why, reason.remedy, code=reason.code)
    return data_handler.new_handler(_NAME)
