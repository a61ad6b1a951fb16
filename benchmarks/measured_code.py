"""The code that results measured: its date, digests of its C files, and what has changed since."""

from __future__ import annotations

import re
import zlib
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.machine import git

#: Results that are older than the newest change of the code by more days are measured again.
MOST_DAYS = 30

NOT_RECORDED = "its results do not record the C files that they measured"

#: Files of `zerocopy._native` that copy records to columns and back.
LAYOUTS = {"tiles.c", "row_tiles.c", "groups.h", "rows.c", "rows.h", "records.c"}

#: Suites that measure only some C files. GPU kernels of layouts and pools of a device have no C code.
ONLY = {"layout": LAYOUTS, "pool": {"allocator.c"}, "gpu-layout": set(), "gpu-pool": set()}

#: Suites with matrices or records: all C files. The other suites measure those that are not of `LAYOUTS`.
ALL = {"grid", "loader", "pipeline", "tables", "vectors"}

_TEXTS_OR_SPACE = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|/\*.*?\*/|//[^\n]*|\s+""", re.DOTALL)


def measures(suite: str, file: str) -> bool:
    """Whether a suite measures a C file of `zerocopy._native`."""
    return file in ONLY[suite] if suite in ONLY else suite in ALL or file not in LAYOUTS


def digest(source: str) -> str:
    """Return the CRC-32 of C code without comments and whitespace.

    Examples
    --------
    >>> digest("int i; /* a comment */") == digest("int  i;") != digest("int j;")
    True
    """
    code = _TEXTS_OR_SPACE.sub(lambda match: match[1] or "", source)
    return f"{zlib.crc32(code.encode()):08x}"


def digests(package: Path) -> dict[str, str]:
    """Return the digest of each C file of the package zerocopy, by name; empty if it has no sources."""
    files = sorted((package / "_native").glob("*.[ch]"))
    return {file.name: digest(file.read_text(encoding="utf-8")) for file in files}


def committed(package: Path) -> str:
    """Return the date of the newest commit of a package.

    It is empty outside a checkout, in a shallow one, and with uncommitted changes.
    """
    shallow = git(package, "rev-parse", "--is-shallow-repository") != "false"
    if shallow or git(package, "status", "--porcelain", "--untracked-files=no", "."):
        return ""
    return git(package, "log", "-1", "--format=%cs", "--", ".")


def code() -> dict[str, Any]:
    """Return the date of the code of zerocopy, and the digests of its C files if the compiled core is loaded.

    The date is that of the newest file if :func:`committed` returns none.
    """
    import zerocopy
    from zerocopy import _native

    package = Path(zerocopy.__file__).parent
    newest = max(
        file.stat().st_mtime for file in package.rglob("*.[pch]*") if file.suffix in (".py", ".c", ".h")
    )
    day = committed(package) or str(datetime.fromtimestamp(newest, UTC).date())
    return {"date": day, "c_files": digests(package) if _native.core else {}}


def outdated(facts: dict[str, Any], suite: str, package: Path, newest: str) -> str:
    """Return why a suite must be measured again, or nothing.

    `suite` begins with ``gpu-`` if it was measured on a GPU, `facts` are of its results, `newest` is the date
    of the newest change of the code.
    """
    recorded = facts.get("code", {}).get("c_files")
    if not recorded:
        return NOT_RECORDED
    current = digests(package)
    files = [name for name in sorted({*recorded, *current}) if measures(suite, name)]
    if changed := [name for name in files if recorded.get(name) != current.get(name)]:
        return f"C files that it measures have changed: {', '.join(changed)}"
    started = facts["started"][:10]
    if date.fromisoformat(started) + timedelta(MOST_DAYS) < date.fromisoformat(newest):
        return f"its results are of {started}, and the code has changed on {newest}"
    return ""
