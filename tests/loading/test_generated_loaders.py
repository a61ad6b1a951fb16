"""The joined batches of generated loaders equal the result of `convert` for the whole source.

``python -m tests.helpers.loader_generator --count 1000 --seed 0`` checks more; a finding names its seed. With
``ZEROCOPY_HOSTILE_SEED=random``, as each night, half of the seeds are new in each run.
"""

from __future__ import annotations

import pytest

for name in ("torch", "pyarrow", "polars", "pandas"):
    pytest.importorskip(name)

from helpers.loader_generator import check  # noqa: E402 - it imports pyarrow
from helpers.seeds import seeds_of_part  # noqa: E402

COUNT, PARTS = 64, 8

#: Seeds that found bugs: shuffled arrays whose items are not contiguous, views of words that do not occur,
#: casts and masks of lists, objects with `encode=`, and codes of categories without -1.
FOUND = [250, 290, 5898, 5671, 5085, 5189, 5403, 5469, 30149, 30282]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_batches_of_generated_loaders_equal_the_result_of_convert(part: int) -> None:
    for seed in seeds_of_part(part, PARTS, COUNT):
        print(f"seed {seed}")
        check(seed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_found_bugs(seed: int) -> None:
    check(seed)
