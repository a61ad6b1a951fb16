"""A fork waits for threads that import or compile, whose locks the child would inherit."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from helpers.source_files import FILES, dotted_name, parse, relative

from zerocopy._native import core

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


@pytest.mark.hazard("robustness#locks-in-a-child")
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


# -- every lock of the package -------------------------------------------------------------

#: Callables that create a lock, or an object with locks inside.
LOCKS = {
    "Lock", "RLock", "allocate_lock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier",
    "Queue", "SimpleQueue", "LifoQueue", "PriorityQueue", "ThreadPoolExecutor",
}  # fmt: skip

#: Locks outside zerocopy/forks.py, with the reason why no forked child waits for them.
FREE_OF_FORKS = {
    # Each belongs to one call of `threads.run`, whose thread waits in it and does not fork.
    "layout/threads.py": {"Lock", "ThreadPoolExecutor"},
    # It belongs to one call, which reads the metadata of files and does not fork.
    "loading/sources/columnar.py": {"ThreadPoolExecutor"},
    # It belongs to one call of `Weights.read`, which waits for its threads and does not fork.
    "weights/file.py": {"ThreadPoolExecutor"},
    # The thread that waits for it ends before a fork; a child creates another.
    "monitor/sampling.py": {"Event"},
    # Each belongs to one iterator, which refuses to work in a forked child before it waits.
    "loading/prefetcher.py": {"SimpleQueue"},
    # The thread of one iterator creates and uses it; that thread does not exist in a forked child.
    "loading/reading.py": {"ThreadPoolExecutor"},
    # An access of the protocol, which holds nothing.
    # Of the page's server, whose process does not run the user's program and does not fork.
    "monitor/web/server.py": {"Event"},
}


@pytest.mark.hazard("robustness#locks-in-a-child")
def test_every_lock_is_created_by_forks() -> None:
    """`forks.lock` and `forks.plain_lock` return locks that are free in a forked child."""
    created: dict[str, set[str]] = {}
    for path in FILES:
        if not any(name in path.read_text(encoding="utf-8") for name in LOCKS):
            continue
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", None))
                if name in LOCKS:
                    created.setdefault(relative(path), set()).add(name)
    assert created.pop("forks.py") == {"RLock", "allocate_lock"}
    assert created.pop("interpreter/__init__.py") == {"RLock"}  # LOADING, which the fork holds
    assert created == FREE_OF_FORKS


@pytest.mark.full
def test_every_lock_of_a_loaded_module_is_registered(run_python) -> None:
    """Module-level locks at run time, and those of instances that modules hold."""
    completed = run_python(
        """
        import gc, importlib, pkgutil, sys
        import zerocopy
        from zerocopy import forks
        for module in pkgutil.walk_packages(zerocopy.__path__, "zerocopy."):
            if not module.name.endswith("__main__") and ".cuda" not in module.name:
                try: importlib.import_module(module.name)
                except ImportError: pass
        kinds = (type(forks.LOADING), type(forks.allocate_lock()))
        registered = {id(forks.LOADING), *(id(each()) for each in forks._free_in_children)}
        seen, missing = 0, []
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] != "zerocopy": continue
            for label, value in vars(module).items():
                if isinstance(value, kinds):
                    seen += 1
                    if id(value) not in registered: missing.append(f"{name}.{label}")
        assert seen >= 4, seen
        assert not missing, missing
        """
    )
    assert completed.returncode == 0, completed.stderr


# -- a framework that another thread imports ----------------------------------------------

#: A framework whose import takes two seconds and defines its names at the end.
SLOW = """
import os, sys, tempfile, threading, time
import numpy as np, zerocopy as zc
from zerocopy import registry

folder = tempfile.mkdtemp()
sys.path.insert(0, folder)
with open(os.path.join(folder, "slow.py"), "w") as file:
    file.write("import sys\\nsys.slow_started = True\\nsys.slow_wait()\\n")
    file.write("def wrap(x): return [x]\\nREADY = 1\\n")
sys.slow_wait = lambda: time.sleep(2)
class Slow(zc.Framework):
    name, root_modules = "slow", ("slow",)
    def owns(self, cls): return cls.__module__ == "slow" and self.module().READY
    def copy_reasons(self, view): return []
    def from_host(self, array, dtype, device, stream): return self.module().wrap(array)
    def devices(self): return ["cpu"] * self.module().READY
    def is_out_of_memory(self, error): return not self.module().READY

def wait_for_start():
    for _ in range(6000):
        if getattr(sys, "slow_started", False): return
        time.sleep(0.01)
    raise AssertionError("the import did not start")

sys.path.insert(0, "tests")
from helpers.forked_child import in_child

x = np.arange(3.0)
"""


@pytest.mark.hazard("robustness#lock-of-an-import")
def test_child_converts_while_another_thread_imported_the_framework(run_python) -> None:
    completed = run_python(
        SLOW
        + """
zc.register(Slow())
other = threading.Thread(target=zc.convert, args=(x, "slow"))
other.start()
wait_for_start()
print(in_child(lambda: zc.convert(x, "slow")[0] is not None and len(zc.frameworks()) > 3))
other.join()
"""
    )
    assert (completed.returncode, completed.stdout.strip()) == (0, "0"), completed.stderr


PLUGIN = """
import importlib.metadata
class Point:
    name = "slow"
    def load(self):
        import slow
        return Slow
importlib.metadata.entry_points = lambda **options: [Point()]
"""


@pytest.mark.hazard("robustness#lock-of-an-import")
def test_child_lists_frameworks_while_another_thread_loaded_a_plugin(run_python) -> None:
    completed = run_python(
        SLOW
        + PLUGIN
        + """
other = threading.Thread(target=zc.frameworks)
other.start()
wait_for_start()
print(in_child(lambda: "slow" in zc.frameworks()))
other.join()
"""
    )
    assert (completed.returncode, completed.stdout.strip()) == (0, "0"), completed.stderr


#: Prints the modules that zerocopy imports in a thread while a fork in another thread does not wait.
IMPORTS = """
import sys, threading, traceback
import numpy as np, zerocopy as zc
from zerocopy.forks import IMPORTING, LOADING

class Finder:
    def find_spec(self, name, path=None, target=None):
        # importlib.util.find_spec() looks for modules, and takes no lock of a module.
        if not any(frame.name == "_find_and_load" for frame in traceback.extract_stack()): return
        lock = LOADING.acquire.__self__
        if not lock._is_owned() and threading.get_ident() not in IMPORTING.values(): print(name)

calls = [getattr(zc, name) for name in ("frameworks", "convert", "explain", "view")]  # imports their modules
x = np.arange(3.0)
def call_all():
    zc.frameworks()
    zc.explain(x, "numpy"), zc.convert(x, "numpy"), zc.convert({"a": x}, "numpy"), zc.view(x)
sys.meta_path.insert(0, Finder())
other = threading.Thread(target=call_all)
other.start()
other.join()
"""


def test_forks_wait_for_every_import_of_a_thread(run_python) -> None:
    """A forked child waits forever for the lock of a module that another thread of its parent imported."""
    completed = run_python(IMPORTS)
    assert (completed.returncode, completed.stdout.split()) == (0, []), completed.stderr


@pytest.mark.hazard("robustness#plugins-that-call-zerocopy")
def test_plugin_that_calls_zerocopy_at_its_import_does_not_deadlock(run_python) -> None:
    """One thread imports the plugin, another one its entry point; the plugin registers and converts."""
    completed = run_python(
        SLOW
        + PLUGIN
        + """
with open(os.path.join(folder, "slow.py"), "a") as file:
    file.write("import numpy as np, zerocopy as zc\\nzc.register(sys.Slow())\\n")
    file.write("zc.convert(np.zeros(2), 'slow')\\n")
sys.Slow = Slow
import signal
signal.alarm(100)
def import_it():
    import slow
first = threading.Thread(target=import_it)
first.start()
wait_for_start()
second = threading.Thread(target=zc.frameworks)
second.start()
first.join()
second.join()
print(in_child(lambda: "slow" in zc.frameworks()))
"""
    )
    assert (completed.returncode, completed.stdout.strip()) == (0, "0"), completed.stderr


@pytest.mark.hazard("robustness#modules-that-are-being-imported")
def test_sixteen_threads_make_the_first_import(run_python) -> None:
    """No thread uses the module before its import has finished; lists do not wait for it."""
    completed = run_python(
        SLOW
        + """
zc.register(Slow())
barrier, failures, ready = threading.Barrier(16), [], threading.Event()
sys.slow_wait = lambda: ready.wait(60)
def work():
    barrier.wait()
    try:
        assert np.shares_memory(zc.convert(x, "slow")[0], x)
    except BaseException as error: failures.append(repr(error))
threads = [threading.Thread(target=work) for _ in range(16)]
for thread in threads: thread.start()
wait_for_start()
info = zc.frameworks()["slow"]
assert info.devices == ("cpu",) and info.installed, info
assert registry.out_of_memory(ValueError()) is None
assert not hasattr(sys.modules["slow"], "READY")  # none of these waited
ready.set()
for thread in threads: thread.join()
assert not failures, failures[:3]
"""
    )
    assert completed.returncode == 0, completed.stderr


@pytest.mark.parametrize("simulator", ["0", "1"])
def test_sixteen_threads_make_the_first_import_of_numba(run_python, simulator: str) -> None:
    pytest.importorskip("numba")
    completed = run_python(
        """
        import threading, numpy as np, zerocopy as zc
        barrier, kinds = threading.Barrier(16), []
        def work():
            barrier.wait()
            try: kinds.append(type(zc.convert(np.arange(3.0), "numba")).__name__)
            except BaseException as error: kinds.append(type(error).__name__)
        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert len(kinds) == 16 and len(set(kinds)) == 1, kinds
        print(kinds[0])
        """,
        NUMBA_ENABLE_CUDASIM=simulator,
    )
    assert completed.returncode == 0, completed.stderr
    expected = {"FakeCUDAArray"} if simulator == "1" else {"DeviceError", "DeviceNDArray"}
    assert completed.stdout.strip() in expected, completed.stdout


@pytest.mark.hazard("robustness#modules-that-are-being-imported")
def test_frameworks_that_are_being_imported_are_not_used(run_python) -> None:
    """Modules without names, as another thread sees them early in their import."""
    completed = run_python(
        """
        import sys
        from importlib.machinery import ModuleSpec
        from types import ModuleType
        import zerocopy as zc
        from zerocopy import registry
        before = zc.frameworks()
        for name in before:
            if name not in sys.modules:
                module = sys.modules[name] = ModuleType(name)
                module.__spec__ = ModuleSpec(name, None)
                module.__spec__._initializing = True
        after = zc.frameworks()
        assert [i.devices for i in after.values()] == [i.devices for i in before.values()]
        assert registry.out_of_memory(RuntimeError("any")) is None
        assert registry.by_type(int) is None
        """
    )
    assert completed.returncode == 0, completed.stderr


@pytest.mark.hazard("robustness#lock-of-logging")
def test_a_fork_waits_for_an_import_before_it_takes_the_lock_of_logging(run_python) -> None:
    """The imported module makes a logger while the fork waits; logging is imported after zerocopy."""
    code = """
        import os, signal, sys, threading, time
        signal.alarm(60)  # ends a deadlock
        import zerocopy
        from zerocopy.framework import while_forks_wait
        begun = threading.Event()
        def load():
            import logging
            begun.set()
            time.sleep(0.5)  # the other thread is in os.fork()
            return logging.getLogger("a module")
        thread = threading.Thread(target=while_forks_wait, args=(load,))
        thread.start()
        begun.wait()
        child = os.fork()
        if not child:
            import logging, concurrent.futures
            logging.getLogger("a child")
            while_forks_wait(lambda: None)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        thread.join()
        while_forks_wait(lambda: None)
    """
    completed = run_python(code)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.hazard("robustness#lock-of-an-import")
@pytest.mark.hazard("robustness#lock-of-logging")
def test_children_forked_while_a_thread_first_uses_zerocopy_use_it_too(run_python) -> None:
    """Forks at 20 moments of the first use, in processes that have imported zerocopy only."""
    completed = run_python(
        """
        import os, signal, sys, threading, time
        import zerocopy as zc
        assert "logging" not in sys.modules and "zerocopy.forks" not in sys.modules
        def first_use(moment):
            signal.alarm(60)  # ends a deadlock
            begun = threading.Event()
            def use():
                begun.set()
                zc.view(b"abc")
            thread = threading.Thread(target=use)
            thread.start()
            begun.wait()
            time.sleep(moment)
            child = os.fork()
            if not child:
                signal.alarm(30)
                import logging
                os._exit(0 if zc.view(b"abc").shape == (3,) and logging.getLogger("a child") else 1)
            thread.join()
            assert zc.view(b"abc").shape == (3,)
            return os.waitpid(child, 0)[1]
        for k in range(20):
            process = os.fork()
            if not process: os._exit(first_use(k * 3 / 1000) != 0)
            assert os.waitpid(process, 0)[1] == 0, k
        """
    )
    assert (completed.returncode, completed.stderr) == (0, "")


# -- functions that run in forked children ------------------------------------------------

REGISTERED = """
import os, sys, threading
sys.path.insert(0, "tests")
from helpers import guarded_containers
guarded_containers.watch_registrations()

import importlib
import numpy as np, zerocopy as zc
for name in MODULES:
    importlib.import_module(name)

from zerocopy.layout import threads
from zerocopy.shared.tickets import Tickets
tickets, shared = Tickets(), zc.share(np.zeros(100_000))
tickets.issue(shared)
threads._pool()
loader = zc.loader({"x": np.arange(8)}, "numpy", batch_size=2)
next(iter(loader))
session = zc.monitor.start(directory=DIRECTORY)
zc.convert(np.arange(3.0), "numpy", copy=True)
session._sampler.stop()  # its thread would use the guarded containers meanwhile

assert guarded_containers.guard_all() > 50
child = os.fork()
if not child:
    for hook, method in guarded_containers.used:
        print(hook, "calls", method)
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
for (file, line), name in guarded_containers.registered.items():
    print("registered", os.path.relpath(file), name)
"""


@pytest.mark.hazard("robustness#containers-in-a-child")
@pytest.mark.skipif(core is None, reason="without the compiled core, routes are dicts that change in place")
def test_forked_children_use_no_container_that_another_thread_may_lock(run_python, tmp_path) -> None:
    """Their functions assign new objects: a lock that a thread of the parent holds is never released."""
    registering = [path for path in FILES if _registers_for_children(path)]
    code = REGISTERED.replace("DIRECTORY", repr(str(tmp_path)))
    code = code.replace("MODULES", repr([dotted_name(path) for path in registering]))
    completed = run_python(code, PYTHONWARNINGS="ignore")
    assert completed.returncode == 0, completed.stderr
    lines = completed.stdout.splitlines()
    assert [line for line in lines if not line.startswith("registered")] == []
    ran = {line.split()[1] for line in lines}
    assert ran == {f"zerocopy/{relative(path)}" for path in registering}


def _registers_for_children(path: Path) -> bool:
    return any(
        isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "register_at_fork"
        and any(keyword.arg == "after_in_child" for keyword in node.keywords)
        for node in ast.walk(parse(path))
    )
