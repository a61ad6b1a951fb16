"""Arrays and tables in memory that other processes of one machine open without a copy.

A segment is a Linux memfd, which has no name: nothing is left behind when processes die. The owner
copies an object into a segment once, or allocates it there. A reader opens the segment through
``/proc/PID/fd``, takes a lease, and maps it privately.

Terms, each with one meaning:

segment
    A memfd: a piece of shared memory with one owner, the process that allocated it.
block
    The part of a segment that holds one object. A large block has a segment of its own; small blocks
    share one, which is called a slab.
generation
    A number in the head of a block, which changes before the owner reuses the block for another object.
location
    Where a block lies: host, process, file descriptor, inode, generation, first byte.
handle
    The location and the header of an object, as plain fields or as bytes. A `Shared` is the Python object
    that has a handle, and in the owner it keeps the block.
mapping, lease
    A reader's private view of a segment, and its shared flock(2), during which the owner does not reuse it.
ticket
    How a sender learns that a receiver has opened a handle, when no `Shared` can be kept for it.
broker
    A thread of the owner that opens segments for readers in other PID namespaces.
"""

from typing import TYPE_CHECKING

from zerocopy.interpreter import lazy_names as _lazy_names

if TYPE_CHECKING:
    from zerocopy.shared.blocks import set_limit as set_limit, trim as trim
    from zerocopy.shared.broker import start_broker as start_broker, stop_broker as stop_broker

if not TYPE_CHECKING:  # with it, a type checker accepts any name
    __getattr__, __dir__, __all__ = _lazy_names(  # the broker imports sockets and threads
        __name__, {"broker": "start_broker stop_broker", "blocks": "set_limit trim"}
    )
