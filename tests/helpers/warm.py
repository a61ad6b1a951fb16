"""A process with the frameworks imported, whose forked children run programs: see warm_server.py."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from helpers.paths import ROOT

TIMEOUT = 300


class WarmProcess:
    """Runs programs one after another, each in a child of its own."""

    def __init__(self) -> None:
        # SciPy reads its variable at import; scikit-learn's dispatch, in examples of the pages, needs it.
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "SCIPY_ARRAY_API": "1"}
        program = Path(__file__).with_name("warm_server.py").read_text(encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=ROOT,
            env=environment,
        )

    def run(
        self, code: str, *, finalized: bool = False, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with other variables of the environment, which the frameworks have read already.

        `finalized`: the program is about the end of the interpreter, which is left out otherwise.
        """
        assert self._process.stdin is not None
        with tempfile.TemporaryDirectory(prefix="zerocopy-warm-") as folder:
            outputs = [Path(folder, name) for name in ("stdout", "stderr")]
            for path in outputs:
                path.touch()
            stdout, stderr = map(str, outputs)
            request: dict[str, Any] = {"code": textwrap.dedent(code), "stdout": stdout, "stderr": stderr}
            request |= {"environment": environment, "finalized": finalized}
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            child = self._answer()
            if child is None:
                self._process.kill()
            assert child is not None, "the process with the frameworks does not answer"
            status = self._answer()
            if status is None:
                os.kill(child, signal.SIGKILL)
                self._answer()
                raise subprocess.TimeoutExpired(code, TIMEOUT)
            assert status is not None, "the process with the frameworks has ended"
            texts = [path.read_text(encoding="utf-8", errors="replace") for path in outputs]
        return subprocess.CompletedProcess(code, status, *texts)

    def run_module(
        self, module: str, *arguments: str, folder: Path = ROOT, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ``python -m MODULE ARGUMENTS`` in a folder."""
        code = f"""
            import os, runpy, sys
            os.chdir({str(folder)!r})
            sys.argv[1:] = {list(arguments)!r}
            runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
        """
        return self.run(code, **environment)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _answer(self, seconds: float = TIMEOUT) -> int | None:
        """Return the next number of the process, or None if it has ended or takes too long."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return None
        line = self._process.stdout.readline()
        return int(line) if line else None
