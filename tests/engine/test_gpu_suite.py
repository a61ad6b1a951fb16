"""The GPU tests run over stand-ins in host memory, which checks the tests and not a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable

import pytest
from helpers.paths import ROOT

FILES = ("values", "dtype", "semantics", "routes", "streams", "memory", "hazards", "loader", "sparse")

#: Tests that stand-ins cannot run, and why.
EXCLUDED = {
    "test_gpu_streams.py::test_no_sync_stream_reads_old_values": "no work is asynchronous",
    "test_gpu_loader.py::test_loader_host_memory_is_page_locked": "no memory is page-locked",
    "test_gpu_loader.py::test_loader_copies_overlap_with_kernels": "no work is asynchronous",
    "test_gpu_memory.py::test_interpreter_exits_with_live_arrays": "runs a process without stand-ins",
    "test_gpu_hazards.py::test_torch_memory_is_not_reused_while_a_stream_reads_it": "no work is asynchronous",
    "test_gpu_hazards.py::test_jax_exports_without_synchronisation": "runs a process without stand-ins",
    "test_gpu_hazards.py::test_earlier_device_error_is_raised_by_the_transfer": "no device that can fail",
    "test_gpu_hazards.py::test_forked_child_raises_if_the_parent_used_cuda": "stand-ins work after a fork",
}

#: Reasons to skip that also apply on a GPU; any other reason is a failure of this test.
#: Which dtypes exist depends on versions, so skips for a missing dtype count as passed.
NO_TYPE = r"(torch|jax) has no (float8_\w+|complex32)"
SKIPS = (
    NO_TYPE,
    "torch has no negative strides",
    "JAX has its own zero-size arrays: see test_every_layout_keeps_its_values",
    "JAX arrays are immutable",
    "the target returns its own array unchanged",
    "numba does not count its allocations",
    "there is one GPU",
    "cuDF is not installed",
)


#: Least number of tests, including those skipped for a missing dtype.
AT_LEAST = 1721


def run(*arguments: str) -> tuple[int, dict[str, int]]:
    """Run GPU tests over stand-ins; return the number passed, and the number skipped by reason."""
    options = ["-m", "pytest", "-p", "helpers.gpu_stand_ins.plugin", "-p", "no:cacheprovider"]
    outer = ("PYTEST_", "XLA_FLAGS")  # set for the outer test run
    environment = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    process = subprocess.run(
        [sys.executable, *options, "-q", "-rs", "--color=no", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        # The compiled core does not call the Python methods that stand-ins replace: it sees host memory.
        env={
            **environment,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
            "ZEROCOPY_NATIVE": "0",
        },
    )
    assert process.returncode == 0, f"{process.stdout[-8000:]}\n{process.stderr[-4000:]}"
    passed = re.search(r"^(\d+) passed", process.stdout, re.MULTILINE)
    assert passed is not None, process.stdout[-2000:]
    skipped: dict[str, int] = {}
    for times, why in re.findall(r"^SKIPPED \[(\d+)\] \S+ (.+)$", process.stdout, re.MULTILINE):
        skipped[why] = skipped.get(why, 0) + int(times)
    return int(passed[1]), skipped


def without(names: Iterable[str]) -> list[str]:
    """Return pytest's arguments that exclude tests."""
    return [f"--deselect=tests/gpu/{name}" for name in names]


@pytest.fixture(autouse=True)
def _frameworks() -> None:
    """Skip the tests if the stand-ins cannot replace parts of torch and JAX."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("jax")
    from helpers.gpu_stand_ins.jax import missing

    if torch.version.cuda is not None:
        pytest.skip("this build of torch has CUDA's own operators, which the stand-ins do not replace")
    lacking = missing()
    if lacking is not None:
        pytest.skip(lacking)


@pytest.mark.parametrize("name", EXCLUDED)
def test_excluded_tests_exist(name: str) -> None:
    file, _, test = name.partition("[")[0].partition("::")
    assert f"def {test}(" in (ROOT / "tests" / "gpu" / file).read_text(encoding="utf-8")


@pytest.mark.full
def test_gpu_suite_passes_over_stand_ins() -> None:
    passed, skipped = run("--full", *(f"tests/gpu/test_gpu_{name}.py" for name in FILES), *without(EXCLUDED))
    assert not [why for why in skipped if not any(re.fullmatch(known, why) for known in SKIPS)], skipped
    missing_types = sum(times for why, times in skipped.items() if re.fullmatch(NO_TYPE, why))
    assert passed + missing_types >= AT_LEAST


def test_gpu_suite_passes_over_two_stand_in_devices() -> None:
    passed, skipped = run(
        "--full",
        "--stand-in-devices=2",
        "tests/gpu/test_gpu_semantics.py",
        "-k",
        "test_conversion_to_another_device_copies",
    )
    assert (passed, skipped) == (16, {})
