"""The optional dependencies of zerocopy: the requirements of each extra, and those that are missing."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

DISTRIBUTION = "zerocopy-interchange"


def extras() -> dict[str, Any]:
    """Return each extra with its requirements, or why they are not known."""
    try:
        from packaging.requirements import Requirement
    except ModuleNotFoundError:
        return {"known": False, "why": "packaging is not installed: pip install packaging"}
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        why = "zerocopy runs from a source tree without metadata; pip install -e . adds the list of extras"
        return {"known": False, "why": why}
    requirements = [Requirement(text) for text in distribution.requires or []]
    report = {}
    for name in sorted(distribution.metadata.get_all("Provides-Extra") or []):
        parts = [_part(requirement) for requirement in _requirements(name, requirements, set())]
        report[name] = {
            "complete": all(part["fits"] for part in parts),
            "parts": parts,
            "install": f"pip install '{DISTRIBUTION}[{name}]'",
        }
    return {"known": True, "extras": report}


def _requirements(extra: str, requirements: list[Requirement], seen: set[str]) -> list[Requirement]:
    """Return the requirements of an extra and of the extras that it includes."""
    if extra in seen:
        return []
    seen.add(extra)
    selected = []
    for requirement in requirements:
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}) or not marker.evaluate({"extra": extra}):
            continue  # required without an extra, or not for this one on this platform
        if requirement.name == DISTRIBUTION:
            for other in sorted(requirement.extras):
                selected += _requirements(other, requirements, seen)
        else:
            selected.append(requirement)
    return selected


def _part(requirement: Requirement) -> dict[str, Any]:
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        version = None
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return {
        "name": requirement.name + extras,
        "wanted": str(requirement.specifier),
        "version": version,
        "fits": version is not None and _fits(version, requirement.specifier),
    }


def _fits(version: str, specifier: SpecifierSet) -> bool:
    """Whether a version satisfies a specifier; a pre-release counts as its release."""
    from packaging.version import InvalidVersion, Version

    try:
        return not specifier or specifier.contains(Version(version).base_version)
    except InvalidVersion:
        return False
