"""Dask, Ray and Arrow Flight from one host to another: two network namespaces of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

import pytest
from helpers.paths import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")
from benchmarks.hosts.engines import VARIABLES
from benchmarks.hosts.network import missing, two_hosts

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def hosts() -> Iterator[Sequence[Sequence[str]]]:
    if why := missing():
        pytest.skip(why)
    with two_hosts() as both:
        yield both


@pytest.mark.parametrize(
    ("engine", "module"), [("dask", "distributed"), ("ray", "ray"), ("flight", "pyarrow.flight")]
)
def test_objects_arrive_with_their_values_and_without_further_copies(hosts, engine: str, module: str) -> None:
    pytest.importorskip(module)
    here, there = hosts
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*here, sys.executable, "-W", "ignore", "-m", "helpers.two_hosts", engine, *there],
            capture_output=True,
            text=True,
            timeout=600,
            cwd=ROOT,
            env=os.environ | VARIABLES | {"PYTHONPATH": paths, "RAY_TMPDIR": folder},
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
