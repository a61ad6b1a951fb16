"""``zerocopy doctor`` compares the installed versions with those that are supported and that were tested."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import zerocopy
from zerocopy.cli import support
from zerocopy.registry import FrameworkInfo

pytest.importorskip("click")
pytest.importorskip("rich")
from click.testing import CliRunner

from zerocopy.cli.main import command

RUNS = {"a": "1.4", "b": "1.10.2"}
TABLE = {
    "frameworks": {"jax": {"oldest": "1.2"}, "pandas": {"oldest": "3.0"}, "cudf": {}},
    "runs": {name: {"versions": {"jax": version}} for name, version in RUNS.items()},
}


@pytest.fixture
def _table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "table", lambda: TABLE)


def info(name: str, version: str | None) -> FrameworkInfo:
    return FrameworkInfo(name, "tensor", True, version, ("cpu",), f"pip install {name}")


@pytest.mark.usefixtures("_table")
@pytest.mark.parametrize(
    ("name", "version", "status", "note"),
    [
        (
            "jax",
            "1.1.9",
            "older",
            "1.1.9 is older than 1.2, the oldest supported version: pip install 'jax>=1.2'",
        ),
        ("jax", "1.3", "supported", ""),
        ("jax", "1.4", "tested", ""),
        ("jax", "1.4.7+cpu", "tested", ""),  # a bug fix
        ("jax", "1.10.9", "tested", ""),
        (
            "jax",
            "1.11.0.dev1",
            "newer",
            "1.11.0.dev1 is newer than 1.10.2, the newest version that was tested",
        ),
        ("jax", None, "not run", "no run of the tests with it is recorded"),
        (
            "pandas",
            "2.2",
            "older",
            "2.2 is older than 3.0, the oldest supported version: pip install 'pandas>=3.0'",
        ),
        ("pandas", "3.1", "not run", "no run of the tests with it is recorded"),
        ("cudf", "26.10", "not run", "no run of the tests with it is recorded"),
    ],
)
def test_versions_are_compared(name: str, version: str | None, status: str, note: str) -> None:
    row = support.support(info(name, version))
    assert (row["status"], row["note"]) == (status, note)
    assert row["tested"] == (["1.4", "1.10.2"] if name == "jax" else [])


def test_the_command_that_upgrades_names_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The distribution of numba's arrays has an extra: a version cannot be appended to it."""
    row = support.support(
        FrameworkInfo("numba", "tensor", True, "0.1", ("cuda",), "pip install 'numba-cuda[cu13]'")
    )
    assert row["note"].endswith(": pip install 'numba-cuda[cu13]'")


def test_a_plugin_has_no_tested_versions(add: Any) -> None:
    from helpers.box_framework import Boxes

    add(type("Old", (Boxes,), {"min_version": "2"})())
    assert support.support(info("boxes", "2.1")) == {
        "status": "unknown",
        "oldest": "2",
        "tested": [],
        "note": "",
    }
    assert "pip install 'boxes-for-arrays>=2'" in support.support(info("boxes", "1.9"))["note"]


def test_doctor_prints_each_difference_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"pandas": info("pandas", "2.2.3"), "jax": info("jax", "99.0"), "numpy": info("numpy", "2.4.6")}
    monkeypatch.setattr(zerocopy, "frameworks", lambda: rows)
    monkeypatch.setenv("COLUMNS", "80")
    text = CliRunner().invoke(command(), ["doctor"], catch_exceptions=False).stdout
    assert re.search(r"^ older +pandas 2\.2\.3$", text, re.MULTILINE)
    assert re.search(r"^ newer +jax 99\.0$", text, re.MULTILINE)
    assert " ".join(text.split()).count("99.0 is newer than") == 1
    text = CliRunner().invoke(command(), ["doctor", "--all"], catch_exceptions=False).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"^!\s+pandas\s+tensor\s+2\.2\.3\s+older", text, re.MULTILINE)
    assert re.search(r"^\+\s+jax\s+tensor\s+99\.0\s+newer", text, re.MULTILINE)
    assert re.search(r"^\+\s+numpy\s+tensor\s+2\.4\.6\s+yes", text, re.MULTILINE)
    flat = " ".join(text.split())
    assert flat.count("oldest supported version: pip install 'pandas>=3.0'") == 1
    assert flat.count("99.0 is newer than") == 1
    assert "2.4.6 is" not in flat
    document = json.loads(CliRunner().invoke(command(), ["doctor", "--json"], catch_exceptions=False).stdout)
    assert [row["support"]["status"] for row in document["frameworks"]] == ["older", "newer", "tested"]
