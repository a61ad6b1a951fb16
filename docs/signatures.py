"""Write the signature of ``convert`` and the targets in docs/semantics.md: ``python docs/signatures.py``."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import zerocopy
from zerocopy import registry

PAGE = Path(__file__).parent / "semantics.md"


def with_signature(page: str) -> str:
    """Return the page with the current signature and names."""
    before, _, rest = page.partition("```text\nzerocopy.convert(")
    page = f"{before}```text\n{_signature()}\n```{rest.partition('```')[2]}"
    before, _, rest = page.partition("The names are ")
    return f"{before}{_names()}{rest[rest.index(chr(10) * 2) :]}"


def _signature() -> str:
    parameters = inspect.signature(zerocopy.convert).parameters.values()
    options = [f"{one.name}={one.default!r}" for one in parameters if one.kind is one.KEYWORD_ONLY]
    text = f"zerocopy.convert(obj, to, *, {', '.join(options)})"
    lines = textwrap.wrap(text, 100, subsequent_indent=" " * len("zerocopy.convert("))
    return "\n".join([*lines, "zerocopy.explain(obj, to, *, ...the same...)"])


def _names() -> str:
    names = [f'`"{name}"`' for name in sorted(registry.frameworks())]
    return textwrap.fill(f"The names are {', '.join(names[:-1])} and {names[-1]}.", 110)


if __name__ == "__main__":
    PAGE.write_text(with_signature(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
