"""``Files``: the files that a path, pattern, folder or URL names, and whether they have changed."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from zerocopy.errors import FrameworkNotInstalledError, MissingFileError, ReadError
from zerocopy.protocols.exporter_errors import as_read_errors
from zerocopy.tables.hub import hub

_FIX = 'pass an existing path, a glob such as "data/*.parquet", or a URL'

#: Sources to pass for files that the loader does not open, by the ends of their names.
_CALLS = {
    "safetensors": "zc.open_weights({path})",
    "gguf": "zc.open_weights({path})",
    "pt": "torch.load({path}), a dict of tensors",
    "pth": "torch.load({path}), a dict of tensors",
    "tsv": 'pandas.read_csv({path}, sep="\\t")',
    "xlsx": "pandas.read_excel({path})",
    "json": "pandas.read_json({path})",
    "avro": "polars.read_avro({path})",
}


class Files:
    """Files of one file system, in the order in which their rows are read.

    Attributes
    ----------
    asked : str
        The call for messages: ``loader('data/*.parquet')``.
    paths : list of str
        Their paths in `filesystem`, without the protocol of a URL.
    filesystem : pyarrow.fs.FileSystem
        The file system.
    base : str
        The folder under which folders such as ``year=2024`` name values of a partition; empty for none.
    is_local : bool
        Whether the files are on this machine, so that a check of one takes microseconds.
    """

    def __init__(self, asked: str, infos: Sequence[Any], filesystem: Any, base: str = "") -> None:
        """`infos` are ``pyarrow.fs.FileInfo`` objects."""
        from pyarrow.fs import LocalFileSystem

        self.asked = asked
        self.filesystem = filesystem
        self.base = base
        self.paths: list[Any] = [info.path for info in infos]
        self._marks = [(info.size, info.mtime_ns) for info in infos]
        self.is_local: bool = isinstance(filesystem, LocalFileSystem)

    def __len__(self) -> int:
        return len(self.paths)

    def title(self, format: str) -> str:
        """Return the name of the files in messages: ``"3 Parquet files"``."""
        return f"{len(self)} {format} file{'s' * (len(self) != 1)}"

    def keep(self, chosen: Sequence[bool]) -> None:
        """Leave out the files for which `chosen` is false."""
        self.paths = [path for path, keep in zip(self.paths, chosen, strict=True) if keep]
        self._marks = [mark for mark, keep in zip(self._marks, chosen, strict=True) if keep]

    def open(self, file: int) -> Any:
        """Return an open ``pyarrow.NativeFile``."""
        return self.filesystem.open_input_file(self.paths[file])

    def data_set(self, format: Any, schema: Any = None, infer: bool = True) -> Any:
        """Return the files as a ``pyarrow.dataset.Dataset``; without `schema`, it reads the first file's.

        With `infer`, it has columns of partitions with inferred types.
        """
        from pyarrow import ArrowTypeError, dataset as ds
        from pyarrow.fs import FileInfo, FileType

        # pyarrow would request the size of each remote file again.
        marks = zip(self.paths, self._marks, strict=True)
        infos = [FileInfo(path, FileType.File, size=size, mtime_ns=time) for path, (size, time) in marks]
        try:
            return ds.dataset(
                infos,
                schema=schema,
                format=format,
                filesystem=self.filesystem,
                partitioning="hive" if self.base and infer else None,
                partition_base_dir=self.base or None,
            )
        except ArrowTypeError as error:
            why = f"a folder and a column have one name and different types: {error}"
            fix = "pass the types of all columns in schema=, or rename the column"
            raise ReadError(self.asked, why, fix, code="schema-drift", file=self.paths[0]) from error

    def partitions(self) -> list[dict[str, Any]]:
        """Return the values in the names of the folders of each file as text; inferred types lose zeros."""
        import pyarrow as pa
        from pyarrow import dataset as ds

        result: list[dict[str, Any]] = []
        for path in self.paths if self.base else []:
            folders = path[len(self.base) :].split("/")[:-1]
            names = [unquote(folder.partition("=")[0]) for folder in folders if "=" in folder]
            hive = ds.HivePartitioning(pa.schema([(name, pa.string()) for name in dict.fromkeys(names)]))
            result.append(ds.get_partition_keys(hive.parse(path[len(self.base) :])))
        return result or [{} for _ in self.paths]

    def check(self, file: int) -> None:
        """Raise `ReadError` if a file is missing or has changed since the loader was created."""
        path = self.paths[file]
        info = self.filesystem.get_file_info(path)
        if (info.size, info.mtime_ns) != self._marks[file]:
            raise ReadError(
                f"reading {path}",
                f"the file {'has changed' if info.is_file else 'was removed'} since the loader was created",
                "create the loader again",
                code="changed-file",
                file=path,
            )

    @contextmanager
    def reading(self, file: int, row_group: int | None = None, library: str = "pyarrow") -> Iterator[None]:
        """Raise `ReadError` for an exception that the bytes of a file or a failing disk cause."""
        with as_read_errors(lambda error: self.unreadable(file, error, row_group, library)):
            yield

    def unreadable(
        self, file: int, error: BaseException, row_group: int | None = None, library: str = "pyarrow"
    ) -> ReadError:
        """Return the error of a file or row group whose bytes cannot be read or decoded."""
        path = place = self.paths[file]
        why, fix = f"{library} raised {type(error).__name__}: {error}", self._other_reader(path)
        if self._marks[file][0] == 0:
            why, fix = "the file is empty: 0 bytes", "write it again, or pass the other files"
        if row_group is not None:
            place = f"{path}, row group {row_group}"
            fix = 'replace the file, or skip its unreadable row groups: on_error="skip"'
        return ReadError(f"reading {place}", why, fix, file=path, row_group=row_group)

    def _other_reader(self, path: str) -> str:
        """Return the remedy for a file that cannot be read: the call for its format, if the name has one."""
        call = _CALLS.get(path.rpartition(".")[2].lower())
        call = call and call.format(path=repr(path))
        return (
            f"pass {call}" if call else "write the file again; or read it with its own library: pass a table"
        )

    def refuse_empty(self) -> None:
        """Raise `ReadError` if a file has a size of 0 bytes."""
        for file, (size, _) in enumerate(self._marks):
            if size == 0:
                raise self.unreadable(file, EOFError("the file has no bytes"))

    def fingerprint(self) -> str:
        """Return a digest of relative names, sizes and times; moving the folder does not change it."""
        depth = len(self.base)
        names = [path[depth:].lstrip("/") if depth else os.path.basename(path) for path in self.paths]
        return digest([(name, *mark) for name, mark in zip(names, self._marks, strict=True)])


def digest(*parts: Any) -> str:
    """Return a digest of the text of some values."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def find_files(source: str | Sequence[str]) -> Files:
    """Return the files of a path, pattern, folder or URL, or of a list of paths or URLs."""
    if isinstance(source, str):
        asked, path = f"loader({source!r})", source
    elif source:
        asked, path = f"loader([{source[0]!r}{', ...' * (len(source) > 1)}])", source[0]
    else:
        raise ReadError("loader([])", "the list has no paths", _FIX, code="no-files")

    def failed(error: BaseException) -> ReadError:
        return ReadError(asked, f"the file system raised {type(error).__name__}: {error}", _FIX, file=path)

    try:
        hub()
    except FrameworkNotInstalledError as error:
        raise error.with_context(asked=asked) from error.__cause__
    with as_read_errors(failed):
        filesystem, within = _resolve(asked, path)
        if isinstance(source, str):
            return Files(asked, *_find(asked, filesystem, within))
        paths = [_resolve(asked, each, filesystem)[1] for each in source]
        infos = filesystem.get_file_info(paths)
        for info in infos:
            if not info.is_file:
                is_folder = info.type.name == "Directory"
                raise missing(
                    asked, info.path, "it is not a file" if is_folder else "the file does not exist"
                )
        return Files(asked, infos, filesystem)


def _resolve(asked: str, path: str, known: Any = None) -> tuple[Any, str]:
    """Return the file system of a path or URL, and the path in it; `known` is that of the first path."""
    from pyarrow import ArrowInvalid, fs

    scheme, is_url, rest = path.partition("://")
    if not is_url:
        return known or fs.LocalFileSystem(), os.path.expanduser(path)
    if known is not None and not isinstance(known, fs.PyFileSystem):
        return known, rest  # the file system of the first URL: another one may need a connection
    try:
        start = _before_wildcard(path)
        filesystem, within = fs.FileSystem.from_uri(start)
        return filesystem, within + path[len(start) :]
    except ArrowInvalid:
        pass  # a protocol that Arrow lacks
    try:
        url_to_fs = import_module("fsspec.core").url_to_fs  # fsspec has no types
        filesystem, within = url_to_fs(path)
    except (ImportError, ValueError) as error:
        why = f"no file system for {scheme}:// is installed: {error}"
        fix = f"install fsspec and its package for {scheme}://"
        raise ReadError(asked, why, fix, code="unknown-protocol", file=path) from error
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), within


def _before_wildcard(path: str) -> str:
    """Return the part of a path before its first wildcard."""
    return re.split(r"[*?[]", path, maxsplit=1)[0]


def _find(asked: str, filesystem: Any, path: str) -> tuple[Sequence[Any], Any, str]:
    """Return the files of a path, their file system, and the folder of their partitions, or an empty text."""
    from pyarrow.fs import FileSelector, LocalFileSystem

    def listed(folder: str) -> list[Any]:
        infos = filesystem.get_file_info(FileSelector(folder, recursive=True))
        return sorted((info for info in infos if info.is_file), key=lambda info: info.path)

    info = filesystem.get_file_info(path)
    if info.is_file:
        return [info], filesystem, ""
    if info.type.name == "Directory":
        infos = [each for each in listed(path) if not _is_hidden(each.path[len(path) :])]
        if not infos:
            raise ReadError(asked, "the folder has no files", _FIX, code="no-files", file=path)
        return infos, filesystem, path
    if not glob.has_magic(path):
        raise missing(asked, path, "the file does not exist")
    base = os.path.dirname(_before_wildcard(path))
    if isinstance(filesystem, LocalFileSystem):
        infos = filesystem.get_file_info(sorted(glob.glob(path, recursive=True)))
    else:
        infos = [each for each in listed(base) if _fits(each.path.split("/"), path.split("/"))]
    infos = [each for each in infos if each.is_file]
    if not infos:
        raise missing(asked, path, "no file matches the pattern")
    return infos, filesystem, base


def missing(asked: str, path: str, why: str) -> ReadError:
    """Return the error of a file that does not exist."""
    return MissingFileError(asked, why, _FIX, file=path)


def _fits(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a path match those of a pattern; ``**`` stands for any number of folders."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_fits(path[count:], pattern[1:]) for count in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _fits(path[1:], pattern[1:])


def _is_hidden(path: str) -> bool:
    """Whether a part of a path starts with ``_`` or ``.``, as in ``_SUCCESS``; partitions do not count."""
    return any(part[:1] in ("_", ".") and "=" not in part for part in path.split("/"))
