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

from zerocopy.errors import ZeroCopyError
from zerocopy.loading.errors import ReadError
from zerocopy.protocols.exporter_errors import is_error

_FIX = 'pass an existing path, a glob such as "data/*.parquet", or a URL'


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
    partitions : sequence of dict or None
        The values of the partition of each file, if the caller has them.
    """

    def __init__(self, asked: str, infos: Sequence[Any], filesystem: Any, base: str = "") -> None:
        """`infos` are ``pyarrow.fs.FileInfo`` objects."""
        from pyarrow.fs import LocalFileSystem

        self.asked, self.filesystem, self.base = asked, filesystem, base
        self.partitions: Sequence[dict[str, Any]] | None = None
        self.paths = [info.path for info in infos]
        self._marks = [(info.size, info.mtime_ns) for info in infos]
        self._is_local = isinstance(filesystem, LocalFileSystem)

    def __len__(self) -> int:
        return len(self.paths)

    def keep(self, chosen: Sequence[bool]) -> None:
        """Leave out the files for which `chosen` is false."""
        self.paths = [path for path, keep in zip(self.paths, chosen, strict=True) if keep]
        self._marks = [mark for mark, keep in zip(self._marks, chosen, strict=True) if keep]

    @property
    def is_local(self) -> bool:
        """Whether the files are on this machine, so that a check of one takes microseconds."""
        return self._is_local

    def open(self, file: int) -> Any:
        """Return an open ``pyarrow.NativeFile``."""
        return self.filesystem.open_input_file(self.paths[file])

    def has_changed(self, file: int) -> bool:
        """Whether the size or the time of the last change differs, or the file is missing."""
        if self._is_local:
            try:
                status = os.stat(self.paths[file])
            except OSError:
                return True
            return (status.st_size, status.st_mtime_ns) != self._marks[file]
        info = self.filesystem.get_file_info(self.paths[file])
        return (info.size, info.mtime_ns) != self._marks[file]

    def check(self, file: int) -> None:
        """Raise `ReadError` if a file is missing or has changed since the loader was created."""
        if self.has_changed(file):
            raise self.changed(file)

    def changed(self, file: int) -> ReadError:
        """Return the error of a file that is missing or has changed."""
        path = self.paths[file]
        missing = self.filesystem.get_file_info(path).type.name == "NotFound"
        return ReadError(
            f"reading {path}",
            f"the file {'was removed' if missing else 'has changed'} since the loader was created",
            "create the loader again",
            code="changed-file",
            file=path,
        )

    @contextmanager
    def reading(self, file: int, row_group: int | None = None, library: str = "pyarrow") -> Iterator[None]:
        """Raise `ReadError` for an exception that the bytes of a file or a failing disk cause."""
        try:
            yield
        except BaseException as error:
            if not is_error(error) or not self.is_fault(file, error):
                raise
            raise self.unreadable(file, error, row_group, library) from error

    def is_fault(self, file: int, error: Exception) -> bool:
        """Whether a file or its disk causes an exception: not zerocopy itself, nor a lack of memory."""
        if isinstance(error, MemoryError):
            # lz4 packs at most 255 bytes into one, so that a far larger allocation has a damaged size.
            size = re.search(r"of size (-?\d+)", str(error))
            return size is not None and not 0 <= int(size[1]) <= 1024 * self._marks[file][0]
        return not isinstance(error, ZeroCopyError)

    def unreadable(
        self, file: int, error: Exception, row_group: int | None = None, library: str = "pyarrow"
    ) -> ReadError:
        """Return the error of a file or row group whose bytes cannot be read or decoded."""
        path = self.paths[file]
        if self._marks[file][0] == 0:
            why, fix = "the file is empty: 0 bytes", "remove it, or write it again"
        else:
            why, fix = f"{library} raised {type(error).__name__}: {error}", "replace the file, or remove it"
        place = path if row_group is None else f"{path}, row group {row_group}"
        if row_group is not None:
            fix = 'replace the file, or skip its unreadable row groups: on_error="skip"'
        return ReadError(f"reading {place}", why, fix, file=path, row_group=row_group)

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
    """Return the files of a path, pattern, folder or URL, or of a list of paths or URLs.

    Raises
    ------
    ReadError
        A file does not exist, no file matches the pattern, a folder has no files, or the file system fails.
    """
    try:
        return _find_all(source)
    except (ZeroCopyError, MemoryError):
        raise
    except BaseException as error:
        if not is_error(error):
            raise
        path = source if isinstance(source, str) else source[0]
        why = f"the file system raised {type(error).__name__}: {error}"
        raise ReadError(_asked(source), why, _FIX, file=path) from error


def _asked(source: str | Sequence[str]) -> str:
    """Return the call for messages."""
    if isinstance(source, str):
        return f"loader({source!r})"
    return f"loader([{source[0]!r}{', ...' * (len(source) > 1)}])" if source else "loader([])"


def _find_all(source: str | Sequence[str]) -> Files:
    asked = _asked(source)
    if isinstance(source, str):
        filesystem, path = _resolve(asked, source)
        infos, base = _find(asked, filesystem, path)
        return Files(asked, infos, filesystem, base)
    if not source:
        raise ReadError(asked, "the list has no paths", _FIX, code="no-files")
    filesystem, _ = _resolve(asked, source[0])
    infos = filesystem.get_file_info([_resolve(asked, each, filesystem)[1] for each in source])
    for info in infos:
        if not info.is_file:
            raise _missing(asked, info.path, "it is not a file" if info.type.name == "Directory" else "")
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
        filesystem, within = fs.FileSystem.from_uri(path[: _prefix_length(path)])
        return filesystem, within + path[_prefix_length(path) :]
    except ArrowInvalid:
        pass  # a protocol that Arrow lacks
    try:
        url_to_fs = import_module("fsspec.core").url_to_fs  # fsspec has no types
        filesystem, within = url_to_fs(path)
    except (ImportError, ValueError) as error:
        if not is_error(error):
            raise
        why = f"no file system for {scheme}:// is installed: {error}"
        fix = f"install fsspec and its package for {scheme}://"
        raise ReadError(asked, why, fix, code="unknown-protocol", file=path) from error
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), within


def _prefix_length(path: str) -> int:
    """Return the length of the part of a path before its first wildcard."""
    return len(path) if not glob.has_magic(path) else min(path.find(sign) for sign in "*?[" if sign in path)


def _find(asked: str, filesystem: Any, path: str) -> tuple[Sequence[Any], str]:
    """Return the files of a path in a file system, and the folder that has partitions, or an empty text."""
    info = filesystem.get_file_info(path)
    if info.is_file:
        return [info], ""
    if info.type.name == "Directory":
        infos = [each for each in _listed(filesystem, path) if not _is_hidden(each.path[len(path) :])]
        if not infos:
            raise ReadError(asked, "the folder has no files", _FIX, code="no-files", file=path)
        return infos, path
    if not glob.has_magic(path):
        raise _missing(asked, path)
    base = os.path.dirname(path[: _prefix_length(path)])
    infos = [each for each in _matches(filesystem, path, base) if each.is_file]
    if not infos:
        why = "no file matches the pattern"
        raise ReadError(asked, why, _FIX, code="missing-file", file=path)
    return infos, base


def _missing(asked: str, path: str, why: str = "") -> ReadError:
    return ReadError(asked, why or "the file does not exist", _FIX, code="missing-file", file=path)


def _matches(filesystem: Any, pattern: str, base: str) -> Sequence[Any]:
    """Return the files that match a pattern, in the order of their paths."""
    from pyarrow.fs import LocalFileSystem

    if isinstance(filesystem, LocalFileSystem):
        infos: Sequence[Any] = filesystem.get_file_info(sorted(glob.glob(pattern, recursive=True)))
        return infos
    parts = pattern.split("/")
    return [info for info in _listed(filesystem, base) if _fits(info.path.split("/"), parts)]


def _fits(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a path match those of a pattern; ``**`` stands for any number of folders."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_fits(path[count:], pattern[1:]) for count in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _fits(path[1:], pattern[1:])


def _listed(filesystem: Any, folder: str) -> list[Any]:
    """Return the files of a folder and its subfolders, in the order of their paths."""
    from pyarrow.fs import FileSelector

    infos = filesystem.get_file_info(FileSelector(folder, recursive=True))
    return sorted((info for info in infos if info.is_file), key=lambda info: info.path)


def _is_hidden(path: str) -> bool:
    """Whether a part of a path starts with ``_`` or ``.``, as in ``_SUCCESS``; partitions do not count."""
    return any(part[:1] in ("_", ".") and "=" not in part for part in path.split("/"))
