"""The installed pool: its devices, its host memory, and the memory that each framework holds."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from zerocopy.monitor.sample import PoolRecord


def read_pool() -> PoolRecord:
    """Return the figures of this process's pool.

    Nothing is imported if no pool is installed, and no CUDA context is created.

    Returns
    -------
    PoolRecord
        Its kind is ``""`` if there is no pool. Bytes by framework are known for pools of the kind
        ``"driver"`` with ``track=True``, and only for frameworks that call the pool: CuPy and Numba. The
        row ``"allocate()"`` is other code that calls the pool.

    Examples
    --------
    >>> record = read_pool()
    >>> record["kind"], record["why_not"]
    ('', 'no pool is installed: zerocopy.install_pool()')
    >>> import zerocopy as zc
    >>> with zc.install_pool(host="recycle") as pool:
    ...     sorted(read_pool()["host"]["recycle"])
    ['in_use', 'kept', 'peak']
    >>> pool.close()
    """
    # The module lacks its functions while another thread imports it.
    installed_pool = getattr(sys.modules.get("zerocopy.pool.install"), "installed_pool", None)
    pool = None if installed_pool is None else installed_pool()
    if pool is None:
        return {
            "kind": "",
            "why_not": "no pool is installed: zerocopy.install_pool()",
            "devices": {},
            "host": {},
            "frameworks": {},
            "notes": [],
        }
    return cast("PoolRecord", pool._record())
