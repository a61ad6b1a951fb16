"""``zerocopy audit``: programs run as with ``python``, and the report follows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.paths import ROOT
from helpers.warm import WarmProcess

pytest.importorskip("click")
pytest.importorskip("torch")

Run = Callable[..., subprocess.CompletedProcess[str]]
COPY = "import torch, numpy as np\nx = np.zeros(1024)\n"


@pytest.fixture
def warm(tmp_path: Path, warm_process: WarmProcess) -> Run:
    """Return a function that runs ``zerocopy audit`` where the frameworks are imported already."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return warm_process.run_module("zerocopy", "audit", *arguments, folder=tmp_path)

    return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs Python or ``zerocopy audit`` in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(*arguments: str, audit: bool = True) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, *(("-m", "zerocopy", "audit") if audit else ()), *arguments]
        return subprocess.run(
            program, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment
        )

    return run


def script(folder: Path, text: str, name: str = "program.py") -> str:
    (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
    return name


def test_a_closed_pipe_of_the_report_keeps_the_exit_code(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "zerocopy", "audit", "-c", "raise SystemExit(3)"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, stderr=write, timeout=120)
    os.close(write)
    assert done.returncode == 3


def test_script_runs_as_with_python(run: Run, tmp_path: Path) -> None:
    name = script(
        tmp_path,
        """
        import atexit, pickle, sys, os, helper
        class Class: pass
        assert pickle.loads(pickle.dumps(Class)) is Class
        print(sys.argv, sys.path[0], __name__, __file__, __spec__, __builtins__, helper.value)
        atexit.register(lambda: print(Class, sys.modules["__main__"].Class))
        """,
    )
    script(tmp_path, "value = 5", "helper.py")
    arguments = (name, "-m", "--json", "a b")
    plain, audited = run(*arguments, audit=False), run(*arguments)
    assert (audited.returncode, audited.stdout) == (0, plain.stdout)
    assert audited.stderr.strip() == "No call copied where zerocopy.convert would alias."


def test_report_follows_the_program(warm: Run, tmp_path: Path) -> None:
    name = script(tmp_path, COPY + "os = torch.tensor(x)\nprint(os.sum().item())\n")
    completed = warm(name)
    assert (completed.returncode, completed.stdout) == (0, "0.0\n")
    assert re.search(r"program.py:3 +torch.tensor\(x\) +1 +8 KiB +[\d.]+ [mu]?s", completed.stderr)
    assert '  fix: zc.convert(x, to="torch")' in completed.stderr


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("raise SystemExit", 0),
        ("sys.exit(7)", 7),
        ("sys.exit('bye')", 1),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_exit_code_and_traceback_are_those_of_the_program(
    run: Run, tmp_path: Path, ending: str, code: int
) -> None:
    name = script(tmp_path, f"import sys\ndef end():\n    {ending}\nend()\n")
    completed = run(name)
    assert completed.returncode == code
    assert "No call copied where" in completed.stderr
    if ending.startswith(("1", "raise K")):
        assert completed.stderr.startswith(run(name, audit=False).stderr)
    assert ("bye" in completed.stderr) == ("bye" in ending)


def test_a_missing_module_is_a_usage_error(run: Run) -> None:
    completed = run("-m", "no_such_module")
    assert completed.returncode == 2
    assert "Error: -m no_such_module: No module named no_such_module" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_traceback_has_no_frame_of_a_wrapper(warm: Run, tmp_path: Path) -> None:
    completed = warm(script(tmp_path, "import torch\ntorch.tensor(object())\n"))
    assert completed.returncode == 1
    assert completed.stderr.startswith("Traceback (most recent call last):\n  File ")
    assert "wrapper.py" not in completed.stderr


def test_module_and_code(warm: Run, tmp_path: Path) -> None:
    script(tmp_path, f"{COPY}import sys\ntorch.tensor(x)\nprint(sys.argv[1:], __name__)\n", "tool.py")
    module = warm("-m", "tool", "--all")
    assert (module.returncode, module.stdout) == (0, "['--all'] __main__\n")
    assert re.search(r"tool\.py:4 +torch\.tensor\(x\) ", module.stderr)
    code = warm("-c", f"{COPY}import sys\nprint(sys.argv)\ntorch.tensor(x)", "-x")
    assert code.stdout == "['-c', '-x']\n"
    assert re.search(r"<string>:5 +torch\.tensor\(x\) ", code.stderr)


def test_json_output_and_min_bytes(warm: Run, tmp_path: Path) -> None:
    name = script(tmp_path, f"{COPY}torch.tensor(x)\ntorch.as_tensor(x)\n")
    completed = warm("--json", "--all", "--output", "report.json", name)
    assert completed.stderr == ""
    document = json.loads((tmp_path / "report.json").read_text())
    assert [(row["kind"], row["bytes"]) for row in document["rows"]] == [("avoidable", 8192), ("alias", 8192)]
    assert json.loads(warm("--json", "--min-bytes", "10000", name).stderr)["rows"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.py",), "missing.py does not exist"),
        (("-m", "-c", "x"), "not both"),
        ((), "Missing argument"),
    ],
)
def test_invalid_arguments(run: Run, arguments: tuple[str, ...], message: str) -> None:
    completed = run(*arguments)
    assert completed.returncode == 2
    assert message in completed.stderr


def test_threads_are_waited_for(warm: Run, tmp_path: Path) -> None:
    name = script(
        tmp_path,
        COPY + "import threading, time\ndef late():\n    time.sleep(0.3)\n    torch.tensor(x)\n"
        "threading.Thread(target=late).start()\n",
    )
    assert "program.py:6  torch.tensor(x)" in warm(name).stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_processes(warm: Run, tmp_path: Path) -> None:
    """A child, forked or spawned, runs as without an audit; only the parent reports."""
    name = script(
        tmp_path,
        """
        import multiprocessing, os, sys
        import numpy as np, torch
        def work(number):
            return float(torch.tensor(np.full(1024, number)).sum())
        if __name__ == "__main__":
            for method in ("spawn", "fork"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(pool.map(work, [1, 2]), flush=True)
            if not os.fork():
                work(3)
                sys.exit(0)
            print(os.wait()[1], work(4), flush=True)
        """,
    )
    completed = warm(name)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout == "[1024.0, 2048.0]\n" * 2 + "0 4096.0\n"
    assert completed.stderr.count("Total:") == 1
    assert "in 1 call," in completed.stderr


@pytest.mark.full
def test_page_shows_the_output_of_the_example() -> None:
    """docs/audit.md shows what the command prints, apart from the durations."""
    pytest.importorskip("polars")
    completed = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "zerocopy", "audit", "docs/examples/audit_example.py"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80"},
    )
    durations = re.compile(r"[\d.]+ m?s\b")
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    shown, expected = (durations.sub("-", re.sub(" +", " ", text)) for text in (completed.stderr, page))
    assert shown.strip() in expected
    example = (ROOT / "docs" / "examples" / "audit_example.py").read_text(encoding="utf-8")
    assert example.split('"""\n\n')[1] in page
