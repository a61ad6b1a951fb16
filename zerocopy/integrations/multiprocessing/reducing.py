"""``install``: multiprocessing sends arrays and tables by handle.

The hook is ``reducer_override``, which ``pickle.Pickler`` documents, set on
``multiprocessing.reduction.ForkingPickler``. ``ForkingPickler.register`` has three disadvantages: it needs
the exact types, and so an import of each framework; ``torch.multiprocessing``, imported later, replaces
registered reducers; and a registered reducer cannot decline an object. pickle calls ``reducer_override``
before registered reducers. If it returns NotImplemented, the object is sent without zerocopy.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Sequence
from multiprocessing import parent_process, util
from multiprocessing.reduction import ForkingPickler
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from zerocopy import registry
from zerocopy.errors import SharedMemoryError, StaleHandleError, ZeroCopyError
from zerocopy.frames import Frames, to_frames
from zerocopy.frames.header import ARRAY, TABLE, start
from zerocopy.frames.hook import FramesHook
from zerocopy.framework import hook_of
from zerocopy.pickling import Pickler, restore
from zerocopy.shared.descriptors import keep_reserve
from zerocopy.shared.handle import parse
from zerocopy.shared.reading import open_frames
from zerocopy.shared.share import share_frames
from zerocopy.shared.tickets import InFlight, Tickets, fail, redeem

#: Objects of this many bytes or more are sent by handle. Measured: pickling 256 KiB takes 15 us and sharing
#: them 29 us; pickling 1 MiB takes 539 us and sharing it 57 us.
MINIMUM = 512 * 1024

Reduction = tuple[Callable[..., Any], tuple[Any, ...]]
#: Seconds that a process that multiprocessing did not start waits for its receivers before it exits.
EXIT_SECONDS = 5.0
#: Finalizers with higher priorities run first: those of queues, which pickle their last objects, have -5.
_AFTER_QUEUES = -10

_tickets = Tickets()
_pickler = Pickler(io.BytesIO())
#: Whether objects of a type are sent by handle. Registering a framework clears it.
_selected: WeakKeyDictionary[type, bool] = WeakKeyDictionary()
registry.on_change(_selected.clear)


class _Installed:
    """The state of `install`.

    Attributes
    ----------
    active : bool
    names : frozenset of str or None
        The frameworks whose objects are sent by handle; None for all.
    previous : object
        The hook that was there before.
    watching : int
        The number of the process that has a finalizer to wait for its receivers.
    """

    active = False
    names: frozenset[str] | None = None
    previous: Any = None
    watching = 0


def install(frameworks: Sequence[str] | None = None, *, limit: int = 1 << 30) -> None:
    """Send arrays and tables of 512 KiB or more by handle between processes of multiprocessing.

    This applies to ``Pipe``, ``Queue``, ``SimpleQueue``, ``Pool``, arguments of ``Process``, managers, and
    ``concurrent.futures.ProcessPoolExecutor``. Each process that sends calls ``install()``, such as the
    workers of a pool that return arrays. A process that only receives does not: it opens the handle when
    it receives the object, which has the type of the one that was sent.

    Parameters
    ----------
    frameworks : sequence of str, optional
        Names as for ``to=``. Default: all, including those that are imported later.
    limit : int
        The most bytes in flight: sent by this process and not received yet. Further objects are sent
        without zerocopy.

    Raises
    ------
    UnknownFrameworkError
        A name is not known.

    Notes
    -----
    The received object has its own memory: a write of the receiver changes no other process's object. An
    array of :func:`zerocopy.shared_empty` is not copied; what its owner writes to it after sending it may
    change it for the receiver.

    An object is sent without zerocopy if it holds Python objects, requires gradients, is sparse, quantized
    or on a device, is of a subclass, or is a torch tensor that is in torch's shared memory already. pandas
    pickles its objects itself, with a handle in place of each of its blocks of 512 KiB or more.

    Before it exits, a process waits for the receivers of its objects, as long as the process that started
    it lives; a main program waits at most 5 seconds. If it is killed, receiving them raises
    ``StaleHandleError``. All processes must be on one machine.

    Examples
    --------
    >>> import numpy as np
    >>> from multiprocessing import Pipe
    >>> import zerocopy.integrations.multiprocessing as zmp
    >>> zmp.install()
    >>> receiver, sender = Pipe(duplex=False)
    >>> sender.send(np.ones(1_000_000))  # 8 MB, more than a pipe holds
    >>> float(receiver.recv().sum())
    1000000.0
    >>> zmp.uninstall()
    """
    names = None if frameworks is None else frozenset(registry.by_name(name).name for name in frameworks)
    _tickets.limit = limit
    _Installed.names, _Installed.active = names, True
    _selected.clear()
    if ForkingPickler.__dict__.get("reducer_override") is not _override:
        _Installed.previous = ForkingPickler.__dict__.get("reducer_override")
        ForkingPickler.reducer_override = _override  # type: ignore[method-assign, assignment]
        util.register_after_fork(_tickets, _wait_at_exit)
    keep_reserve()
    _wait_at_exit(_tickets)


def uninstall() -> None:
    """Send arrays and tables without zerocopy; objects in flight can still be received."""
    _Installed.active = False
    if ForkingPickler.__dict__.get("reducer_override") is _override:
        previous = _Installed.previous
        if previous is None:
            del ForkingPickler.reducer_override
        else:
            ForkingPickler.reducer_override = previous  # type: ignore[method-assign]


def in_flight() -> InFlight:
    """Return the number and the bytes of the objects that this process has sent and are not received yet.

    Returns
    -------
    InFlight
        A named tuple with ``objects`` and ``nbytes``.

    Examples
    --------
    >>> in_flight()
    InFlight(objects=0, nbytes=0)
    """
    return _tickets.in_flight()


def release() -> None:
    """Free the memory of all objects in flight, for receivers that have died.

    Receiving such an object later raises ``StaleHandleError``.
    """
    _tickets.release()


def _override(self: ForkingPickler, obj: Any) -> Any:
    """Return the reduction of an array or a table to a handle, or the result of the hook before this one."""
    reduced = _reduced(obj) if _Installed.active else None
    if reduced is not None:
        return reduced
    previous = _Installed.previous
    return NotImplemented if previous is None else previous(self, obj)


def _reduced(obj: Any) -> Any:
    """Return the reduction of an object to a handle, or None if it is sent without zerocopy."""
    cls = type(obj)
    try:
        selected = _selected.get(cls)
        if selected is None:
            selected = _selected[cls] = _is_selected(cls)
    except TypeError:  # the type has a metaclass without a hash
        return None
    if not selected or _nbytes(obj) < MINIMUM:
        return None
    reduced = _of_ndarray(obj) if cls is np.ndarray else _pickler.reducer_override(obj)
    return None if reduced is NotImplemented or _is_shared(obj) else by_handle(reduced, _tickets)


def _of_ndarray(array: Any) -> Any:
    """Return the reduction of a NumPy array, as `Pickler.reducer_override` does for other frameworks."""
    dtype = array.dtype
    if dtype.hasobject:
        return NotImplemented
    # NumPy's own reducer has out-of-band buffers for records, but not for dates.
    if dtype.fields is not None or dtype.metadata is not None:
        reduced = array.__reduce_ex__(5)
        return reduced if len(reduced) == 2 else NotImplemented
    try:
        split = to_frames(array)
    except ZeroCopyError:
        return NotImplemented
    return restore, (split.header, pickle.PickleBuffer(split.frames[0]))  # type: ignore[arg-type]


def _is_selected(cls: type) -> bool:
    framework, names = registry.by_type(cls), _Installed.names
    if framework is None or (names is not None and framework.name not in names):
        return False
    try:
        return cls in hook_of(framework, FramesHook).types()
    except ZeroCopyError:  # its version is too old, for example
        return False


def _nbytes(obj: Any) -> int:
    """Return the size of an object in bytes; `MINIMUM` for TensorFlow's tensors, which have no nbytes."""
    try:
        return int(obj.nbytes)
    except (AttributeError, RuntimeError):  # torch raises RuntimeError for sparse tensors
        return MINIMUM


def _is_shared(obj: Any) -> bool:
    """Whether an object is in shared memory of its framework, whose reducer sends it without a copy."""
    is_shared = getattr(obj, "is_shared", None)
    return is_shared is not None and bool(is_shared())


def _wait_at_exit(tickets: Tickets) -> None:
    """Let this process wait for its receivers before it ends; in a child, multiprocessing calls it."""
    if _Installed.watching != os.getpid():
        _Installed.watching = os.getpid()
        arguments = (EXIT_SECONDS, _has_parent)
        util.Finalize(None, tickets.wait, arguments, exitpriority=_AFTER_QUEUES)


def _has_parent() -> bool:
    """Whether the process that started this one lives: it may be busy, and receive later."""
    parent = parent_process()
    return parent is not None and parent.is_alive()


def by_handle(reduced: Reduction, tickets: Tickets) -> Reduction | None:
    """Return a reduction with a handle in place of its ``PickleBuffer`` arguments.

    Returns None if they have less than `MINIMUM` bytes, if the limit of the tickets is reached, or if
    there is no shared memory: send the bytes then.
    """
    function, args = reduced
    places = [place for place, arg in enumerate(args) if isinstance(arg, pickle.PickleBuffer)]
    frames = [np.frombuffer(args[place].raw(), np.uint8) for place in places]
    nbytes = sum(frame.nbytes for frame in frames)
    if nbytes < MINIMUM or not tickets.has_room(nbytes):
        return None
    split = Frames(start(ARRAY if len(frames) == 1 else TABLE), frames)
    try:
        shared = share_frames(split, hand_on=False)
    except SharedMemoryError:
        return None
    ticket = tickets.issue(shared)
    if ticket is None:
        return None
    others = [None if place in places else arg for place, arg in enumerate(args)]
    return receive, (bytes(shared), ticket, function, others, places)


def receive(
    handle: bytes, ticket: bytes, function: Callable[..., Any], args: list[Any], places: list[int]
) -> Any:
    """Return the object of a reduction over its shared memory; pickles name this function.

    Raises
    ------
    StaleHandleError
        The sender has ended or has released the object, or the object was received before.
    """
    opened = parse(handle)
    keep_reserve()
    try:
        _, frames = open_frames(opened)
    except StaleHandleError as error:
        redeem(ticket)
        pid = opened.location.pid
        why = (
            f"process {pid}, which sent it, has ended or released it, or it was received before: {error.why}"
        )
        remedy = f"keep process {pid} running until its objects are received"
        asked = "receiving an object from multiprocessing"
        raise error.with_context(asked=asked, why=why, remedy=remedy) from error.__cause__
    except MemoryError:  # also SharedMemoryError
        fail(ticket)
        raise
    redeem(ticket)  # only now: an object that was not opened can be received again
    for place, frame in zip(places, frames, strict=True):
        args[place] = frame
    return function(*args)
