"""The registered frameworks: those with arrays in host memory, and a registry that tests may change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zerocopy import registry


@contextmanager
def registry_restored() -> Iterator[None]:
    """Restore the registered frameworks at the end, and drop cached types and routes if they changed."""
    # A restored registry must not lack a framework that was loaded later.
    registry._load_all()
    import zerocopy.shared.objects  # noqa: F401

    known = dict(registry._known)
    by_root = {root: list(owners) for root, owners in registry._by_root.items()}
    try:
        yield
    finally:
        if registry._known != known:
            with registry._lock:
                for current, before in ((registry._known, known), (registry._by_root, by_root)):
                    current.clear()
                    current.update(before)
                registry._by_type.clear()
                registry._by_lasting_type.clear()
                registry._variants.clear()
            for clear in registry._listeners:
                clear()


def host_frameworks() -> list[str]:
    """Return the installed frameworks that have arrays in host memory."""
    return [
        name
        for name, info in registry.frameworks().items()
        if info.installed
        and info.kind not in ("table", "compound")
        and "cpu" in registry.by_name(name).device_kinds
    ]


#: Frameworks that are tested with each other. Any other is tested with NumPy, torch and itself: the code
#: between two frameworks is the same for all, and the number of all pairs grows with the square of theirs.
HUBS = {"jax", "numpy", "pyarrow", "tensorflow", "torch"}

HOST = host_frameworks()
#: Those that alias host memory; the others copy it.
ALIASING = [name for name in HOST if registry.by_name(name).aliases_host]
PAIRS = [
    (source, target)
    for source in HOST
    for target in HOST
    if source == target or {source, target} <= HUBS or not {source, target}.isdisjoint({"numpy", "torch"})
]
