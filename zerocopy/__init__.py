"""Hand arrays and tables between Python frameworks without copying them.

>>> import numpy as np, zerocopy as zc
>>> records = np.arange(6, dtype=np.float32).reshape(2, 3)
>>> zc.view(records).shape
(2, 3)

``import zerocopy`` imports only the standard library: the public names are loaded when one of
them is first used (promise P6). A library can import it at the top of a module at no cost.
"""

from __future__ import annotations

import os
import sys

from zerocopy._version import __version__ as __version__
from zerocopy.forks import LOADING as _LOADING

TYPE_CHECKING = False  # importing typing takes longer than the rest of this file
if TYPE_CHECKING:
    from typing import Any

    from zerocopy import monitor as monitor, shared as shared
    from zerocopy._engine.explain import explain as explain
    from zerocopy._engine.memory import shares_memory as shares_memory, view as view
    from zerocopy._engine.signatures import convert as convert
    from zerocopy._engine.soa_to_aos import soa_to_aos as soa_to_aos
    from zerocopy.device import Device as Device
    from zerocopy.dtype import DType as DType
    from zerocopy.errors import (
        CopyRequiredError as CopyRequiredError,
        DeviceError as DeviceError,
        DeviceOptionError as DeviceOptionError,
        FrameworkNotInstalledError as FrameworkNotInstalledError,
        LossyConversionError as LossyConversionError,
        OptionError as OptionError,
        PoolClosedError as PoolClosedError,
        PoolInstalledError as PoolInstalledError,
        PoolLimitError as PoolLimitError,
        PoolTooLateError as PoolTooLateError,
        PoolUnavailableError as PoolUnavailableError,
        Reason as Reason,
        UnknownFrameworkError as UnknownFrameworkError,
        UnsupportedConversionError as UnsupportedConversionError,
        ZeroCopyError as ZeroCopyError,
    )
    from zerocopy.framework import Framework as Framework, FrameworkName as FrameworkName
    from zerocopy.functions.accepts import accepts as accepts
    from zerocopy.functions.bridge import bridge as bridge
    from zerocopy.functions.namespace import namespace as namespace
    from zerocopy.layout.aos_to_soa import aos_to_soa as aos_to_soa
    from zerocopy.loading.errors import (
        LoaderStateError as LoaderStateError,
        LoaderUseError as LoaderUseError,
        MissingFileError as MissingFileError,
        ReadError as ReadError,
    )
    from zerocopy.monitor.errors import (
        MonitorFileError as MonitorFileError,
        MonitorStateError as MonitorStateError,
    )
    from zerocopy.pairs.matrix import matrix as matrix
    from zerocopy.plan import Plan as Plan
    from zerocopy.pool.install import install_pool as install_pool, installed_pool as installed_pool
    from zerocopy.pool.pool import Pool as Pool
    from zerocopy.registry import (
        FrameworkInfo as FrameworkInfo,
        frameworks as frameworks,
        register as register,
    )
    from zerocopy.shared.errors import (
        HandleAccessError as HandleAccessError,
        HandleFormatError as HandleFormatError,
        OtherHostError as OtherHostError,
        SharedMemoryError as SharedMemoryError,
        StaleHandleError as StaleHandleError,
    )
    from zerocopy.shared.objects import Shared as Shared
    from zerocopy.shared.share import share as share, shared_empty as shared_empty
    from zerocopy.signatures import load as load, loader as loader, plan_for as plan_for
    from zerocopy.source import Source as Source
    from zerocopy.strided_view import StridedView as StridedView
    from zerocopy.tables.column import Column as Column, Table as Table
    from zerocopy.tables.result import Encoded as Encoded, Masked as Masked
    from zerocopy.weights.mapping import Weights as Weights

_HOME = {
    "convert": "_engine.convert",
    "explain": "_engine.explain",
    "plan_for": "_engine.plan_for",
    "Plan": "plan",
    "view": "_engine.memory",
    "shares_memory": "_engine.memory",
    "StridedView": "protocols.exchange_api",
    "frameworks": "registry",
    "register": "registry",
    "FrameworkInfo": "registry",
    "Framework": "framework",
    "FrameworkName": "framework",
    "Source": "source",
    "Table": "tables.column",
    "Column": "tables.column",
    "Masked": "tables.result",
    "Encoded": "tables.result",
    "aos_to_soa": "layout.aos_to_soa",
    "soa_to_aos": "_engine.soa_to_aos",
    "matrix": "pairs.matrix",
    "accepts": "functions.accepts",
    "namespace": "functions.namespace",
    "Device": "device",
    "DType": "dtype",
    "Reason": "errors",
    "ZeroCopyError": "errors",
    "UnknownFrameworkError": "errors",
    "FrameworkNotInstalledError": "errors",
    "UnsupportedConversionError": "errors",
    "CopyRequiredError": "errors",
    "LossyConversionError": "errors",
    "DeviceError": "errors",
    "PoolLimitError": "errors",
    "OptionError": "errors",
    "DeviceOptionError": "errors",
    "PoolClosedError": "errors",
    "PoolUnavailableError": "errors",
    "PoolTooLateError": "errors",
    "PoolInstalledError": "errors",
    "share": "shared.share",
    "shared_empty": "shared.share",
    "Shared": "shared.objects",
    "StaleHandleError": "shared.errors",
    "OtherHostError": "shared.errors",
    "HandleFormatError": "shared.errors",
    "HandleAccessError": "shared.errors",
    "SharedMemoryError": "shared.errors",
    "bridge": "functions.bridge",
    "loader": "loading.create",
    "load": "weights.load",
    "Weights": "weights.mapping",
    "MissingFileError": "loading.errors",
    "ReadError": "loading.errors",
    "LoaderStateError": "loading.errors",
    "LoaderUseError": "loading.errors",
    "MonitorFileError": "monitor.errors",
    "MonitorStateError": "monitor.errors",
    "Pool": "pool.pool",
    "install_pool": "pool.install",
    "installed_pool": "pool.install",
}

#: Public modules, which load their own names lazily.
_MODULES = ("monitor", "shared")

__all__ = sorted([*_HOME, *_MODULES, "__version__"])

#: The number of reads of ``zerocopy.convert`` after which all names are loaded.
_MANY = 1000
_reads = 0
_convert = None

if not TYPE_CHECKING:  # with it, a type checker accepts any name

    def __getattr__(name: str) -> Any:
        global _reads, _convert
        known = _convert
        if name == "convert" and known is not None:  # _load takes 7 us
            # In CPython, a module's __getattr__ slows reads of all its attributes: 45 of 130 ns for convert.
            # It is deleted when all names are loaded, which takes 60 ms: too long for a program of few calls.
            _reads += 1
            if _reads >= _MANY:
                _load_all()
            return known
        if name not in __all__:
            raise AttributeError(f"module 'zerocopy' has no attribute {name!r}")
        if os.environ.get("ZEROCOPY_POOL"):
            from zerocopy.pool.install import raise_deferred_error

            raise_deferred_error()
        value = _load(name)
        if name != "convert" or _has_no_gil():
            globals()[name] = value
        else:
            _convert = value
        return value

    def _load(name: str) -> Any:
        from importlib import import_module

        with _LOADING:  # a fork waits for this import
            if name in _MODULES:
                return import_module(f"zerocopy.{name}")
            return getattr(import_module(f"zerocopy.{_HOME[name]}"), name)

    def _load_all() -> None:
        try:
            loaded = {name: _load(name) for name in (*_HOME, *_MODULES)}
        except ImportError:  # this system lacks a name: using that name raises the error again
            globals()["convert"] = _load("convert")
            return
        for name, value in loaded.items():
            globals().setdefault(name, value)  # keeps a name that a test has replaced
        globals().pop("__getattr__", None)

    def _has_no_gil() -> bool:
        """Whether another thread can call `__getattr__` while this thread deletes it."""
        return not getattr(sys, "_is_gil_enabled", lambda: True)()


def __dir__() -> list[str]:
    return __all__


if os.environ.get("ZEROCOPY_POOL"):  # installed before frameworks are imported
    from zerocopy.pool.install import install_from_environment as _install_from_environment

    _install_from_environment()

if os.environ.get("ZEROCOPY_MONITOR"):
    from zerocopy.monitor.environment import start_from_environment as _start_from_environment

    _start_from_environment()
