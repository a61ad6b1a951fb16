"""The goals of the suite: each with its question, its figure and its limit."""

from __future__ import annotations

from functools import partial

from benchmarks.goals import NOISE, Measure, Promise, fastest, figure, judge, ratio, time
from benchmarks.processes.objects import ARRAYS

_REFERENCE, _TODAY = fastest("reference"), fastest("idiom")
_IN_PLACE = ("numpy", "torch")
_RAY = ("torch", "jax", "tensorflow")


def promise(
    name: str,
    question: str,
    measure: Measure,
    limit: float,
    unit: str = "x",
    without: Measure = lambda case: None,
    frameworks: tuple[str, ...] = (),
) -> Promise:
    """Return a promise about the cases of a question, with the figure without zerocopy."""
    return Promise(name, measure, limit, unit, question=question, frameworks=frameworks, without=without)


def _memcpy(
    name: str, question: str, limit: float, frameworks: tuple[str, ...] = (), less: float = 0.0
) -> Promise:
    """Return a promise about the time as a multiple of the reference; `less` nanoseconds are not counted."""
    without = ratio(_REFERENCE, _TODAY)
    return promise(name, question, ratio(_REFERENCE, less=less), limit, "x", without, frameworks)


_IN_BAND, _PRIVATE = "bytes in-band", "bytes private to the reader"
_HANDLE = "bytes of the pickled handle"

PROMISES = (
    promise(
        *("pickle 5: bytes in-band", "pickle 5", figure(_IN_BAND), 2000, "bytes"),
        figure(f"{_IN_BAND} without zerocopy"),
    ),
    _memcpy("pickle 5: dumps and loads", "pickle 5", 0.1),
    _memcpy("share: recycled", "share, recycled", 1.6),
    _memcpy("share: fresh", "share, fresh", 9),
    promise("share: already shared", "share, already shared", time(), 5_000, "ns"),
    promise("open: new, arrays", "open, new", time(), 60_000, "ns", time(_TODAY), ARRAYS),
    promise(
        "open: already mapped, arrays", "open, already mapped", time(), 6_000, "ns", frameworks=_IN_PLACE
    ),
    promise("open: new, tables", "open, new", time(), 100_000, "ns", frameworks=("pyarrow",)),
    promise("open: bytes of the pickled handle", "open, new", figure(_HANDLE), 256, "bytes"),
    _memcpy("Pipe", "Pipe", 3),
    _memcpy("Queue", "Queue", 3),
    _memcpy("DataLoader: batch of 32 MiB, 1 worker", "DataLoader, 1 worker", 2),
    _memcpy("DataLoader: batch of 32 MiB, 2 workers", "DataLoader, 2 workers", 4),
    _memcpy("Ray: put", "Ray put", 3, _RAY),
    _memcpy("Ray: put of polars", "Ray put", 5, ("polars",)),
    _memcpy("Ray: get", "Ray get", 0.4, (*_RAY, "polars")),
    promise(
        *("Ray: bytes private to the reader", "Ray get", figure(_PRIVATE), 0, "bytes"),
        figure(f"{_PRIVATE} without zerocopy"),
        (*_RAY, "polars"),
    ),
    _memcpy("Dask, same host: over an empty task", "Dask, same host", 4),
    promise(f"Dask, tcp: over Dask alone, at most {NOISE}x for noise", "Dask, tcp", ratio(_TODAY), NOISE),
    _memcpy("Flight, same host, without 100 us", "Flight", 1.6, less=100_000),
)

goals = partial(judge, PROMISES)
