"""Write the table of reason codes in docs/errors.md: ``python docs/reason_codes.py``."""

from __future__ import annotations

import re
from pathlib import Path

from zerocopy.errors.codes import CODES

PAGE = Path(__file__).with_name("errors.md")


def with_table(page: str) -> str:
    """Return the text of the page with the rows of `CODES` in its table of codes."""
    rows = "".join(f"| `{code}` | {meaning} |\n" for code, meaning in CODES.items())
    head = "| code | meaning |\n|---|---|\n"
    return re.sub(re.escape(head) + r"(\|.*\n)*", lambda _: head + rows, page)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
