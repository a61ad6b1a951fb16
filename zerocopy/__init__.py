"""Hand arrays and tables between Python frameworks without copying them.

>>> import numpy as np, zerocopy as zc
>>> records = np.arange(6, dtype=np.float32).reshape(2, 3)
>>> zc.view(records).shape
(2, 3)

``import zerocopy`` imports two small files; other modules are imported when a public name is first used
(promise P6). A library can therefore import it at the top of a module. PYTEST_DONT_REWRITE: for early imports
"""

import os

from zerocopy.interpreter import lazy_names as _lazy_names

TYPE_CHECKING = False  # importing typing takes longer than the rest of this file
if TYPE_CHECKING:
    from zerocopy import errors as errors, monitor as monitor, shared as shared
    from zerocopy._engine.aligned import aligned as aligned, empty as empty
    from zerocopy._engine.decode import decode as decode
    from zerocopy._engine.explain import explain as explain
    from zerocopy._engine.memory import shares_memory as shares_memory, view as view
    from zerocopy._engine.signatures import convert as convert
    from zerocopy._engine.soa_to_aos import soa_to_aos as soa_to_aos
    from zerocopy._version import __version__ as __version__
    from zerocopy.audit.forbid import forbid_copies as forbid_copies
    from zerocopy.channels.channel import Channel as Channel
    from zerocopy.channels.create import channel as channel
    from zerocopy.device import Device as Device
    from zerocopy.dtype import DType as DType
    from zerocopy.errors import (
        CopyRequiredError as CopyRequiredError,
        DeviceError as DeviceError,
        FrameworkNotInstalledError as FrameworkNotInstalledError,
        LossyConversionError as LossyConversionError,
        Reason as Reason,
        UnsupportedConversionError as UnsupportedConversionError,
        ZeroCopyError as ZeroCopyError,
    )
    from zerocopy.framework import Framework as Framework, FrameworkName as FrameworkName
    from zerocopy.functions.accepts import accepts as accepts
    from zerocopy.functions.array_namespace import array_namespace as array_namespace
    from zerocopy.functions.bridge import bridge as bridge
    from zerocopy.functions.kind import (
        Kind as Kind,
        is_array as is_array,
        is_column as is_column,
        is_table as is_table,
        kind as kind,
    )
    from zerocopy.layout.aos_to_soa import aos_to_soa as aos_to_soa
    from zerocopy.loading.map_style import dataset as dataset
    from zerocopy.pairs.check import check_pairs as check_pairs
    from zerocopy.plan import Plan as Plan
    from zerocopy.pool.host.aligned_numpy import aligned_numpy as aligned_numpy
    from zerocopy.pool.install import install_pool as install_pool, installed_pool as installed_pool
    from zerocopy.pool.pool import Pool as Pool
    from zerocopy.registry import (
        FrameworkInfo as FrameworkInfo,
        frameworks as frameworks,
        register as register,
    )
    from zerocopy.shared.objects import Shared as Shared
    from zerocopy.shared.share import share as share, shared_empty as shared_empty
    from zerocopy.signatures import converter as converter, loader as loader, open_weights as open_weights
    from zerocopy.source import Source as Source
    from zerocopy.strided_view import StridedView as StridedView
    from zerocopy.tables.column import Column as Column, Table as Table
    from zerocopy.tables.result import Encoded as Encoded, Masked as Masked
    from zerocopy.weights.mapping import Weights as Weights
    from zerocopy.weights.save import save as save

#: The public names by module.
_NAMES = {
    "_version": "__version__",
    "_engine.convert": "convert",
    "_engine.explain": "explain",
    "_engine.converter": "converter",
    "plan": "Plan",
    "_engine.memory": "view shares_memory",
    "_engine.aligned": "empty aligned",
    "protocols.own_dlpack": "StridedView",
    "registry": "frameworks register FrameworkInfo",
    "framework": "Framework FrameworkName",
    "source": "Source",
    "tables.column": "Table Column",
    "tables.result": "Masked Encoded",
    "_engine.decode": "decode",
    "layout.aos_to_soa": "aos_to_soa",
    "_engine.soa_to_aos": "soa_to_aos",
    "audit.forbid": "forbid_copies",
    "pairs.check": "check_pairs",
    "functions.accepts": "accepts",
    "functions.array_namespace": "array_namespace",
    "functions.kind": "kind Kind is_array is_column is_table",
    "device": "Device",
    "dtype": "DType",
    "errors": (
        "Reason ZeroCopyError FrameworkNotInstalledError UnsupportedConversionError CopyRequiredError "
        "LossyConversionError DeviceError"
    ),
    "shared.share": "share shared_empty",
    "shared.objects": "Shared",
    "channels.channel": "Channel",
    "channels.create": "channel",
    "functions.bridge": "bridge",
    "loading.create": "loader",
    "loading.map_style": "dataset",
    "weights.open_weights": "open_weights",
    "weights.mapping": "Weights",
    "weights.save": "save",
    "pool.pool": "Pool",
    "pool.host.aligned_numpy": "aligned_numpy",
    "pool.install": "install_pool installed_pool",
}


def _raise_deferred() -> None:
    if os.environ.get("ZEROCOPY_POOL"):
        from zerocopy.pool.install import raise_deferred_error

        raise_deferred_error()


if not TYPE_CHECKING:  # with it, a type checker accepts any name
    __getattr__, __dir__, __all__ = _lazy_names(__name__, _NAMES, "errors monitor shared", _raise_deferred)

if os.environ.get("ZEROCOPY_POOL"):  # installed before frameworks are imported
    from zerocopy.pool.install import install_from_environment as _install_from_environment

    _install_from_environment()

if os.environ.get("ZEROCOPY_MONITOR", "0") not in ("", "0"):
    from zerocopy.monitor.session import start_from_environment as _start_from_environment

    _start_from_environment()

if os.environ.get("EAGER_IMPORT") and not TYPE_CHECKING:  # SPEC 1: errors of later imports appear at once
    for _name in __all__:
        _value = __getattr__(_name)
        for _below in getattr(_value, "__all__", ()):  # the names of a public module
            getattr(_value, _below)
