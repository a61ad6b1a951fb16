"""Ways to hand frames from this process to readers, one process each: channels, queues, sockets, Ray.

A frame is an array of bytes. Its first and last byte are its number; readers report a frame unless that is 0.
"""

from __future__ import annotations

import ctypes
import multiprocessing as mp
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any, ClassVar

import numpy as np

import zerocopy as zc

#: How many frames a reader may be behind.
SLOTS = 4
#: The reader reads one byte of each page.
PAGE = 4096
#: The number of the last frame.
END = 255
_JOIN_SECONDS = 10
#: Contenders whose writer computes the frame in memory that readers see.
IN_SHARED_MEMORY = ("zerocopy slot", "iceoryx2 loan")


class Way:
    """A way to hand frames to readers. `hand_over` has a function of a frame's number for each contender.

    A subclass opens it in `open`, which returns an argument for `connect` of each reader.
    """

    package: ClassVar[str]
    role: ClassVar[str] = "idiom"

    def __init__(self, nbytes: int, readers: int) -> None:
        self.nbytes, self.readers = nbytes, readers
        # Two frames: one may still be on its way while the next one gets its number.
        self._quiet, self._numbered = np.zeros(nbytes, np.uint8), np.ones(nbytes, np.uint8)
        self._reports: list[Any] = []
        self._processes: list[Any] = []
        context = mp.get_context("spawn")
        for argument in self.open():
            receiver, sender = context.Pipe(duplex=False)
            arguments = (type(self), argument, sender)
            process = context.Process(target=_read, args=arguments, daemon=True)
            process.start()
            self._reports.append(receiver)
            self._processes.append(process)
        for report in self._reports:
            report.recv()
        self.hand_over: dict[str, Callable[[int], Any]] = self.contenders()

    def open(self) -> Iterable[Any]:
        """Open the writer's end; return an argument of `connect` for each reader."""
        raise NotImplementedError

    def contenders(self) -> dict[str, Callable[[int], Any]]:
        """Return the functions that hand over a frame, by their labels."""
        raise NotImplementedError

    @staticmethod
    def connect(argument: Any) -> Callable[[], tuple[Any, Callable[[], Any]]]:
        """Open the reader's end in its process; return a function that waits for a frame.

        It returns the array, and a function to call when the array is no longer used.
        """
        raise NotImplementedError

    def frame(self, number: int) -> Any:
        """Return a frame that was computed before."""
        frame = self._numbered if number else self._quiet
        frame[0] = frame[-1] = number
        return frame

    def times(self, number: int) -> list[int]:
        """Return when each reader had read the frame of a number, on the clock of this machine."""
        reports = [report.recv() for report in self._reports]
        return _checked(reports, number)

    def close(self) -> None:
        """End the readers."""
        next(iter(self.hand_over.values()))(END)
        for process in self._processes:
            process.join(_JOIN_SECONDS)
            process.kill()


def _checked(reports: list[tuple[int, int, int]], number: int) -> list[int]:
    for _, first, last in reports:
        if first != number or last != number:
            raise RuntimeError(f"a reader got the frame ({first}, {last}) in place of ({number}, {number})")
    return [time for time, _, _ in reports]


def _look(frame: Any) -> tuple[int, int, int]:
    """Read one byte of each page, and the last; return the time after that, and the first and last byte."""
    frame[::PAGE].sum()
    first, last = int(frame[0]), int(frame[-1])
    return perf_counter_ns(), first, last


def _read(way: type[Way], argument: Any, reports: Any) -> None:
    receive = way.connect(argument)
    reports.send(None)
    number = 0
    while number != END:
        frame, release = receive()
        report = _look(frame)
        number = report[1]
        del frame
        release()
        if number:
            reports.send(report)


def _nothing() -> None:
    pass


class Channel(Way):
    """A channel of zerocopy, a queue: ``put`` copies a frame, ``slot`` writes it in place."""

    package, role = "zerocopy", "ours"

    def open(self) -> Iterable[Any]:
        spec = {"frame": ((self.nbytes,), "u1")}
        self._channel = zc.channel(spec, slots=SLOTS, readers=self.readers)
        return [self._channel] * self.readers

    @staticmethod
    def connect(argument: Any) -> Any:
        reader = argument.read()
        return lambda: (next(reader)["frame"], _nothing)

    def contenders(self) -> dict[str, Callable[[int], Any]]:
        return {"zerocopy put": self._put, "zerocopy slot": self._write}

    def _put(self, number: int) -> None:
        self._channel.put({"frame": self.frame(number)})

    def _write(self, number: int) -> None:
        with self._channel.slot() as slot:
            slot["frame"].fill(number)


class Iceoryx2(Way):
    """iceoryx2: a loaned sample is written, in place or by a copy; readers wait for an event."""

    package, role = "iceoryx2", "library"

    def open(self) -> Iterable[Any]:
        import iceoryx2 as iox

        argument = f"zerocopy-{uuid.uuid4().hex}", self.readers
        self._ports = _iceoryx2_services(*argument)
        publisher = self._ports[1].publisher_builder().initial_max_slice_len(self.nbytes)
        publisher = publisher.backpressure_strategy(iox.BackpressureStrategy.RetryUntilDelivered)
        self._publisher = publisher.create()
        self._notifier = self._ports[2].notifier_builder().create()
        return [argument] * self.readers

    @staticmethod
    def connect(argument: Any) -> Any:
        import iceoryx2 as iox

        ports = _iceoryx2_services(*argument)
        subscriber = ports[1].subscriber_builder().create()
        listener = ports[2].listener_builder().create()
        longest = iox.Duration.from_millis(1000)

        def receive() -> Any:
            while (sample := subscriber.receive()) is None:
                listener.timed_wait(longest)
            return np.frombuffer(sample.payload().as_memory_view(), np.uint8), sample.delete

        return receive

    def contenders(self) -> dict[str, Callable[[int], Any]]:
        return {"iceoryx2 copy": self._copy, "iceoryx2 loan": self._write}

    def _copy(self, number: int) -> None:
        frame = self.frame(number)
        sample = self._publisher.loan_slice_uninit(self.nbytes)
        ctypes.memmove(sample.payload_ptr, frame.ctypes.data, self.nbytes)
        self._send(sample)

    def _write(self, number: int) -> None:
        sample = self._publisher.loan_slice_uninit(self.nbytes)
        np.frombuffer(sample.payload().as_memory_view(), np.uint8).fill(number)
        self._send(sample)

    def _send(self, sample: Any) -> None:
        sample.assume_init().send()
        self._notifier.notify()


def _iceoryx2_services(name: str, readers: int) -> tuple[Any, Any, Any]:
    import iceoryx2 as iox

    iox.set_log_level(iox.LogLevel.Error)
    node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)
    service = node.service_builder(iox.ServiceName.new(name)).publish_subscribe(iox.Slice[ctypes.c_uint8])
    service = service.enable_safe_overflow(False).subscriber_max_buffer_size(SLOTS)
    service = service.subscriber_max_borrowed_samples(2).max_subscribers(readers).open_or_create()
    return node, service, node.service_builder(iox.ServiceName.new(name)).event().open_or_create()


class Queues(Way):
    """``multiprocessing.Queue``, one for each reader."""

    package = "multiprocessing"

    def open(self) -> Iterable[Any]:
        self._queues = [mp.get_context("spawn").Queue(SLOTS) for _ in range(self.readers)]
        return self._queues

    @staticmethod
    def connect(argument: Any) -> Any:
        return lambda: (argument.get(), _nothing)

    def contenders(self) -> dict[str, Callable[[int], Any]]:
        return {"multiprocessing.Queue": lambda number: self._put(self.frame(number))}

    def _put(self, frame: Any) -> None:
        for queue in self._queues:
            queue.put(frame)


class TorchQueues(Queues):
    """The same queues with tensors, which torch moves to shared memory."""

    package = "torch"

    def open(self) -> Iterable[Any]:
        import torch.multiprocessing

        self._torch = torch
        self._queues = [torch.multiprocessing.get_context("spawn").Queue(SLOTS) for _ in range(self.readers)]
        return self._queues

    def contenders(self) -> dict[str, Callable[[int], Any]]:
        return {"torch.multiprocessing.Queue": self._share}

    def _share(self, number: int) -> None:
        self._put(self._torch.from_numpy(self.frame(number)).share_memory_())

    @staticmethod
    def connect(argument: Any) -> Any:
        return lambda: (argument.get().numpy(), _nothing)


class Sockets(Way):
    """ZeroMQ: a PUSH socket for each reader, over a Unix socket, without copies in Python."""

    package = "zmq"

    def open(self) -> Iterable[Any]:
        import zmq

        self._folder = tempfile.TemporaryDirectory()
        addresses = [f"ipc://{self._folder.name}/{number}" for number in range(self.readers)]
        self._sockets = [zmq.Context.instance().socket(zmq.PUSH) for _ in addresses]
        for socket, address in zip(self._sockets, addresses, strict=True):
            socket.sndhwm = SLOTS
            socket.bind(address)
        return addresses

    @staticmethod
    def connect(argument: Any) -> Any:
        import zmq

        socket = zmq.Context.instance().socket(zmq.PULL)
        socket.rcvhwm = SLOTS
        socket.connect(argument)
        return lambda: (np.frombuffer(socket.recv(copy=False).buffer, np.uint8), _nothing)

    def contenders(self) -> dict[str, Callable[[int], Any]]:
        return {"ZeroMQ": self._send}

    def _send(self, number: int) -> None:
        frame = self.frame(number)
        for socket in self._sockets:
            socket.send(frame, copy=False)

    def close(self) -> None:
        super().close()
        for socket in self._sockets:
            socket.close(0)
        self._folder.cleanup()


class Ray(Way):
    """Ray: ``ray.put``, and a call of an actor for each reader."""

    package = "ray"

    def open(self) -> Iterable[Any]:
        import ray

        self._ray: Any = ray
        store = {"object_store_memory": max(1 << 30, 4 * SLOTS * self.nbytes)}
        options = {"configure_logging": False, "log_to_driver": False, "include_dashboard": False}
        ray.init(address="local", num_cpus=self.readers, **store, **options)
        self._actors = [ray.remote(_Actor).remote() for _ in range(self.readers)]
        self._calls: deque[list[Any]] = deque()
        return []

    def contenders(self) -> dict[str, Callable[[int], Any]]:
        return {"Ray": self._put}

    def _put(self, number: int) -> None:
        reference = self._ray.put(self.frame(number))
        self._calls.append([actor.look.remote(reference) for actor in self._actors])
        if len(self._calls) > SLOTS:
            self._ray.get(self._calls.popleft())

    def times(self, number: int) -> list[int]:
        calls = self._calls.pop()
        self._calls.clear()
        return _checked(self._ray.get(calls), number)

    def close(self) -> None:
        self._ray.shutdown()


class _Actor:
    def look(self, frame: Any) -> tuple[int, int, int]:
        return _look(frame)


#: zerocopy first.
WAYS: tuple[type[Way], ...] = (Channel, Iceoryx2, Queues, TorchQueues, Sockets, Ray)
