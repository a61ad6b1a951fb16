"""Write the tables of reason codes in docs/errors.md: ``python docs/reason_codes.py``."""

from __future__ import annotations

import re
from pathlib import Path

from zerocopy.errors.codes import AREAS

PAGE = Path(__file__).with_name("errors.md")
START, END = "<!-- codes -->\n", "<!-- end of codes -->\n"


def with_table(page: str) -> str:
    """Return the text of the page with a table for each area between its markers."""
    return re.sub(f"{START}.*?{END}", lambda _: f"{START}\n{tables()}\n{END}", page, flags=re.DOTALL)


def tables() -> str:
    """Return a heading and a table of codes for each area."""
    areas = []
    for area, codes in AREAS.items():
        rows = "".join(f"| `{code}` | {meaning} |\n" for code, meaning in codes.items())
        areas.append(f"### {area}\n\n| code | meaning |\n|---|---|\n{rows}")
    return "\n".join(areas)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
