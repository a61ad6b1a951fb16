"""The public ``loader``."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from zerocopy._engine.options import Like, Target
from zerocopy._engine.recording import own_work
from zerocopy._engine.target import is_named, of_object
from zerocopy.errors import ZeroCopyError
from zerocopy.errors.tracebacks import public
from zerocopy.framework import while_forks_wait
from zerocopy.loading.dictionaries import encode_source
from zerocopy.loading.lists import with_one_length
from zerocopy.loading.loader import Loader, loader_class
from zerocopy.loading.options import LoaderOptions, in_terms_of_loader
from zerocopy.loading.sources.opening import open_source
from zerocopy.request import NullPolicy


@public
def loader(
    source: Any,
    to: Target | Like,
    *,
    batch_size: int = 8192,
    columns: Sequence[Hashable] | None = None,
    nulls: NullPolicy | Mapping[Hashable, NullPolicy | None] | None = None,
    encode: bool | Literal["codes", "bytes"] | Mapping[Hashable, Any] | None = None,
    layout: Literal["columns", "matrix"] | None = None,
    lists: Literal["dense", "ragged", "pad"] | None = None,
    pad_value: Any = None,
    max_length: int | None = None,
    dtype: Any = None,
    shuffle: bool | int | Literal["full"] = False,
    seed: int = 0,
    prefetch: int = 2,
    device: Any = None,
    drop_last: bool = False,
    rank: int | None = None,
    world_size: int | None = None,
    epochs: int = 1,
    on_error: Literal["raise", "skip"] = "raise",
    schema: Any = None,
    progress: bool | None = None,
    engine: Literal["cudf"] | None = None,
) -> Loader[Any]:
    """Return an iterable of the batches of files, tables, queries, streams or arrays.

    Each ``iter(loader)`` begins the next epoch. Threads read row groups ahead of the consumer; they end when
    the iterator is exhausted, closed or dropped.

    Parameters
    ----------
    source : path, str, table, stream, query or mapping
        A Parquet file, a glob pattern or a URL, a table of any framework, an object with an Arrow stream,
        or a dict of arrays whose first dimension is the rows. The page on the loader lists all sources.
    to : str, module, type or object
        The framework of the batches, as in `convert`: ``"torch"``, or a tensor, whose device is then the
        default of `device`.
    batch_size : int, default 8192
        Rows of a batch. The last batch of an epoch may have fewer.
    columns : sequence of labels, optional
        Columns of the batches, in this order. None gives all columns. Parquet files, polars and DuckDB read
        only these columns.
    nulls : str, number, bool or dict, optional
        Replacement of nulls, as in `convert`: ``"mask"``, ``"nan"``, a value, or a dict by column.
        ``"drop"`` leaves rows out: a batch has those of its `batch_size` rows that remain, which can be none.
    encode : "codes", "bytes", bool or dict, optional
        Represent dates, categories and text as numbers, as in `convert`. The code of a word is the same in
        all batches. ``"codes"`` or True collects the words in one pass over the source. A dict gives the
        words of a column as a sequence, ``"codes"`` to collect them, or False for the bytes of the text.
        ``"bytes"`` gives the bytes of all text.
    layout : {"columns", "matrix"}, optional
        ``"columns"``, the default, gives a dict of columns, or a table if `to` is a table framework.
        ``"matrix"`` gives one tensor of shape (rows, columns).
    lists : {"dense", "ragged", "pad"}, optional
        Columns of lists of numbers, as in `convert`. None and ``"dense"``: one more dimension; all lists of
        all batches must have the length of the first one. ``"pad"``: each batch has the length of its longest
        list.
    pad_value, max_length : optional
        With ``lists="pad"``, as in `convert`.
    dtype : str or dtype, optional
        Cast the columns to this dtype.
    shuffle : bool, int or "full", default False
        True permutes the row groups, and the rows within a window of several row groups. An int is the
        number of rows of a window. ``"full"`` has one window, of all rows. The order depends only on
        `seed` and the epoch.
    seed : int, default 0
        Seed of the order.
    prefetch : int, default 2
        Number of batches to make ahead. The reader's thread waits when this many batches are ready.
    device : str, optional
        The device of the batches, as in `convert`: ``"cuda:0"``.
    drop_last : bool, default False
        Leave out a last batch with fewer than `batch_size` rows, and rows that would make shards unequal. All
        shards then have the same number of batches.
    rank, world_size : int, optional
        Number of this process, from 0, and number of processes, which deliver different rows. Pass both.
    epochs : int, default 1
        Number of epochs of one iteration. The thread begins to read the next epoch before the consumer has
        finished the current one.
    on_error : {"raise", "skip"}, default "raise"
        ``"skip"`` leaves out row groups that cannot be read, and counts them.
    schema : pyarrow.Schema or dict, optional
        The columns and types of the result, to which the columns of the source are cast. A dict has an Arrow
        type, its name or a NumPy dtype by column.
    progress : bool, optional
        Whether to show a bar while the words of text are collected. None shows it in a terminal, if the pass
        takes longer than half a second.
    engine : {"cudf"}, optional
        ``"cudf"`` decodes local Parquet files on the GPU of `device`, in the order of the source. None
        decodes files on the host.

    Returns
    -------
    Loader
        An iterable with ``len``, ``state_dict`` and ``load_state_dict``. For ``to="torch"`` it is also a
        ``torch.utils.data.IterableDataset``, and each worker of a ``DataLoader`` delivers a part of it.

    Raises
    ------
    OptionError
        An option has an invalid value.
    ReadError
        A file does not exist or cannot be read; also raised during the iteration.
    UnknownFrameworkError, FrameworkNotInstalledError, DeviceError
        As in `convert`.
    UnsupportedConversionError
        `source` is not a source of rows, or the target does not have the type of a column.
    LossyConversionError
        A column has nulls, values or words that the target cannot hold; raised during the iteration, or while
        the words of text are collected.

    Notes
    -----
    A batch stays valid as long as the caller keeps it. Without `shuffle`, a column of a batch aliases the
    row group that was decoded, if the target aliases Arrow's memory; a kept batch then keeps the memory of
    the whole row group. Rows of one batch that are in several row groups are copied together. A
    matrix aliases a buffer, which the loader reuses when no batch aliases it. The columns of a shuffled batch
    share new memory of their own. Do not write to a batch that aliases `source`.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> data = {"x": np.arange(5.0), "y": np.arange(5)}
    >>> for batch in zc.loader(data, to="numpy", batch_size=3):
    ...     print(batch)
    {'x': array([0., 1., 2.]), 'y': array([0, 1, 2])}
    {'x': array([3., 4.]), 'y': array([3, 4])}
    >>> loader = zc.loader(data, to="numpy", batch_size=2, layout="matrix", dtype="float32", drop_last=True)
    >>> len(loader), [batch.shape for batch in loader]
    (2, [(2, 2), (2, 2)])
    """
    if not is_named(to):
        to, placement = of_object(to, source, {"device": device})
        device = placement["device"]
    options = LoaderOptions(
        to, batch_size=batch_size, columns=columns, nulls=nulls, encode=encode, layout=layout, lists=lists,
        pad_value=pad_value, max_length=max_length, dtype=dtype, shuffle=shuffle, seed=seed,
        prefetch=prefetch, device=device, drop_last=drop_last, rank=rank, world_size=world_size,
        epochs=epochs, on_error=on_error, schema=schema, progress=progress, engine=engine,
    )  # fmt: skip
    # Creation imports modules. A child forked during an import would inherit its held lock.
    created: Loader[Any] = while_forks_wait(partial(_create, source, options))
    return created


def _create(source: Any, options: LoaderOptions) -> Loader[Any]:
    try:
        with own_work():
            opened = with_one_length(encode_source(open_source(source, options), options), options)
            return loader_class(options.to)(opened, options, opened.empty())
    except ZeroCopyError as error:
        in_terms_of_loader(error, options)
        raise
