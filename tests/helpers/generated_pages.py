"""Pages of docs/ that a script generates."""

from __future__ import annotations

import os
import subprocess
import sys

from helpers.paths import ROOT


def generate(script: str, *arguments: str) -> str:
    """Run a script of docs/ in a process with the frameworks' defaults: JAX has x64 on in this one."""
    completed = subprocess.run(
        [sys.executable, str(ROOT / "docs" / script), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def without_versions(page: str) -> str:
    """Return a page without its last section, which differs between environments."""
    head, title, _ = page.partition("\n## Versions\n")
    assert title
    return head
