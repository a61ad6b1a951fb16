"""Each fault that a producer in C plants is found by its case, and the producer without faults passes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sysconfig
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from zerocopy import _native
from zerocopy.testing import check_producer

HERE = Path(__file__).parent
HEADER = Path(_native.__file__).with_name("dlpack.h")

if not hasattr(os, "fork"):
    pytest.skip("a function of a test is checked in a fork", allow_module_level=True)

CRASH, FREED, WRONG, LEAK = "crash", "use after free", "wrong value", "leak"
FLAG, VERSION, ERROR = "flag ignored", "version not negotiated", "wrong error class"
#: Each fault, with the case that finds it, and the severity of the finding.
FAULTS = {
    "dlpack-deleter-frees-twice": ("dlpack.values", CRASH),
    "dlpack-deleter-leaks": ("dlpack.leak", LEAK),
    "dlpack-memory-not-kept": ("dlpack.alive", FREED),
    "dlpack-capsule-name": ("dlpack.device", WRONG),
    "dlpack-versioned-unasked": ("dlpack.versions", VERSION),
    "dlpack-max-version-refused": ("dlpack.versions", VERSION),
    "dlpack-version-zero": ("dlpack.values", WRONG),
    "dlpack-version-too-new": ("dlpack.values", VERSION),
    "dlpack-read-only-unflagged": ("dlpack.read_only", FLAG),
    "dlpack-copied-unflagged": ("dlpack.copy", FLAG),
    "dlpack-copy-false-copies": ("dlpack.copy", FLAG),
    "dlpack-copy-true-aliases": ("dlpack.copy", FLAG),
    "dlpack-shape": ("dlpack.values", WRONG),
    "dlpack-strides-in-bytes": ("dlpack.values", WRONG),
    "dlpack-strides-null": ("dlpack.values", WRONG),
    "dlpack-byte-offset": ("dlpack.values", WRONG),
    "dlpack-dtype-bits": ("dlpack.values", WRONG),
    "dlpack-dtype-lanes": ("dlpack_c_exchange_api.agrees", WRONG),
    "dlpack-dtype-code": ("dlpack.values", WRONG),
    "dlpack-device": ("dlpack.device", WRONG),
    "dlpack-device-type": ("dlpack.device", WRONG),
    "dlpack-ndim": ("dlpack.device", WRONG),
    "dlpack-wrong-error": ("dlpack.dl_device", ERROR),
    "dlpack-dl-device": ("dlpack.dl_device", FLAG),
    "dlpack-destructor-frees-used": ("dlpack.alive", FREED),
    "dlpack-destructor-leaks": ("dlpack.leak", LEAK),
    "exchange-shape": ("dlpack_c_exchange_api.agrees", WRONG),
    "exchange-leaks": ("dlpack_c_exchange_api.leak", LEAK),
    "exchange-data": ("dlpack_c_exchange_api.agrees", WRONG),
    "interface-version": ("array_interface.fields", WRONG),
    "interface-read-only": ("array_interface.read_only", FLAG),
    "interface-typestr": ("array_interface.values", WRONG),
    "interface-strides": ("array_interface.values", WRONG),
    "interface-memory-not-kept": ("array_interface.values", WRONG),
    "interface-shape-type": ("array_interface.fields", WRONG),
    "buffer-itemsize": ("buffer.fields", WRONG),
    "buffer-format": ("buffer.fields", WRONG),
    "buffer-strides": ("buffer.fields", WRONG),
    "buffer-read-only-granted": ("buffer.requests", FLAG),
    "buffer-leaks": ("buffer.leak", LEAK),
    "buffer-len": ("buffer.fields", WRONG),
    "buffer-contiguity": ("buffer.requests", FLAG),
    "buffer-memory-not-kept": ("buffer.alive", FREED),
    "arrow-n-buffers": ("arrow_c_array.valid", WRONG),
    "arrow-offsets": ("arrow_c_array.valid", WRONG),
    "arrow-null-count": ("arrow_c_array.valid", WRONG),
    "arrow-release-kept": ("arrow_c_array.alive", FREED),
    "arrow-release-twice": ("arrow_c_array.valid", CRASH),
    "arrow-children": ("arrow_c_array.valid", WRONG),
    "arrow-format": ("arrow_c_array.valid", WRONG),
    "arrow-length": ("arrow_c_array.valid", WRONG),
    "arrow-requested-schema": ("arrow_c_array.requested_schema", ERROR),
    "arrow-validity-order": ("arrow_c_array.valid", WRONG),
    "arrow-capsule-name": ("arrow_c_array.valid", WRONG),
    "arrow-destructor-leaks": ("arrow_c_array.leak", LEAK),
    "arrow-memory-not-kept": ("arrow_c_array.alive", FREED),
    "arrow-destructor-frees-moved": ("arrow_c_array.release", CRASH),
    "stream-after-end": ("arrow_c_stream.end", WRONG),
    "stream-schema": ("arrow_c_stream.schema", WRONG),
    "stream-release-kept": ("arrow_c_stream.alive", FREED),
    "device-type": ("arrow_c_device_array.device", WRONG),
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compile the extension module of the producers, and import it."""
    if shutil.which("gcc") is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("the test compiles an extension module")
    if not HEADER.exists():
        pytest.skip("needs a header of the core, and zerocopy is installed from a wheel, which has none")
    library = tmp_path_factory.mktemp("toy") / "toy_producer.so"
    include = [f"-I{sysconfig.get_path('include')}", f"-I{HEADER.parent}"]
    command = ["gcc", "-Wall", "-shared", "-fPIC", "-O1", *include, HERE / "toy_producer.c", "-o", library]
    subprocess.run(command, check=True)
    spec = importlib.util.spec_from_file_location("toy_producer", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_fault_has_a_case(toy: Any) -> None:
    assert [*FAULTS] == toy.FAULTS


@pytest.mark.parametrize(
    ("kind", "options"),
    [("Array", {}), ("Array", {"read_only": True}), ("Table", {})],
    ids=["array", "read-only array", "table"],
)
def test_the_producer_without_faults_passes(toy: Any, kind: str, options: dict[str, Any]) -> None:
    report = check_producer(partial(getattr(toy, kind), **options))
    assert not report.findings, report


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(toy: Any, fault: str) -> None:
    case, severity = FAULTS[fault]
    protocol = case.partition(".")[0]
    kind = toy.Table if protocol.startswith("arrow") else toy.Array
    report = check_producer(partial(kind, fault), [protocol])
    severities = {finding.case: finding.severity for finding in report.findings}
    assert severities.get(case) == severity, report
