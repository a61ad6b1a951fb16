"""``open_weights``: files of weights as a lazy mapping."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from zerocopy import registry
from zerocopy._engine.options import Target, check_options
from zerocopy._engine.target import resolve
from zerocopy.errors import MissingFileError, OptionError, ReadError, UnsupportedConversionError
from zerocopy.errors.tracebacks import public
from zerocopy.source import type_name
from zerocopy.weights import gguf, npy, safetensors
from zerocopy.weights.file import Tensor, WeightFile
from zerocopy.weights.mapping import Weights

if TYPE_CHECKING:
    from os import PathLike

_Header = tuple[list[Tensor], dict[str, Any]]
_INDEX = ".json"
#: The reader of each suffix.
_READERS: dict[str, Callable[[WeightFile], _Header]] = {
    ".safetensors": safetensors.read,
    ".gguf": gguf.read,
    ".npy": npy.read,
    ".npz": npy.read_archive,
}


@public
def open_weights(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    to: Target = "numpy",
    *,
    device: Any = None,
    copy: bool | None = None,
    stream: Any = None,
    writable: bool | None = None,
    dtype: Any = None,
    max_header: int | None = None,
) -> Weights[Any]:
    """Return the tensors of files of weights as a lazy mapping, converted when they are used.

    Parameters
    ----------
    path : str, path or sequence of them
        A file of safetensors, GGUF, ``.npy`` or ``.npz``, an index of shards
        (``*.index.json``), or several files whose tensors have different names.
    to : str, module or type
        The target, as for :func:`zerocopy.convert`.
    device, copy, stream, writable, dtype : optional
        The options of :func:`zerocopy.convert`, for each tensor. ``writable=True`` copies nothing: a write
        copies the page for this process, and the file does not change.
    max_header : int, optional
        The maximum length of a header, or of an index, in bytes. A longer one is refused, because parsing
        it can take many times its size in memory. Default: 10,000 for NumPy's formats, as for
        ``numpy.load``, and 100,000,000 for others.

    Returns
    -------
    Weights
        A mapping of names. ``weights[name]`` is one tensor in the target framework, ``weights.read()`` a
        dict of all, ``weights.explain()`` the plan. Only the headers have been read.

    Raises
    ------
    MissingFileError
        A file does not exist; it is also a FileNotFoundError.
    UnsupportedConversionError
        `path` is not a path or a sequence of paths; it is also a TypeError.
    ReadError
        A file is not of a known format, or has an invalid header or one above `max_header`.
    OptionError
        `max_header` is not a number of bytes; it is also a ValueError.
    UnknownFrameworkError
        `to` is not a known framework.
    FrameworkNotInstalledError
        A file has a type of ml_dtypes, such as bfloat16, which is not installed.

    Notes
    -----
    The files are mapped privately. A tensor aliases the mapping where the target accepts its alignment, and
    is copied otherwise. NumPy's arrays are read-only, as are those of other frameworks that have read-only
    arrays. A write to any other array, such as one of torch, changes it for this process alone.

    Each access checks that the file has its size and time of change. A file that is cut off afterwards ends
    the process when a result reads the missing pages (SIGBUS); ``copy=True`` avoids this.

    Examples
    --------
    >>> import numpy as np, tempfile, zerocopy as zc
    >>> path = tempfile.mkdtemp() + "/weights.npy"
    >>> np.save(path, np.arange(3.0))
    >>> zc.open_weights(path, to="numpy")["weights"]
    array([0., 1., 2.])
    """
    options = {"device": device, "copy": copy, "stream": stream, "writable": writable, "dtype": dtype}
    return open_paths(_paths(path), to, check_options("open_weights", options), _limit(max_header))


def _paths(given: Any) -> list[str]:
    """Return the paths that a caller passed as one or several."""
    # An open file can be iterated over too.
    is_one = isinstance(given, (str, os.PathLike)) or hasattr(given, "read")
    paths = list(given) if isinstance(given, Iterable) and not is_one else [given]
    texts = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in paths]
    for text in texts:
        if not isinstance(text, str):
            name = type_name(given)
            why = f"{name} is not a path" if text is given else f"{type_name(text)} in {name} is not a path"
            fix = 'pass a path, or a list of paths: zc.open_weights("model.safetensors")'
            raise UnsupportedConversionError(f"open_weights({name})", why, fix)
    return texts


def _limit(max_header: Any) -> int | None:
    if max_header is None:
        return None
    try:
        limit = -1 if isinstance(max_header, bool) else operator.index(max_header)
    except TypeError:
        limit = -1
    if limit <= 0:
        asked, fix = f"open_weights(max_header={max_header!r})", "pass a number, such as max_header=1_000_000"
        raise OptionError(asked, "it must be an int of at least 1", fix)
    return limit


def open_paths(
    paths: Sequence[str], to: Any, options: dict[str, Any], max_header: int | None = None
) -> Weights[Any]:
    """Return the weights in files; pickles of `Weights` name this function."""
    framework = registry.find(to) or resolve(to, paths)
    if isinstance(to, ModuleType):
        to = framework.name  # a pickle cannot have a module
    if not paths:
        raise ReadError("open_weights([])", "the list has no paths", "pass a path", code="no-files")
    sources: dict[str, tuple[WeightFile, Tensor]] = {}
    metadata: dict[str, Any] = {}
    for path in paths:
        read = _read_index if path.endswith(_INDEX) else _read_file
        tensors, own = read(path, max_header)
        for file, tensor in tensors:
            if tensor.name in sources:
                first = sources[tensor.name][1].file
                why = f"the tensor {tensor.name!r:.200} is also in {first}"
                raise file.error(why, "open the files separately", "duplicate-names")
            sources[tensor.name] = (file, tensor)
        metadata.update(own)
    reload = partial(open_paths, max_header=max_header)
    return Weights(sources, metadata, to, options, paths, reload)


_Sources = tuple[list[tuple[WeightFile, Tensor]], dict[str, Any]]


def _read_file(path: str, max_header: int | None) -> _Sources:
    file = WeightFile(path, max_header)
    reader = _READERS.get(os.path.splitext(path)[1].lower())
    if reader is None:
        known = ", ".join([*_READERS, "*.index.json"])
        fix = f"rename it: open_weights reads {known}; for a checkpoint of torch, "
        fix += f"zc.convert(torch.load({path!r}, mmap=True), to)"
        if path.endswith((".parquet", ".pq")):
            fix = f"zc.loader({path!r}, to, batch_size=1024) reads it in batches; "
            fix += f"zc.convert(pyarrow.parquet.read_table({path!r}), to) reads all of it"
        raise file.error("its name has no suffix that open_weights knows", fix)
    tensors, metadata = reader(file)
    return [(file, tensor) for tensor in tensors], metadata


def shards(path: str) -> list[str]:
    """Return the paths of the files that an index names.

    Raises
    ------
    ReadError
        The index is not valid.
    """
    _, places, _ = _index(path)
    return list(dict.fromkeys(os.path.join(os.path.dirname(path), name) for name in places.values()))


def _index(path: str, max_header: int | None = None) -> tuple[WeightFile, dict[str, str], dict[str, Any]]:
    """Return an index with the file of each tensor, and its metadata."""
    index = WeightFile(path, max_header)
    if index.size > index.header_limit():
        raise index.above_limit(index.size, index.header_limit())
    content = safetensors.parse_json(index, index.read_bytes(0, index.size))
    places, metadata = content.get("weight_map"), content.get("metadata") or {}
    if type(places) is not dict or type(metadata) is not dict:
        raise index.error("it has no weight_map of the names of tensors to files")
    for name in places.values():
        # An index may come from the internet: it names files of its own folder, and no other paths.
        if type(name) is not str or name in ("", ".", "..") or set(name) & set("/\\:\0"):
            raise index.error(f"its weight_map names {name!r:.200}, which is not a file in its folder")
    return index, places, metadata


def _read_index(path: str, max_header: int | None) -> _Sources:
    """Return the tensors that an index of shards names, in the order of its names."""
    index, places, metadata = _index(path, max_header)
    opened: dict[str, dict[str, tuple[WeightFile, Tensor]]] = {}
    ordered = []
    for name, shard in places.items():
        if shard not in opened:
            try:
                tensors, own = _read_file(os.path.join(os.path.dirname(path), shard), max_header)
            except MissingFileError as error:
                why = f"{error.why}, and the index {path} names it"
                raise error.with_context(why=why, remedy="download it to the folder of the index") from None
            except ReadError as error:
                if error.code == "header-limit":  # the caller passed the index, not the shard
                    error.with_context(remedy=error.remedy.replace(repr(error.file), repr(path)))
                raise
            opened[shard] = {tensor.name: (file, tensor) for file, tensor in tensors}
            metadata = {**own, **metadata}
        if name not in opened[shard]:
            raise index.error(f"its weight_map names {name!r:.200} in {shard}, which does not have it")
        ordered.append(opened[shard][name])
    return ordered, metadata
