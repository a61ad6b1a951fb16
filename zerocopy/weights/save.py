"""``save``: arrays of any framework as a safetensors file, or as shards with an index."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from zerocopy import registry
from zerocopy.describe import describe_array, translated_errors
from zerocopy.errors import OptionError, ReadError, UnsupportedConversionError
from zerocopy.errors.tracebacks import public
from zerocopy.pool.sizes import parse_size
from zerocopy.protocols.array_interface import ALIGNMENT, checked_align, has_other_booleans, plain_booleans
from zerocopy.source import Source, type_name
from zerocopy.weights import safetensors
from zerocopy.weights.file import MAX_HEADER, Tensor
from zerocopy.weights.mapping import Weights
from zerocopy.weights.new_file import NewFile
from zerocopy.weights.open_weights import shards as shards_of
from zerocopy.weights.safetensors import Entry

if TYPE_CHECKING:
    from os import PathLike

_SUFFIX = ".safetensors"
_MOST_ALIGN = 1 << 26  # spaces in the header align the first tensor
_FIX = "pass a path in an existing folder that you can write to and that has room"


@public
def save(
    mapping: Mapping[str, Any],
    path: str | PathLike[str],
    *,
    align: int = ALIGNMENT,
    pad: bool = False,
    metadata: Mapping[str, str] | None = None,
    max_shard_size: int | str | None = None,
) -> str:
    """Write arrays of any framework to a safetensors file, or to shards with an index.

    Parameters
    ----------
    mapping : mapping of str to array
        The tensors by their names. :func:`zerocopy.open_weights` returns such a mapping too.
    path : str or path
        The file, ``*.safetensors``. An existing file is replaced when the new one is complete.
    align : int
        A power of 2 from 8 to 64 MiB. Tensors whose size is a multiple of it start at a multiple of it in the
        file; they come first.
    pad : bool
        Whether tensors of zeros, named ``zerocopy.padding.N``, fill the gaps before tensors of other sizes,
        so that all tensors are aligned. ``open_weights`` leaves them out; other readers see them.
    metadata : mapping of str to str, optional
        Text for the header of each file. Some of Hugging Face's loaders require ``{"format": "pt"}`` if
        there is any.
    max_shard_size : int or str, optional
        The most bytes of tensors in one file, such as ``"5GB"``. More are written to shards,
        ``model-00001-of-00002.safetensors``, with the index ``model.safetensors.index.json``. A larger
        tensor has a shard of its own.

    Returns
    -------
    str
        The path for :func:`zerocopy.open_weights`: the file, or the index.

    Raises
    ------
    UnsupportedConversionError
        A value is not an array, or has a type that the format lacks; it is also a TypeError.
    OptionError
        An option or a name is invalid, or an earlier save in the other form (shards, one file) is in the
        folder; it is also a ValueError.
    ZeroCopyError
        The values of an array cannot be read, as for :func:`zerocopy.convert`.
    ReadError
        A file of the mapping that :func:`zerocopy.open_weights` returned has changed, or cannot be read.
    OSError
        The file system refuses a file. The old file is unchanged, unless a later shard cannot be renamed.

    Notes
    -----
    Contiguous arrays of the host are written from their own memory. Others are copied one by one: arrays of a
    device, with gaps, or in another byte order, and compressed members of ``.npz`` files. Two names of one
    array are two tensors in the file.

    The file has a name only when the disk has all of its bytes, so a process that ends at any point leaves
    the old file. Shards are named after all of them are complete, and the index last. If a shard replaces
    one of the same name, the old index is removed first, so that no index names shards of two saves.
    Shards that the old index names, and that the new one does not, are removed at the end.

    Examples
    --------
    >>> import numpy as np, tempfile, zerocopy as zc
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> weights = zc.open_weights(zc.save({"w": np.ones((4, 8), "float32")}, path))
    >>> weights.tensors["w"].offset % 64, weights["w"].shape
    (0, (4, 8))
    """
    path = _checked_path(path)
    asked = f"save({path!r})"
    checked_align(asked, align, 8, _MOST_ALIGN)
    metadata = _checked_metadata(asked, metadata)
    entries = _entries(asked, mapping)
    limit = None if max_shard_size is None else max(1, parse_size(max_shard_size, "max_shard_size"))
    shards = _shards(entries, limit)
    index = f"{path}.index.json"
    names = [path] if len(shards) < 2 else _shard_names(path, len(shards))
    other = index if len(shards) < 2 else path
    if os.path.exists(other):
        why = f"{other} is from an earlier save in another form, and loaders may read it instead"
        raise OptionError(asked, why, f"import os; os.remove({other!r}); or pass another path")
    with ExitStack() as stack:
        files = []
        for name, shard in zip(names, shards, strict=True):
            header, placed = safetensors.header_of(shard, metadata, align, pad)
            if len(header) - 8 > MAX_HEADER:
                why = f"the header would have {len(header):,} bytes, more than the format allows"
                raise OptionError(asked, why, "pass a smaller align= or max_shard_size=, or less metadata")
            files.append(stack.enter_context(NewFile(name, _FIX)))
            safetensors.write(files[-1], header, placed)
            files[-1].sync()
        if len(shards) > 1:
            files.append(stack.enter_context(NewFile(index, _FIX)))
            files[-1].write(_index(names, shards))
            files[-1].sync()
        if isinstance(mapping, Weights):
            mapping._checked(None)
        older = _older_shards(path, index, names)
        if len(shards) > 1 and os.path.exists(index) and any(map(os.path.exists, names)):
            os.unlink(index)
        for file in files:
            file.publish()
    files[-1].sync_folder()
    for name in older:
        with suppress(OSError):  # the new files are complete
            os.unlink(name)
    return files[-1].path


def _checked_path(path: Any) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise UnsupportedConversionError(
            f"save(mapping, {type_name(path)})", "it is not a path", 'pass a path: "model.safetensors"'
        )
    asked = f"save({text!r})"
    if not text.lower().endswith(_SUFFIX) or "\0" in text:
        raise OptionError(asked, f"the name does not end in {_SUFFIX}", f"pass a name such as model{_SUFFIX}")
    if os.path.exists(text) and not os.path.isfile(text):
        raise OptionError(asked, "it exists and is not a file", "pass the path of a file")
    return text


def _checked_metadata(asked: str, metadata: Any) -> dict[str, str]:
    if metadata is None:
        return {}
    if isinstance(metadata, Mapping) and all(_is_text(text) for pair in metadata.items() for text in pair):
        return dict(metadata)
    fix = "metadata={str(name): str(value) for name, value in metadata.items()}"
    raise OptionError(asked, "metadata= must be a mapping of text to text", fix)


def _is_text(text: Any) -> bool:
    """Whether an object is text that has UTF-8, which halves of surrogate pairs lack."""
    try:
        return isinstance(text, str) and text.encode() is not None
    except UnicodeEncodeError:
        return False


def _entries(asked: str, mapping: Any) -> list[Entry]:
    """Return the tensors to write; nothing has been copied yet."""
    if not isinstance(mapping, Mapping):
        why = f"{type_name(mapping)} is not a mapping of names to arrays"
        raise UnsupportedConversionError(asked, why, 'pass a dict: {"name": array}', code="not-a-mapping")
    for name in mapping:
        if not isinstance(name, str):
            why = f"the name {name!r:.200} is not text"
            raise UnsupportedConversionError(asked, why, "pass a dict with names of type str")
        if not _is_text(name) or name == safetensors.METADATA or name.startswith(safetensors.PADDING):
            why = f"the name {name!r:.200} is reserved, or cannot be encoded as UTF-8"
            raise OptionError(asked, why, "rename the tensor")
    if isinstance(mapping, Weights) and "dtype" not in mapping._options:
        return [_entry_of(asked, mapping, tensor) for tensor in mapping.tensors.values()]
    return [_entry(f"{asked}[{name!r:.200}]", name, value) for name, value in mapping.items()]


def _entry_of(asked: str, weights: Weights[Any], tensor: Tensor) -> Entry:
    """Return the entry of a tensor of a file, which can be compressed or have a type that NumPy lacks."""
    name, place = tensor.name, f"{asked}[{tensor.name!r:.200}]"

    def array() -> Any:
        return weights.__zerocopy_open__(names=[name])[name]

    if tensor.read is not None and tensor.nbytes:  # inflated when it is written
        entry = _entry(place, name, np.broadcast_to(np.zeros((), tensor.dtype), tensor.shape))
        return entry._replace(parts=lambda: _parts(place, describe_array(array())))
    if not tensor.packed:
        return _entry(place, name, array())
    if tensor.packed not in safetensors.PACKED:
        why = f"the tensor {tensor.name!r:.200} has the type {tensor.packed}, which safetensors lacks"
        fix = "zc.save(weights.read(), path) saves its bytes as U8"
        raise UnsupportedConversionError(asked, why, fix, code="missing-dtype")
    parts = partial(_parts, asked, describe_array(array()))
    return Entry(name, tensor.packed, tensor.packed_shape, tensor.nbytes, parts)


def _entry(asked: str, name: str, value: Any) -> Entry:
    with translated_errors(lambda: asked):
        source = describe_array(value)
        source.check_copy()
    view, shape = source.view, source.view.shape
    kind = safetensors.KINDS.get(view.dtype.name, "")
    if view.dtype.lanes > 1:
        kind, shape = (kind, (*shape[:-1], shape[-1] * view.dtype.lanes)) if shape else ("", shape)
    if not kind:
        wide = view.dtype.wider or ("complex64" if view.dtype.name == "complex128" else "")
        fix = f'zc.convert(x, "numpy", dtype={wide!r}) casts it' if wide else "leave it out"
        why = f"safetensors has no {view.dtype.name}"
        raise UnsupportedConversionError(asked, why, fix, code="missing-dtype")
    return Entry(name, kind, shape, view.nbytes, partial(_parts, asked, source))


def _parts(asked: str, source: Source) -> Iterator[memoryview]:
    """Yield the bytes of an array in row-major order, in its own memory if that has this order."""
    with translated_errors(lambda: asked):
        if source.view.device.is_host:
            array = source.host()
        else:
            array = (source.to_host or registry.RelayedCopy(source))(None)
        if has_other_booleans(array):
            array = plain_booleans(array)
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    if array.nbytes != source.view.nbytes:
        why = f"its exporter returned {array.nbytes:,} bytes in place of {source.view.nbytes:,}"
        raise UnsupportedConversionError(asked, why, "report it to the library", code="invalid-producer")
    yield array.reshape(-1).view(np.uint8).data


def _shards(entries: Sequence[Entry], limit: int | None) -> list[list[Entry]]:
    """Return the tensors of each file: a file is full when the next tensor exceeds the limit."""
    shards: list[list[Entry]] = [[]]
    size = 0
    for entry in entries:
        if limit is not None and shards[-1] and size + entry.nbytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(entry)
        size += entry.nbytes
    return shards


def _shard_names(path: str, count: int) -> list[str]:
    stem, suffix = path[: -len(_SUFFIX)], path[-len(_SUFFIX) :]
    return [f"{stem}-{i + 1:05}-of-{count:05}{suffix}" for i in range(count)]


def _older_shards(path: str, index: str, names: Sequence[str]) -> list[str]:
    """Return the shards that an earlier index names, except `names` and files with names of other forms."""
    if not os.path.exists(index):
        return []
    try:
        older = {os.path.basename(name) for name in shards_of(index)}
    except ReadError:
        return []  # another program's file
    folder, file = os.path.split(path)
    stem, suffix = file[: -len(_SUFFIX)], file[-len(_SUFFIX) :]
    form = re.compile(rf"{re.escape(stem)}-\d{{5}}-of-\d{{5}}{re.escape(suffix)}")
    older -= set(map(os.path.basename, names))
    return [os.path.join(folder, name) for name in sorted(older) if form.fullmatch(name)]


def _index(names: Sequence[str], shards: Sequence[Sequence[Entry]]) -> bytes:
    """Return the index of shards in the form of Hugging Face's libraries."""
    places = {
        entry.name: os.path.basename(name)
        for name, shard in zip(names, shards, strict=True)
        for entry in shard
    }
    total = sum(entry.nbytes for shard in shards for entry in shard)
    index = {"metadata": {"total_size": total}, "weight_map": places}
    return json.dumps(index, indent=2).encode() + b"\n"
