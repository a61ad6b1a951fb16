"""Chromium, for tests of pages; pip does not install it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: The path of the browser; None if there is none.
CHROMIUM: str | None = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def options() -> list[str]:
    """Return the options that each start needs: as root, Chromium refuses its sandbox."""
    return ["--no-sandbox"] if os.geteuid() == 0 else []


@contextmanager
def launched() -> Iterator[Any]:
    """Start the browser under Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=options())
        yield chromium
        chromium.close()
