"""The broker: other PID namespaces, its own file descriptions, and clients that misbehave."""

from __future__ import annotations

import array
import fcntl
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.shared_memory import in_child, run_reader

import zerocopy as zc
from zerocopy.shared import segment_file, start_broker, stop_broker
from zerocopy.shared.handle import broker_number, host_id
from zerocopy.shared.segment_file import REQUEST, SEGMENT, broker_address, request_segment

NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")
X = np.arange(100_000)


def can_unshare(*words: str) -> bool:
    return (
        shutil.which("unshare") is not None
        and not subprocess.run([*words, "true"], capture_output=True, check=False).returncode
    )


needs_namespace = pytest.mark.skipif(not can_unshare(*NAMESPACE), reason="PID namespaces need privileges")


@pytest.fixture
def broker() -> Iterator[None]:
    start_broker()
    yield
    stop_broker()


def connected(number: int = 0) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(60)
    while True:
        try:
            peer.connect(broker_address(host_id(), number or broker_number()))
        except BlockingIOError:  # the queue is full
            time.sleep(0.01)
        else:
            return peer


@needs_namespace
def test_another_namespace_needs_a_broker() -> None:
    shared = zc.share(X)
    completed = run_reader(shared, before=NAMESPACE)
    assert completed.stdout.startswith("OtherHostError")
    assert "start_broker" in completed.stdout


@needs_namespace
def test_another_namespace_with_a_broker(broker: None) -> None:
    shared, small = zc.share(X), zc.share(X[:10])
    completed = run_reader(shared, small, before=NAMESPACE)
    assert completed.stdout.split() == [str(X.sum()), "45"], completed.stderr
    shared.close()
    assert run_reader(small, before=NAMESPACE).stdout.strip() == "45"


@needs_namespace
def test_a_stale_handle_in_another_namespace(broker: None) -> None:
    shared = zc.share(X)
    handle = shared.handle
    wrong = [
        handle._replace(location=handle.location._replace(**change)).pack()
        for change in ({"fd": 0}, {"fd": 900}, {"inode": 5}, {"generation": 4})
    ]
    lines = run_reader(*wrong, before=NAMESPACE).stdout.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["StaleHandleError"] * 4


@needs_namespace
def test_a_lease_by_the_broker_is_the_readers_own(broker: None) -> None:
    """A duplicate of the owner's descriptor would be locked by the owner itself."""
    code = """
        import sys, zerocopy as zc
        x = zc.convert(zc.Shared.from_bytes(bytes.fromhex(sys.argv[1])), "numpy")
        print("open", flush=True); sys.stdin.readline()
        print(int(x.sum()), flush=True)
    """
    import sys
    import textwrap

    shared = zc.share(X)
    with subprocess.Popen(
        [*NAMESPACE, sys.executable, "-c", textwrap.dedent(code), bytes(shared).hex()],
        stdin=-1,
        stdout=-1,
        text=True,
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "open\n"
        shared.close()
        kept = [zc.share(np.zeros(100_000, "i8")) for _ in range(30)]
        reader.stdin.write("\n")
        reader.stdin.flush()
        assert int(reader.stdout.readline()) == X.sum()
        del kept


@needs_namespace
def test_a_directory_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("/tmp") / f"zc-{os.getpid()}"
    folder.mkdir()
    try:
        code = f"""
            import os, sys, subprocess, numpy as np, zerocopy as zc
            shared = zc.share(np.ones(100_000))
            print(len(os.listdir({str(folder)!r})), bytes(shared).hex(), flush=True)
            sys.stdin.read()
        """
        import sys
        import textwrap

        with subprocess.Popen(
            [*NAMESPACE, sys.executable, "-c", textwrap.dedent(code)],
            stdin=-1,
            stdout=-1,
            text=True,
            env={**os.environ, "ZEROCOPY_BROKER": str(folder)},
        ) as owner:
            assert owner.stdout is not None
            assert owner.stdin is not None
            count, data = owner.stdout.readline().split()
            assert count == "1"
            monkeypatch.setenv("ZEROCOPY_BROKER", str(folder))
            assert zc.convert(zc.Shared.from_bytes(bytes.fromhex(data)), "numpy").sum() == 100_000
            owner.stdin.close()
            owner.wait(60)
        assert os.listdir(folder) == []
    finally:
        shutil.rmtree(folder)


def test_it_sends_a_description_of_its_own(broker: None) -> None:
    shared = zc.share(X)
    fd = request_segment(shared.handle.location)
    assert fd is not None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        owned = shared.handle.location.fd
        with pytest.raises(BlockingIOError):
            fcntl.flock(owned, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)


def test_it_gives_segments_only(broker: None, tmp_path: Path) -> None:
    location = zc.share(X).handle.location
    with open(tmp_path / "file", "wb") as file:
        plain = file.fileno()
        wrong = [(plain, os.fstat(plain).st_ino), (0, 1), (location.fd, location.inode + 1), (2**32 - 1, 0)]
        for fd, inode in wrong:
            with pytest.raises(FileNotFoundError):
                request_segment(location._replace(fd=fd, inode=inode))


def test_malformed_requests_get_no_answer(broker: None) -> None:
    shared = zc.share(X)
    location = shared.handle.location
    right = REQUEST.pack(SEGMENT, location.fd, location.inode)
    for data in (b"x", right[:-1], right + b"x", b"ZCBR\x02" + right[5:], bytes(100_000)):
        with connected() as peer:
            peer.send(data)
            assert peer.recv(10) == b""
    with connected() as peer:  # descriptors that a client sends are not taken
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1]))
        peer.sendmsg([b"x"], [rights])
        assert peer.recv(10) == b""
    fd = request_segment(location)
    assert fd is not None
    os.close(fd)


def test_silent_clients_delay_no_other(broker: None) -> None:
    shared = zc.share(X)
    silent = [connected() for _ in range(100)]
    fd = request_segment(shared.handle.location)
    assert fd is not None
    os.close(fd)
    assert silent[0].recv(1) == b""  # the oldest are closed at once, the others later
    for peer in silent:
        peer.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_gets_nothing(broker: None) -> None:
    location = zc.share(X).handle.location

    def child() -> None:
        os.setresuid(65534, 65534, 65534)
        assert request_segment(location) is None
        with connected(location.broker) as peer:
            try:
                peer.send(REQUEST.pack(SEGMENT, location.fd, location.inode))
                assert peer.recv(10) == b""
            except (ConnectionError, BrokenPipeError):
                pass

    assert in_child(child) == 0


def answer_with(descriptors: int, text: bytes, send: bool = True) -> object:
    """Ask a false broker, which answers with some descriptors, and return the outcome."""
    name = f"\0zerocopy-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(name)
        listener.listen(1)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(0.3)
            client.connect(name)
            peer, _ = listener.accept()
            with peer:
                rights = array.array("i", [0] * descriptors)
                if send:
                    peer.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if rights else [])
                location = zc.share(X).handle.location
                return segment_file._ask(client, REQUEST.pack(SEGMENT, location.fd, location.inode))


def test_false_brokers() -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert answer_with(0, b"+") is None
    assert answer_with(3, b"+") is None or True  # more descriptors than there is space for are dropped
    assert answer_with(1, b"?") is None
    assert answer_with(0, b"", send=False) is None
    with pytest.raises(FileNotFoundError):
        answer_with(1, b"-")
    assert len(os.listdir("/proc/self/fd")) <= before + 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_no_broker(broker: None) -> None:
    location = zc.share(X).handle.location

    def child() -> None:
        own = zc.share(X).handle.location
        assert request_segment(own) is None
        start_broker()
        fd = request_segment(own)
        assert fd is not None
        os.close(fd)
        fd = request_segment(location)  # the parent's
        assert fd is not None
        stop_broker()

    assert in_child(child) == 0
    fd = request_segment(location)
    assert fd is not None
    os.close(fd)


def test_start_and_stop_again(tmp_path: Path) -> None:
    location = zc.share(X).handle.location
    for _ in range(3):
        start_broker()
        start_broker()
        stop_broker()
        stop_broker()
    assert request_segment(location) is None
    folder = str(tmp_path)
    if len(folder) > 60:
        pytest.skip("the path of the temporary folder is too long for a socket")
    dead, alive = (broker_address(host_id(), number, folder) for number in (1, 2))
    other = broker_address(bytes(24), 1, folder)  # of another machine with this volume
    for name in (dead, other):
        bound(name).close()  # as a killed process leaves it
    kept = {os.path.basename(name) for name in (alive, other)}
    with bound(alive):
        start_broker(folder)
        name = os.path.basename(broker_address(host_id(), broker_number(), folder))
        assert set(os.listdir(folder)) == {*kept, name}
        stop_broker()
        assert set(os.listdir(folder)) == kept


# -- names that another user can take ------------------------------------------------------------------


def bound(name: str) -> socket.socket:
    """Return a socket that listens on a name."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(name)
    listener.listen(1)
    return listener


def test_the_name_is_random_and_the_handle_carries_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes with the same public facts (host, process number) have brokers of different names."""
    numbers = {zc.share(X).handle.location.broker, zc.share(X[:3]).handle.location.broker}
    assert numbers == {broker_number()}
    opened = zc.convert(zc.share(X), "numpy")
    assert zc.share(opened).handle.location.broker == broker_number()
    data = zc.share(X)
    assert zc.Shared.from_bytes(bytes(data)).handle.location.broker == broker_number()
    down, up = os.pipe()

    def child() -> None:
        os.write(up, broker_number().to_bytes(8, "little"))
        shared = zc.share(opened)
        assert shared.handle.location.broker == broker_number()
        assert broker_number() not in numbers

    assert in_child(child) == 0
    assert int.from_bytes(os.read(down, 8), "little") not in numbers
    os.close(down)
    os.close(up)


def no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def no_socket(*_: object) -> None:
    raise OSError(24, "Too many open files")


FAILURES = ("a taken name", "no folder", "a long path", "a file", "no thread", "no socket")


@pytest.fixture(params=FAILURES)
def failure(request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Make the broker fail to start, and return the value of the environment variable."""
    stop_broker()
    monkeypatch.setattr("zerocopy.shared.share._configured", None)
    value, kept = "1", []
    match request.param:
        case "a taken name":
            kept.append(bound(broker_address(host_id(), broker_number())))
        case "no folder":
            value = str(tmp_path / "missing")
        case "a long path":
            folder = tmp_path / ("x" * 100)
            folder.mkdir()
            value = str(folder)
        case "a file":
            (tmp_path / "file").touch()
            value = str(tmp_path / "file")
        case "no thread":
            monkeypatch.setattr(threading.Thread, "start", no_thread)
        case "no socket":
            monkeypatch.setattr(socket, "socketpair", no_socket)
    monkeypatch.setenv("ZEROCOPY_BROKER", value)
    yield value
    for each in kept:
        each.close()


def test_share_works_without_a_broker(failure: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.warns(RuntimeWarning, match=r"ZEROCOPY_BROKER=.*\n  To fix: pass a directory"):
        shared = zc.share(X[:10])
    assert zc.convert(shared, "numpy").sum() == 45
    assert run_reader(shared, ZEROCOPY_BROKER="").stdout.split() == ["45"]
    zc.share(X[:10])  # no second warning: pytest makes it an error
    with pytest.raises(OSError, match=r"\S"):
        start_broker(failure if failure.startswith("/") else None)
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # the descriptors of the segment of `shared`


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("folder", [False, True])
def test_a_broker_of_another_user_is_not_asked(folder: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would learn which segments there are, and could send other memory."""
    place = Path("/tmp") / f"zc-{os.getpid()}"
    place.mkdir()
    place.chmod(0o777)
    try:
        if folder:
            monkeypatch.setenv("ZEROCOPY_BROKER", str(place))
        location = zc.share(X).handle.location
        down, up, asked = os.pipe(), os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            os.setresuid(65534, 65534, 65534)
            with bound(broker_address(host_id(), os.getpid(), str(place) if folder else None)) as listener:
                os.write(up[1], b"x")
                os.read(down[0], 1)
                listener.setblocking(False)
                peer, _ = listener.accept()
                os.write(asked[1], b"+" + peer.recv(100))
            os._exit(0)
        os.close(up[1])
        assert os.read(up[0], 1) == b"x"  # nothing, if the child has failed
        assert request_segment(location._replace(broker=child)) is None
        os.write(down[1], b"x")
        assert os.read(asked[0], 100) == b"+"  # it connected, and sent nothing
        assert os.waitpid(child, 0)[1] == 0
        for fd in (*down, up[0], *asked):
            os.close(fd)
    finally:
        shutil.rmtree(place)
