"""Frameworks and the pool: when each is attached, with the real imports, in separate processes.

These tests need no GPU: stand-ins simulate GPUs and CUDA builds. tests/gpu/test_pool.py checks what
the frameworks do on a GPU.
"""

from __future__ import annotations

import importlib.util
import textwrap

import pytest
from helpers.pool_stand_ins import ENDING, ENDS

#: A simulated GPU, and frameworks that count as CUDA builds.
SIMULATED_GPU = """
import os, sys, warnings
import zerocopy as zc
from zerocopy.pool import install
from zerocopy.pool.gpus import GPU
from tests.helpers.pool_stand_ins import FakeDriver, HostAllocator
from zerocopy.protocols import cuda_driver
fake = FakeDriver()
cuda_driver.driver = lambda: fake
install.visible_gpus = lambda: ([GPU(0, "stand-in", 1 << 30)], None)
from zerocopy._frameworks.torch.pool import Pool as TorchHook
from zerocopy._frameworks.jax.pool import Pool as JAXHook
from zerocopy._frameworks.tensorflow.pool import Pool as TensorFlowHook
for hook in (TorchHook, JAXHook, TensorFlowHook): hook.lacks_gpu = lambda self: None
def row(pool, name): return pool.report()[name]
JAX, TF = "XLA_PYTHON_CLIENT_ALLOCATOR", "TF_GPU_ALLOCATOR"
"""
CLEAN = ("XLA_PYTHON_CLIENT_ALLOCATOR", "TF_GPU_ALLOCATOR", "PYTORCH_ALLOC_CONF", "ZEROCOPY_POOL")
# tests/gpu sets it when it is collected.
CLEAN += ("XLA_PYTHON_CLIENT_PREALLOCATE",)


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip where a framework is not installed; none is imported here."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not installed")


@pytest.fixture
def run(run_python, monkeypatch):
    for name in (*CLEAN, "PYTORCH_CUDA_ALLOC_CONF", "TF_FORCE_GPU_ALLOW_GROWTH", "NUMBA_ENABLE_CUDASIM"):
        monkeypatch.delenv(name, raising=False)

    def check(code: str, **env: str) -> str:
        completed = run_python(SIMULATED_GPU + textwrap.dedent(code), **env)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    return check


@needs("torch", "jax", "tensorflow", "numba")
def test_install_imports_no_framework(run) -> None:
    run(
        """
        before = set(sys.modules)
        pool = zc.install_pool("driver", frameworks=["torch", "cupy", "numba", "jax", "tensorflow", "rmm"])
        print(pool.report())
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        assert not new & {"torch", "cupy", "numba", "jax", "tensorflow", "rmm", "cudf", "numpy"}, new
        assert fake.calls == []
        """
    )


@needs("torch", "jax", "tensorflow", "numba")
def test_variables_are_set_before_imports(run) -> None:
    run(
        """
        pool = zc.install_pool("driver")
        assert os.environ[JAX] == "cuda_async" and os.environ[TF] == "cuda_malloc_async"
        assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
        assert os.environ["PYTORCH_ALLOC_CONF"] == "backend:cudaMallocAsync"
        for name in ("torch", "jax", "tensorflow"):
            assert row(pool, name).status == "env_pending", row(pool, name)
        assert row(pool, "numba").status == "pending_import"
        pool.close()
        for name in (JAX, TF, "PYTORCH_ALLOC_CONF", "XLA_PYTHON_CLIENT_PREALLOCATE"):
            assert name not in os.environ
        assert row(pool, "jax").status == "restored"
        """
    )


@needs("jax")
def test_jax_reads_variables_at_client_creation(run) -> None:
    run(
        """
        import jax
        pool = zc.install_pool("driver", frameworks="jax", strict=True)
        assert row(pool, "jax").status == "env_pending"
        jax.numpy.zeros(3)
        assert row(pool, "jax").status == "installed"
        assert "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async" in row(pool, "jax").detail
        pool.close()
        assert row(pool, "jax").status == "installed"
        assert "keeps its first allocator" in row(pool, "jax").detail
        """
    )
    run(
        """
        import jax
        jax.numpy.zeros(3)
        before = dict(os.environ)
        try: zc.install_pool("driver", frameworks=["jax", "torch"], strict=True)
        except zc.errors.PoolTooLateError as error: print(error)
        else: raise SystemExit("not refused")
        assert dict(os.environ) == before and install.installed_pool() is None
        pool = zc.install_pool("driver", frameworks="jax")
        assert row(pool, "jax").status == "too_late", row(pool, "jax")
        assert "before the first jax array" in row(pool, "jax").remedy
        assert JAX not in os.environ
        """
    )


@pytest.mark.full
@needs("tensorflow")
def test_tensorflow_reads_variables_at_context_creation(run) -> None:
    run(
        """
        import tensorflow as tf
        pool = zc.install_pool("driver", frameworks="tensorflow")
        assert row(pool, "tensorflow").status == "env_pending"
        tf.constant([1.0])
        assert row(pool, "tensorflow").status == "installed"
        """
    )
    run(
        """
        import tensorflow as tf
        tf.constant([1.0])
        pool = zc.install_pool("driver", frameworks="tensorflow")
        assert row(pool, "tensorflow").status == "too_late"
        assert "before the first tensor" in row(pool, "tensorflow").remedy
        """
    )


@needs("torch")
def test_torch_reads_backend_at_import(run) -> None:
    run(
        """
        import torch
        torch.cuda.get_allocator_backend = lambda: "native"  # a CPU build has none
        pool = zc.install_pool("driver", frameworks="torch")
        assert row(pool, "torch").status == "too_late"
        assert "before import torch" in row(pool, "torch").remedy
        pool.close()
        torch.cuda.get_allocator_backend = lambda: "cudaMallocAsync"  # by the user's variable
        pool = zc.install_pool("driver", frameworks="torch")
        assert row(pool, "torch").status == "installed"
        """
    )


@needs("torch")
def test_failed_attach_warns_and_import_succeeds(run) -> None:
    if pytest.importorskip("torch").version.cuda is not None:
        pytest.skip("a build with CUDA has the backend")
    out = run(
        """
        pool = zc.install_pool("driver", frameworks="torch")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import torch
        assert torch.ones(3).sum() == 3
        print([str(w.message) for w in caught if "pool" in str(w.message)])
        assert row(pool, "torch").status == "unsupported"
        """
    )
    assert "zerocopy's pool is not attached to torch" in out  # a CPU build has no backends


@needs("torch", "rmm")
def test_torch_on_rmm_needs_opt_in(run) -> None:
    run(
        """
        pool = zc.install_pool(allocator=HostAllocator())
        assert row(pool, "torch").status == "unsupported"
        assert "record_stream() does nothing" in row(pool, "torch").detail
        assert "PYTORCH_ALLOC_CONF" not in os.environ
        for name in ("jax", "tensorflow"):
            assert "no interface for an external allocator" in row(pool, name).detail
        # They cannot use the pool, but they do not preallocate the GPU.
        assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
        assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
        pool.close()
        pool = zc.install_pool(allocator=HostAllocator(), frameworks=["torch", "rmm"])
        assert row(pool, "torch").status == "pending_import"
        assert "not in frameworks=" in row(pool, "jax").detail
        """
    )


@needs("torch", "jax", "tensorflow")
def test_user_variables_are_not_overridden(run) -> None:
    run(
        """
        try: zc.install_pool("driver", frameworks=["jax"], strict=True)
        except zc.errors.PoolUnavailableError as e: assert "XLA_PYTHON_CLIENT_ALLOCATOR='platform'" in str(e)
        pool = zc.install_pool("driver")
        assert os.environ[JAX] == "platform" and os.environ[TF] == "bfc"
        for name in ("jax", "tensorflow", "torch"):
            assert row(pool, name).status == "unsupported", row(pool, name)
            assert "the environment has" in row(pool, name).detail
        assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "backend:native,max_split_size_mb:64"
        assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"
        """,
        XLA_PYTHON_CLIENT_ALLOCATOR="platform",
        TF_GPU_ALLOCATOR="bfc",
        PYTORCH_CUDA_ALLOC_CONF="backend:native,max_split_size_mb:64",
        TF_FORCE_GPU_ALLOW_GROWTH="false",
    )


@needs("torch")
def test_other_torch_settings_are_kept(run) -> None:
    run(
        """
        pool = zc.install_pool("driver", frameworks="torch")
        assert os.environ["PYTORCH_ALLOC_CONF"] == "max_split_size_mb:64,backend:cudaMallocAsync"
        pool.close()
        assert os.environ["PYTORCH_ALLOC_CONF"] == "max_split_size_mb:64"
        """,
        PYTORCH_ALLOC_CONF="max_split_size_mb:64",
    )


@needs("numba")
def test_numba_is_attached_at_import_of_numba_cuda(run) -> None:
    run(
        """
        pool = zc.install_pool("driver", frameworks="numba", strict=True)
        import numba
        assert row(pool, "numba").status == "pending_import"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from numba import cuda
        from numba.cuda.cudadrv import driver
        assert row(pool, "numba").status == "installed"
        assert driver._memory_manager.__name__ == "PoolManager"
        cuda.set_memory_manager(driver.NumbaCUDAMemoryManager)  # as import cudf sets RMM's
        assert row(pool, "numba").status == "replaced"
        assert pool.refresh() == ["numba"]
        pool.close()
        assert row(pool, "numba").status == "restored" and driver._memory_manager is None
        """
    )


@needs("numba")
def test_numba_after_first_context_is_too_late(run) -> None:
    run(
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from numba import cuda
        from numba.cuda.cudadrv import driver
        driver._ensure_memory_manager()  # part of creating a context
        pool = zc.install_pool("driver", frameworks="numba")
        assert row(pool, "numba").status == "too_late"
        assert "before the first array or kernel" in row(pool, "numba").remedy
        try: zc.install_pool("driver", frameworks="numba", strict=True)
        except zc.errors.PoolInstalledError: pool.close()
        try: zc.install_pool("driver", frameworks="numba", strict=True)
        except zc.errors.PoolTooLateError: pass
        else: raise SystemExit("not refused")
        """
    )


@needs("numba")
def test_numba_with_context_of_other_manager_is_too_late(run) -> None:
    run(
        """
        import types
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from numba import cuda
        from numba.cuda.cudadrv import driver
        driver.driver.devices[0] = types.SimpleNamespace(primary_context=object())
        pool = zc.install_pool("driver", frameworks="numba")
        assert row(pool, "numba").status == "too_late"
        """
    )


@needs("rmm")
def test_rmm_is_attached_during_its_import(run) -> None:
    """When ``rmm.mr`` is loaded, but not yet an attribute of ``rmm``."""
    run(
        """
        from zerocopy.pool.driver_pool import DriverPool
        host = HostAllocator()
        DriverPool.resource = lambda self, mr: mr.CallbackMemoryResource(
            lambda n, stream: host.allocate(n, 1), lambda p, n, stream: host.deallocate(p, n, 1))
        pool = zc.install_pool("driver", frameworks="rmm")
        assert row(pool, "rmm").status == "pending_import"
        import rmm
        assert row(pool, "rmm").status == "installed", row(pool, "rmm")
        buffer = rmm.DeviceBuffer(size=100, mr=rmm.mr.get_per_device_resource(0))
        assert list(host.out.values()) == [100]
        del buffer
        pool.close()
        assert host.out == {}
        """
    )


@needs("numba")
def test_numba_allocates_from_the_pool(run) -> None:
    """The manager itself, in a simulated context."""
    run(
        """
        import types
        pool = zc.install_pool("driver", frameworks="numba")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from numba import cuda
        from numba.cuda.cudadrv import driver
        context = types.SimpleNamespace(device=types.SimpleNamespace(id=0))
        manager = driver._memory_manager(context=context)
        manager.initialize()
        memory = manager.memalloc(1000)
        assert fake.used == 1000 and ("allocate", 1000, 1) in fake.calls
        assert manager.get_memory_info() == (1 << 30, 1 << 30) or manager.get_memory_info().total == 1 << 30
        memory.free() if hasattr(memory, "free") else None
        del memory
        assert fake.used == 0
        pool.close()
        assert row(pool, "numba").status == "restored"
        # The context keeps the manager, which calls Numba's own now, and the next pool later.
        driver.NumbaCUDAMemoryManager = types.SimpleNamespace
        manager._own = types.SimpleNamespace(memalloc=lambda size: ("numba's own", size))
        assert manager.memalloc(10) == ("numba's own", 10)
        again = zc.install_pool("driver", frameworks="numba", strict=True)
        assert row(again, "numba").status == "installed"
        memory = manager.memalloc(500)
        assert fake.used == 500
        del memory
        assert fake.used == 0
        """
    )


@needs("torch", "jax", "tensorflow", "rmm")
def test_auto_selects_kind(run) -> None:
    """The driver's pool if torch, JAX or TensorFlow is installed; RMM's otherwise, and for a limit."""
    run(
        """
        from zerocopy.pool.install import preview
        from zerocopy.pool.settings import Settings
        def kind(**options): return preview(Settings.read(**options)).kind
        assert kind() == "driver"
        assert kind(limit="1MiB") == kind(fraction=0.5) == "rmm"
        for hook in (TorchHook, JAXHook, TensorFlowHook): hook.installed = lambda self: False
        assert kind() == "rmm"
        assert kind(frameworks=["torch"]) == "driver"
        assert "torch" not in sys.modules and fake.calls == []
        """
    )


@needs("torch", "jax", "tensorflow", "rmm")
def test_limit_note_names_unlimited_frameworks(run) -> None:
    run(
        """
        from zerocopy.pool.install import preview
        from zerocopy.pool.settings import Settings
        def notes(**options): return "; ".join(preview(Settings.read("rmm", limit="1MiB", **options)).notes)
        text = notes()
        assert "the limit does not apply to torch, JAX, TensorFlow: they allocate outside the pool" in text
        assert "torch.cuda.set_per_process_memory_fraction() limits torch; MPS and MIG limit all" in text
        text = notes(frameworks=["torch", "rmm"])  # torch uses the pool
        assert "the limit does not apply to JAX, TensorFlow:" in text
        assert "set_per_process_memory_fraction" not in text
        """
    )


def test_other_processes_on_gpu_warn(run) -> None:
    run(
        """
        install.visible_gpus = lambda: ([GPU(0, "stand-in", 1 << 30, others=1 << 20)], None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pool = zc.install_pool("driver")
        assert "1 MiB of device 0" in str(caught[0].message)
        assert "1 MiB of device 0" in str(pool.report())
        assert "by kind='rmm' and limit= for CuPy, Numba and cuDF; torch.cuda." in str(pool.report())
        """
    )


def test_variable_installs_pool_on_import(run_python) -> None:
    code = """
    import zerocopy as zc, sys
    from zerocopy.pool.install import installed_pool
    pool = installed_pool()
    assert pool.settings.host == "recycle" and zc.install_pool() is pool
    # Attached at their import; none is imported by zerocopy.
    assert not {"torch", "jax", "tensorflow", "cupy", "numba", "cudf", "rmm"} & set(sys.modules)
    try: zc.install_pool(track=True)
    except zc.errors.OptionError as error: print(error)
    """
    completed = run_python(code, ZEROCOPY_POOL="auto,host=recycle")
    assert completed.returncode == 0, completed.stderr
    assert "the environment specifies another pool: ZEROCOPY_POOL=auto,host=recycle" in completed.stdout
    completed = run_python("import zerocopy", ZEROCOPY_POOL="rmm,limt=8GiB")
    assert completed.returncode == 1
    assert "did you mean 'limit'" in completed.stderr


@needs("rmm")
def test_fork_does_not_deadlock(run_python) -> None:
    completed = run_python(
        """
        import os, threading, time
        import zerocopy as zc
        from tests.helpers.pool_stand_ins import HostAllocator
        pool = zc.install_pool(allocator=HostAllocator(), track=True)
        ending = threading.Event()
        def work():
            while not ending.is_set():
                pool.deallocate(pool.allocate(100), 100)
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads: thread.start()
        import warnings; warnings.simplefilter("ignore")
        for _ in range(10):
            child = os.fork()
            if child == 0:
                # Python's locks are free in the child. RMM's counters are not read, because their C++ lock
                # may be held by a thread of the parent.
                rows = {row.framework: row.status for row in pool._memory.attachments.current()}
                assert rows["rmm"] == "installed"
                assert len(pool._memory.tracker.outstanding(0)) <= 2  # one for each thread
                with pool._memory.pools[0]._lock: pass
                os._exit(7)
            deadline = time.time() + 60
            while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.time() < deadline: time.sleep(0.01)
            assert os.waitstatus_to_exitcode(done[1]) == 7 and done[0], "the child hangs"
        ending.set()
        for thread in threads: thread.join()
        pool.deallocate(pool.allocate(100), 100)
        assert pool.check_leaks() == []
        """
    )
    assert completed.returncode == 0, completed.stderr


@needs("rmm")
@pytest.mark.parametrize("end", ENDS)
def test_interpreter_exit_with_outstanding_memory(run_python, end: str) -> None:
    code = """
        import rmm, zerocopy as zc
        from zerocopy.pool.hook import Block
        from tests.helpers.pool_stand_ins import HostAllocator
        pool = zc.install_pool(allocator=HostAllocator(), limit="1GiB")
        def take():
            buffer = rmm.DeviceBuffer(size=1 << 16, mr=rmm.mr.get_per_device_resource(0))
            return [buffer, Block(pool._memory, 1 << 16, 1, 0, "x")]
        """
    completed = run_python(f"end = {end!r}\n{textwrap.dedent(code)}{ENDING}")
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")


@needs("numba")
def test_preview_reports_what_an_imported_framework_would_have(run) -> None:
    """Its allocator is not that of a pool yet, and nothing has replaced it."""
    run(
        """
        from numba import cuda
        from zerocopy.pool.install import preview
        from zerocopy.pool.settings import Settings
        row = preview(Settings.read("driver", frameworks=["numba"]))["numba"]
        assert row.status == "installed", row
        """
    )
