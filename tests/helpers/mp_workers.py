"""Functions and datasets that run in child processes of the tests of multiprocessing and the DataLoader."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import time
import zlib
from typing import Any, NamedTuple

import numpy as np

import zerocopy as zc
import zerocopy.integrations.multiprocessing as zmp
from zerocopy.integrations.multiprocessing import reducing
from zerocopy.shared.blocks import large_blocks

#: Elements of float32 in 1 MiB, which travels by handle.
MEBI = 1 << 18
METHODS = ("fork", "spawn", "forkserver")
#: pytest's process has imported JAX, and has threads.
IGNORE_FORK = "ignore:.*fork.*"


def context(method: str) -> Any:
    """Return a context; its fork server has imported what the children need."""
    result = mp.get_context(method)
    if method == "forkserver":
        result.set_forkserver_preload(["torch.utils.data", __name__])
    return result


def checksum(array: Any) -> int:
    """Return a checksum of an array's bytes."""
    return zlib.crc32(np.ascontiguousarray(array).data)


def echo(connection: Any) -> None:
    """Send each object back, with its type's name; ends at None."""
    zmp.install()
    while (obj := connection.recv()) is not None:
        connection.send((type(obj).__name__, obj))
        del obj
    connection.close()


def add_one(array: Any) -> Any:
    """Write to the argument, and return it."""
    array += 1
    return array


def zeros(count: int) -> Any:
    """Return a new array."""
    return np.zeros(count, "f4")


def put(queue: Any, array: Any) -> None:
    """Put an array, and end at once."""
    zmp.install()
    queue.put(array * 2)


def put_without_seconds(queue: Any) -> None:
    """Put an array, and exit at once: the wait for its receiver is 0 seconds."""
    reducing.EXIT_SECONDS = 0.0
    zmp.install()
    queue.put(np.ones(MEBI, "f4"))


def put_two(connection: Any) -> None:
    """Send one array that is received, and one after which the process is killed."""
    zmp.install()
    connection.send(np.ones(MEBI, "f4"))
    while zmp.in_flight().objects:
        time.sleep(0.001)
    connection.send(np.ones(MEBI, "f4"))
    os.kill(os.getpid(), signal.SIGKILL)


def wait_unread(connection: Any) -> None:
    """Keep the other end open without receiving from it."""
    connection.send_bytes(b"ready")
    signal.pause()


def consume(tasks: Any, results: Any) -> None:
    """Send the checksums of arrays back, with their numbers."""
    while (task := tasks.get()) is not None:
        number, array = task
        results.put((number, checksum(array)))
        del task, array


class Point(NamedTuple):
    """A sample of the DataLoader."""

    x: Any
    y: float


class Rows:
    """A dataset of samples of 128 KiB with all kinds of values."""

    def __init__(self, count: int, form: str = "dict") -> None:
        self.count, self.form = count, form

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        x = np.full((32, 1024), index, "f4")
        if self.form == "dict":
            return {"x": x, "label": index, "name": str(index), "fresh": large_blocks.fresh}
        if self.form == "point":
            return Point(x, index / 2)
        if self.form == "torch":
            import torch

            return torch.from_numpy(x).bfloat16(), True
        if self.form == "ragged":
            return x[: index + 1]
        if self.form == "killed":
            if index > 20:
                os.kill(os.getpid(), signal.SIGKILL)
            return x
        if self.form == "odd":
            return odd_sample(index)
        raise ValueError(self.form)


def odd_sample(index: int) -> Any:
    """Return an object without frames: some have a form in torch, and others are refused."""
    import pandas as pd
    import scipy.sparse
    import torch

    samples = (
        lambda: {"text": np.array(["a", None], object)},
        lambda: torch.eye(3).to_sparse(),
        lambda: scipy.sparse.csr_array(np.eye(3)),
        lambda: torch.ones(3, requires_grad=True),
        lambda: np.ma.array([1.0, 2.0], mask=[False, True]),
        lambda: pd.DataFrame({"a": pd.Series(["a", 1, None], dtype=object)}),
        lambda: torch.ones(3, requires_grad=True) * 2,  # torch refuses to pickle a part of a graph
    )
    return samples[index]()


class WholeBatches:
    """A dataset of whole batches of 1 MiB, in the memory that a function allocates."""

    def __init__(self, count: int, shared: bool) -> None:
        self.count, self.shared = count, shared

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        blocks = large_blocks.fresh + large_blocks.recycled
        array = (zc.shared_empty if self.shared else np.empty)(MEBI, "f4")
        array[:] = index
        return [array, np.arange(3) + index, blocks, "text"]
