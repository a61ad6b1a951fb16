"""The small forms of the programs in ``tests/shared/faults``; their full forms are in docs/processes.md."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from helpers.paths import ROOT


def figures(program: str, *arguments: int) -> dict[str, Any]:
    completed = subprocess.run(
        [sys.executable, f"tests/shared/faults/{program}.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    result: dict[str, Any] = json.loads(completed.stdout)
    return result


@pytest.mark.hazard("robustness#named-memory")
def test_killed_owners_and_readers() -> None:
    counts = figures("kills", 60, 3)
    assert counts["killed owner"] + counts["killed reader"] >= 60
    names = ("wrong", "hangs", "survivors that failed", "segments left")
    assert {name: counts[name] for name in names} == dict.fromkeys(names, 0)
    assert counts["bytes left"] in (0, None)
    assert counts["right"] > 0


@pytest.mark.hazard("robustness#memory-that-a-reader-has")
def test_recycling_race() -> None:
    counts = figures("recycling", 3000, 6, 2)
    assert {name: counts[name] for name in ("wrong", "other errors", "failed processes")} == {
        "wrong": 0,
        "other errors": 0,
        "failed processes": 0,
    }
    assert counts["rounds"] == 3000
    assert counts["recycled"] > 100
    assert counts["handed on"] > 0
    assert counts["right"] > counts["stale"]
