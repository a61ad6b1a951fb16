"""Asynchronous pools of CUDA: the owner offers a pool's file, and a reader imports the pool."""

from __future__ import annotations

import os
from weakref import WeakValueDictionary

from zerocopy import forks
from zerocopy.protocols import cuda_pool_ipc
from zerocopy.shared import broker_client
from zerocopy.shared.errors import HandleAccessError, StaleHandleError
from zerocopy.shared.location import Location
from zerocopy.shared.offers import Offer

_lock = forks.lock()
#: The owner's pools, while an array of them is shared.
_offers: WeakValueDictionary[tuple[int, int], Offer] = WeakValueDictionary()
#: The reader's pools, by the numbers of their offers, while an array of them is open.
_imported: dict[int, ImportedPool] = {}


def offer_pool(device: int, pool: int) -> Offer:
    """Offer a pool's file to readers, through the broker of this process.

    Raises
    ------
    DeviceError
        The pool was not created for other processes.
    """
    with _lock:
        offer = _offers.get((device, pool))
        if offer is None:
            offer = _offers[device, pool] = Offer(cuda_pool_ipc.export_pool(device, pool))
    from zerocopy.shared.broker import ensure_broker

    ensure_broker()
    return offer


class ImportedPool:
    """A pool of another process, and how many open allocations it has here."""

    def __init__(self, device: int, location: Location, number: int) -> None:
        fd = _receive(location, number)
        try:
            self.handle = cuda_pool_ipc.import_pool(device, fd)
        finally:
            os.close(fd)
        self.device, self.number, self.uses = device, number, 0


def import_pool(device: int, location: Location, number: int) -> ImportedPool:
    """Return the pool of an offer in the process that a location names; `drop_pool` undoes it.

    Raises
    ------
    HandleAccessError, StaleHandleError, DeviceError
    """
    with _lock:
        pool = _imported.get(number)
        if pool is None:
            pool = _imported[number] = ImportedPool(device, location, number)
        pool.uses += 1
        return pool


def drop_pool(pool: ImportedPool) -> None:
    """End the use of a pool by one allocation, after the allocation has been freed."""
    with _lock:
        pool.uses -= 1
        if not pool.uses:
            del _imported[pool.number]
            cuda_pool_ipc.destroy(pool.device, pool.handle)


def _receive(location: Location, number: int) -> int:
    """Return the file descriptor of an offer from its owner's broker."""
    try:
        fd = broker_client.request_offer(location, number)
    except FileNotFoundError as error:
        why = f"its owner, process {location.pid}, has closed the array"
        raise StaleHandleError("", why, "keep the Shared until it is opened") from error
    if fd is None:
        raise HandleAccessError(
            "",
            f"no broker of process {location.pid} answers, which sends the file of the array's memory pool",
            "run the reader as the owner's user and in its network namespace, and do not call "
            "stop_broker() in the owner; or set ZEROCOPY_BROKER=/volume in both",
        )
    return fd
