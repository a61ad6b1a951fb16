"""Write docs/source-files.md, the list of the package's files: ``python docs/source_files.py``."""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).with_name("source-files.md")
HEAD = """# Files of the package

Each file has one idea, which its first line states. This page is written by `python docs/source_files.py`
from these lines. [How it works](how-it-works.md) explains how the files work together.
"""


def page() -> str:
    """Return the page: a table for each folder, with the first line of each file."""
    files = sorted((ROOT / "zerocopy").rglob("*.py")) + sorted((ROOT / "zerocopy").rglob("*.[ch]"))
    by_folder = sorted(files, key=lambda file: (file.parent.relative_to(ROOT).as_posix(), file.name))
    parts = [HEAD]
    for folder, members in groupby(by_folder, key=lambda file: file.parent.relative_to(ROOT).as_posix()):
        described = [(file.name, first_sentence(file)) for file in members]
        rows = [f"| `{name}` | {text} |" for name, text in described if text]
        if rows:
            parts.append("\n".join([f"## {folder}", "", "| file | contents |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def first_sentence(file: Path) -> str:
    """Return the first paragraph of a module's docstring, or of the comment at the top of a C file."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        comment = ast.get_docstring(ast.parse(text)) or ""
    else:
        comment = re.sub(r"^/\*(.*?)\*/.*", r"\1", text, flags=re.DOTALL).strip()
    paragraph = " ".join(comment.split("\n\n")[0].split())
    # Markdown of the page: names in single or double backquotes look alike, roles of Sphinx are names.
    return re.sub(r"(?::\w+:)?`+([^`]+)`+", r"`\1`", paragraph).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
