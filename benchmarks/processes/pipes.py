"""multiprocessing.Pipe and Queue: one object to a child process, which reads one element and answers."""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from benchmarks.processes.objects import available, make, nbytes_of
from benchmarks.processes.row import Contender, elapsed, memcpy, row, size
from benchmarks.suite import Case, Settings

_JOIN_SECONDS = 30


def rows(settings: Settings) -> Iterator[Case]:
    for framework in available(settings):
        with closing(_Child(framework)) as child:
            nbytes = nbytes_of(framework, settings, size(settings))
            source = make(framework, nbytes)
            for name, send in child.channels.items():
                contenders = [
                    Contender(name, "idiom", partial(child.today, send, source)),
                    Contender(f"{name} and zerocopy", "ours", partial(child.with_zerocopy, send, source)),
                    memcpy(nbytes),
                ]
                yield row(f"{name}, {framework}", contenders, settings)


class _Child:
    """A process that answers each object with one element of it."""

    def __init__(self, framework: str) -> None:
        context = mp.get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        queue = context.Queue()
        self.channels: dict[str, Callable[[Any], None]] = {"Pipe": sender.send, "Queue": queue.put}
        self._framework = framework
        self._answers, answers = context.Pipe(duplex=False)
        arguments = ({"Pipe": receiver, "Queue": queue}, answers, framework)
        self._process = context.Process(target=_answer, args=arguments, daemon=True)
        self._process.start()
        self._sender, self._queue = sender, queue
        self._answers.recv()

    def today(self, send: Callable[[Any], None], source: Any) -> int:
        """Send an object without zerocopy; return the nanoseconds until the answer."""
        if self._framework == "torch":
            import torch.multiprocessing  # noqa: F401 - registers torch's reducers

            source = source.clone()  # torch moves a tensor to shared memory for good: each time another one
        return elapsed(lambda: self._ask(send, source))

    def with_zerocopy(self, send: Callable[[Any], None], source: Any) -> int:
        """Send an object with zerocopy's reducers; return the nanoseconds until the answer."""
        from zerocopy.integrations import multiprocessing as integration

        integration.install()
        try:
            return elapsed(lambda: self._ask(send, source))
        finally:
            integration.uninstall()

    def _ask(self, send: Callable[[Any], None], obj: Any) -> None:
        self._sender.send("Pipe" if send == self.channels["Pipe"] else "Queue")
        send(obj)
        self._answers.recv()

    def close(self) -> None:
        self._sender.send("")
        self._process.join(_JOIN_SECONDS)
        self._process.kill()
        self._queue.close()


def _answer(channels: dict[str, Any], answers: Any, framework: str) -> None:
    make(framework, 800)  # imports it
    answers.send(None)
    while name := channels["Pipe"].recv():
        obj = channels["Pipe"].recv() if name == "Pipe" else channels["Queue"].get()
        answers.send(_element(obj))
        del obj


def _element(obj: Any) -> float:
    if hasattr(obj, "iloc"):
        return float(obj.iloc[5, 1])
    if hasattr(obj, "columns"):
        value = obj["c1"][5]
        return float(value.as_py() if hasattr(value, "as_py") else value)
    return float(obj[5])
