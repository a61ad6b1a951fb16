"""Ray: ``ray.put`` copies once into the object store, and ``ray.get`` aliases the store.

`install` registers serializers for arrays and tables, `runtime_env` makes each worker install them, and
`batch` runs a function of any framework in ``map_batches`` of Ray Data.
"""

from typing import TYPE_CHECKING, Any

from zerocopy.integrations.ray.installation import (
    install as install,
    runtime_env as runtime_env,
    uninstall as uninstall,
)

if TYPE_CHECKING:
    from zerocopy.integrations.ray.batches import batch as batch

__all__ = ["batch", "install", "runtime_env", "uninstall"]


def __getattr__(name: str) -> Any:
    """Import `batch` on first use: workers import this module when they start, and it imports NumPy."""
    if name != "batch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from zerocopy.integrations.ray.batches import batch

    globals()[name] = batch
    return batch


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
