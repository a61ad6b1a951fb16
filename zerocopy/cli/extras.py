"""The package's own extras: what each one adds, and what of it is installed."""

from __future__ import annotations

import importlib.metadata
import re
from typing import Any

# One line of Requires-Dist: name, extras, versions, marker (PEP 508). packaging would
# parse it, and is no dependency of ours.
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?$")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")

#: By extra: name, version specifier and extras of each distribution.
Wanted = dict[str, list[tuple[str, str, list[str]]]]


def extras() -> dict[str, Any]:
    """Return the package's extras: what each one adds, and what of it is missing."""
    try:
        distribution = importlib.metadata.distribution("zerocopy-interchange")
    except importlib.metadata.PackageNotFoundError:
        return {
            "known": False,
            "why": "zerocopy runs from a source tree, without metadata: "
            "pip install -e . adds it, and then the extras are listed here",
        }
    wanted = _by_extra(distribution.requires or [])
    names = sorted(set(wanted) | set(distribution.metadata.get_all("Provides-Extra") or []))
    found = {}
    for name in names:
        parts = [_part(p, spec) for p, spec in _flat(name, wanted, ()).items()]
        found[name] = {
            "complete": all(p["fits"] for p in parts),
            "parts": parts,
            "install": f"pip install '.[{name}]'",
        }
    return {"known": True, "extras": found}


def _by_extra(requirements: list[str]) -> Wanted:
    """Return the requirements an extra: name, version specifier, extras of its own."""
    wanted: Wanted = {}
    for text in requirements:
        match = _REQUIREMENT.match(text.strip())
        extra = _EXTRA.search(text)
        if match is None or extra is None:
            continue
        name, inner, spec, _ = match.groups()
        inside = [x.strip() for x in (inner or "").split(",") if x.strip()]
        wanted.setdefault(extra.group(1), []).append((name, spec.strip(), inside))
    return wanted


def _flat(extra: str, wanted: Wanted, above: tuple[str, ...]) -> dict[str, str]:
    """Return the distributions of an extra, those of extras that it includes too."""
    found: dict[str, str] = {}
    if extra in above:
        return found
    for name, spec, inside in wanted.get(extra, []):
        if name == "zerocopy-interchange":
            for other in inside:
                found |= _flat(other, wanted, (*above, extra))
        else:
            found[f"{name}[{','.join(inside)}]" if inside else name] = spec
    return found


def _part(name: str, spec: str) -> dict[str, Any]:
    try:
        version = importlib.metadata.version(name.partition("[")[0])
    except importlib.metadata.PackageNotFoundError:
        version = None
    fits = version is not None and all(_fits(version, clause) for clause in spec.split(",") if clause.strip())
    return {"name": name, "wanted": spec, "version": version, "fits": fits}


def _fits(version: str, clause: str) -> bool:
    """Whether a version is as one clause of a specifier says; releases are compared, not pre-releases."""
    match = re.match(r"\s*(===|==|!=|<=|>=|~=|<|>)\s*([^\s]+)", clause)
    if match is None:
        return True
    operator, wanted = match.groups()
    prefix = wanted.endswith(".*")
    have, want = _release(version), _release(wanted.removesuffix(".*"))
    if prefix or operator == "~=":
        near = have[: len(want)] == want if prefix else have[: len(want) - 1] == want[:-1] and have >= want
        return near != (operator == "!=")
    length = max(len(have), len(want))
    have, want = (v + (0,) * (length - len(v)) for v in (have, want))
    return {
        "===": have == want,
        "==": have == want,
        "!=": have != want,
        "<=": have <= want,
        ">=": have >= want,
        "<": have < want,
        ">": have > want,
    }[operator]


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"v?(?:\d+!)?(\d+(?:\.\d+)*)", version)
    return tuple(int(n) for n in match.group(1).split(".")) if match else ()
