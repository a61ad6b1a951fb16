"""``open_source``: the dataset or stream that a caller's object describes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._engine.call_text import renamed
from zerocopy._engine.convert import convert
from zerocopy._engine.explain import explain
from zerocopy._engine.target import resolve
from zerocopy.describe import opened as opened_handle
from zerocopy.errors import (
    Fix,
    FrameworkNotInstalledError,
    OptionError,
    ReadError,
    UnsupportedConversionError,
    ZeroCopyError,
)
from zerocopy.framework import Framework, hook_of
from zerocopy.loading.dataset import Dataset, Stream, fitted
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.options import LoaderOptions, opening
from zerocopy.loading.sources import memory
from zerocopy.loading.sources.chunked import chunk_rows
from zerocopy.loading.sources.columnar import IpcFiles, ParquetFiles
from zerocopy.loading.sources.files import Files, find_files, missing
from zerocopy.loading.sources.streams import CapsuleStream, FileStream
from zerocopy.protocols.exporter_errors import as_read_errors, ignored_errors, is_error
from zerocopy.source import type_name

#: Formats of files by the end of their names. A file with another name is read as Parquet.
_FORMATS = {
    "parquet": "parquet", "pq": "parquet", "parq": "parquet",
    "arrow": "ipc", "feather": "ipc", "ipc": "ipc", "arrows": "ipc",
    "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "orc": "orc",
    "npy": "numpy", "npz": "numpy",
}  # fmt: skip
#: Options of the host's reader, with the values that ask for nothing.
_OF_THE_HOST = {"encode": (None, False), "schema": (None,), "on_error": ("raise",), "shuffle": (False, None)}
_HOST = "leave out engine=: the host then decodes the files"


def open_source(source: Any, options: LoaderOptions) -> Dataset | Stream:
    """Return a source as a dataset or a stream."""
    if options.engine is not None:
        _check_decode(options)
        return _decoded(_opened(source, options), options)
    return _opened(source, options)


def _opened(source: Any, options: LoaderOptions) -> Dataset | Stream:
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        reader = _reader_of(path)
        return _open_files(find_files(path), options) if reader is None else _open_path(path, reader, options)
    if isinstance(source, (list, tuple)):
        _refuse_objects(source)
        return _open_files(find_files([os.fspath(path) for path in source]), options)
    return _open_value(source, options, "a dict of arrays")


def _open_value(source: Any, options: LoaderOptions, name: str) -> Dataset | Stream:
    framework = registry.by_type(type(source))
    is_opened = type(hook_of(framework, LoadingHook)) is not LoadingHook  # SciPy's DOK array is a dict too
    if isinstance(source, Mapping) and not is_opened:
        return memory.open_arrays(source, options, name)
    if isinstance(source, np.ndarray):
        return memory.open_array(source, options, "numpy.ndarray", "source")
    return fitted(_open_object(opened_handle(source), options), options.columns, options.schema)


def _reader_of(path: str) -> Framework | None:
    """Return the framework whose files or folders end as a path does; a folder may be inside such a one."""
    suffixes = [part.rpartition(".")[2].lower() for part in path.rstrip("/").split("/") if "." in part]
    if not suffixes or suffixes[-1] in _FORMATS:
        return None
    of = {suffix: known for known in registry.readers() for suffix in hook_of(known, LoadingHook).suffixes}
    return next((of[suffix] for suffix in reversed(suffixes) if suffix in of), None)


def _open_path(path: str, reader: Framework, options: LoaderOptions) -> Dataset | Stream:
    """Return the arrays or the table in a file or folder that a framework opens."""
    asked = f"loader({path!r})"
    if "://" not in path:
        path = os.path.expanduser(path)
        if not os.path.exists(path):
            raise missing(asked, path, "the file does not exist")
    try:
        reader.module()
    except FrameworkNotInstalledError as error:
        raise error.with_context(asked=asked) from error.__cause__

    def failure(error: BaseException) -> ReadError:
        why = f"{reader.name} raised {type(error).__name__}: {error}"
        return ReadError(
            asked, why, f"open it with {reader.name}, and pass its arrays or its table", file=path
        )

    with as_read_errors(failure):
        opened = hook_of(reader, LoadingHook).open_path(path)
    return _open_value(opened, options, os.path.basename(path.rstrip("/")))


def _refuse_objects(paths: Sequence[Any]) -> None:
    kinds = {type(path) for path in paths if not isinstance(path, (str, os.PathLike))}
    if kinds:
        listed = ", ".join(sorted(kind.__name__ for kind in kinds))
        why = f"a list must have paths of files; this one has {listed}"
        raise _not_a_source(paths, "loader([...])", why)


def _open_files(files: Files, options: LoaderOptions) -> Dataset | Stream:
    format = _format(files)
    if format == "numpy":
        return memory.open_numpy_file(files, options)
    opened: Dataset | Stream
    if format == "parquet":
        opened = _split(ParquetFiles(files, options.columns, options.schema), options)
    elif format == "ipc":
        opened = IpcFiles(files, options.columns, options.schema)
    else:
        opened = FileStream(files, format, schema=options.schema)
    with files.reading(0):
        _ = opened.schema.names  # pyarrow decodes them here, and raises for those that are not UTF-8
    return opened if format == "parquet" else fitted(opened, options.columns, options.schema)


def _split(opened: Dataset | Stream, options: LoaderOptions) -> Dataset | Stream:
    """Split a dataset into its smallest groups if groups that cannot be read are skipped."""
    return opened.split() if isinstance(opened, Dataset) and options.on_error == "skip" else opened


def _format(files: Files) -> str:
    """Return the format of the files; in a folder, files whose names end otherwise are left out."""
    formats = [_FORMATS.get(_suffix(path), "") for path in files.paths]
    if files.base and any(formats):
        files.keep([bool(format) for format in formats])
        formats = [format for format in formats if format]
    known = sorted({format or "parquet" for format in formats})
    if len(known) > 1:
        why = f"the files have several formats: {', '.join(known)}"
        fix = 'pass those of one format, such as "data/*.parquet"'
        raise ReadError(files.asked, why, fix, code="several-formats", file=files.paths[0])
    return known[0]


def _suffix(path: str) -> str:
    """Return the end of a file's name, without that of a compression: pyarrow decompresses text."""
    stem, _, suffix = path.lower().rpartition(".")
    return stem.rpartition(".")[2] if suffix in ("gz", "bz2", "zst", "lz4") else suffix


def _open_object(source: Any, options: LoaderOptions) -> Dataset | Stream:
    """Return an object in memory, a query or a stream."""
    columns = options.columns if options.schema is None else None
    for owner in registry.by_root(type(source)):
        opened = hook_of(owner, LoadingHook).open(source, columns)
        if opened is not None:
            _refuse_columns(opened, options)
            return _split(opened, options)
    framework, name = registry.by_type(type(source)), type_name(source)
    if framework is not None and framework.tables:
        with opening(options, name):
            described = framework.table(source)
            if described is not None:
                return memory.open_table(source, described, options, name)
    if hasattr(type(source), "__arrow_c_stream__"):
        try:
            return CapsuleStream(source, name)
        except Exception as error:  # of the producer
            if isinstance(error, ZeroCopyError) or not is_error(error):
                raise
            why = f"its __arrow_c_stream__() raised {type(error).__name__}: {error}"
            raise _not_a_source(source, f"loader({name})", why) from error
    if chunk_rows(source):
        return memory.open_arrays({"data": source}, options, name, "{'data': source}")
    if framework is not None:
        with opening(options, name):
            array = convert(source, "numpy")
        return memory.open_array(array, options, name, 'zc.convert(source, "numpy")')
    raise _not_a_source(source, f"loader({name})", "it is not a source of rows")


def _not_a_source(source: Any, asked: str, why: str) -> UnsupportedConversionError:
    """Return the error for an object that is not a source, with a call that makes one if `convert` can."""
    plans = {host: explain(source, host) for host in ("pyarrow.Table", "numpy")}
    calls = [f'zc.convert(x, "{host}")' for host, p in plans.items() if p.error is None and not p.leaves]
    calls += [code.rpartition("; ")[2] for p in plans.values() if p.error for code in p.error.calls]
    calls = [code for code in calls if code.startswith("zc.convert(") and "leaves=" not in code]
    calls = [_joined(source), *calls] if isinstance(source, (list, tuple)) else calls
    fixes = [Fix(renamed(code.replace("{", "{{").replace("}", "}}"), "{x}")) for code in calls if code]
    remedy = 'pass a path, a table, a query, a stream, or a dict of arrays: {"x": x, "y": y}'
    return UnsupportedConversionError(
        asked, why, "" if fixes else remedy, code="not-a-source", fixes=fixes[:1]
    )


def _joined(values: Sequence[Any]) -> str:
    """Return the code that joins dicts or tables into a table, or numbers into an array; else empty."""
    if all(isinstance(each, dict) for each in values):
        return "pyarrow.Table.from_pylist(x)"
    if all(hasattr(each, "columns") for each in values):
        return 'pyarrow.concat_tables([zc.convert(each, "pyarrow.Table") for each in x])'
    with ignored_errors():  # rows of different lengths, or any error of their __array__
        return "numpy.asarray(x)" * (np.asarray(values).dtype.kind in "biufcMm")
    return ""


def _refuse_columns(opened: Dataset | Stream, options: LoaderOptions) -> None:
    """Refuse options about columns for rows of a framework that have none."""
    if opened.schema is not None:
        return
    given = {name: getattr(options, name) for name in ("columns", "schema", "nulls")}
    given |= {"encode": options.encode or None, "layout": options.layout if options.is_matrix else None}
    for name, value in given.items():
        if value is not None:
            why = f"{opened.name} has no columns: its batches are arrays"
            raise OptionError(f"loader({name}={value!r})", why, fixes=[Fix(options={name: None})])


def _check_decode(options: LoaderOptions) -> None:
    """Refuse an unknown decoder, and options that only the host's reader has, before a file is opened."""
    framework = registry.find(options.engine) if isinstance(options.engine, str) else None
    if not hook_of(framework, LoadingHook).can_decode:
        names = sorted(f.name for f in registry.known() if hook_of(f, LoadingHook).can_decode)
        known = " or ".join(map(repr, names))
        why = f"it must be None, or a framework that decodes Parquet files: {known}"
        raise _decode_error(options, why, f"pass engine={known}; or {_HOST}")
    for name, defaults in _OF_THE_HOST.items():
        value = getattr(options, name)
        if not any(value is default or value == default for default in defaults):
            why = f"{name}= is not supported for rows that are decoded on a device"
            raise _decode_error(options, why, f"leave out {name}=; or {_HOST}")


def _decoded(source: Dataset | Stream, options: LoaderOptions) -> Dataset:
    """Return local Parquet files as rows that a framework decodes on the device."""
    device = None if options.device is None else resolve(options.to).parse_device(options.device)
    if device is None or device.kind != "cuda":
        raise _decode_error(options, f"device={options.device!r} is not a CUDA device", 'pass device="cuda"')
    if not isinstance(source, ParquetFiles) or not source.is_plain:
        why = f"the source is {source.name}, and only the columns of local Parquet files are decoded"
        raise _decode_error(options, why, f"pass paths of Parquet files; or {_HOST}")
    decoder = hook_of(registry.by_name(options.engine or ""), LoadingHook).decoder(source, device.id)
    assert decoder is not None  # `_check_decode` has refused other frameworks
    return decoder


def _decode_error(options: LoaderOptions, why: str, fix: str) -> OptionError:
    return OptionError(f"loader(engine={options.engine!r})", why, fix)
