"""The modes of host memory: ``"recycle"``, ``"aligned"`` and ``"pinned"``.

A mode is one class, and one entry of :data:`MODES`. ``"recycle"`` and ``"aligned"`` change the allocators
of the C library and of NumPy for the whole process; all but ``"pinned"`` work without a GPU.

Examples
--------
>>> [mode.name for mode in parse("aligned+pinned")]
['aligned', 'pinned']
>>> parse("off")
[]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import ClassVar

from zerocopy import forks
from zerocopy.errors import OptionError, PoolUnavailableError, Reason
from zerocopy.formatting import format_bytes
from zerocopy.pool.gpus import visible_gpus
from zerocopy.pool.host import c_library, data_handler
from zerocopy.pool.host.c_library import M_ARENA_MAX, M_MMAP_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, mallopt
from zerocopy.pool.host.page_locked import CudaHostMemory, PinnedPool
from zerocopy.pool.sizes import suggest

#: Held while modes are installed and restored, because they change the whole process.
CHANGING = forks.lock()


@dataclass(frozen=True, slots=True)
class HostStats:
    """Memory of one mode of host memory, in bytes, from `Pool.host_stats`; None where it is not counted.

    Attributes
    ----------
    in_use : int or None
        Allocated and not yet freed.
    kept : int or None
        Freed, and kept for the next allocation.
    peak : int or None
        The most that the mode had taken from the system at once, in use or kept.

    Examples
    --------
    >>> HostStats(4096, 1024, 8192).kept
    1024
    """

    in_use: int | None = None
    kept: int | None = None
    peak: int | None = None


class HostFigures(dict[str, HostStats]):
    """The figures by the name of the mode; notebooks show a table."""

    @classmethod
    def of(cls, modes: Iterable[Mode]) -> HostFigures:
        """Read modes; only the first of those that share memory has figures."""
        figures = cls()
        counted: set[str] = set()
        for mode in modes:
            is_counted = mode.memory in counted or not mode.installed
            figures[mode.name] = HostStats() if is_counted else mode.stats()
            counted.add(mode.memory)
        return figures

    def _repr_html_(self) -> str:
        from zerocopy.formatting import html

        rows = [
            (name, *("not counted" if n is None else format_bytes(n) for n in astuple(each)))
            for name, each in self.items()
        ]
        return html.table("Host memory", rows, ("mode", "in use", "kept", "peak"))


class Mode(ABC):
    """One change to the host memory of the whole process."""

    name: ClassVar[str]
    about: ClassVar[str]  # one-line description
    memory: ClassVar[str]  # whose memory it is: modes with the same share their figures
    installed: bool = False

    @abstractmethod
    def check(self) -> Reason | None:
        """Return why this machine or process does not support the mode; None if it does."""

    def install(self) -> None:
        """Put the mode into effect unless it already is."""
        with CHANGING:
            if self.installed:
                return
            reason = self.check()
            if reason is not None:
                raise PoolUnavailableError(f"host={self.name!r}", reason.why, reason.remedy, code=reason.code)
            self._install()
            self.installed = True

    def restore(self) -> str:
        """Undo the mode as far as possible; return the changes that remain.

        Memory that was allocated in the mode stays valid, and is freed as usual.
        """
        with CHANGING:
            if not self.installed:
                return ""
            self.installed = False
            return self._restore()

    def describe(self) -> str:
        """Return one line about the features that took effect, and those that did not."""
        return f"{self.name}: {self._describe() if self.installed else self.about}"

    @abstractmethod
    def stats(self) -> HostStats:
        """Return the bytes in use, kept, and at most."""

    @abstractmethod
    def trim(self) -> int:
        """Return unused memory to the system; return the number of bytes."""

    @abstractmethod
    def keep_at_most(self, limit: int | None) -> None:
        """Limit the memory that is kept for reuse, now and later; None keeps all."""

    @abstractmethod
    def _install(self) -> None: ...

    @abstractmethod
    def _restore(self) -> str: ...

    @abstractmethod
    def _describe(self) -> str: ...


#: Blocks are not separate mappings, which free() unmaps; the heap is not trimmed; and threads share
#: one heap, because thread heaps hold no block above 64 MB.
_KEEPING = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1), (M_ARENA_MAX, 1))
_MIB = 1 << 20
#: The largest value of mallopt(3).
_MOST = 2**31 - 1


class Recycle(Mode):
    """Freed large blocks are kept for NumPy, torch and all other users of the C library.

    The kernel maps and clears new pages one by one, which takes longer than writing them.
    """

    name = "recycle"
    about = "the C library keeps large blocks for reuse"
    memory = "heap"

    # One state for this mode and for "aligned", which includes it: the settings are the process's.
    _users: ClassVar[set[str]] = set()
    _limit: ClassVar[int | None] = None
    _lazy_zeros: ClassVar[bool] = False

    def check(self) -> Reason | None:
        """Return why the C library's allocator cannot be changed; None if it can."""
        return None if self.installed else c_library.refusal()

    def _install(self) -> None:
        if not self._users:
            Recycle._limit = None
            for setting, value in _KEEPING:
                if not mallopt(setting, value):
                    _restore_settings()
                    raise PoolUnavailableError(
                        f"host={self.name!r}",
                        f"the C library refuses mallopt({setting}, {value})",
                        "leave host= out",
                        code="allocator-settings",
                    )
            # calloc would have to clear kept blocks: large arrays of zeros, which are free on new
            # pages, would become slow and take memory at once.
            is_lazy = data_handler.refusal() is None
            if is_lazy:
                data_handler.enable("lazy")
                is_lazy = not data_handler.why_not_compiled()
            Recycle._lazy_zeros = is_lazy
        self._users.add(self.name)

    def _restore(self) -> str:
        self._users.discard(self.name)
        if self._users:
            return ""
        leftover = data_handler.disable("lazy")
        _restore_settings()
        c_library.trim()
        kept = (
            "glibc no longer adapts its mmap threshold (it stays at 32 MiB, the maximum), and threads "
            "that were started meanwhile keep sharing one heap"
        )
        return "; ".join(filter(None, (leftover, kept)))

    def _describe(self) -> str:
        if self._lazy_zeros:
            zeros = "zeros of 32 MiB and more take no memory until they are used"
        else:
            zeros = "zeros in kept blocks are written at once"
            if missing := data_handler.why_not_compiled():
                zeros += f", which the compiled core avoids ({missing})"
        limit = self._limit
        kept = "until trim()" if limit is None else f"up to {format_bytes(limit)} at the end of its heap"
        return f"the C library keeps freed blocks of any size {kept}; {zeros}"

    def trim(self) -> int:
        """Return free memory of the C library to the system; return the number of bytes."""
        return c_library.trim()

    def keep_at_most(self, limit: int | None) -> None:
        """Limit the free memory at the end of the heap; free blocks within the heap are trimmed once."""
        asked = f"set_limit({limit}, device='host')"
        if limit is not None and limit > _MOST:
            raise OptionError(
                asked,
                f"the C library's limit is an int: at most {_MOST} bytes",
                "pass a smaller limit, or None, which keeps all freed memory",
                code="limit-range",
            )
        if not mallopt(M_TRIM_THRESHOLD, -1 if limit is None else limit):
            raise PoolUnavailableError(
                asked,
                "the C library refuses the setting",
                "call pool.trim() instead",
                code="allocator-settings",
            )
        Recycle._limit = limit
        if limit is not None:
            c_library.trim(limit)

    def stats(self) -> HostStats:
        """Return the figures of the C library's heap."""
        return HostStats(*c_library.heap())


def _restore_settings() -> None:
    """Restore the settings of the process start; an adaptive threshold is set to its maximum."""
    started = c_library.at_start
    mallopt(M_MMAP_MAX, started("MALLOC_MMAP_MAX_", "mmap_max", 65536))
    mallopt(M_MMAP_THRESHOLD, started("MALLOC_MMAP_THRESHOLD_", "mmap_threshold", 32 * _MIB))
    mallopt(M_TRIM_THRESHOLD, started("MALLOC_TRIM_THRESHOLD_", "trim_threshold", 64 * _MIB))
    mallopt(M_ARENA_MAX, started("MALLOC_ARENA_MAX", "arena_max", 0))


class Aligned(Recycle):
    """64-byte aligned NumPy arrays, which JAX and Arrow import without a copy.

    Includes ``"recycle"``, because the C library does not keep blocks of ``aligned_alloc``.
    """

    name = "aligned"
    about = "NumPy's arrays are 64-byte aligned, and large blocks are kept for reuse"

    def check(self) -> Reason | None:
        """Return why NumPy's or the C library's allocator cannot be changed; None if both can."""
        return None if self.installed else super().check() or data_handler.refusal()

    def _install(self) -> None:
        super()._install()
        data_handler.enable("aligned")

    def _restore(self) -> str:
        return "; ".join(filter(None, (data_handler.disable("aligned"), super()._restore())))

    def _describe(self) -> str:
        text = "NumPy's arrays are 64-byte aligned"
        if missing := data_handler.why_not_compiled():
            text += f", except zeros and resized arrays, which need the compiled core ({missing})"
        if other := data_handler.other_handler():
            text += f"; this context allocates with {other!r}, which is not changed"
        return f"{text}; {super()._describe()}"


class Pinned(Mode):
    """A pool of page-locked memory for `Pool.pinned`; no allocator is changed."""

    name = "pinned"
    about = "page-locked memory from a pool, for fast transfers to and from a GPU"
    memory = "page-locked"

    def __init__(self) -> None:
        self.allocator: PinnedPool = PinnedPool(CudaHostMemory())

    def check(self) -> Reason | None:
        """Return why CUDA has no device; None if it has one. The driver is not initialised."""
        return visible_gpus()[1]

    def _install(self) -> None:
        self.allocator = PinnedPool(CudaHostMemory())  # that of the previous installation is closed

    def _restore(self) -> str:
        pool = self.allocator
        pool.close()
        used = f"{format_bytes(pool.in_use)} of page-locked memory are in use"
        return f"{used}, and are freed with their arrays" if pool.in_use else ""

    def _describe(self) -> str:
        in_use, kept, _ = self.allocator.figures()
        sizes = f"{format_bytes(in_use)} in use, {format_bytes(kept)} kept for reuse"
        return f"page-locked memory from pool.pinned(); {sizes}"

    def trim(self) -> int:
        """Free the memory that is kept for reuse; return the number of bytes."""
        return self.allocator.trim()

    def keep_at_most(self, limit: int | None) -> None:
        """Limit the memory that is kept for reuse, and free what exceeds the limit."""
        self.allocator.keep_at_most(limit)

    def stats(self) -> HostStats:
        """Return the figures of the pool."""
        return HostStats(*self.allocator.figures())


#: Modes by name. There is one instance of each, because they change the whole process.
MODES: dict[str, Mode] = {mode.name: mode for mode in (Aligned(), Recycle(), Pinned())}
_OFF = "off"


def parse(text: object) -> list[Mode]:
    """Return the modes in a text."""
    asked = f"host={text!r}"
    names = [part.strip().lower() for part in text.split("+")] if isinstance(text, str) else [""]
    if names == [_OFF]:
        return []
    for name in names:
        if name not in MODES and name != _OFF:
            remedy = f"{suggest(name, [_OFF, *MODES])}; several are joined by +"
            raise OptionError(asked, f"{name!r} is not a mode of host memory", remedy)
    if _OFF in names:
        raise OptionError(
            asked, f"{_OFF!r} cannot be combined with modes", f"leave {_OFF!r} out, or the others"
        )
    return [mode for mode in MODES.values() if mode.name in names]
