"""``NewFile``: a file that replaces another when it is complete, and leaves nothing behind otherwise."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import BinaryIO, Self

#: Small tensors are collected up to this size; larger ones are written from their own memory.
_BUFFER = 1 << 20
#: A folder that can be written to and not read, and file systems that cannot sync one.
_NOT_SYNCED = (errno.EACCES, errno.EINVAL, errno.ENOTSUP)


class NewFile:
    """A file without a name (``O_TMPFILE``), or else with a temporary one in its folder, until `publish`.

    A killed process leaves a file only if it has the temporary name, which `publish` gives for a moment to
    replace another.

    Parameters
    ----------
    path : str
        The name for the complete file, which gets the permissions of a file that it replaces.
    fix : str
        The end of the message of an OSError.

    Attributes
    ----------
    stream : BinaryIO
    readable : str
        A path from which the file can be read before it has its name.
    """

    def __init__(self, path: str, fix: str) -> None:
        self.path = path
        self._fix = fix
        self._folder = os.path.dirname(os.path.abspath(path))
        self._temporary = os.path.join(self._folder, f".zerocopy.{secrets.token_hex(8)}.tmp")
        with self._named_errors():
            with suppress(FileNotFoundError):
                os.lstat(path)  # a name that is too long is refused before the bytes are written
            descriptor, self._is_named = _open(self._folder, self._temporary)
            self.stream: BinaryIO = open(descriptor, "wb", _BUFFER)  # noqa: SIM115 -- closed by __exit__
        self.readable = self._temporary if self._is_named else _in_proc(descriptor)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Add the path and the fix to an OSError of the system."""
        try:
            yield
        except OSError as error:
            if error.errno is None or error.filename == self.path:
                raise
            raise OSError(error.errno, f"{os.strerror(error.errno)}; {self._fix}", self.path) from error

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        with self._named_errors():
            self.stream.write(data)

    def sync(self) -> None:
        """Wait until the disk has the bytes."""
        with self._named_errors():
            self.stream.flush()
            if os.path.exists(self.path):
                os.chmod(self.readable, stat.S_IMODE(os.stat(self.path).st_mode))
            os.fsync(self.stream.fileno())

    def publish(self) -> None:
        """Give the file its name; a reader sees the old file or the new one, and never a part."""
        with self._named_errors():
            if not self._is_named:
                try:
                    self._link(self.path)
                except FileExistsError:
                    self._link(self._temporary)
                    self._is_named = True
            self.stream.close()
            if self._is_named:
                os.replace(self._temporary, self.path)
                self._is_named = False

    def _link(self, name: str) -> None:
        # With a descriptor, of any kind, Python calls linkat, which follows the link of /proc.
        os.link(self.readable, name, src_dir_fd=self.stream.fileno(), follow_symlinks=True)

    def sync_folder(self) -> None:
        """Wait until the disk has the names in the folder, if the system can; Windows cannot."""
        if os.name != "posix":
            return
        with self._named_errors():
            try:
                folder = os.open(self._folder, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
            except OSError as error:
                if error.errno not in _NOT_SYNCED:
                    raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        raw = getattr(self.stream, "raw", self.stream)
        raw.close()  # without the bytes in the buffer, which a full disk has no room for
        if self._is_named:
            os.unlink(self._temporary)


def _open(folder: str, temporary: str) -> tuple[int, bool]:
    """Return the descriptor of a new file, and whether it has a name."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir(_in_proc("")):
        try:
            return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666), False
        except OSError:
            pass  # the file system lacks such files, or the next call has the same error
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    return os.open(temporary, flags, 0o666), True


def _in_proc(descriptor: int | str) -> str:
    """Return the path of an open file in /proc."""
    return f"/proc/self/fd/{descriptor}"
