"""The GPU tests over stand-ins: what they show is in ``gpu_stand_ins``, and it is nothing of a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable

import pytest
from helpers.paths import ROOT

FILES = ("values", "semantics", "routes", "streams", "memory", "hazards")

#: What stand-ins cannot show, and why.
LEFT_OUT = {
    "test_gpu_streams.py::test_no_sync_stream_reads_old_values": "no work is late, so none is overtaken",
    "test_gpu_memory.py::test_at_the_interpreters_exit": "runs a process without stand-ins",
    "test_gpu_hazards.py::test_jax_exports_without_synchronisation": "runs a process without stand-ins",
    "test_gpu_hazards.py::test_earlier_device_error_is_raised_by_the_transfer": "no device that can fail",
    "test_gpu_hazards.py::test_a_fork_after_the_import": "no driver that a child of a fork cannot use",
}

#: The tests' own reasons to skip that hold on a GPU as well; any other reason is a fault here.
#: Which types there are is a matter of versions: such skips count as passed.
NO_TYPE = r"(torch|jax) has no (float8_\w+|complex32)"
SKIPS = (
    NO_TYPE,
    "torch has no negative strides",
    "JAX has its own zero-size arrays: see test_layouts",
    "JAX arrays are immutable",
    "its own array comes back as it is",
    "numba does not count what it has handed out",
    "there is one GPU",
)


#: How many tests there were when it was written, those of types that a version lacks among them.
AT_LEAST = 1691


def run(*arguments: str) -> tuple[int, dict[str, int]]:
    """Run GPU tests over stand-ins; return how many passed, and how many were skipped for what."""
    pytest_alone = ["-m", "pytest", "-p", "helpers.gpu_stand_ins.plugin", "-p", "no:cacheprovider"]
    ours = ("PYTEST_", "XLA_FLAGS")  # of the run that this is a test of
    told = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [sys.executable, *pytest_alone, "-q", "-rs", "--color=no", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        env={**told, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    counted = re.search(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert counted is not None, done.stdout[-2000:]
    skipped: dict[str, int] = {}
    for times, why in re.findall(r"^SKIPPED \[(\d+)\] \S+ (.+)$", done.stdout, re.MULTILINE):
        skipped[why] = skipped.get(why, 0) + int(times)
    return int(counted[1]), skipped


def without(names: Iterable[str]) -> list[str]:
    """Return pytest's arguments for all but those tests."""
    return [f"--deselect=tests/gpu/{name}" for name in names]


@pytest.fixture(autouse=True)
def _frameworks() -> None:
    """The stand-ins patch torch and JAX for the CPU."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("jax")
    from helpers.gpu_stand_ins.jax import missing

    if torch.version.cuda is not None:
        pytest.skip("this build of torch has CUDA's own operators, which the stand-ins do not replace")
    lacking = missing()
    if lacking is not None:
        pytest.skip(lacking)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out_is_there(name: str) -> None:
    file, _, test = name.partition("[")[0].partition("::")
    assert f"def {test}(" in (ROOT / "tests" / "gpu" / file).read_text(encoding="utf-8")


def test_the_gpu_suite() -> None:
    passed, skipped = run(*(f"tests/gpu/test_gpu_{name}.py" for name in FILES), *without(LEFT_OUT))
    assert not [why for why in skipped if not any(re.fullmatch(known, why) for known in SKIPS)], skipped
    of_types = sum(times for why, times in skipped.items() if re.fullmatch(NO_TYPE, why))
    assert passed + of_types >= AT_LEAST


def test_two_gpus() -> None:
    passed, skipped = run(
        "--stand-in-devices=2", "tests/gpu/test_gpu_semantics.py", "-k", "test_to_another_device"
    )
    assert (passed, skipped) == (16, {})
