"""The part of ``zerocopy doctor`` about versions: whether an installed framework is supported and was tested.

The table is ``_frameworks/versions.toml``, from which ``docs/support.py`` writes docs/support.md.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from zerocopy import registry
from zerocopy.framework import version_numbers
from zerocopy.registry import FrameworkInfo

#: Each status of a version, with its word in the printed report.
STATUSES = {
    "tested": "yes",
    "supported": "no",  # a supported version between or before those of the runs
    "newer": "newer",
    "older": "older",
    "not run": "no",
    "unknown": "-",  # the framework of a plugin, or a version that is not known
}


@cache
def table() -> dict[str, Any]:
    """Return the table of versions: ``pythons``, ``frameworks``, ``engines`` and ``runs``."""
    return tomllib.loads((files("zerocopy._frameworks") / "versions.toml").read_text(encoding="utf-8"))


def tested(name: str) -> dict[str, list[str]]:
    """Return the versions of a package that the tests ran with, the oldest first, each with its runs."""
    versions: dict[str, list[str]] = {}
    for run, row in table()["runs"].items():
        if name in row["versions"]:
            versions.setdefault(row["versions"][name], []).append(run)
    return dict(sorted(versions.items(), key=lambda item: version_numbers(item[0])))


def support(info: FrameworkInfo) -> dict[str, Any]:
    """Return the status of an installed version, the versions that it is compared with, and a note."""
    version, name = info.version, info.name
    framework, row, runs = registry.by_name(name), table()["frameworks"].get(name), tested(name)
    oldest = framework.min_version or (row or {}).get("oldest", "")
    status, note = "unknown", ""
    if version and oldest and version_numbers(version) < version_numbers(oldest):
        # A distribution with an extra or a version is not a name alone, and has its own command.
        package = framework.distribution or name
        plain = package.replace("-", "").replace("_", "").isalnum()
        upgrade = f"pip install '{package}>={oldest}'" if plain else info.install
        status, note = "older", f"{version} is older than {oldest}, the oldest supported version: {upgrade}"
    elif version and runs:
        newest = list(runs)[-1]
        if _release(version) > _release(newest):
            status, note = "newer", f"{version} is newer than {newest}, the newest version that was tested"
        else:
            status = "tested" if _release(version) in map(_release, runs) else "supported"
    elif row is not None:
        status, note = "not run", "no run of the tests with it is recorded"
    return {"status": status, "oldest": oldest or None, "tested": list(runs), "note": note}


def _release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version: the tests need not run for each bug fix."""
    return version_numbers(version)[:2]
