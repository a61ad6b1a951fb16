"""The summary of ``zerocopy matrix``, and ``zc.check_pairs`` with its tables for notebooks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy.errors import Reason
from zerocopy.pairs.arrays import ArrayCell, ArrayMatrix
from zerocopy.pairs.columns import ColumnMatrix
from zerocopy.pairs.samples import Data
from zerocopy.pairs.summary import MOST_REASONS, summarize

pytest.importorskip("rich")
pytest.importorskip("click")


def many_reasons() -> list[ArrayCell]:
    """Return the cells of two frameworks with more reasons than a summary shows."""
    return [
        ArrayCell(
            source="numpy",
            target="numpy",
            outcome="copy",
            array=f"array {name}",
            dtype="f4",
            shape=(1,),
            reasons=[Reason(f"the reason {name}", f"fix {name}", code="x")],
        )
        for name in "abcdefgh"
    ]


def test_summary_shows_the_most_frequent_reasons() -> None:
    matrix = ArrayMatrix({"numpy": "2"}, many_reasons(), {}, {})
    summary = summarize(matrix, ColumnMatrix({}, [], [], [], {}), data())
    assert len(summary.reasons) == MOST_REASONS
    assert summary.more_reasons == 8 - MOST_REASONS
    assert summary.squares["numpy", "numpy"].numbers == (1, 2, 3, 4, 5)
    assert summary.squares["numpy", "numpy"].outcome == "copy"


def test_broken_promises_come_first() -> None:
    cells = many_reasons()
    cells[7].outcome, cells[7].broken = "broken", ["a wrong value"]
    summary = summarize(ArrayMatrix({"numpy": "2"}, cells, {}, {}), ColumnMatrix({}, [], [], [], {}), data())
    assert summary.is_broken
    assert "1 of 8 conversions broke a promise" in summary.verdict
    assert summary.reasons[0].why == "a wrong value"
    assert summary.squares["numpy", "numpy"].outcome == "broken"


def data() -> Any:
    return Data("x", {"x": np.zeros(1)}, {f"c{i}": "not numeric" for i in range(5)})


def test_summary_names_columns_that_were_left_out() -> None:
    summary = summarize(ArrayMatrix({}, [], {}, {}), ColumnMatrix({}, [], [], [], {}), data(), "no pyarrow")
    assert summary.remarks == [
        "no pyarrow",
        *(f"Left out: c{i}, not numeric." for i in range(3)),
        "Left out: 2 more.",
    ]
    assert summary.verdict.endswith("nothing was converted.")


# -- from Python ------------------------------------------------------------------------


def test_matrix_of_an_array() -> None:
    array = np.arange(6, dtype="i2").reshape(2, 3)
    result = zc.check_pairs(array, frameworks=["numpy"])
    assert [(c.array, c.outcome, c.median_ns) for c in result.arrays.cells] == [("x", "zero-copy", None)]
    assert result.broken == []
    assert "Every promise held in 1 conversion" in str(result)
    assert "x: 2 x 3, int16" in repr(result)
    timed = zc.check_pairs(array, frameworks=["numpy"], repeat=2).arrays.cells[0]
    assert timed.median_ns > 0
    assert timed.samples == 2


def test_matrix_of_a_container() -> None:
    result = zc.check_pairs({"a": np.ones(2), "b": [np.ones(3)]}, frameworks=["numpy"])
    assert [cell.array for cell in result.arrays.cells] == ["['a']", "['b'][0]"]


def test_matrix_of_a_table() -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": [1, None], "b": ["x", "y"]})
    result = zc.check_pairs(table, frameworks=["numpy", "pyarrow"])
    assert [(c.column, c.target, c.outcome) for c in result.columns.cells] == [
        ("a", "numpy", "masked"),
        ("a", "pyarrow", "zero-copy"),
        ("b", "numpy", "encoded"),
        ("b", "pyarrow", "zero-copy"),
    ]
    assert re.search(r"pyarrow\s+1/2( 1)?\s+2/2", str(result))
    text = " ".join(str(result).split())
    assert 'encoded: refused by default; encode="bytes" returns numbers. masked: refused' in text
    assert text.count("Every promise held") == 1


def test_matrix_refuses_frameworks_that_it_cannot_use() -> None:
    with pytest.raises(zc.errors.UnknownFrameworkError):
        zc.check_pairs(np.ones(2), frameworks=["nunpy"])
    with pytest.raises(zc.errors.UnknownFrameworkError):
        zc.check_pairs(np.ones(2), sources=["nunpy"])
    with pytest.raises(zc.ZeroCopyError):
        zc.check_pairs("text", frameworks=["numpy"])


def test_matrix_works_without_rich(run_python: Callable[..., Any]) -> None:
    process = run_python(
        """
        import sys
        sys.modules["rich"] = sys.modules["click"] = None
        import numpy as np, zerocopy as zc
        result = zc.check_pairs(np.ones(3), frameworks=["numpy"])
        print(result)
        assert "zero-copy" in result._repr_html_()
        """
    )
    assert process.returncode == 0, process.stderr
    assert "Every promise held in 1 conversion" in process.stdout
    assert "x: 3 values, float64" in process.stdout
    assert "numpy     =" in process.stdout


def test_public_name_imports_no_command(run_python: Callable[..., Any]) -> None:
    process = run_python(
        """
        import sys, zerocopy as zc
        zc.check_pairs
        assert not {"rich", "click", "zerocopy.cli"} & set(sys.modules)
        """
    )
    assert process.returncode == 0, process.stderr
