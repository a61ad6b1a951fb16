"""A CSR array in each framework, converted to the others and back, and the constructors called by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import Contest
from benchmarks.goals import Promise, figure, judge, labelled, time
from benchmarks.suite import Case, Section, Settings, Suite, Task
from benchmarks.timing import Statement
from zerocopy.protocols.array_interface import aligned_copy

#: The contenders.
BY_HAND, OURS = "by hand", "convert"
#: The most nanoseconds of the case that has a goal.
LIMIT = 20_000.0
GOAL = "scipy -> torch -> scipy"
#: Non-zero elements of the arrays: 100 in each row.
COUNT, PER_ROW = 10_000_000, 100


def to_torch(x: Any) -> Any:
    """Return a CSR array of SciPy as a tensor of torch."""
    import torch

    parts = map(torch.from_numpy, (x.indptr, x.indices, x.data))
    return torch.sparse_csr_tensor(*parts, size=x.shape, check_invariants=False)


def from_torch(t: Any) -> Any:
    """Return a CSR tensor of torch as an array of SciPy."""
    import scipy.sparse

    parts = t.values().numpy(), t.col_indices().numpy(), t.crow_indices().numpy()
    return scipy.sparse.csr_array(parts, shape=tuple(t.shape))


def to_jax(x: Any) -> Any:
    """Return a CSR array of SciPy as a BCSR array of JAX."""
    import jax.numpy
    from jax.experimental.sparse import BCSR

    return BCSR(tuple(map(jax.numpy.from_dlpack, (x.data, x.indices, x.indptr))), shape=x.shape)


def to_sparse(x: Any) -> Any:
    """Return a CSR array of SciPy as a GCXS array of PyData's sparse."""
    import sparse

    return sparse.GCXS((x.data, x.indices, x.indptr), shape=x.shape, compressed_axes=(0,))


def sample(count: int) -> Any:
    """Return a canonical CSR array of SciPy in memory at a multiple of 64 bytes."""
    import scipy.sparse

    rows = count // PER_ROW
    x = scipy.sparse.csr_array((rows, 10 * PER_ROW), dtype=np.float32)
    x.data = aligned_copy(np.ones(count, np.float32))
    x.indices = aligned_copy(np.tile(np.arange(0, 10 * PER_ROW, 10, dtype=np.int32), rows))
    x.indptr = aligned_copy(np.arange(0, count + 1, PER_ROW, dtype=np.int32))
    return x


def questions(settings: Settings, names: dict[str, Any]) -> dict[str, tuple[str, str, int]]:
    """Return the code by hand, that with ``convert`` and the bytes that it copies."""
    x, made = names["x"], {}
    if settings.wants("torch"):
        t = names["t"] = zc.convert(x, "torch")
        there, back = zc.explain(x, "torch").copied_bytes, zc.explain(t, "scipy").copied_bytes
        ours = "convert(convert(x, to='torch'), to='scipy')"
        made[GOAL] = "from_torch(to_torch(x))", ours, there + back
        made["scipy -> torch"] = "to_torch(x)", "convert(x, to='torch')", there
        made["torch -> scipy"] = "from_torch(t)", "convert(t, to='scipy')", back
    for target in ("jax", "sparse"):
        if settings.wants(target):
            copied = zc.explain(x, target).copied_bytes
            made[f"scipy -> {target}"] = f"to_{target}(x)", f"convert(x, to='{target}')", copied
    return made


def tasks(settings: Settings) -> list[Task]:
    """Return one task: all conversions are of the same array."""
    return [Task("all conversions", partial(run, settings), seconds=4.0)]


def run(settings: Settings, count: int = COUNT) -> list[Case]:
    """Time each conversion by hand and with ``convert``, in turns."""
    by_hand = (to_torch, from_torch, to_jax, to_sparse)
    names = {"convert": zc.convert, "x": sample(count)} | {f.__name__: f for f in by_hand}
    contest = Contest()
    for name, (code, ours, copied) in questions(settings, names).items():
        case = contest.case(name, {"copied bytes": float(copied)})
        contest.add(case, BY_HAND, "reference", Statement(code, names))
        contest.add(case, OURS, "ours", Statement(ours, names))
    return contest.time(settings.pace)


PROMISES = (
    Promise("at most 20 us there and back", time(labelled(OURS)), LIMIT, "ns", (GOAL,)),
    Promise("no bytes copied", figure("copied bytes"), 0.0, "bytes", (GOAL,)),
)

SUITE = Suite(
    "sparse",
    "sparse arrays from one framework to another",
    (
        Section(
            "conversions",
            "a CSR array of 10 million float32 elements with int32 indices",
            tasks,
            "series",
            partial(judge, PROMISES),
        ),
    ),
    frameworks=("scipy", "torch", "jax", "sparse"),
    distributions=("numpy", "scipy", "torch", "jax", "jaxlib", "sparse"),
)
