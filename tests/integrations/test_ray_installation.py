"""install() and uninstall(): before and after ray.init, for frameworks imported later, and without Ray."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.paths import ROOT
from helpers.ray_cluster import local_ray, serializers

import zerocopy.integrations.ray
from zerocopy.integrations.ray import installation

pytest.importorskip("ray")
torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _uninstalled() -> Iterator[None]:
    zerocopy.integrations.ray.uninstall()
    yield
    zerocopy.integrations.ray.uninstall()


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A cluster whose workers have no setup hook."""
    with local_ray() as module:
        yield module


def test_a_worker_installs_when_it_first_receives_an_object(ray) -> None:
    """A plain install() after ray.init: the setup hook of workers can no longer be set."""

    @ray.remote
    class Worker:
        def registered(self, argument: Any = None) -> bool:
            import ray.cloudpickle
            import torch

            return torch.Tensor in ray.cloudpickle.CloudPickler.dispatch

        def uninstall(self) -> None:
            import zerocopy.integrations.ray

            zerocopy.integrations.ray.uninstall()

    zerocopy.integrations.ray.install()
    worker = Worker.remote()
    assert not ray.get(worker.registered.remote())
    assert ray.get(worker.registered.remote(torch.ones(3)))
    ray.get(worker.uninstall.remote())
    assert not ray.get(worker.registered.remote(torch.ones(3))), "uninstalled explicitly"


def test_the_program_reads_without_install(ray) -> None:
    """Stored objects name the function that opens them; only a worker installs by itself."""
    zerocopy.integrations.ray.install()
    reference = ray.put(torch.arange(1000.0))
    zerocopy.integrations.ray.uninstall()
    installation._installed = None
    assert torch.equal(ray.get(reference), torch.arange(1000.0))
    assert torch.Tensor not in serializers()


def test_install_can_be_repeated() -> None:
    zerocopy.integrations.ray.install()
    first = serializers()[torch.Tensor]
    zerocopy.integrations.ray.install()
    assert serializers()[torch.Tensor] is first
    zerocopy.integrations.ray.uninstall()
    assert torch.Tensor not in serializers()
    zerocopy.integrations.ray.uninstall()


def test_uninstall_keeps_a_serializer_that_was_registered_later(ray) -> None:
    zerocopy.integrations.ray.install()
    ray.util.register_serializer(torch.Tensor, serializer=lambda t: t.tolist(), deserializer=torch.tensor)
    own = serializers()[torch.Tensor]
    zerocopy.integrations.ray.uninstall()
    try:
        assert serializers()[torch.Tensor] is own
    finally:
        ray.util.deregister_serializer(torch.Tensor)


@pytest.mark.hazard("training#torch-switch-of-ray")
def test_the_reducer_of_rays_own_switch_is_replaced_and_put_back() -> None:
    """RAY_ENABLE_ZERO_COPY_TORCH_TENSORS=1 registers it, and its tensors write to the store."""
    utils = pytest.importorskip("ray._private.tensor_serialization_utils")
    serializers()[torch.Tensor] = utils.zero_copy_tensors_reducer
    try:
        zerocopy.integrations.ray.install()
        assert serializers()[torch.Tensor] is not utils.zero_copy_tensors_reducer
        zerocopy.integrations.ray.uninstall()
        assert serializers()[torch.Tensor] is utils.zero_copy_tensors_reducer
    finally:
        serializers().pop(torch.Tensor)


@pytest.mark.full
def test_no_framework_is_imported_and_later_imports_are_registered(run_python) -> None:
    process = run_python("""
        import sys, ray
        import zerocopy.integrations.ray
        names = {"numpy", "torch", "jax", "tensorflow", "polars", "pyarrow"}
        before = names & set(sys.modules)
        zerocopy.integrations.ray.install()
        table = ray.cloudpickle.CloudPickler.dispatch
        registered = lambda: {cls.__module__.partition(".")[0] for cls in table if table[cls].__closure__}
        print(*sorted(names & set(sys.modules) - before))
        import torch, jax, polars, tensorflow
        import pyarrow as pa
        array, eager = type(jax.numpy.ones(1)), type(tensorflow.constant(1))
        types = [torch.Tensor, array, eager, polars.DataFrame, polars.Series, pa.RecordBatch, pa.Int64Array]
        print(*(cls in table for cls in types))
        zerocopy.integrations.ray.uninstall()
        print(torch.Tensor in table, pa.RecordBatch in table)
    """)
    lines = process.stdout.splitlines()
    assert len(lines) == 3, process.stderr
    # Ray itself registers types of pyarrow with its first serializer, and imports it for this.
    assert set(lines[0].split()) <= {"numpy", "pyarrow"}, lines[0]
    assert lines[1] == "True " * 6 + "True"
    assert lines[2] == "False False"


def test_uninstall_cancels_the_registration_of_later_imports(run_python) -> None:
    process = run_python("""
        import sys
        import zerocopy.integrations.ray as zr
        finders = len(sys.meta_path)
        zr.install(); zr.uninstall()
        import torch, ray.cloudpickle
        print(torch.Tensor in ray.cloudpickle.CloudPickler.dispatch, len(sys.meta_path) - finders)
    """)
    assert process.stdout.startswith("False "), process.stderr


def test_install_without_ray(run_python) -> None:
    process = run_python("""
        import sys
        sys.modules["ray"] = None
        import zerocopy as zc, zerocopy.integrations.ray
        try:
            zerocopy.integrations.ray.install()
        except zc.FrameworkNotInstalledError as error:
            print(isinstance(error, ImportError), error)
        zerocopy.integrations.ray.uninstall()
    """)
    assert process.stdout.startswith("True install(): Ray is not installed"), process.stderr
    assert "pip install 'ray[data]>=2.50'" in process.stdout


def test_import_loads_neither_ray_nor_numpy(run_python) -> None:
    process = run_python("""
        import sys, zerocopy.integrations.ray
        print({"ray", "numpy"} & set(sys.modules), callable(zerocopy.integrations.ray.batch))
    """)
    assert process.stdout == "set() True\n", process.stderr


def test_runtime_env_keeps_other_fields() -> None:
    base = {"env_vars": {"A": "1"}}
    merged = zerocopy.integrations.ray.runtime_env(base)
    assert merged == {**base, "worker_process_setup_hook": "zerocopy.integrations.ray.install"}
    assert "worker_process_setup_hook" not in base
    assert zerocopy.integrations.ray.runtime_env(merged) == merged


def test_runtime_env_refuses_another_hook() -> None:
    with pytest.raises(ValueError, match=r"call zerocopy.integrations.ray.install\(\) in that hook"):
        zerocopy.integrations.ray.runtime_env({"worker_process_setup_hook": "module.hook"})


def _recipes() -> list[str]:
    page = (ROOT / "docs" / "processes" / "dask-ray-flight.md").read_text(encoding="utf-8")
    section = page.split("\n## Ray\n")[1].split("\n## ")[0]
    return re.findall(r"```python no-run\n(.*?)```", section, re.DOTALL)


@pytest.mark.full
@pytest.mark.parametrize("number", [0, 1], ids=["put and get", "Ray Data"])
def test_the_recipes_of_the_page_run(run_python, number: int) -> None:
    pytest.importorskip("jax")
    process = run_python(_recipes()[number], RAY_USAGE_STATS_ENABLED="0", RAY_ADDRESS="local")
    assert process.returncode == 0, process.stderr
    assert ("[0. 2. 4.]", "{'x': array(")[number] in process.stdout
