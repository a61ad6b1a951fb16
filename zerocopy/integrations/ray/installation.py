"""``install``: registers serializers with Ray in this process, also for frameworks imported later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from zerocopy import forks
from zerocopy.errors import FrameworkNotInstalledError
from zerocopy.integrations import install_line
from zerocopy.interpreter.imports import cancel, when_imported

#: Frameworks whose types are registered once they are imported. Ray itself copies NumPy and pandas once.
FRAMEWORKS = ("torch", "jax", "tensorflow", "polars", "pyarrow")

_HOOK = "worker_process_setup_hook"
_INSTALL = "zerocopy.integrations.ray.install"
#: Ray's serializer with RAY_ENABLE_ZERO_COPY_TORCH_TENSORS=1: a write to its tensors changes the store.
_REPLACED = "ray._private.tensor_serialization_utils"


@dataclass(slots=True)
class _Registration:
    """A type with its reducers in Ray's table: before the registration and since then."""

    cls: type
    previous: Any
    reducer: Any


# Held while the lists below change; no import runs inside.
_lock = forks.lock()
_waiting: list[Callable[[], None]] = []
_registered: list[_Registration] = []
_installed: bool | None = None  # None: neither install() nor uninstall() was called in this process


def install() -> None:
    """Register serializers with Ray, so that arrays and tables are stored without intermediate copies.

    ``ray.put``, arguments and results of tasks then copy the memory once, into Ray's object store.
    ``ray.get`` aliases the store. The types are ``torch.Tensor``, ``jax.Array``, TensorFlow's eager tensors,
    polars' DataFrame and Series, and pyarrow's arrays, chunked arrays and record batches. Of a slice only its
    rows are stored. No framework is imported: one that is imported later is registered then.

    Call it before or after ``ray.init``, in the program and in each worker:
    ``ray.init(runtime_env=zerocopy.integrations.ray.runtime_env())`` calls it at each worker's start.
    Without that, a worker calls it when it first receives such an object; until then Ray serializes the
    worker's results. zerocopy must be installed on each node.

    Raises
    ------
    FrameworkNotInstalledError
        Ray is not installed.

    Notes
    -----
    A tensor of torch is writable, although the store is shared between processes. Its memory is therefore
    mapped privately: a write copies the written page and changes the object in no other process, and in
    no other result of ``ray.get``. Small tensors, and all tensors if the kernel does not permit the
    mapping, are copied.

    Ray alone serializes objects that frames do not hold unchanged: tensors that require
    gradients, sparse tensors, tensors on a device or with attributes, subclasses, sharded and weakly typed
    JAX arrays, columns of Python objects. A serializer that the program has registered for a type is kept.
    """
    global _installed
    _import_ray("install()")
    with _lock:
        if _installed:
            return
        _installed = True
        callbacks = [partial(_register, name) for name in FRAMEWORKS]
        _waiting.extend(callbacks)
    for name, callback in zip(FRAMEWORKS, callbacks, strict=True):
        when_imported(name, callback)


def uninstall() -> None:
    """Remove the serializers from this process; stored objects can still be read."""
    global _installed
    with _lock:
        _installed = False
        waiting, registered = list(_waiting), list(_registered)
        _waiting.clear()
        _registered.clear()
    for callback in waiting:
        cancel(callback)
    if registered:
        _restore(registered)


def runtime_env(base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a runtime environment whose workers call `install` when they start.

    Parameters
    ----------
    base : mapping, optional
        Other fields of the environment.

    Returns
    -------
    dict
        The argument ``runtime_env`` of ``ray.init``. Ray accepts such a field for a whole job only,
        not for one task or actor.

    Raises
    ------
    ValueError
        `base` has another setup hook; call ``install()`` in that hook.

    Examples
    --------
    >>> runtime_env({"env_vars": {"OMP_NUM_THREADS": "1"}})["worker_process_setup_hook"]
    'zerocopy.integrations.ray.install'
    """
    merged = dict(base or {})
    hook = merged.setdefault(_HOOK, _INSTALL)
    if hook != _INSTALL:
        raise ValueError(
            f"runtime_env(base): base has the {_HOOK} {hook!r}, and Ray runs one only.\n"
            "  To fix: call zerocopy.integrations.ray.install() in that hook, and pass base to ray.init"
        )
    return merged


def open_and_install(packed: Any) -> Any:
    """Return a stored object; in a worker, install too, for its results."""
    from zerocopy.integrations.ray.serializers import Packed, open_packed

    if _installed is None and type(packed) is Packed and _in_worker():
        install()
    return open_packed(packed)


def _in_worker() -> bool:
    import ray

    # The driver has no task. It may read objects of other programs without its own install().
    try:
        return ray.is_initialized() and ray.get_runtime_context().get_task_id() is not None
    except (AttributeError, AssertionError, RuntimeError):  # not connected, or by Ray Client
        return False


def _import_ray(asked: str) -> Any:
    try:
        import ray
    except ImportError as error:
        raise FrameworkNotInstalledError(asked, "Ray is not installed", install_line("ray")) from error
    return ray


def _register(name: str) -> None:
    """Register the types of a framework that is imported now."""
    import ray

    from zerocopy.integrations.ray.serializers import Serializer  # not before: it imports NumPy

    table, serializer = _reducers(), Serializer(name)
    registrations = []
    for cls in serializer.types():
        previous = table.get(cls)
        if previous is not None and previous.__module__ != _REPLACED:
            continue  # registered by the program, or by Ray for Arrow's tables and its direct transport
        # Not under the lock: Ray imports pyarrow with its first registration.
        ray.util.register_serializer(cls, serializer=serializer, deserializer=open_and_install)
        registrations.append(_Registration(cls, previous, table.get(cls)))
    with _lock:
        if _installed:
            _registered.extend(registrations)
            return
    _restore(registrations)  # uninstalled meanwhile


def _restore(registered: list[_Registration]) -> None:
    """Remove registrations that are still in use, and put back the previous ones."""
    import ray

    table = _reducers()
    for entry in registered:
        if table.get(entry.cls) is entry.reducer:
            ray.util.deregister_serializer(entry.cls)
            if entry.previous is not None:
                table[entry.cls] = entry.previous


def _reducers() -> Any:
    """Return Ray's table of reducers by type; Ray has no function to look up a registration."""
    import ray.cloudpickle

    return ray.cloudpickle.CloudPickler.dispatch
