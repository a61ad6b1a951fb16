"""The public ``dataset``: rows by their numbers, for a ``DataLoader`` of torch and its samplers."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._engine.call_text import rewrite
from zerocopy._engine.options import Like, Target
from zerocopy._engine.recording import own_work
from zerocopy._engine.target import is_named, of_object, resolve
from zerocopy.errors import OptionError, ReadError, UnsupportedConversionError, ZeroCopyError
from zerocopy.errors.invalid_option import unknown_option
from zerocopy.errors.tracebacks import public
from zerocopy.formatting import printable
from zerocopy.framework import while_forks_wait
from zerocopy.loading.batch_plan import plan_batches
from zerocopy.loading.dataset import Dataset
from zerocopy.loading.dictionaries import encode_source
from zerocopy.loading.options import LoaderOptions, in_terms_of_loader
from zerocopy.loading.sources.opening import open_source
from zerocopy.source import Array
from zerocopy.tables.result import Together, first_row

_OPTIONS = re.findall(r"\w+", "columns nulls encode layout lists pad_value max_length dtype device schema")


@public
def dataset(source: Any, to: Target | Like, **options: Any) -> MapDataset:
    """Return the rows of a table, files or arrays by their numbers, for a ``DataLoader`` of torch.

    Parameters
    ----------
    source : path, table or mapping
        As for :func:`zerocopy.loader`, but not a stream. Parquet files are read into memory.
    to : str, module, type or object
        A framework of tensors, as in :func:`zerocopy.loader`.
    **options
        `columns`, `nulls`, `encode`, `layout`, `lists`, `pad_value`, `max_length`, `dtype`, `device` and
        `schema` of :func:`zerocopy.loader`; not ``nulls="drop"``.

    Returns
    -------
    MapDataset
        ``data[3]`` is a row, a dict of elements; ``data[:8]`` and ``data[[5, 0]]`` are batches of rows.

    Raises
    ------
    ZeroCopyError, TypeError
        As :func:`zerocopy.loader`; also if `source` is a stream, and for nulls when rows are read.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> zc.dataset({"x": np.arange(4.0)}, to="numpy")[[2, 0]]
    {'x': array([2., 0.])}
    """
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(unknown_option("dataset", name, _OPTIONS))
    with _in_terms_of_dataset(None):
        if not is_named(to):
            to, options = of_object(to, source, options)
        named = resolve(to)  # a name can be pickled, unlike a module
        checked = LoaderOptions(f"{named.name}.{named.form}" if named.form else named.name, **options)
    return while_forks_wait(partial(MapDataset, source, checked))  # type: ignore[no-any-return]


@contextmanager
def _in_terms_of_dataset(options: LoaderOptions | None) -> Iterator[None]:
    try:
        with own_work():
            yield
    except ZeroCopyError as error:
        if options is not None:
            in_terms_of_loader(error, options)
        rewrite(error, lambda code: re.sub(r"(?<!in )zc\.loader\(", "zc.dataset(", code))
        error.with_context(asked=error.asked.replace("loader(", "dataset(", 1))
        raise


class MapDataset:
    """Rows by their numbers; returned by :func:`zerocopy.dataset`. A pickle opens the source again."""

    def __init__(self, source: Any, options: LoaderOptions, digest: str = "") -> None:
        self._given, self._options = source, options
        with _in_terms_of_dataset(options):
            if resolve(options.to).kind not in ("tensor", "compound") or options.drops_rows:
                name, fix = ("nulls", "mask") if options.drops_rows else ("to", "numpy")
                asked = f"dataset({name}={getattr(options, name)!r})"
                raise OptionError(asked, "it has tensors of all rows, by number", f'pass {name}="{fix}"')
            opened = encode_source(open_source(source, options), options)
            if not isinstance(opened, Dataset):
                why = f"the rows of {opened.name} are read in sequence, and have no numbers"
                fix = "pass a table of them; or iterate over zc.loader(source, ...)"
                raise UnsupportedConversionError("dataset(...)", why, fix, code="not-a-source")
            self._digest: str = opened.fingerprint()
            if digest not in ("", self._digest):
                files = {group.file or opened.name for group in opened.groups}
                name, fix = files.pop() if len(files) == 1 else opened.name, "create the data set again"
                raise ReadError(name, "it has changed", fix, code="changed-file")
            self._plan = plan_batches(opened.empty(), options)
            self._plan.copies = None  # which only an iterator of a loader waits for
            self._count = sum(group.rows for group in opened.groups)
            self._gather: Callable[[Array], Any] = opened.gatherer()
            self._name = opened.name

    def __repr__(self) -> str:
        return printable(f"zerocopy.dataset({self._name}, to={self._options.to!r}): {self._count:,} rows")

    def __reduce__(self) -> tuple[Any, ...]:
        return MapDataset, (self._given, self._options, self._digest)

    def __len__(self) -> int:
        return self._count

    @public
    def __getitem__(self, index: Any) -> Any:
        """Return a row for an int, and a batch for a slice or a sequence of ints."""
        if isinstance(index, slice):
            start, stop, step = index.indices(self._count)
            return self._batch(np.arange(start, stop, max(-self._count - 1, min(step, self._count + 1))))
        rows = np.asarray(index)
        if rows.ndim > 1 or (rows.dtype.kind not in "iu" and rows.size):
            raise TypeError(f"dataset[...]: an index is an int, a slice or a sequence of ints: {index!r}")
        rows = rows if rows.size else np.arange(0)
        if np.any(absent := (rows < -self._count) | (rows >= self._count)):
            row, known = np.asarray(index)[absent].ravel()[0], f"{-self._count} to {self._count - 1}"
            raise IndexError(f"dataset[...]: row {row} does not exist: rows are {known}")
        rows = rows.astype(np.int64) % self._count if rows.size else rows
        return self._batch(rows) if rows.ndim else first_row(self._batch(rows.reshape(1)))

    def __getitems__(self, indices: Sequence[int]) -> list[Together]:
        """Return a batch for the ``DataLoader``, whose ``default_collate`` returns its `rows`."""
        if "torch" in sys.modules:
            registry.by_name("torch").module()  # `default_collate` knows `Together` from now on
        return [Together(self[indices])]

    def _batch(self, rows: Array) -> Any:
        with _in_terms_of_dataset(self._options):
            content = self._gather(rows)
            plan = self._plan.of_rows(content)
            return plan.to_target(content) if plan.is_matrix else plan.from_rows(plan.prepared(content))
