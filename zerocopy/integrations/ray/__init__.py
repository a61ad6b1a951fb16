"""Ray: ``ray.put`` copies once into the object store, and ``ray.get`` aliases the store.

`install` registers serializers for arrays and tables, `runtime_env` makes each worker install them, and
`batch` runs a function of any framework in ``map_batches`` of Ray Data.
"""

from zerocopy.interpreter import lazy_names as _lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zerocopy.integrations.ray.batches import batch as batch
    from zerocopy.integrations.ray.installation import (
        install as install,
        runtime_env as runtime_env,
        uninstall as uninstall,
    )
else:
    __getattr__, __dir__, __all__ = _lazy_names(
        __name__, {"batches": "batch", "installation": "install runtime_env uninstall"}
    )
