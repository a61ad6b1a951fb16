"""Write the signature of ``convert`` in docs/semantics.md: ``python docs/signatures.py``."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import zerocopy

PAGE = Path(__file__).parent / "semantics.md"


def with_signature(page: str) -> str:
    """Return the page with the current signature."""
    before, _, rest = page.partition("```text\nzerocopy.convert(")
    return f"{before}```text\n{_signature()}\n```{rest.partition('```')[2]}"


def _signature() -> str:
    parameters = inspect.signature(zerocopy.convert).parameters.values()
    options = [f"{one.name}={one.default!r}" for one in parameters if one.kind is one.KEYWORD_ONLY]
    text = f"zerocopy.convert(obj, to, *, {', '.join(options)})"
    lines = textwrap.wrap(text, 100, subsequent_indent=" " * len("zerocopy.convert("))
    return "\n".join([*lines, "zerocopy.explain(obj, to, *, ...the same...)"])


if __name__ == "__main__":
    PAGE.write_text(with_signature(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
