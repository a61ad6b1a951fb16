"""Arrays of numbers, converted between every pair of frameworks.

The registry names the frameworks, and :func:`zerocopy.convert` makes the sources. NumPy is the
reference, because the data are its arrays. A framework of tables holds a 2-D array as a table of
its columns. Other types of columns are tried in :mod:`zerocopy.pairs.columns`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from statistics import median
from timeit import Timer
from typing import Any

import numpy as np

import zerocopy
from zerocopy import registry
from zerocopy.errors import DeviceError, FrameworkNotInstalledError, Reason
from zerocopy.framework import FrameworkName
from zerocopy.pairs.attempt import Attempt, Progress, Row, fill_cells, sharing
from zerocopy.pairs.cells import Cell
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.source import Array

_SAMPLES, _BUDGET_NS = 50, 100_000_000  # per cell, unless the caller sets the number of samples
_SAMPLE_NS = 20_000  # one sample: far above the clock's step, far below the scheduler's


@dataclass(slots=True, kw_only=True)
class ArrayCell(Cell):
    """The outcome of converting an array, and the median time of one call with default options."""

    array: str
    dtype: str
    shape: tuple[int, ...]
    median_ns: float | None = None
    samples: int = 0

    @property
    def item(self) -> str:
        return self.array


@dataclass(slots=True)
class ArrayMatrix:
    """The cells of arrays, and the frameworks: the usable ones, and the others with the reason."""

    frameworks: dict[str, str | None]
    cells: list[ArrayCell]
    not_usable: dict[str, Reason]
    not_installed: dict[str, str]

    @property
    def broken(self) -> list[ArrayCell]:
        """The cells that break a promise."""
        return [cell for cell in self.cells if cell.broken]


def measure(
    arrays: dict[str, Array],
    names: Iterable[str] | None = None,
    samples: int | None = None,
    progress: Progress = lambda step, done, total: None,
    sources: Collection[str] | None = None,
    optional: Collection[str] = (),
) -> ArrayMatrix:
    """Convert each array between every pair of installed frameworks.

    Parameters
    ----------
    arrays : dict of str to numpy.ndarray
    names, sources : iterable of str, optional
        The frameworks, and those to convert from. None: all that are installed.
    samples : int, optional
        Times to measure per cell; 0 for none. None: up to 50 within a tenth of a second.
    progress : callable, optional
    optional : collection of str, optional
        The names of arrays that most frameworks cannot hold: without times, and without cells for
        sources that cannot.
    """
    known = zerocopy.frameworks()
    # Tensor frameworks first: a grid that is too wide is split between them and the tables.
    kinds = ("tensor", "both", "table")
    ordered = sorted(
        (n for n in known if known[n].kind in kinds), key=lambda name: kinds.index(known[name].kind)
    )
    matrix = ArrayMatrix({}, [], {}, {})
    for i, name in enumerate(ordered if names is None else dict.fromkeys(names)):
        framework = registry.by_name(name)
        if not framework.installed():
            matrix.not_installed[name] = f"pip install {framework.distribution or framework.name}"
            continue
        progress(f"importing {name}", i, 0)
        if reason := _find_obstacle(name):
            matrix.not_usable[name] = reason
        else:
            info = known.get(framework.name)
            matrix.frameworks[name] = None if info is None else info.version
    targets = list(matrix.frameworks)
    origins = [name for name in targets if sources is None or name in sources]
    rows = [
        ArrayRow(origin, label, data, 0 if label in optional else samples)
        for label, data in arrays.items()
        for origin in origins
    ]
    cells = fill_cells(rows, targets, progress)
    matrix.cells = [cell for cell in cells if cell.outcome != "no source" or cell.array not in optional]
    return matrix


def _find_obstacle(name: str) -> Reason | None:
    """Return why an installed framework cannot be in the matrix: no device, a broken installation."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # frameworks warn at import
            zerocopy.convert(np.zeros(1, np.float32), to=FrameworkName(name), copy=True)
    except (DeviceError, FrameworkNotInstalledError) as error:
        return error.reason
    except BaseException as error:  # the cells raise it again, and report it
        if not is_error(error):
            raise
    return None


class ArrayRow(Row[ArrayCell]):
    """An array in one framework, converted to every target."""

    def __init__(self, origin: str, label: str, data: Array, samples: int | None = None) -> None:
        super().__init__(origin, is_empty=not data.size)
        self.label = label
        self.data = data
        self.samples = samples

    def new_cell(self, target: str) -> ArrayCell:
        dtype, shape = self.data.dtype.name, self.data.shape
        return ArrayCell(source=self.origin, target=target, array=self.label, dtype=dtype, shape=shape)

    def make_source(self) -> list[str]:
        # Copy with NumPy, because users' arrays are usually not 64-byte aligned, unlike the data.
        native = registry.by_name(self.origin) is registry.by_type(type(self.data))
        to = FrameworkName(self.origin)
        self.source: Any = self.data.copy() if native else zerocopy.convert(self.data, to=to, copy=True)
        differences = _find_differences(self.data, self.source)
        shares = sharing(self.data, self.source)
        return [*differences, "copy=True aliases"] if shares is not None and shares.some else differences

    def check(self, cell: ArrayCell) -> None:
        attempt = self.check_options(cell, {})
        if attempt.refusal is not None:
            self.refuse(cell, self.reason(attempt.refusal))
        elif attempt.measured:
            self._prove(cell, attempt)
        cell.broken += [
            f"the source afterwards: {text}" for text in _find_differences(self.data, self.source)
        ]
        if attempt.refusal is None and self.samples != 0:
            del attempt
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cell.median_ns, cell.samples = _time_conversion(self.source, cell.target, self.samples)

    def refuse(self, cell: ArrayCell, reason: Reason) -> None:
        cell.reasons = [reason]

    def differences(self, result: Any, plan: zerocopy.Plan, options: dict[str, Any]) -> list[str]:
        return _find_differences(self.data, result)

    def _prove(self, cell: ArrayCell, attempt: Attempt) -> None:
        """Compare addresses, and the effect of a write if that is safe."""
        shares = attempt.sharing.whole
        if shares and attempt.sharing.same_start:
            cell.proof.append("address")
        elif shares:
            cell.broken.append("the result shares memory and begins at another address")
        seen = _write_seen(self.origin, self.source, attempt.result)
        if seen is None:
            return
        cell.proof.append("write")
        if seen != shares:
            verb = "changes" if seen else "does not change"
            cell.broken.append(f"shares_memory is {shares}, and a write to the source {verb} the result")


def _find_differences(data: Array, obj: Any) -> list[str]:
    """Return how an object differs from the data: dtype, shape, any bit of any value."""
    back = zerocopy.convert(obj, to="numpy")
    if isinstance(back, dict):
        back, differences = _join_columns(back, data.ndim)
        if differences:
            return differences
    if not isinstance(back, np.ndarray):
        return [f"converted back, it is a {type(back).__name__}, not an array"]
    if back.dtype != data.dtype:
        return [f"the dtype is {back.dtype}, not {data.dtype}"]
    if back.shape != data.shape:
        return [f"the shape is {back.shape}, not {data.shape}"]
    # Bits, not values: NaN equals NaN, and -0.0 differs from 0.0. A complex128 is two words.
    word = np.dtype(f"u{min(data.dtype.itemsize, 8)}")
    ours, theirs = (np.ascontiguousarray(x).reshape(-1).view(word) for x in (data, back))
    if np.array_equal(ours, theirs):
        return []
    count = int((ours != theirs).reshape(data.size, -1).any(axis=1).sum())
    return [f"{count:,} of {data.size:,} values differ"]


def _join_columns(columns: dict[Any, Any], ndim: int) -> tuple[Any, list[str]]:
    """Return the array whose columns these are, and how they differ from columns of an array."""
    parts = list(columns.values())
    dtypes = list(dict.fromkeys(str(column.dtype) for column in parts))
    if len(dtypes) != 1:
        return None, [f"its columns have {len(dtypes)} dtypes: {', '.join(dtypes)}"]
    if ndim == 1 and len(parts) == 1:
        return parts[0], []
    if list(columns) != [f"column_{i}" for i in range(len(parts))]:
        return None, [f"its columns are called {', '.join(map(str, columns))}"]
    return np.column_stack(parts), []


def _write_seen(origin: str, source: Any, result: Any) -> bool | None:
    """Return whether a write to the source changes the result; None if writing is not safe.

    It is safe if the source's framework has mutable arrays and this one is writable. NumPy's own
    ``from_dlpack`` reads both objects, so that this does not depend on zerocopy. Before 2.1 its results are
    always read-only.
    """
    if not registry.by_name(origin).mutable:
        return None
    if not all(hasattr(type(obj), "__dlpack__") for obj in (source, result)):
        return None
    view = zerocopy.view(source)
    if view.readonly or not view.device.is_host or not view.size:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from this check, not from the conversion
            ours, theirs = np.from_dlpack(source), np.from_dlpack(result)
    except (BufferError, RuntimeError, TypeError) as error:
        if not is_error(error):
            raise
        return None  # a dtype that NumPy lacks, device memory, read-only memory for an old NumPy
    if not ours.flags.writeable or ours.shape != theirs.shape:
        return None
    first = (0,) * ours.ndim
    old, before = ours[first].copy(), theirs[first].tobytes()
    try:
        ours[first] = 0 if old else 1
        return bool(theirs[first].tobytes() != before)
    finally:
        ours[first] = old


def _time_conversion(source: Any, target: str, samples: int | None) -> tuple[float, int]:
    """Return the median time of one call in nanoseconds, and the number of samples."""
    names = {"convert": zerocopy.convert, "source": source, "target": target}
    timer = Timer("convert(source, target)", timer=time.perf_counter_ns, globals=names)
    calls = int(max(1, min(1000, _SAMPLE_NS // max(timer.timeit(1), 1))))
    times: list[float] = []
    begin = time.perf_counter_ns()
    while len(times) < (samples or _SAMPLES):
        times.append(timer.timeit(calls) / calls)
        if samples is None and time.perf_counter_ns() - begin > _BUDGET_NS and len(times) >= 3:
            break
    return median(times), len(times)
