"""The Python examples of the pages, and the program that runs them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

FENCE = re.compile(r"^```(\S*)[ \t]*(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: A loop or block without a body, and a decorator without a function, with what completes it.
_COMPLETIONS = ("", " pass", "\ndef function(x): return x")

RUNNER = """
import doctest, sys
page, blocks = {page!r}, {blocks!r}
names = {{"__name__": "__main__"}}
parser = doctest.DocTestParser()
runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
for line, block in blocks:
    if ">>> " in block:
        test = parser.get_doctest(block, {{}}, page, page, line)
        test.globs = names  # the blocks of a page share one namespace
        runner.run(test, out=sys.stderr.write, clear_globs=False)
    else:
        exec(compile("\\n" * line + block, page, "exec"), names)
sys.exit(runner.failures > 0)
"""


def blocks(page: Path, *, run: bool = True) -> list[tuple[int, str]]:
    """Return a page's Python examples with their line numbers: those that run, or those that do not."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start(3)), match[3])
        for match in FENCE.finditer(text)
        if match[1] == "python" and (match[2] != "no-run") == run
    ]


def calls(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the calls in the code spans of a page's tables, as statements, with their line numbers."""
    hidden = FENCE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text(encoding="utf-8"))
    for number, line in enumerate(hidden.splitlines()):
        for span in re.findall(r"`([^`]+)`", line.replace(r"\|", "|")) if line.startswith("|") else ():
            if statement := _statement(span):
                yield number, statement


def called(statement: str) -> list[ast.Call]:
    """Return the calls of a statement."""
    return [node for node in ast.walk(ast.parse(statement)) if isinstance(node, ast.Call)]


def _statement(span: str) -> str:
    """Return a span as a statement if it is a call of zerocopy or of an object of its own, else nothing."""
    for completion in _COMPLETIONS:
        try:
            expressions = called(span + completion)
        except SyntaxError:
            continue
        roots = {ast.unparse(call.func).partition(".")[0] for call in expressions}
        return span + completion if roots & {"zc", "zerocopy", "pool", "loader", "weights"} else ""
    return ""


def blocks_by_section(page: Path) -> dict[str, list[tuple[int, str]]]:
    """Return the examples below each heading of level two, with those above the first one."""
    lines = page.read_text(encoding="utf-8").splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("## ")]
    common = [block for block in blocks(page) if block[0] < starts[0]]
    ends = [*starts[1:], len(lines)]
    sections = {
        lines[start][3:]: [block for block in blocks(page) if start < block[0] < end]
        for start, end in zip(starts, ends, strict=True)
    }
    return {heading: [*common, *own] for heading, own in sections.items() if own}
