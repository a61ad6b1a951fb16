"""Every pair of frameworks, tried on real data: what aliases, what copies, what breaks a promise.

No framework is named here: which there are, the registry says, and the objects
to convert are made with :func:`zerocopy.convert` itself. NumPy alone is the
measure, as the data come in its arrays. A framework of tables has a 2-D array as a
table of its columns. Other types are the affair of :mod:`zerocopy.cli.matrix.columns`.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import repeat as times
from statistics import median
from typing import Any

import numpy as np

import zerocopy
from zerocopy import registry
from zerocopy.cli.matrix.checks import Sharing, first_line, foreign, sharing, strangers
from zerocopy.errors import (
    CopyRequiredError,
    DeviceError,
    FrameworkNotInstalledError,
    Reason,
    ZeroCopyError,
)
from zerocopy.source import Array

#: What can come of a cell, the worst first. ``empty``: a zero-size array, which
#: shares nothing and copies nothing. ``no source``: the source framework cannot
#: hold the data, so there was nothing to convert.
OUTCOMES = ("broken", "no source", "refused", "copy", "empty", "zero-copy")

#: Told what is being tried, how many cells are done and how many there are.
Progress = Callable[[str, int, int], None]

NOTHING = Sharing(False, False, False)
_SAMPLES, _BUDGET_NS = 50, 100_000_000  # for one cell, where nothing else is asked
_SAMPLE_NS = 20_000  # one sample: far above the clock's step, far below the scheduler's


@dataclass(slots=True)
class Cell:
    """What came of converting one array from one framework to another.

    Attributes
    ----------
    source, target, array : str
        The frameworks and the array's name.
    dtype, shape
        Of the array.
    outcome : str
        One of `OUTCOMES`.
    zero_copy : bool
        Whether the result shares the source's memory.
    proof : list of str
        What showed it: ``"shares_memory"``; ``"address"``, both begin at the same
        one; ``"write"``, what was written to the source was (or, for a copy, was
        not) read from the result, through the frameworks' own exporters.
    protocol, copied_bytes, reasons, warnings
        From the plan; `warnings` has those that Python issued too.
    broken : list of str
        The promises that do not hold, in words.
    median_ns : float or None
        Of one call of ``convert`` with default options.
    samples : int
        Of which that is the median.
    """

    source: str
    target: str
    array: str
    dtype: str
    shape: tuple[int, ...]
    outcome: str = "broken"
    zero_copy: bool = False
    proof: list[str] = field(default_factory=list)
    protocol: str = ""
    copied_bytes: int = 0
    reasons: list[Reason] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    median_ns: float | None = None
    samples: int = 0


@dataclass(slots=True)
class Matrix:
    """The cells, and the frameworks: those in the grid and those that are not, with the reason."""

    frameworks: dict[str, str | None]
    cells: list[Cell]
    not_usable: dict[str, Reason]
    not_installed: dict[str, str]

    @property
    def broken(self) -> list[Cell]:
        """The cells that break a promise."""
        return [cell for cell in self.cells if cell.broken]


def measure(
    arrays: dict[str, Array],
    names: Iterable[str] | None = None,
    repeat: int | None = None,
    progress: Progress = lambda what, done, total: None,
    sources: Collection[str] | None = None,
) -> Matrix:
    """Convert each array between every pair of installed frameworks.

    Parameters
    ----------
    arrays : dict of str to numpy.ndarray
        Each framework gets a copy of its own to convert from.
    names : iterable of str, optional
        Frameworks, as ``to=`` takes them. None: all that are installed.
    repeat : int, optional
        Samples a cell to time. None: up to 50, as many as a tenth of a second allows.
    progress : callable, optional
        Told what is being tried, how many cells are done and how many there are.
    sources : collection of str, optional
        Those of the frameworks to convert from. None: all of them.

    Raises
    ------
    UnknownFrameworkError
        A name that nothing known has.
    """
    known = zerocopy.frameworks()
    # Those of tensors first: a grid that is too wide is cut between them and the tables.
    ordered = sorted(known, key=lambda name: ("tensor", "both", "table").index(known[name].kind))
    chosen = ordered if names is None else list(dict.fromkeys(names))
    matrix = Matrix({}, [], {}, {})
    for i, name in enumerate(chosen):
        framework = registry.by_name(name)
        info = known.get(framework.name)
        if not framework.installed():
            matrix.not_installed[name] = f"pip install {framework.distribution or framework.name}"
            continue
        progress(f"importing {name}", i, 0)
        reason = _unusable(name)
        if reason is None:
            matrix.frameworks[name] = info.version if info is not None else None
        else:
            matrix.not_usable[name] = reason
    usable = list(matrix.frameworks)
    origins = [name for name in usable if sources is None or name in sources]
    total, done = len(arrays) * len(origins) * len(usable), 0
    for label, data in arrays.items():
        for origin in origins:
            source, spoiled = _source(data, origin)
            for target in usable:
                progress(f"{origin} -> {target}", done, total)
                cell = Cell(origin, target, label, data.dtype.name, data.shape)
                if spoiled is None:
                    _fill(cell, data, source, repeat)
                else:
                    cell.outcome, cell.reasons, cell.broken = spoiled
                matrix.cells.append(cell)
                done += 1
    return matrix


def _unusable(name: str) -> Reason | None:
    """Return why an installed framework cannot be in the grid at all: no device, a broken install."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a framework warns of while it is imported
            zerocopy.convert(np.zeros(1, np.float32), to=name, copy=True)
    except (DeviceError, FrameworkNotInstalledError) as error:
        return Reason(error.why, error.remedy)
    except Exception:  # noqa: BLE001 - the grid's cells meet it again, and report it
        return None
    return None


def _source(data: Array, origin: str) -> tuple[Any, tuple[str, list[Reason], list[str]] | None]:
    """Return the data as an object of a framework; or what the whole row says instead."""
    try:
        # Each framework's row is memory of its own: what was loaded lies at a multiple
        # of 64 bytes, which NumPy's own arrays do not, so for them it is copied plainly.
        native = registry.by_name(origin) is registry.by_type(type(data))
        source = data.copy() if native else zerocopy.convert(data, to=origin, copy=True)
        broken = _compare(data, source)
        found = sharing(data, source)
        if found is not None and found.some:
            broken.append("copy=True aliases")
    except ZeroCopyError as error:
        return None, ("no source", [Reason(error.why, error.remedy)], [])
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - to find and report such exceptions is what this is for
        broken = [foreign(error)]
    if broken:
        return None, ("broken", [], [f"making the source: {what}" for what in broken])
    return source, None


def _fill(cell: Cell, data: Array, source: Any, repeat: int | None) -> None:
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = _check(cell, data, source)
        said = (f"{w.category.__name__}: {first_line(str(w.message))}" for w in caught)
        cell.warnings = list(dict.fromkeys([*cell.warnings, *said]))
        if result is not None:
            del result
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cell.median_ns, cell.samples = _time(source, cell.target, repeat)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - to find and report such exceptions is what this is for
        cell.broken.append(foreign(error))
    cell.broken = list(dict.fromkeys(cell.broken))
    if cell.broken:
        cell.outcome = "broken"


def _check(cell: Cell, data: Array, source: Any) -> Any:
    """Try a pair in every way that the promises speak of; return the result of the default one."""
    plan = zerocopy.explain(source, cell.target)
    cell.protocol, cell.copied_bytes = plan.protocol, plan.copied_bytes
    cell.reasons, cell.warnings = plan_reasons(plan), list(plan.warnings)
    result, shares, refusal = _try(cell, data, source, {})
    if refusal is None:
        cell.zero_copy = shares.whole
        cell.outcome = "zero-copy" if shares.whole else "copy" if data.size else "empty"
        _prove(cell, source, result)
        # Once more: only the second call for a type takes the fast way.
        again = _try(cell, data, source, {})
        if again[1].whole != shares.whole or again[2] is not None:
            cell.broken.append("the second call did something else than the first")
    else:
        cell.outcome, cell.reasons = "refused", [Reason(refusal.why, refusal.remedy)]
    _, kept, error = _try(cell, data, source, {"copy": False})
    if error is None and data.size and not kept.whole:
        cell.broken.append("copy=False copies")
    if refusal is None and error is not None:
        if shares.whole:
            cell.broken.append(f"copy=False refuses what the default aliases: {first_line(error.why)}")
        elif not isinstance(error, CopyRequiredError):
            cell.broken.append(f"copy=False raised {type(error).__name__}, no CopyRequiredError")
    _, kept, error = _try(cell, data, source, {"copy": True})
    if kept.some:
        cell.broken.append("copy=True aliases")
    cell.broken += [f"the source afterwards: {what}" for what in _compare(data, source)]
    return result


def _try(
    cell: Cell, data: Array, source: Any, options: dict[str, Any]
) -> tuple[Any, Sharing, ZeroCopyError | None]:
    """Convert once; return the result, how it shares the source's memory, the refusal."""
    said = "".join(f" with {k}={v}" for k, v in options.items())
    plan = zerocopy.explain(source, cell.target, **options)
    try:
        result = zerocopy.convert(source, cell.target, **options)
    except ZeroCopyError as error:
        if plan.possible:
            cell.broken.append(
                f"explain{said} says that it works, and convert refuses: {first_line(error.why)}"
            )
        return None, NOTHING, error
    if not plan.possible:
        cell.broken.append(f"explain{said} says that it is refused, and convert returns")
    shares = sharing(source, result)
    if shares is None:  # a query: what its plan says stands, and the cell has no proof
        shares = Sharing(plan.zero_copy, plan.zero_copy, False)
    elif shares.whole != plan.zero_copy:
        what = ("shares no memory", "shares memory")[shares.whole]
        cell.broken.append(f"explain{said} says zero_copy={plan.zero_copy}, and the result {what}")
    for name in dict.fromkeys(strangers(result, cell.target)):
        cell.broken.append(f"the result{said} is a {name}, nothing of {cell.target}")
    cell.broken += [f"the result{said}: {what}" for what in _compare(data, result)]
    return result, shares, None


def plan_reasons(plan: zerocopy.Plan) -> list[Reason]:
    """Return why a plan copies or refuses, each reason of its columns once."""
    return list(dict.fromkeys([*plan.reasons, *(r for leaf in plan.leaves.values() for r in leaf.reasons)]))


def _compare(data: Array, obj: Any) -> list[str]:
    """Return in what an object differs from the data: dtype, shape, any bit of any value."""
    back = zerocopy.convert(obj, to="numpy")
    if isinstance(back, dict):
        back, unlike = _together(back, data.ndim)
        if unlike:
            return unlike
    if not isinstance(back, np.ndarray):
        return [f"it comes back as {type(back).__name__}, no array"]
    if back.dtype != data.dtype:
        return [f"the dtype is {back.dtype}, not {data.dtype}"]
    if back.shape != data.shape:
        return [f"the shape is {back.shape}, not {data.shape}"]
    # Bits and not values: NaN equals NaN, and -0.0 does not equal 0.0.
    width = data.dtype.itemsize
    whole = np.dtype(f"u{min(width, 8)}")  # a complex128 is two of them
    ours, theirs = (np.ascontiguousarray(x).reshape(-1).view(whole) for x in (data, back))
    if np.array_equal(ours, theirs):
        return []
    wrong = int((ours != theirs).reshape(data.size, -1).any(axis=1).sum())
    return [f"{wrong:,} of {data.size:,} values differ"]


def _together(columns: dict[Any, Any], ndim: int) -> tuple[Any, list[str]]:
    """Return columns as the array that they were made of, or what is wrong with them."""
    found = list(columns.values())
    dtypes = list(dict.fromkeys(str(column.dtype) for column in found))
    if len(dtypes) != 1:
        return None, [f"its columns have the dtypes {', '.join(dtypes) or 'of none'}"]
    if ndim == 1 and len(found) == 1:
        return found[0], []
    names = [f"column_{i}" for i in range(len(found))]
    wrong = [] if list(columns) == names else [f"its columns are called {', '.join(map(str, columns))}"]
    return np.column_stack(found), wrong


def _prove(cell: Cell, source: Any, result: Any) -> None:
    """Look at addresses, and where that is safe at what a write does."""
    found = sharing(source, result)
    if found is None:
        return
    shares, cell.proof = found.whole, ["shares_memory"]
    if shares and found.same_start:
        cell.proof.append("address")
    elif shares:
        cell.broken.append("the result shares memory and begins at another address")
    seen = _write_seen(cell, source, result)
    if seen is None:
        return
    cell.proof.append("write")
    if seen != shares:
        what = ("is not", "is")[seen]
        cell.broken.append(f"shares_memory is {shares}, and a write to the source {what} seen in the result")


def _write_seen(cell: Cell, source: Any, result: Any) -> bool | None:
    """Write to the source, read from the result, put it back; None where that is not safe.

    Safe: the source's framework has mutable arrays and this one is not read-only.
    The result is ours and thrown away, so that an immutable one may be looked at
    while it changes. Both are reached by NumPy's own ``from_dlpack``, which knows
    nothing of what we think of their memory.
    """
    if not registry.by_name(cell.source).mutable or not hasattr(type(result), "__dlpack__"):
        return None
    if not hasattr(type(source), "__dlpack__"):
        return None
    there = zerocopy.view(source)
    if there.readonly or not there.device.is_host or not there.size:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of our looking, and not of the conversion
            ours, theirs = np.from_dlpack(source), np.from_dlpack(result)
    except (BufferError, RuntimeError, TypeError):
        return None  # a dtype that NumPy has not, memory on a device, read-only for an old NumPy
    if not ours.flags.writeable or ours.shape != theirs.shape:
        return None
    first = (0,) * ours.ndim
    old = ours[first].copy()
    before = theirs[first].tobytes()
    try:
        ours[first] = 0 if old else 1
        return bool(theirs[first].tobytes() != before)
    finally:
        ours[first] = old


def _time(source: Any, target: str, repeat: int | None) -> tuple[float, int]:
    """Return the median time of one call in ns, and the number of samples."""
    convert = zerocopy.convert
    start = time.perf_counter_ns()
    convert(source, target)
    once = max(time.perf_counter_ns() - start, 1)
    calls = max(1, min(1000, _SAMPLE_NS // once))
    samples: list[float] = []
    collecting = gc.isenabled()
    gc.disable()  # as timeit does
    try:
        begin = time.perf_counter_ns()
        while len(samples) < (repeat or _SAMPLES):
            start = time.perf_counter_ns()
            for _ in times(None, calls):
                convert(source, target)
            now = time.perf_counter_ns()
            samples.append((now - start) / calls)
            if repeat is None and now - begin > _BUDGET_NS and len(samples) >= 3:
                break
    finally:
        if collecting:
            gc.enable()
    return median(samples), len(samples)
