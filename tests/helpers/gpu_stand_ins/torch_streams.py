"""Streams of ``torch.cuda``: numbers that always report pending work, and log their calls.

No work runs asynchronously, so they cannot check the order of streams.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import ModuleType

from helpers.gpu_stand_ins.memory import HANDLES, Devices


class Stream:
    """A stream; handle 0 is the legacy default stream."""

    def __init__(self, device: object = None, handle: int | None = None):
        self.cuda_stream = next(HANDLES) if handle is None else handle

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return self.cuda_stream

    def query(self) -> bool:
        """Return False, as a busy stream does: the tests fail if convert() has waited for it."""
        return False

    def synchronize(self) -> None:
        """Return at once: all work has already finished."""


def use_streams(torch: ModuleType, devices: Devices) -> None:
    """Replace torch's streams and events."""
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

    thread = threading.local()
    default = CudaStream(handle=0)

    @contextmanager
    def stream(new):
        before = current_stream()
        thread.stream = new
        try:
            yield
        finally:
            thread.stream = before

    def current_stream(device=None):
        return getattr(thread, "stream", default)

    cuda = torch.cuda
    cuda.Stream, cuda.Event = CudaStream, Event
    cuda.ExternalStream = lambda handle, device=None: CudaStream(device, handle)
    cuda.stream, cuda.current_stream = stream, current_stream
    cuda.default_stream = lambda device=None: default
    cuda._sleep = lambda cycles: None
