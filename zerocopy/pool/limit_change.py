"""`set_limit`: change the limit of a pool while it is in use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from zerocopy.errors import PoolOptionError
from zerocopy.forks import LOADING
from zerocopy.pool import hooks, limits
from zerocopy.pool.limits import Limit
from zerocopy.pool.options import read_fraction
from zerocopy.pool.pool_base import PoolBase
from zerocopy.pool.sizes import parse_size, show_value

HOST = "host"
_SOURCE = "set_limit()"
_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")


def set_limit(pool: PoolBase, modes: Sequence[Any], limit: Any, device: Any) -> None:
    """Change the limit of one device or of all, or that of the kept host memory; see `Pool.set_limit`."""
    asked = f"set_limit({show_value(limit)})"
    pool.check_open(asked)
    fraction, nbytes = _read(limit, asked)
    if device == HOST or (device is None and not pool.pools and modes):
        _set_host(modes, fraction, nbytes, asked)
        return
    if nbytes == 0:
        raise PoolOptionError(asked, "no allocation would be possible", "pass None for no limit")
    devices = list(pool.pools) if device is None else [pool.check_device(device)]
    if not devices:
        pool.check_device(None)  # raises
    if not pool.uses_rmm:
        raise PoolOptionError(
            asked,
            "CUDA's default memory pool has no limit",
            "; ".join(
                [
                    f"install_pool('rmm', limit=...) has one, for {hooks.limited_frameworks()}",
                    *hooks.own_limits(hooks.framework_hooks()),
                    "MPS limits whole processes",
                ]
            ),
            code="no-limit",
        )
    changed = {number: _device_limit(pool, number, fraction, nbytes, asked) for number in devices}
    with LOADING:
        for number in devices:
            pool.check_can_set_limit(number, asked)
        for number, new in changed.items():
            pool.set_limit(number, new, asked)


def _read(limit: Any, asked: str) -> tuple[float | None, int | None]:
    """Return a limit as a fraction or as bytes; both are None for no limit."""
    if limit is None:
        return None, None
    match = _PERCENT.fullmatch(limit) if isinstance(limit, str) else None
    if match is None:
        return None, parse_size(limit, "limit")
    percent = float(match[1])
    if not 0 < percent <= 100:
        raise PoolOptionError(asked, "it is not between 0 and 100 %", 'write it as "50%"')
    return read_fraction(percent / 100), None


def _set_host(modes: Sequence[Any], fraction: float | None, nbytes: int | None, asked: str) -> None:
    if fraction is not None:
        raise PoolOptionError(
            f"{asked}, device='host'",
            "a fraction of the host's memory is not a valid limit",
            'pass a size: "2GiB"',
        )
    if not modes:
        raise PoolOptionError(
            f"{asked}, device='host'",
            "the pool has no host memory",
            'zerocopy.install_pool(host="recycle")',
        )
    for mode in modes:
        mode.keep_at_most(nbytes)


def _device_limit(
    pool: PoolBase, device: int, fraction: float | None, nbytes: int | None, asked: str
) -> Limit | None:
    """Return the least of the new limit and that of MPS; None if there is none."""
    options = replace(pool.settings, kind=pool.kind, limit=nbytes, fraction=fraction, reserve=None)
    if pool.kind == "rmm:arena" and nbytes is None and fraction is None and options.initial is None:
        raise PoolOptionError(asked, "arenas allocate all their memory at once", "pass a size")
    try:
        least = limits.device_limit(options, pool.gpus.get(device))
    except PoolOptionError as error:
        raise PoolOptionError(asked, error.why, error.remedy) from error
    if least is not None and least.source != limits.MPS:
        return Limit(least.nbytes, _SOURCE)
    return least
