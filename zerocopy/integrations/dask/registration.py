"""Registers serializers with Dask's dispatch when a framework is imported; imports no framework."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from zerocopy import forks, registry
from zerocopy.frames.hook import hook_of
from zerocopy.integrations.dask.serializers import DaskFunctions, Deserialize, Serializer
from zerocopy.protocols.exporter_errors import is_error

#: Modules of distributed with its own serializers, by the top-level module that makes it import them.
_OWN_MODULES = {
    "numpy": "distributed.protocol.numpy",
    "torch": "distributed.protocol.torch",
    "pyarrow": "distributed.protocol.arrow",
}
#: Types that Dask itself sends without a copy: zerocopy only replaces their bytes by handles.
_ALIASED_BY_DASK = {
    "numpy": ("ndarray", "matrix", "ma.MaskedArray"),
    "pandas": ("DataFrame", "Series"),
}

_lock = forks.lock()
_registered: set[str] = set()


def register_all() -> None:
    """Register the types of imported frameworks now, and those of others when Dask first meets them."""
    serialize, deserialize = _dispatches()
    for name in registry.frameworks():
        framework = registry.by_name(name)
        if not framework.frames_hook:
            continue
        if forks.is_imported(name):
            register(name)
            continue
        for root in framework.root_modules:  # Dask looks for the top-level module of a type
            serialize.register_lazy(root, partial(register, name))
            deserialize.register_lazy(root, partial(register, name))


def register(name: str) -> None:
    """Register the types of a framework; imports it if only its types are imported."""
    framework = registry.by_name(name)
    module = framework.module()
    if name in _OWN_MODULES:
        importlib.import_module(_OWN_MODULES[name])
    hook = None if name in _ALIASED_BY_DASK else hook_of(framework)
    types = hook.types() if hook else [_attribute(module, path) for path in _ALIASED_BY_DASK[name]]
    serialize, deserialize = _dispatches()
    with _lock:
        if name in _registered:
            return
        _registered.add(name)  # _dask_functions() may get here again
        for cls in types:
            serializer = Serializer(_dask_functions(cls, pickles=hook is None), cls, hook)
            serialize.register(cls, serializer.serialize)
            deserialize.register(cls, Deserialize(serializer))


def _dask_functions(cls: type, pickles: bool) -> DaskFunctions:
    """Return Dask's functions for a type: registered ones, or its pickles, or none."""
    from distributed.protocol.serialize import pickle_dumps, pickle_loads

    serialize, deserialize = _dispatches()
    try:
        return DaskFunctions(serialize.dispatch(cls), deserialize.dispatch(cls), registered=True)
    except TypeError as error:  # not registered
        if not is_error(error):
            raise
        return DaskFunctions(pickle_dumps, pickle_loads) if pickles else DaskFunctions()


def _dispatches() -> tuple[Any, Any]:
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    return dask_serialize, dask_deserialize


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module
