"""Write docs/errors/codes.md, the tables of reason codes: ``python docs/reason_codes.py``."""

from __future__ import annotations

from pathlib import Path

from zerocopy.errors.codes import AREAS

PAGE = Path(__file__).parent / "errors" / "codes.md"
HEAD = """# Reason codes

`code` of a `Reason` and of an [error](../errors.md) is one of these, and stays the same in later versions.
Those that [you meet first](../errors.md#the-codes-that-you-meet-first) have symptom, cause and fix. This page
is written by `python docs/reason_codes.py` from `zerocopy.errors.codes`.
"""


def page() -> str:
    """Return the page: a heading and a table of codes for each area."""
    parts = [HEAD]
    for area, codes in AREAS.items():
        rows = "".join(f"| `{code}` | {meaning} |\n" for code, meaning in codes.items())
        parts.append(f"## {area}\n\n| code | meaning |\n|---|---|\n{rows}")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
