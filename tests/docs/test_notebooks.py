"""The notebooks are up to date: each cell runs again, and its output is compared with the stored one.

The quick tier runs them with a hundredth of their data, and compares the output without its figures. Cells
with the tag ``measured`` show times and memory, and are compared without figures in both tiers.
"""

from __future__ import annotations

import json
import re
import sys

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
    """Yield the code cells: source, printed text, result, and whether the figures differ between runs."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            outputs = cell["outputs"]
            printed = [text for o in outputs if o["output_type"] == "stream" for text in o["text"]]
            results = [o["data"]["text/plain"] for o in outputs if o["output_type"] == "execute_result"]
            yield (
                "".join(cell["source"]),
                "".join(printed),
                "".join(line for lines in results for line in lines),
                "measured" in cell["metadata"].get("tags", ()),
            )


def words(text, figures):
    """Return text without white space, because IPython breaks the lines of long results."""
    return "".join((text if figures else re.sub(r"\d[\d.,]*", "#", text)).split())


@pytest.mark.skipif(sys.platform != "linux", reason="the notebooks read the peak memory from /proc")
@pytest.mark.parametrize("part", [pytest.param(1, marks=pytest.mark.full), 100])
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_give_stored_output(path, part, run_warm) -> None:
    for framework in ("torch", "jax", "pandas", "polars", "pyarrow"):
        pytest.importorskip(framework)
    stored = list(cells(path))
    code = "\0".join(source for source, *_ in stored)
    smaller, count = re.subn(
        r"^rows = ([\d_]+)$", lambda rows: f"rows = {int(rows[1]) // part}", code, flags=re.M
    )
    assert count == 1
    process = run_warm(RUNNER.format(sources=smaller.split("\0")))
    assert process.returncode == 0, process.stderr
    outputs = json.loads(process.stdout)
    for (source, text, result, measured), (printed, value) in zip(stored, outputs, strict=True):
        figures = part == 1 and not measured
        assert words(printed, figures) == words(text, figures), source
        assert words(value, figures) == words(result, figures), source


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
    assert len(NOTEBOOKS) == 3
    assert [path.name for path in NOTEBOOKS if f"(notebooks/{path.name})" not in index] == []
