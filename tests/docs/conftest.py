"""The built site, for the tests that read it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.paths import ROOT, SITE_ADDRESS


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; warnings are errors."""
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / "doctrees")]
    completed = subprocess.run(
        [sys.executable, *command, str(ROOT / "docs"), str(folder / "html")],
        capture_output=True,
        text=True,
        env={**os.environ, "READTHEDOCS_CANONICAL_URL": SITE_ADDRESS},
    )
    assert completed.returncode == 0, completed.stderr
    return folder / "html"
