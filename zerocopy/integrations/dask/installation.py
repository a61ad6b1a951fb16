"""``install`` and ``uninstall``: in a cluster by a worker plugin, or in this process alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerocopy.errors import FrameworkNotInstalledError
from zerocopy.integrations import install_line
from zerocopy.integrations.dask import peers

#: Name of the worker plugin.
PLUGIN = "zerocopy"
_PROGRAM = "program"


def install(client: Any = None, pool: str | Mapping[str, Any] | None = None, same_host: bool = True) -> Any:
    """Send arrays and tables between Dask's workers as frames, and without a copy within one machine.

    Parameters
    ----------
    client : distributed.Client, optional
        Its workers, those that join later too, and the client get the serializers. None: only this
        process gets them.
    pool : str or mapping, optional
        Also install a memory pool in each worker: a kind, or the options, of :func:`zerocopy.install_pool`.
        Without a client, in this process.
    same_host : bool, default True
        Whether workers of one machine send handles to shared memory for objects of 512 KiB or more.

    Returns
    -------
    None or awaitable
        An awaitable for an asynchronous client.

    Raises
    ------
    FrameworkNotInstalledError
        ``distributed`` is not installed.
    ModuleNotFoundError
        zerocopy is not installed where a worker runs.

    Notes
    -----
    Workers announce in the handshake of each connection that they read frames, and which memory they can
    open. Objects go as handles only to a process of the same machine, PID namespace and user with the
    same capabilities, whichever addresses Dask uses. The scheduler announces nothing: what passes through
    it or is spilled to disk is serialized as by Dask without zerocopy. ``Client.gather(..., direct=True)``
    makes a client fetch from the workers.

    The first recipient of an object causes one copy into shared memory; later ones share it. Each
    recipient maps the memory privately: its writes change the object for it alone. As for all results
    of Dask, a task must not change an object after returning it: recipients may get its former content.

    Dask alone serializes objects that frames would change: tensors that require gradients,
    subclasses, sharded JAX arrays, objects on a device.
    """
    _import_distributed("install()")
    from zerocopy.integrations.dask.serializers import register_all, users

    options = {"kind": pool} if isinstance(pool, str) else pool
    users.add(_PROGRAM)
    register_all()
    if client is not None:
        return client.sync(_connect_cluster, client, options, same_host)
    if options is not None:
        _install_pool(options)
    return None


def uninstall(client: Any = None) -> Any:
    """Remove the worker plugin of a client's cluster, and stop sending frames from this process.

    Messages that were sent can still be read. A pool stays installed.

    Parameters
    ----------
    client : distributed.Client, optional

    Returns
    -------
    None or awaitable
        An awaitable for an asynchronous client.
    """
    _import_distributed("uninstall()")
    _leave(_PROGRAM)
    return None if client is None else client.sync(_disconnect_cluster, client)


async def _connect_cluster(client: Any, pool: Mapping[str, Any] | None, same_host: bool) -> None:
    await client.register_plugin(worker_plugin(pool, same_host), name=PLUGIN)
    peers.announce(client, same_host)


async def _disconnect_cluster(client: Any) -> None:
    peers.withdraw(client)
    await client.unregister_worker_plugin(PLUGIN)


def worker_plugin(pool: Mapping[str, Any] | None, same_host: bool) -> Any:
    """Return the plugin that `install` registers with a cluster."""
    from distributed.diagnostics.plugin import WorkerPlugin

    class ZeroCopyPlugin(WorkerPlugin):  # type: ignore[misc]
        name = PLUGIN

        async def setup(self, worker: Any) -> None:
            connect_worker(worker, pool, same_host)

        async def teardown(self, worker: Any) -> None:
            disconnect_worker(worker)

    return ZeroCopyPlugin()


def connect_worker(worker: Any, pool: Mapping[str, Any] | None, same_host: bool) -> None:
    """Install the serializers in a worker's process, and announce that the worker reads them."""
    from zerocopy.integrations.dask.serializers import register_all, users
    from zerocopy.shared.blocks import kept_bytes, set_limit

    if pool is not None:
        _install_pool(pool)
    memory = getattr(worker.memory_manager, "memory_limit", None)
    if memory:  # Dask counts idle segments as the worker's memory
        set_limit(min(kept_bytes(), memory // 8))
    users.add(id(worker))
    register_all()
    worker.handlers["get_data"] = peers.keep_in_flight(worker.handlers["get_data"])
    peers.announce(worker, same_host)


def disconnect_worker(worker: Any) -> None:
    """Undo `connect_worker`, except for the pool and the functions that read messages."""
    handler = worker.handlers["get_data"]
    worker.handlers["get_data"] = getattr(handler, "__wrapped__", handler)
    peers.withdraw(worker)
    _leave(id(worker))


def _leave(user: object) -> None:
    from zerocopy.integrations.dask.serializers import kept, receive_as_dask, users

    users.discard(user)
    if not users:
        kept.clear()
        receive_as_dask()


def _install_pool(options: Mapping[str, Any]) -> None:
    from zerocopy.pool.install import install_pool

    install_pool(**options)


def _import_distributed(asked: str) -> None:
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise FrameworkNotInstalledError(
            asked, "Dask's distributed is not installed", install_line("dask")
        ) from error
