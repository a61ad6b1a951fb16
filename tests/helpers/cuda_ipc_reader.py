"""A process that opens arrays over the stand-in of the driver, and what tests of such processes need."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

import zerocopy as zc
from helpers.cuda_ipc_driver import Driver
from helpers.paths import ROOT


class Reader:
    """A process that runs lines of Python."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "helpers.cuda_ipc_driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={
                **os.environ,
                "ZEROCOPY_NATIVE": "0",
                "PYTHONPATH": os.pathsep.join([str(ROOT), f"{ROOT}/tests"]),
            },
        )
        assert self._answer() == "ready"

    def run(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._answer()

    def open(self, shared: zc.Shared, to: str = "cupy") -> str:
        return self.run(
            f"x = zc.convert(zc.Shared.from_bytes(bytes.fromhex('{bytes(shared).hex()}')), to='{to}')"
        )

    def drop(self, names: str = "x") -> None:
        """Delete results, and wait until their leases have ended."""
        assert self.run(f"del {names}; gc.collect()") == "done"
        limit = time.monotonic() + 10
        while self.run("len(releases)") != "0":
            assert time.monotonic() < limit
            time.sleep(0.005)

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


def wait_until(condition: Any) -> None:
    limit = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


def array(shape: Any = (3, 4), dtype: Any = "f4") -> Any:
    import cupy

    x = cupy.ndarray(shape, dtype)
    x._host[...] = np.arange(x.size).reshape(x.shape)
    return x


def destroyed(driver: Driver) -> bool:
    return any(call[0] == "destroy" for call in driver.log if isinstance(call, tuple))
