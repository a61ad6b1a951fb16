"""Shared memory with little memory, few descriptors, another user, another process number."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.paths import ROOT
from helpers.shared_memory import READER, in_child, run_reader

import zerocopy as zc

MEMORY = Path("/sys/fs/cgroup/memory")
X = np.arange(100_000)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    # JAX warns at each fork if another test has imported it.
    pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning"),
]


def run(code: str, *before: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        check=False,
    )


# -- memory -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0,
    reason="mount namespaces need privileges",
)
def test_a_small_dev_shm_does_not_matter() -> None:
    """POSIX shared memory ends the process by SIGBUS there; a memfd is not a file of /dev/shm."""
    code = """
        import os, subprocess
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", "/dev/shm"], check=True)
        import numpy as np, zerocopy as zc
        shared = zc.share(np.ones(1 << 23))
        assert os.statvfs("/dev/shm").f_bfree * 4096 == 16 << 20
        print(int(zc.convert(shared, "numpy").sum()))
    """
    completed = run(code, "unshare", "-m")
    assert completed.stdout.strip() == str(1 << 23), completed.stderr


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup (version 1) of 256 MB."""
    folder = MEMORY / f"zerocopy-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(256 << 20))
    except OSError:
        if folder.exists():
            folder.rmdir()
        pytest.skip("memory cgroups of version 1 need privileges")
    yield folder
    folder.rmdir()


@pytest.mark.hazard("robustness#cgroup-limit")
def test_a_full_cgroup_is_an_error(cgroup: Path) -> None:
    """Allocating past the limit makes the kernel end the process instead."""
    completed = run(f"""
        import os, numpy as np, zerocopy as zc
        open({str(cgroup / "cgroup.procs")!r}, "w").write(str(os.getpid()))
        kept, source = [], np.ones(4 << 20, "u1")
        for attempt in (lambda: zc.share(source), lambda: zc.shared_empty(4 << 20, "u1")):
            try:
                while True:
                    kept.append(attempt())
            except zc.errors.SharedMemoryError as error:
                print(len(kept), "memory.limit_in_bytes" in str(error))
            kept.clear()
        try:
            zc.shared_empty(1 << 30, "u1")
        except zc.errors.SharedMemoryError:
            print("refused")
        try:  # the idle segments are freed for a segment of another size
            print(zc.shared_empty(100 << 20, "u1").nbytes)
        finally:
            del kept
    """)
    assert completed.returncode == 0, completed.stderr
    first, second, refused, nbytes = completed.stdout.splitlines()
    assert first.split()[1] == second.split()[1] == "True"
    assert int(first.split()[0]) > 10
    assert int(second.split()[0]) > 10
    assert (refused, int(nbytes)) == ("refused", 100 << 20)


def test_little_address_space(run_python) -> None:
    completed = run_python("""
        import resource, numpy as np, zerocopy as zc
        x = np.ones(20_000_000)
        shared, small = zc.share(x), zc.share(x[:10])
        import mmap
        used = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (used + (20 << 20), resource.RLIM_INFINITY))
        attempts = lambda: zc.convert(shared, "numpy"), lambda: zc.share(x), lambda: zc.shared_empty(10**8)
        for attempt in attempts:
            try:
                attempt()
            except zc.errors.SharedMemoryError as error:
                print("refused")
        print(int(zc.convert(small, "numpy").sum()))
    """)
    assert completed.stdout.split() == ["refused"] * 3 + ["10"], completed.stderr


# -- descriptors --------------------------------------------------------------------------------------------


def test_few_file_descriptors(run_python) -> None:
    completed = run_python("""
        import os, resource, numpy as np, zerocopy as zc
        x = np.arange(100_000)
        shared, small = zc.share(x), zc.share(x[:10])
        zc.convert(shared, "numpy"), zc.convert(small, "numpy")
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        kept = []
        try:
            while True:
                kept.append(zc.share(x))
        except zc.errors.SharedMemoryError as error:
            print(error.code, len(kept) > 20)
        results = []
        kept = kept[:20]
        try:
            for each in kept:
                results.append(zc.convert(each, "numpy"))
        except zc.errors.SharedMemoryError as error:
            print(error.code)
        filled = []
        try:
            while True:
                filled.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        for attempt in (
            lambda: zc.convert(shared, "numpy"), lambda: zc.convert(small, "numpy"), lambda: zc.share(x),
            lambda: zc.shared_empty(10**6), lambda: zc.share(results[0]),
        ):
            try:
                attempt()
            except zc.errors.SharedMemoryError as error:
                print(error.code)
        for fd in filled:
            os.close(fd)
        results.clear(); kept.clear()
        assert (zc.convert(zc.share(x), "numpy") == x).all()
        print(len(zc.share(np.zeros(300_000)).handle.header) > 0)
    """)
    assert completed.returncode == 0, completed.stderr
    lines = completed.stdout.split("\n")
    assert lines[0] == "no-file-descriptor True", completed.stderr
    assert set(lines[1:-2]) == {"no-file-descriptor"}, completed.stdout
    assert lines[-2] == "True"


def test_no_descriptor_at_first_use(run_python) -> None:
    completed = run_python("""
        import os, resource, numpy as np, zerocopy as zc, zerocopy.shared.share
        zc.convert(np.zeros(3), "numpy"); from zerocopy.frames import to_frames; to_frames(np.zeros(3))
        x = np.arange(100_000)
        resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
        try:
            while True:
                os.open("/dev/null", os.O_RDONLY)
        except OSError:
            pass
        for attempt in (lambda: zc.share(x), lambda: zc.share(x[:3]), lambda: zc.shared_empty(3)):
            try:
                attempt()
            except zc.errors.SharedMemoryError as error:
                print(error.code)
    """)
    assert completed.stdout.split() == ["no-file-descriptor"] * 3, completed.stderr


# -- users and processes ----------------------------------------------------------------------------------


@needs_root
def test_another_user() -> None:
    """A reader of another user gets an error, whichever of the two is root."""
    shared, small = zc.share(X), zc.share(X[:10])

    def child() -> None:
        os.setresuid(65534, 65534, 65534)
        for each in (shared, small):
            with pytest.raises(zc.errors.HandleAccessError) as caught:
                zc.convert(zc.Shared.from_bytes(bytes(each)), "numpy")
            assert isinstance(caught.value, PermissionError)
            assert "run the reader as the user of process" in caught.value.remedy
            assert "start_broker" not in caught.value.remedy  # it answers its own user only

    assert in_child(child) == 0
    down, up = os.pipe(), os.pipe()
    owner = os.fork()
    if not owner:
        os.setresuid(65534, 65534, 65534)
        mine = zc.share(np.arange(200_000))
        os.write(up[1], bytes(mine))
        os.read(down[0], 1)
        os._exit(0)
    with pytest.raises(zc.errors.HandleAccessError, match="run the reader as the user") as caught:
        zc.convert(zc.Shared.from_bytes(os.read(up[0], 1000)), "numpy")
    assert "start_broker" not in caught.value.remedy
    os.write(down[1], b"x")
    os.waitpid(owner, 0)
    for fd in (*down, *up):
        os.close(fd)


def test_a_process_number_that_is_used_again() -> None:
    """A process with the owner's number and descriptor has another inode or generation."""
    shared = zc.share(X)
    handle = shared.handle
    other = zc.share(np.zeros(100_000))
    place = other.handle.location
    for change in (
        {"fd": place.fd},
        {"fd": place.fd, "inode": place.inode},
        {"fd": place.fd, "inode": place.inode, "start": place.start},
    ):
        wrong = handle._replace(location=handle.location._replace(**change))
        with pytest.raises(zc.errors.StaleHandleError):
            zc.convert(zc.Shared.from_bytes(wrong.pack()), "numpy")


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], check=False).returncode != 0,
    reason="PID namespaces need privileges",
)
def test_a_process_number_that_is_forced_again() -> None:
    """In a PID namespace the next number can be set: another owner gets it, and the same descriptor."""
    code = """
        import os, sys, numpy as np, zerocopy as zc
        def owner(value):
            with open("/proc/sys/kernel/ns_last_pid", "w") as file: file.write("500")
            down, up = os.pipe(), os.pipe()
            child = os.fork()
            if not child:
                shared = zc.share(np.full(100_000, value))
                os.write(up[1], bytes(shared)); os.read(down[0], 1); os._exit(0)
            data = os.read(up[0], 1000)
            return child, data, down, up
        zc.convert(zc.share(np.zeros(100_000)), "numpy")
        child, first, down, up = owner(1)
        os.kill(child, 9); os.waitpid(child, 0)
        for fd in (*down, *up): os.close(fd)
        again, second, down, up = owner(2)
        one, two = (zc.Shared.from_bytes(each).handle.location for each in (first, second))
        print((one.pid, one.fd) == (two.pid, two.fd), child == again)
        try:
            zc.convert(zc.Shared.from_bytes(first), "numpy")
        except zc.errors.StaleHandleError:
            print(int(zc.convert(zc.Shared.from_bytes(second), "numpy")[0]))
        os.write(down[1], b"x"); os.waitpid(again, 0)
    """
    completed = run(code, "unshare", "--pid", "--fork", "--mount-proc")
    if "PermissionError" in completed.stderr:
        pytest.skip("the kernel does not let the next process number be set")
    assert completed.stdout.split() == ["True", "True", "2"], completed.stderr


def test_a_handle_after_its_owners_end() -> None:
    code = """
        import numpy as np, zerocopy as zc
        kept = [zc.share(np.arange(100_000)), zc.share(np.arange(10))]
        for each in kept: print(bytes(each).hex())
    """
    for line in run(code).stdout.split():
        with pytest.raises(zc.errors.StaleHandleError) as caught:
            zc.convert(zc.Shared.from_bytes(bytes.fromhex(line)), "numpy")
        assert "has ended" in str(caught.value)
        assert "keep the Shared" in caught.value.remedy


def test_readers_are_independent_of_frameworks() -> None:
    assert "torch" not in READER
    assert run_reader(zc.share(X), zc.share(X[:10])).stdout.split() == [str(X.sum()), "45"]
