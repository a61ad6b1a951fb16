"""README is short, and each row of its first table happens: a wrong value, a crash or a copy today."""

from __future__ import annotations

import re
import signal

import pytest
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy import registry

README = (ROOT / "README.md").read_text(encoding="utf-8")
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")

#: The call in each row: the code before it, and a check of its result `today` and of zerocopy's.
ROWS = {
    "duckdb.sql(query).torch()": (
        """
import duckdb
query = "SELECT * FROM (VALUES (1), (NULL), (3)) t(n)"
""",
        """
assert today["n"].tolist() == [1, 0, 3]
error = refused(duckdb.sql(query), "torch")
assert 'zc.convert(x, "torch", nulls="mask")' in error
column = zc.convert(duckdb.sql(query), "torch", nulls="mask")["n"]
assert column.mask.tolist() == [False, True, False] and column.values[[0, 2]].tolist() == [1, 3]
""",
    ),
    "jax.numpy.asarray(np.array([2**40 + 5]))": (
        """
import warnings
import jax, numpy as np
warnings.simplefilter("error")
""",
        """
assert today.tolist() == [5]
assert "jax_enable_x64" in refused(np.array([2**40 + 5]), "jax")
jax.config.update("jax_enable_x64", True)
assert zc.convert(np.array([2**40 + 5]), "jax").tolist() == [2**40 + 5]
""",
    ),
    "torch.from_dlpack(x[::-1])": (
        """
import numpy as np
x = np.arange(3.0)
""",
        """
assert zc.convert(x[::-1], "torch").tolist() == [2, 1, 0]
plan = zc.explain(x[::-1], "torch")
assert not plan.zero_copy and "negative strides" in str(plan)
""",
    ),
    "polars_frame.to_pandas()": (
        """
from datetime import date
import polars as pl
columns = {"km": [0.5, 1.0, 2.0], "n": [1, None, 3], "day": [date(2020, 1, 1)] * 3, "stops": [[1], [2], []]}
kind = pl.Series([*"aba"], dtype=pl.Categorical)
copied = {"city": ["Bern", None, "Oslo"], "raw": [b"a", b"b", b"c"], "kind": kind}
polars_frame = pl.DataFrame(columns | copied)
""",
        """
assert not any(zc.shares_memory(polars_frame["km"], today[name].to_numpy()) for name in ("km", "n"))
assert today["n"].dtype == "float64"
plans = zc.explain(polars_frame, "pandas").leaves
assert [name for name in polars_frame.columns if not plans[f"['{name}']"].zero_copy] == [*copied]
frame = zc.convert(polars_frame.select(*columns), "pandas", copy=False)
assert zc.shares_memory(polars_frame, frame)
assert str(frame["n"].dtype) == "int64[pyarrow]" and frame["n"].isna().tolist() == [False, True, False]
""",
    ),
}


CRASH = "torch.from_dlpack(x[::-1])"

#: Returns the message of the error.
REFUSED = """
import zerocopy as zc
def refused(x, to):
    try:
        zc.convert(x, to)
    except zc.LossyConversionError as error:
        return str(error)
"""


def first_table(page: str) -> list[str]:
    """Return the rows of the table of calls."""
    return page.partition("| your call today |")[2].partition("\n\n")[0].splitlines()[2:]


def test_first_table_is_the_same_on_the_home_page() -> None:
    calls = [re.findall(r"`([^`]+)`", row)[0] for row in first_table(README)]
    assert calls == list(ROWS)
    assert first_table(INDEX) == first_table(README)


@pytest.mark.parametrize("call", ROWS)
def test_what_happens_today_and_with_convert(call: str, run_warm) -> None:
    for framework in ("duckdb", "jax", "torch", "pandas", "polars", "pyarrow"):
        pytest.importorskip(framework)
    before, check = ROWS[call]
    if call == CRASH:
        import torch

        completed = run_warm(f"import torch\n{before}{call}")
        if torch.__version__.startswith("2.13."):
            assert completed.returncode == -signal.SIGABRT, completed.stderr
        call = "None"
    completed = run_warm(f"{REFUSED}{before}today = {call}{check}")
    assert completed.returncode == 0, completed.stderr


def test_readme_fits_on_two_screens() -> None:
    assert len(README.splitlines()) <= 70


def test_text_of_the_picture_has_the_measured_figures() -> None:
    """Of all contenders, in the order of the picture."""
    page = (ROOT / "docs" / "pipeline-benchmarks.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| \*\*whole pipeline\*\* \|(.*)\|$", page, re.MULTILINE)
    ours, ours_copied, documented, _, copied, by_hand, _, by_hand_copied = map(str.strip, row.split("|"))
    expected = (
        f"documented calls copy {copied} in {documented}, aliases by hand {by_hand_copied} in {by_hand}, "
        f"zerocopy {ours_copied} in {ours}"
    )
    assert expected in README
    assert expected in INDEX


def test_arrays_convert_with_numpy_alone(run_python) -> None:
    """`pip install .` installs nothing else."""
    others = sorted({*registry.frameworks(), "click", "rich", "psutil"} - {"numpy"})
    completed = run_python(
        f"""
import array, sys
sys.modules.update(dict.fromkeys({others!r}))  # importing one raises ImportError
import zerocopy as zc
samples = array.array("d", [0.5, 1.0, 2.0])
x = zc.convert(samples, to="numpy")
x[0] = 7
assert samples.tolist() == [7.0, 1.0, 2.0]
assert "dtype=None keeps float64" in str(zc.explain(x, to="numpy", dtype="float32"))
"""
    )
    assert completed.returncode == 0, completed.stderr


def test_home_page_leads_to_the_same_pages() -> None:
    """Of each reader, except the governance, which GitHub shows next to README."""
    links = [
        {
            row.partition(" | ")[0]: re.findall(r"\]\((?:docs/|\.\./)?([^)]+)\)", row)
            for row in page.partition("| I ... | read |")[2].partition("\n\n")[0].splitlines()[2:]
        }
        for page in (README, INDEX)
    ]
    for pages in links:
        pages["| want to change zerocopy"] = [p for p in pages["| want to change zerocopy"] if p[:3] != "GOV"]
    assert links[0] == links[1]


def test_public_names_of_readme_exist() -> None:
    names = set(re.findall(r"\bzc\.([a-z_]+)", README))
    assert {"convert", "loader", "share"} <= names
    assert sorted(name for name in names if not hasattr(zc, name)) == []
