"""A fork waits for threads that import or compile, whose locks the child would inherit."""

from __future__ import annotations

import pytest

HELD = """
import os, threading
from zerocopy.forks import LOADING
held, asked, done = threading.Event(), threading.Event(), threading.Event()
# The last registered function is called first before a fork, and last after it.
os.register_at_fork(before=asked.set, after_in_parent=done.set)
early = []
def hold():
    with LOADING:
        held.set()
        assert asked.wait(60)
        early.append(done.wait(0.5))
def free():
    got = []
    def take():
        got.append(LOADING.acquire(blocking=False))
        LOADING.release()
    other = threading.Thread(target=take)
    other.start()
    other.join()
    return got == [True]
def forked():
    child = os.fork()
    if not child:
        import signal
        signal.alarm(60)  # ends a child that hangs
        os._exit(0 if free() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def test_fork_waits_for_loading_threads(run_python) -> None:
    completed = run_python(
        HELD
        + """
other = threading.Thread(target=hold)
other.start()
assert held.wait(60)
status = forked()
other.join()
print(status, early, free())
"""
    )
    assert (completed.returncode, completed.stdout.strip()) == (0, "0 [False] True"), completed.stderr


@pytest.mark.parametrize("times", [1, 2])
def test_loading_thread_may_fork(run_python, times: int) -> None:
    """A module that forks at import: the child holds the lock as many times as before."""
    completed = run_python(
        HELD
        + f"""
for _ in range({times}): LOADING.acquire()
child = os.fork()
for _ in range({times}): LOADING.release()
if not child: os._exit(0 if free() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), free())
"""
    )
    assert (completed.returncode, completed.stdout.strip()) == (0, "0 True"), completed.stderr


@pytest.mark.parametrize(("kind", "again"), [("lock", True), ("plain_lock", False)])
def test_lock_is_free_in_child(run_python, kind: str, again: bool) -> None:
    """It is free whether or not a thread held it in the parent; only the re-entrant lock nests."""
    completed = run_python(
        f"""
        import os, threading
        from zerocopy import forks
        lock = forks.{kind}()
        held, go = threading.Event(), threading.Event()
        def hold():
            with lock:
                held.set()
                go.wait(60)
        other = threading.Thread(target=hold)
        other.start()
        assert held.wait(60)
        assert not lock.acquire(blocking=False)
        child = os.fork()
        if not child:
            taken = [lock.acquire(blocking=False), lock.acquire(blocking=False)]
            os._exit(0 if taken == [True, {again}] else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        go.set()
        other.join()
        print(status, lock.acquire(blocking=False))
        """
    )
    assert (completed.returncode, completed.stdout.strip()) == (0, "0 True"), completed.stderr
