"""The notebooks are up to date: each cell runs again, and its output is compared with the stored one."""

from __future__ import annotations

import json

import pytest
from helpers.paths import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))

# As a notebook does it: a cell's last expression is its result, and has an output unless it is None.
RUNNER = """
import ast, contextlib, io, json, sys
SOURCES = {sources!r}
outputs, names = [], {{"__name__": "__main__"}}
for number, source in enumerate(SOURCES):
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {{number}}", "exec"), names)
        value = last and eval(compile(ast.Expression(last.value), f"cell {{number}}", "eval"), names)
    outputs.append([printed.getvalue(), "" if value is None else repr(value)])
print(json.dumps(outputs), file=sys.__stdout__)
"""


def cells(path):
    """Return the code cells, each as its source, its stored printed text and its stored result."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            outputs = cell["outputs"]
            printed = [text for o in outputs if o["output_type"] == "stream" for text in o["text"]]
            results = [o["data"]["text/plain"] for o in outputs if o["output_type"] == "execute_result"]
            yield (
                "".join(cell["source"]),
                "".join(printed),
                "".join(line for lines in results for line in lines),
            )


def words(text):
    """Return text without white space: IPython breaks the lines of long results."""
    return "".join(text.split())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_give_stored_output(path, run_warm) -> None:
    for framework in ("torch", "jax", "pandas", "polars", "pyarrow"):
        pytest.importorskip(framework)
    stored = list(cells(path))
    process = run_warm(RUNNER.format(sources=[source for source, _, _ in stored]))
    assert process.returncode == 0, process.stderr
    for (source, text, result), (printed, value) in zip(stored, json.loads(process.stdout), strict=True):
        assert words(printed) == words(text), source
        assert words(value) == words(result), source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_executed_and_has_no_warnings(path) -> None:
    code = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    assert code
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]


def test_index_lists_every_notebook() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 2
    assert [path.name for path in NOTEBOOKS if f"(notebooks/{path.name})" not in index] == []
