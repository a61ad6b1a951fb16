"""Headers and frames that were changed: an error of zerocopy or an object that can be read, never a crash."""

from __future__ import annotations

import pytest

from zerocopy.errors import ZeroCopyError
from zerocopy.frames import from_frames, to_frames
from zerocopy.frames.tables import needs_own_framework

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

#: Mutations, half of them of headers of tables.
COUNT = 20_000

PROGRAM = """
import random, sys, warnings
from collections import Counter

sys.path.insert(0, "tests")
from helpers.frame_samples import arrays, mutated, read, tables

warnings.simplefilter("ignore")
samples = [arrays(), tables()]
rng = random.Random(int(sys.argv[1]))
outcomes = Counter()
for i in range(int(sys.argv[2])):
    split = rng.choice(samples[i % 2])
    header, frames = mutated(rng, split.header), [bytes(part) for part in split.frames]
    if rng.random() < 0.2 and frames:
        place = rng.randrange(len(frames))
        frames[place] = frames[place][: rng.randrange(len(frames[place]) + 1)]
    outcomes[read(header, frames)] += 1
print(outcomes)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_changed_headers_never_crash(run_python, seed: int) -> None:
    process = run_python(f"import sys; sys.argv[1:] = ['{seed}', '{COUNT // 2}']\n" + PROGRAM)
    assert process.returncode == 0, process.stderr
    assert "error" in process.stdout


@pytest.mark.parametrize("column", [False, True])
def test_a_name_that_is_not_utf_8_is_refused(column: bool) -> None:
    """pyarrow decodes names later, where its UnicodeDecodeError has no explanation."""
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    split = to_frames(pl.Series("name", [1, 2]) if column else pa.table({"name": [1, 2]}))
    header = bytes(split.header).replace(b"name", b"na\xeee")
    with pytest.raises(ZeroCopyError, match="'utf-8' codec"):
        from_frames(header, split.frames)
    if column:
        with pytest.raises(ZeroCopyError, match="'utf-8' codec"):
            needs_own_framework(header)


@pytest.mark.hazard("pyarrow#unions-with-a-bitmap")
@pytest.mark.parametrize("mode", ["sparse", "dense"])
@pytest.mark.parametrize("outer", ["{}", "pyarrow.struct([('x', {})])", "pyarrow.list_({})"])
def test_a_union_with_a_bitmap_is_refused(run_python, mode: str, outer: str) -> None:
    """pyarrow ends the process for a union with a bitmap."""
    kind = outer.format(f"pyarrow.{mode}_union([pyarrow.field('a', pyarrow.int32())])")
    process = run_python(
        f"""
        import pyarrow
        from zerocopy.errors import ZeroCopyError
        from zerocopy.frames.arrow import ArrowReader

        levels = {1 + (outer != "{}")}
        nodes = [2, 0, 0] * (levels - 1) + [2, 1, 1] + [2, 0, 0]
        try:
            ArrowReader(nodes, [bytes(64)] * 8).read({kind})
        except ZeroCopyError as error:
            print(error.why)
        """
    )
    assert process.stdout == "a union has a bitmap of nulls\n", process.stderr
