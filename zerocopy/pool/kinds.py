"""The kinds of pool that there are."""

from __future__ import annotations

#: Each kind, and what it is in one line.
KINDS = {
    "auto": "the driver's pool where a framework is in use that can share no other, RMM's otherwise",
    "driver": "CUDA's device-default memory pool, which every framework can share; no cap of its own",
    "rmm": "RMM's pool over cudaMalloc; the kind with a hard cap",
    "rmm:pool": "the same",
    "rmm:arena": "RMM's arenas, for many threads",
    "rmm:binning": "RMM's bins of fixed sizes up to 4 MiB, and its pool for what is larger",
    "rmm:async": "a pool of RMM's own made of CUDA's asynchronous allocator",
    "managed": "RMM's pool over managed memory with prefetch: more memory than the card has",
    "custom": "an allocator of your own: allocator=",
}


def by_rmm(kind: str) -> bool:
    """Whether a kind is made of RMM's resources.

    Examples
    --------
    >>> by_rmm("rmm:arena"), by_rmm("managed"), by_rmm("driver"), by_rmm("auto")
    (True, True, False, False)
    """
    return kind in ("managed", "custom") or kind.startswith("rmm")
