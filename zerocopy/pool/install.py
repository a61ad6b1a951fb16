"""``install_pool``: check the options, build one pool per process, and attach the frameworks."""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import replace
from typing import Any

from zerocopy.errors import (
    OptionError,
    PoolInstalledError,
    PoolTooLateError,
    PoolUnavailableError,
    Reason,
    ZeroCopyError,
)
from zerocopy.errors.tracebacks import public
from zerocopy.errors.warning import warn
from zerocopy.forks import LOADING
from zerocopy.pool import host, limits, settings
from zerocopy.pool.attachments import RMMHook, all_hooks, own_limits
from zerocopy.pool.driver_pool import DriverPool
from zerocopy.pool.gpus import GPU, visible_gpus
from zerocopy.pool.hook import Attachment, PoolHook, Status
from zerocopy.pool.memory import DeviceMemory
from zerocopy.pool.pool import Pool
from zerocopy.pool.report import Report
from zerocopy.pool.rmm_pool import RMMPool, check_managed
from zerocopy.pool.settings import Settings
from zerocopy.pool.stats import StatsRecorder

_installed: Pool | None = None
_deferred_error: ZeroCopyError | None = None


@public
def install_pool(
    kind: str | None = None,
    *,
    host: str | None = None,
    devices: Any = None,
    limit: int | str | None = None,
    fraction: float | None = None,
    reserve: int | str | None = None,
    initial: int | str | None = None,
    release_threshold: int | str | None = None,
    frameworks: Any = None,
    track: bool = False,
    strict: bool = False,
    resource: Any = None,
    allocator: Any = None,
    **unknown: Any,
) -> Pool:
    """Share one memory pool between CuPy, Numba, PyTorch, cuDF, and where possible JAX and TensorFlow.

    Call it once, before other work. Frameworks that are imported later are attached at their
    import; none is imported by this call. ``pool.report()`` lists the effect on each framework. Without
    arguments the options come from ``ZEROCOPY_POOL``, such as ``"rmm,limit=8GiB,track=1"``.

    Parameters
    ----------
    kind : str, optional
        ``"auto"`` (the default), ``"driver"``, ``"rmm"`` (also ``"rmm:arena"``, ``"rmm:binning"``,
        ``"rmm:async"``) or ``"managed"``. Auto selects the driver's pool if torch, JAX or
        TensorFlow is imported, named, or installed for GPUs, and no limit is set; otherwise RMM's.
    host : str, optional
        ``"off"`` (the default), ``"aligned"``, ``"recycle"``, ``"pinned"``, or several joined by ``+``.
        All except ``"pinned"`` work without a GPU.
    devices : int or sequence of int, optional
        Default: all devices that are visible to CUDA.
    limit : int or str, optional
        Maximum size of the pool on each device: bytes, or ``"8GiB"``. Only RMM's kinds have limits.
    fraction : float, optional
        The same as a fraction of the GPU's total memory.
    reserve : int or str, optional
        The same as the memory left to other processes.
    initial : int or str, optional
        Size that is allocated at once, and is thereby guaranteed.
    release_threshold : int or str, optional
        Unused memory that CUDA's asynchronous pools keep. Default: all.
    frameworks : str or sequence of str, optional
        Import names of the frameworks that use the pool. Default: all. torch uses RMM's kinds only
        if it is named: with RMM's allocator ``record_stream`` has no effect, and memory that
        another stream uses may be reused.
    track : bool, default False
        Record each allocation with its stack, for `Pool.check_leaks`.
    strict : bool, default False
        Raise and change nothing unless the pool can be attached to every framework that is
        installed, or named in `frameworks`.
    resource : rmm.mr.DeviceMemoryResource or callable, optional
        RMM resource instead of a kind, with any options, upstream resources and adaptors of RMM; on several
        devices a function that returns the resource of a device, which is current in the call.
    allocator : object, optional
        Allocator in Python instead of a kind: ``allocate(nbytes, stream) -> int`` and
        ``deallocate(ptr, nbytes, stream)`` with stream handles.

    Returns
    -------
    Pool
        A new pool, or the installed one if the options are the same or absent. A process has
        one pool: further calls return the same object.

    Raises
    ------
    OptionError
        An option is invalid, exceeds the GPU, or contradicts another.
    PoolInstalledError
        A pool with other options is installed.
    PoolTooLateError
        With `strict`: a framework can no longer be attached.
    PoolUnavailableError
        The machine lacks a requirement of the options: a driver, RMM, or support of the system.

    Warns
    -----
    RuntimeWarning
        Other processes use the GPU and the pool has no limit; a framework allocates outside the
        limit; or a framework could not be attached.

    Examples
    --------
    >>> import zerocopy as zc
    >>> pool = zc.install_pool(host="off")
    >>> pool is zc.install_pool(host="off")
    True
    >>> print(pool.report())
    pool: ...
    >>> pool.close()

    An invalid option is an error, and changes nothing:

    >>> zc.install_pool("rmm", limit="8G")
    Traceback (most recent call last):
        ...
    zerocopy.errors.OptionError: limit='8G': 'G' is ambiguous (1000-based or 1024-based).
      To fix: write "8GiB" or "8GB"
    """
    given = {**locals()}
    unknown = given.pop("unknown")  # refused by name
    # False is the default of flags, and not a kind.
    options = {n: v for n, v in given.items() if v is not None and (v is not False or n == "kind")} | unknown
    environment = Settings.from_environment()
    if not options:
        return _installed or install(environment or Settings())
    requested = Settings.read(**options)
    if environment is not None and requested != environment:
        raise OptionError(
            f"install_pool({requested})",
            f"the environment specifies another pool: {settings.VARIABLE}={environment}",
            f"unset {settings.VARIABLE}, or call install_pool() without arguments",
            code="environment-conflict",
        )
    return install(requested)


def install_from_environment() -> Pool | None:
    """Install the pool that ``ZEROCOPY_POOL`` specifies, if any; called by ``import zerocopy``.

    While Python locates the module of ``python -m``, an error is deferred to the first use of
    zerocopy: the module can be ``zerocopy.pool`` or ``zerocopy``, which report the error themselves.
    """
    try:
        requested = Settings.from_environment()
        return install(requested) if requested is not None else None
    except ZeroCopyError as error:
        value = f"{settings.VARIABLE}={os.environ[settings.VARIABLE]!r}"
        if error.asked != value:
            error.with_context(asked=f"{value}: {error.asked}")
        # sys.argv[0] is "-m" until the module is located (Python's documentation, sys.argv).
        command = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
        if command not in ("-m", "zerocopy", "zerocopy.exe"):
            raise
        global _deferred_error
        _deferred_error = error
        atexit.register(_report_deferred_error)
        return None


def raise_deferred_error() -> None:
    """Raise the error of ``ZEROCOPY_POOL`` that `install_from_environment` deferred, if any."""
    error = _deferred_error
    discard_deferred_error()
    try:
        if error is not None:
            raise error
    finally:
        del error  # its traceback holds this frame


def discard_deferred_error() -> None:
    """Forget the deferred error: the caller reports it itself."""
    global _deferred_error
    _deferred_error = None


def _report_deferred_error() -> None:
    if (error := _deferred_error) is not None:  # the program never used zerocopy
        print(f"no pool was installed: {error}", file=sys.stderr)


def installed_pool() -> Pool | None:
    """Return the pool of this process.

    Returns
    -------
    Pool or None
        The pool that :func:`install_pool` or ``ZEROCOPY_POOL`` installed, the same object on each
        call; None if there is none, or it was closed.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.installed_pool() is None
    True
    >>> with zc.install_pool(host="off") as pool:
    ...     zc.installed_pool() is pool
    True
    >>> pool.close()
    """
    return _installed


def _on_close(pool: Pool) -> None:
    """Allow another pool to be installed."""
    global _installed
    with LOADING:
        if _installed is pool:
            _installed = None


def install(requested: Settings) -> Pool:
    """Install a pool with parsed options; see :func:`install_pool`."""
    global _installed
    with LOADING:
        if (installed := _installed) is not None:
            if installed.settings == requested:
                return installed
            raise PoolInstalledError(
                f"install_pool({requested})",
                f"a pool with other options is installed: {installed.settings}",
                "close it first: zc.installed_pool().close()",
            )
        modes = host.parse(requested.host)
        base = _prepare(requested, modes)
        pool = Pool(base, modes, _on_close)
        try:
            _build(base)
            for mode in modes:
                mode.install()
            base.attachments.attach()
            if requested.strict and base.kind != "none":
                _require_all(base, base.attachments.current())
            _add_notes(base)
        except BaseException:  # an interrupt too: undo a partial installation
            pool.close()
            raise
        _installed = pool
        return pool


def preview(requested: Settings | None = None) -> Report:
    """Return the report of a pool that is not installed: the effects of installing it."""
    requested = replace(requested or Settings.from_environment() or Settings(), strict=False)
    modes = host.parse(requested.host)
    base = _prepare(requested, modes)
    _add_notes(base, warns=False)
    return Report.of(base, modes)


def _prepare(requested: Settings, modes: list[host.Mode]) -> DeviceMemory:
    """Check everything that can be checked before anything is changed."""
    for mode in modes:
        if (reason := mode.check()) is not None:
            raise _unavailable(f"install_pool(host={mode.name!r})", reason)
    pool_hooks = all_hooks()
    visible, missing = visible_gpus()
    gpus = _select(requested, visible, missing)
    kind = _resolve_kind(requested, pool_hooks, gpus, missing)
    device_limits: dict[int, limits.Limit] = {}
    if kind != "none":
        numbered = {gpu.index: gpu for gpu in gpus}
        for device in numbered or requested.devices or (0,):  # a custom allocator may have no GPU
            limit = limits.device_limit(replace(requested, kind=kind), numbered.get(device))
            device_limits |= {device: limit} if limit is not None else {}
    pool = DeviceMemory(requested, kind, gpus, missing, device_limits, pool_hooks)
    if hasattr(requested.resource, "allocate") and len(pool.devices) > 1:
        why = f"a resource belongs to one device, and the pool is on devices {list(pool.devices)}"
        remedy = "pass devices=0, or a function that returns the resource of a device"
        raise OptionError("resource=...", why, remedy)
    rows = pool.attachments.predict()
    if requested.strict and kind != "none":
        _require_all(pool, rows)
    return pool


def _select(requested: Settings, gpus: list[GPU], missing: Reason | None) -> list[GPU]:
    """Return the GPUs that ``devices=`` names."""
    if requested.devices is None or (missing is not None and requested.kind == "custom"):
        return gpus
    by_index = {gpu.index: gpu for gpu in gpus}
    if not by_index.keys() >= set(requested.devices):
        why, remedy = f"{len(gpus)} devices are visible to CUDA", "pass the number of one of them"
        reason = missing or Reason(why, remedy, code="no-device")
        raise _unavailable(f"devices={list(requested.devices)}", reason)
    return [by_index[index] for index in requested.devices]


def _resolve_kind(
    requested: Settings, pool_hooks: list[PoolHook], gpus: list[GPU], missing: Reason | None
) -> str:
    """Replace ``"auto"`` by a kind, and refuse kinds that this machine does not support."""
    if requested.kind == "custom":
        return "custom"
    if missing is not None:
        if requested.kind != "auto" or (requested.strict and requested.host == "off"):
            remedy = missing.remedy + '; host="aligned" works without a GPU'
            reason = Reason(missing.why, remedy, code=missing.code, fixes=missing.fixes)
            raise _unavailable(f"install_pool({requested.kind!r})", reason)
        return "none"
    if requested.kind == "managed":
        for gpu in gpus:
            check_managed(gpu.index)
    if requested.kind != "auto":
        return requested.kind
    if requested.has_limit:
        return "rmm"
    sharing = [hook for hook in pool_hooks if hook.shares_driver_pool]
    shares = any(requested.named(hook.name) or hook.in_use() for hook in sharing)
    return "driver" if shares or not RMMHook().installed() else "rmm"


def _unavailable(asked: str, reason: Reason) -> PoolUnavailableError:
    return PoolUnavailableError(asked, reason.why, reason.remedy, code=reason.code)


def _build(pool: DeviceMemory) -> None:
    """Build the allocator of each device; RMM's kinds allocate memory here, and may fail."""
    requested = replace(pool.settings, kind=pool.kind)
    for device in pool.devices if pool.kind != "none" else ():
        if pool.uses_rmm:
            pool.pools[device] = RMMPool(device, requested, pool.limits.get(device))
        else:
            pool.pools[device] = DriverPool(device, requested)
        pool.recorders[device] = StatsRecorder(pool.pools[device])


def _require_all(pool: DeviceMemory, rows: list[Attachment]) -> None:
    """Raise unless the pool is attached to every framework that is installed, or named."""
    for row in rows:
        if row.served or not pool.settings.wants(row.framework):
            continue
        if row.status is Status.ABSENT and not pool.settings.named(row.framework):
            continue
        error = PoolTooLateError if row.status is Status.TOO_LATE else PoolUnavailableError
        raise error(
            f"install_pool({pool.settings})",
            f"{row.framework}: {row.detail or 'it is not installed'}",
            row.remedy or f"leave {row.framework} out with frameworks=",
        )


def _add_notes(pool: DeviceMemory, *, warns: bool = True) -> None:
    """Note, and warn, of other processes on the GPUs and of limits that do not cover everything."""
    notes = [(_unlimited(pool), True), (limits.unread_mps_note(), False)] if pool.kind != "none" else []
    notes += [limits.sharing_note(gpu, pool.limits.get(index)) for index, gpu in pool.gpus.items()]
    for text, important in notes:
        if text:
            pool.notes.append(text)
        if text and important and warns:
            warn(text)


def _unlimited(pool: DeviceMemory) -> str:
    """Return a note about frameworks that allocate outside the pool's limit; empty if there are none."""
    if not pool.settings.has_limit:
        return ""
    outside = {row.framework for row in pool.attachments.current() if not row.served}
    sharing = [hook for hook in pool.attachments.hooks if hook.shares_driver_pool and hook.name in outside]
    present = [hook for hook in sharing if hook.installed() and hook.lacks_gpu() is None]
    if not present:
        return ""
    return (
        f"the limit does not apply to {', '.join(hook.display_name for hook in present)}: they allocate "
        f"outside the pool. {'; '.join([*own_limits(present), 'MPS and MIG limit all of them'])}"
    )
