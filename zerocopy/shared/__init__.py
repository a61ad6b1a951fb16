"""Arrays and tables in memory that other processes of one machine open without a copy.

A segment is a Linux memfd, which has no name: nothing is left behind when processes die. The owner
copies an object into a segment once, or allocates it there. A handle locates it in a few plain fields.
A reader opens the segment through ``/proc/PID/fd``, takes a lease, and maps it privately.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zerocopy.shared.broker import start_broker as start_broker, stop_broker as stop_broker

__all__ = ["start_broker", "stop_broker"]


def __getattr__(name: str) -> Any:
    """Import the broker when it is used: it imports sockets and threads."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from zerocopy.shared import broker

    return getattr(broker, name)
