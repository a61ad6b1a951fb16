"""``install_pool``: choose, check, and put one pool under the frameworks; one a process."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from typing import Any

from zerocopy.errors import (
    PoolInstalledError,
    PoolOptionError,
    PoolTooLateError,
    PoolUnavailableError,
    Reason,
    ZeroCopyError,
)
from zerocopy.forks import LOADING
from zerocopy.pool import advice, hook, limits, settings
from zerocopy.pool.cards import Card, cards
from zerocopy.pool.driver_pool import DriverPool
from zerocopy.pool.outcome import Outcome, Status
from zerocopy.pool.pool import Pool
from zerocopy.pool.rmm_pool import RMMPool, check_managed
from zerocopy.pool.settings import Settings

_installed: Pool | None = None


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
    log: Any = None,
    strict: bool = False,
    allocator: Any = None,
    **unknown: Any,
) -> Pool:
    """Put one memory pool under CuPy, Numba, PyTorch, cuDF, and where possible JAX and TensorFlow.

    Call it once, first thing. Frameworks that are imported later get it then, and none is
    imported for it. ``pool.report()`` says what took effect. Without arguments
    ``ZEROCOPY_POOL`` is read, ``"rmm,limit=8GiB,track=1"``.

    Parameters
    ----------
    kind : str, optional
        ``"auto"`` (the default), ``"driver"``, ``"rmm"`` (also ``"rmm:arena"``, ``"rmm:binning"``,
        ``"rmm:async"``) or ``"managed"``. Auto takes the driver's pool where torch, JAX or
        TensorFlow is imported, named, or installed for GPUs, and no cap is asked for; RMM's otherwise.
    host : str, optional
        ``"off"`` (the default), ``"aligned"``, ``"recycle"``, ``"pinned"``, or several joined by ``+``.
        They work without a GPU, but for the last.
    devices : int or sequence of int, optional
        All that CUDA shows by default.
    limit : int or str, optional
        The most the pool may take of each device: bytes, or ``"8GiB"``. A cap is for RMM's kinds.
    fraction : float, optional
        The same as a part of the card's total.
    reserve : int or str, optional
        The same as what is left to others.
    initial : int or str, optional
        What is taken at once, and so is guaranteed.
    release_threshold : int or str, optional
        What CUDA's asynchronous pools keep when nobody uses it; all by default.
    frameworks : str or sequence of str, optional
        Those that the pool is for, by their import names; all by default. torch is put on RMM's
        kinds only if it is named: RMM's allocator makes ``record_stream`` do nothing, and memory
        that another stream uses may be given out again.
    track : bool, default False
        Note each allocation with its stack, for `Pool.check_leaks`.
    log : path, optional
        RMM writes each allocation there, with ``.dev0`` before the suffix.
    strict : bool, default False
        Raise and change nothing unless the pool gets under every framework that is installed, or
        named in `frameworks`.
    allocator : object, optional
        An allocator of your own in place of a kind: ``allocate(nbytes, stream) -> int`` and
        ``deallocate(ptr, nbytes, stream)``, streams as handles; or a resource of RMM's.

    Returns
    -------
    Pool
        A new one, or the one that is installed, if it was asked for with the same options, or with
        none. It is the process's: another call returns the same object.

    Raises
    ------
    PoolOptionError
        An option cannot be read, is above the card, or contradicts another.
    PoolInstalledError
        A pool with other options is installed.
    PoolTooLateError
        With `strict`: a framework can no longer be told.
    PoolUnavailableError
        What was asked for by name is not here: a driver, RMM, a way to do it on this system.

    Warns
    -----
    RuntimeWarning
        Others use the card, and nothing limits the pool; or a framework allocates beside its limit,
        or could not be told.

    Examples
    --------
    >>> import zerocopy as zc
    >>> pool = zc.install_pool(host="off")
    >>> pool is zc.install_pool(host="off")
    True
    >>> print(pool.report())
    pool: ...
    >>> pool.close()

    What cannot be had is an error, and changes nothing:

    >>> zc.install_pool("rmm", limit="8G")
    Traceback (most recent call last):
        ...
    zerocopy.errors.PoolOptionError: limit='8G': 'G' is 1000-fold to some and 1024-fold to others.
      To fix: write "8GiB" or "8GB"
    """
    passed = {name: value for name, value in locals().items() if name != "unknown"}
    given = {name: value for name, value in passed.items() if value is not None and value is not False}
    given |= unknown  # refused by name, whatever they are
    from_environment = Settings.from_environment()
    asked = Settings.read(given.pop("kind", "auto"), **given) if given else None
    if asked is None:
        if _installed is not None:
            return _installed  # no other options: none
        asked = from_environment or Settings()
    elif from_environment is not None and asked != from_environment:
        raise PoolOptionError(
            f"install_pool({asked})",
            f"the environment asks for another pool: {settings.VARIABLE}={from_environment}",
            f"unset {settings.VARIABLE}, or call install_pool() without arguments",
        )
    return install(asked)


def from_environment() -> Pool | None:
    """Install what ``ZEROCOPY_POOL`` asks for: done by ``import zerocopy`` where it is set."""
    asked = Settings.from_environment()
    try:
        return install(asked) if asked is not None else None
    except ZeroCopyError as error:
        error.asked = f"{settings.VARIABLE}={os.environ[settings.VARIABLE]!r}: {error.asked}"
        raise


def installed_pool() -> Pool | None:
    """Return the pool of this process.

    Returns
    -------
    Pool or None
        The one that :func:`install_pool` or ``ZEROCOPY_POOL`` has installed, the same object each
        time; None if there is none, or it was closed.

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


def forget(pool: Pool) -> None:
    """Let another pool be installed; called when one is closed."""
    global _installed
    with LOADING:
        if _installed is pool:
            _installed = None


def install(asked: Settings) -> Pool:
    """Install a pool with options that are read; see :func:`install_pool`."""
    global _installed
    with LOADING:
        if _installed is not None:
            if _installed.settings == asked:
                return _installed
            raise PoolInstalledError(
                f"install_pool({asked})",
                f"a pool with other options is installed: {_installed.settings}",
                "zerocopy.installed_pool() returns it; close() it before another one is installed",
            )
        pool = _prepared(asked)
        try:
            _build(pool)
            for mode in pool.host:
                mode.install()
            pool.attachments.attach()
            if asked.strict and pool.kind != "none":
                _insist(pool, pool.attachments.outcomes())
            _look_around(pool)
        except BaseException:  # an interrupt too: half a pool is none
            pool.close()
            raise
        _installed = pool
        return pool


def _look_around(pool: Pool, *, telling: bool = True) -> None:
    """Note, and warn, of others on the cards, of a limit that cannot be read, or that does not hold all."""
    outside = [o.framework for o in pool.attachments.outcomes() if not o.served]
    beside = [each for each in pool.attachments.hooks if each.by_driver and each.name in outside]
    present = [each for each in beside if each.installed() and each.lacks_gpu() is None]
    if pool.settings.capped and pool.kind != "none" and present:
        note = (
            f"the limit is not for {', '.join(each.shown for each in present)}: they allocate beside the "
            f"pool, as they did. {'; '.join([*advice.own_caps(present), 'MPS and MIG limit all'])}"
        )
        pool.notes.append(note)
        if telling:
            warnings.warn(note, RuntimeWarning, stacklevel=4)
    if pool.kind != "none" and (text := limits.unread()):
        pool.notes.append(text)
    for index, card in pool.cards.items():
        note, seen = limits.sharing(card, pool.limits.get(index))
        if note:
            pool.notes.append(note)
        if seen and telling:
            warnings.warn(note, RuntimeWarning, stacklevel=4)


def survey(asked: Settings | None = None) -> Pool:
    """Return a pool that is not installed, to ask what installing it would come to."""
    pool = _prepared(replace(asked or Settings.from_environment() or Settings(), strict=False))
    _look_around(pool, telling=False)
    return pool


def _prepared(asked: Settings) -> Pool:
    """Check all that can be checked before anything is changed."""
    from zerocopy.pool import host

    modes = host.parse(asked.host)
    for mode in modes:
        reason = mode.check()
        if reason is not None:
            raise PoolUnavailableError(f"install_pool(host={mode.name!r})", reason.why, reason.remedy)
    hooks = hook.hooks()
    found, missing = cards()
    chosen = _chosen(asked, found, missing)
    kind = _kind(asked, hooks, chosen, missing)
    caps = {} if kind == "none" else _caps(replace(asked, kind=kind), chosen)
    pool = Pool(asked, kind, chosen, missing, caps, hooks, modes)
    outcomes = pool.attachments.foresee()
    if asked.strict and kind != "none":
        _insist(pool, outcomes)
    return pool


def _chosen(asked: Settings, found: list[Card], missing: Reason | None) -> list[Card]:
    if asked.devices is None or (missing is not None and asked.allocator is not None):
        return found
    by_index = {card.index: card for card in found}
    lacking = [index for index in asked.devices if index not in by_index]
    if lacking:
        reason = missing or Reason(f"CUDA shows {len(found)} devices here", "name one of them")
        raise PoolUnavailableError(f"devices={list(asked.devices)}", reason.why, reason.remedy)
    return [by_index[index] for index in asked.devices]


def _kind(asked: Settings, hooks: list[hook.PoolHook], found: list[Card], missing: Reason | None) -> str:
    """Settle ``"auto"``, and refuse what this machine has not."""
    if asked.allocator is not None:
        return "custom"
    if missing is not None:
        if asked.kind != "auto" or (asked.strict and asked.host == "off"):
            raise PoolUnavailableError(
                f"install_pool({asked.kind!r})",
                missing.why,
                missing.remedy + '; host="aligned" works without',
            )
        return "none"
    if asked.kind == "managed":
        for card in found:
            check_managed(card.index)
    if asked.kind != "auto":
        return asked.kind
    rmm = next(each for each in hooks if each.name == "rmm")
    if asked.capped or asked.log is not None:
        return "rmm"
    if not rmm.installed():
        return "driver"
    shares = [each for each in hooks if each.by_driver]
    return "driver" if any(asked.named(each.name) or each.in_use() for each in shares) else "rmm"


def _caps(asked: Settings, found: list[Card]) -> dict[int, limits.Limit]:
    if not found:  # an allocator of one's own, without a card
        cap = limits.limit(asked, None)
        return dict.fromkeys(asked.devices or (0,), cap) if cap is not None else {}
    caps = {card.index: limits.limit(asked, card) for card in found}
    return {index: cap for index, cap in caps.items() if cap is not None}


def _build(pool: Pool) -> None:
    """Make what allocates on each device: of RMM's kinds that takes memory, and may fail."""
    if pool.kind == "none":
        return
    asked = replace(pool.settings, kind=pool.kind)
    for device in pool.devices:
        cap = pool.limits.get(device)
        if pool.by_rmm:
            pool.serve(device, RMMPool(device, asked, cap))
        else:
            pool.serve(device, direct := DriverPool(device, asked))
            direct.start()


def _insist(pool: Pool, outcomes: list[Outcome]) -> None:
    """Raise unless every framework that is installed, or named, is or will be served."""
    for outcome in outcomes:
        if outcome.served or not pool.settings.wants(outcome.framework):
            continue
        if outcome.status is Status.ABSENT and not pool.settings.named(outcome.framework):
            continue
        raised = PoolTooLateError if outcome.status is Status.TOO_LATE else PoolUnavailableError
        raise raised(
            f"install_pool({pool.settings})",
            f"{outcome.framework}: {outcome.what or 'it is not installed'}",
            outcome.remedy or f"leave {outcome.framework} out: frameworks= names those that the pool is for",
        )
