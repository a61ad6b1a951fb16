"""Batches of generated loaders, joined, against `convert` of the whole source.

``python -m tests.helpers.loader_generator --count 1000 --seed 0`` checks more; a finding names its seed. With
``ZEROCOPY_HOSTILE_SEED=random``, as in CI, half of the seeds are new in each run.
"""

from __future__ import annotations

import os

import pytest

for name in ("torch", "pyarrow", "polars", "pandas"):
    pytest.importorskip(name)

from helpers.loader_generator import check  # noqa: E402 - it imports pyarrow

COUNT, PARTS = 64, 8

#: Seeds that found bugs: shuffled arrays whose items are not contiguous, views of words that do not occur.
FOUND = [250, 290, 5898]


def _first(part: int) -> int:
    """Return the first seed of a part; the environment chooses those of the last half."""
    chosen = os.environ.get("ZEROCOPY_HOSTILE_SEED", "")
    if part < PARTS // 2 or not chosen:
        return part * COUNT // PARTS
    start = int.from_bytes(os.urandom(4)) if chosen == "random" else int(chosen)
    return start + part * COUNT // PARTS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_batches_of_generated_loaders_are_the_rows_that_convert_gives(part: int) -> None:
    first = _first(part)
    for seed in range(first, first + COUNT // PARTS):
        print(f"seed {seed}")
        check(seed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_found_bugs(seed: int) -> None:
    check(seed)
