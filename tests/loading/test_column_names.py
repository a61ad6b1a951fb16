"""Names of columns that C cannot hold, or that look like paths: delivered whole, or refused."""

from __future__ import annotations

import pytest
from helpers.paths import ROOT

PROGRAM = """
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, TESTS)
from helpers.loader_sources import MAKERS

import zerocopy as zc

table = pa.table([pa.array([1.5, 2.5])] * len(NAMES), NAMES)
tested = 0
for kind, make in MAKERS.items():
    if kind == "filtered dataset":
        continue  # by a column x
    if kind == "object with __arrow_c_stream__" and any("\\0" in name for name in NAMES):
        continue  # the exporter cuts them
    folder = Path(tempfile.mkdtemp())
    try:
        source = make(folder, table)
    except BaseException:  # a library that is not installed, or that refuses the names itself
        continue
    for to in ("numpy", "pyarrow", "polars"):
        try:
            batch = next(iter(zc.loader(source, to=to, batch_size=2)))
        except zc.ZeroCopyError:
            break
        names = batch.columns if to == "polars" else batch.column_names if to == "pyarrow" else list(batch)
        assert list(names) == NAMES, (kind, to, names)
    else:
        tested += 1
assert tested >= LEAST
"""


@pytest.mark.hazard("polars#nul-in-names")
@pytest.mark.parametrize(
    ("names", "least"), [(["a\0b", "a\0c"], 8), ([" x ", "é", "a.b", "a/b", "x[0]", '"'], 8)]
)
def test_a_loader_delivers_the_names_of_the_source(names: list[str], least: int, run_warm) -> None:
    pytest.importorskip("polars")
    code = PROGRAM.replace("NAMES", repr(names)).replace("LEAST", repr(least))
    done = run_warm(code.replace("TESTS", repr(str(ROOT / "tests"))))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
