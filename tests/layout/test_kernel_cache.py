"""The kernel cache runs only code that no other user can have written."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from pathlib import Path

import pytest

from zerocopy.layout import cache_folder, kernel_cache
from zerocopy.layout.cache_folder import UntrustedError

NAME, CONTENT = "kernel.o", b"code" * 1000
OTHER_USER = 12345

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a private folder with one stored file."""
    path = tmp_path / "private"
    cache_folder.write(str(path), NAME, CONTENT)
    return path


def refused(folder: Path | str) -> bool:
    """Whether neither reading nor writing a folder is allowed; the stored file stays as it is."""
    for use in (
        lambda: cache_folder.read(str(folder), NAME),
        lambda: cache_folder.write(str(folder), NAME, b""),
    ):
        with pytest.raises(UntrustedError):
            use()
    return True


# -- which folders -----------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "HOME"])
@pytest.mark.parametrize("value", [".", "cache", "~", "~nosuchuser/cache", "../cache", ""])
def test_relative_folders_are_ignored(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    assert all(os.path.isabs(folder) for folder in kernel_cache._folders())


def test_absolute_folders_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    first, _, last = kernel_cache._folders()
    assert (first, last) == ("/a/zerocopy", "/b/zerocopy")


def test_relative_path_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert refused(folder.name)


# -- owners and modes --------------------------------------------------------------------


def test_private_folder_is_read(folder: Path) -> None:
    assert cache_folder.read(str(folder), NAME) == CONTENT
    assert [path.name for path in folder.iterdir()] == [NAME]


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o722, 0o1777])
def test_folder_that_others_can_write_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    assert refused(folder)


@pytest.mark.parametrize(("mode", "allowed"), [(0o777, False), (0o775, False), (0o1777, True), (0o755, True)])
def test_parent_that_others_can_write_needs_the_sticky_bit(folder: Path, mode: int, allowed: bool) -> None:
    inner = folder / "a" / "b"
    cache_folder.write(str(inner), NAME, CONTENT)
    folder.chmod(mode)
    if allowed:
        assert cache_folder.read(str(inner), NAME) == CONTENT
    else:
        assert refused(inner)


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_file_that_others_can_write_is_not_read(folder: Path, mode: int) -> None:
    (folder / NAME).chmod(mode)
    with pytest.raises(UntrustedError):
        cache_folder.read(str(folder), NAME)


@needs_root
@pytest.mark.parametrize("which", ["file", "folder", "parent"])
def test_what_another_user_owns_is_not_read(folder: Path, which: str) -> None:
    os.chown(
        {"file": folder / NAME, "folder": folder, "parent": folder.parent}[which], OTHER_USER, OTHER_USER
    )
    with pytest.raises(UntrustedError):
        cache_folder.read(str(folder), NAME)


def test_link_in_place_of_the_file_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (folder / NAME).rename(tmp_path / "elsewhere")
    (folder / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        cache_folder.read(str(folder), NAME)


def test_link_to_a_folder_is_checked_at_its_end(folder: Path, tmp_path: Path) -> None:
    """A link to a private folder is used; a link to a folder that others can write is not."""
    link, shared = tmp_path / "link", tmp_path / "shared"
    link.symlink_to(folder)
    assert cache_folder.read(str(link), NAME) == CONTENT
    (shared / "inner").mkdir(parents=True)
    shared.chmod(0o777)
    link.unlink()
    link.symlink_to(shared / "inner")
    assert refused(link)


def test_folder_replaced_by_a_link_after_its_path_was_resolved(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    monkeypatch.setattr(os.path, "realpath", lambda path: path)
    with pytest.raises(OSError, match=r"directory|symbolic"):
        cache_folder.read(str(link), NAME)


@pytest.mark.parametrize("kind", ["pipe", "folder", "large"])
def test_what_is_not_a_small_regular_file_is_not_read(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / NAME).unlink()
    if kind == "pipe":
        os.mkfifo(folder / NAME)  # opening it must not wait for a writer
    elif kind == "folder":
        (folder / NAME).mkdir()
    else:
        monkeypatch.setattr(cache_folder, "MAX_BYTES", 10)
        (folder / NAME).write_bytes(b"x" * 11)
    with pytest.raises((UntrustedError, IsADirectoryError)):
        cache_folder.read(str(folder), NAME)


@pytest.mark.parametrize("umask", [0, 0o077, 0o777])
def test_new_folders_have_mode_0700_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        cache_folder.write(str(tmp_path / "a" / "b"), NAME, CONTENT)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("a", "a/b")] == [0o700, 0o700]
    assert stat.S_IMODE(os.stat(tmp_path / "a/b" / NAME).st_mode) == 0o644


# -- contents ----------------------------------------------------------------------------


def stored(code: bytes) -> bytes:
    return hashlib.sha256(code).digest() + code


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 500])
def test_truncated_file_is_ignored(tmp_path: Path, length: int) -> None:
    folder = str(tmp_path / "cache")
    cache_folder.write(folder, NAME, stored(CONTENT)[:length])
    assert kernel_cache._read(folder, NAME) is None
    cache_folder.write(folder, NAME, stored(CONTENT))
    assert kernel_cache._read(folder, NAME) == CONTENT


def test_planted_code_in_a_shared_folder_is_not_linked(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache_folder.write(str(folder), NAME, stored(b"planted"))
    assert kernel_cache._read(str(folder), NAME) == b"planted"
    folder.chmod(0o777)
    assert kernel_cache._read(str(folder), NAME) is None


def test_concurrent_writers_leave_one_whole_file(tmp_path: Path) -> None:
    """Readers see no file or a whole one, and no draft is left."""
    folder, contents = str(tmp_path / "cache"), [bytes([i]) * 200_000 for i in range(8)]
    barrier, failures = threading.Barrier(16), []

    def work(index: int) -> None:
        barrier.wait()
        for _ in range(20):
            if index % 2:
                cache_folder.write(folder, NAME, stored(contents[index // 2]))
                continue
            try:
                content = cache_folder.read(folder, NAME)
            except FileNotFoundError:
                continue
            if content not in [stored(c) for c in contents]:
                failures.append(len(content))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
    assert os.listdir(folder) == [NAME]


def test_failed_write_leaves_no_draft(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    (folder / NAME).mkdir(parents=True)  # a file cannot replace a folder
    with pytest.raises(IsADirectoryError):
        cache_folder.write(str(folder), NAME, CONTENT)
    assert os.listdir(folder) == [NAME]


OBJECT = """
import llvmlite.binding as llvm
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
from zerocopy.layout import kernel_cache
machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
code = machine.emit_object(llvm.parse_assembly('define i32 @other() { ret i32 7 }'))
print(kernel_cache._linked(llvm, "to_rows", code))
"""


def test_code_without_the_kernel_is_refused(run_python) -> None:
    """A call of address 0 would end the process."""
    pytest.importorskip("llvmlite")
    completed = run_python(OBJECT)
    assert (completed.returncode, completed.stdout.strip()) == (0, "None"), completed.stderr
