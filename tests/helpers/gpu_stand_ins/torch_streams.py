"""``torch.cuda``'s streams: numbers that report being busy, and log their calls.

They cannot show an order, since no work runs late.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import ModuleType

from helpers.gpu_stand_ins.memory import HANDLES, Devices


class Stream:
    """A stream, or with a handle of 0 the legacy default one."""

    def __init__(self, device: object = None, handle: int | None = None):
        self.cuda_stream = next(HANDLES) if handle is None else handle

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return self.cuda_stream

    def query(self) -> bool:
        """Say that its work is not done: what waited for it and what did not look alike."""
        return False

    def synchronize(self) -> None:
        """Return: its work was done when it was given."""


def use_streams(torch: ModuleType, devices: Devices) -> None:
    """Install them instead of torch's."""
    log = devices.log

    class CudaStream(Stream):
        def wait_stream(self, other):
            log.append(("wait_stream", self.cuda_stream, other.cuda_stream))

        def wait_event(self, event):
            log.append(("wait", self.cuda_stream, event.stream))

    class Event:
        stream = None

        def record(self, stream):
            self.stream = stream.cuda_stream
            log.append(("record", self.stream))

    here = threading.local()
    default = CudaStream(handle=0)

    @contextmanager
    def stream(given):
        before = current_stream()
        here.stream = given
        try:
            yield
        finally:
            here.stream = before

    def current_stream(device=None):
        return getattr(here, "stream", default)

    cuda = torch.cuda
    cuda.Stream, cuda.Event = CudaStream, Event
    cuda.ExternalStream = lambda handle, device=None: CudaStream(device, handle)
    cuda.stream, cuda.current_stream = stream, current_stream
    cuda.default_stream = lambda device=None: default
    cuda._sleep = lambda cycles: None
