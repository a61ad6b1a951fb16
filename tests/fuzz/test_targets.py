"""The targets of the fuzzer, without the fuzzer: their seeds, and seeds with a few other bytes."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.fuzz.byte_random import ByteRandom
from tests.fuzz.targets import TARGETS, Hostile
from zerocopy._native import core

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_changed_seeds_are_read(name: str) -> None:
    if name == "core" and core is None:
        pytest.skip("needs the compiled core")
    target, rng = TARGETS[name](), Random(name)
    seeds = list(target.seeds())
    assert seeds
    try:
        for _ in range(100):
            data = bytearray(rng.choice(seeds))
            target.read(bytes(data))
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            target.read(bytes(data))
    finally:
        getattr(target, "close", int)()


def test_builders_make_valid_objects_of_seeds() -> None:
    """Zero bytes choose usual ways, and content of memory takes no bytes of the input."""
    for name in ("capsules", "interfaces", "arrow"):
        target = TARGETS[name]()
        kinds = Counter(outcome(target, seed) for seed in target.seeds())
        assert kinds["converted"] > 9, (name, kinds)
        assert kinds["refused"] > 20, (name, kinds)


def outcome(target: Hostile, data: bytes) -> str:
    outcomes, check = [], target._check
    target._check = lambda case: outcomes.append(check(case)) or outcomes[-1]
    target.read(data)
    target._check = check
    return outcomes[0].kind


def test_equal_bytes_make_equal_numbers() -> None:
    first, second = ByteRandom(b"\x05\x00\xff" * 9), ByteRandom(b"\x05\x00\xff" * 9)
    for rng in (first, second):
        rng.numbers = [rng.choice(range(9)), rng.random(), rng.randrange(100), rng.randbytes(3)]
    assert first.numbers == second.numbers
    assert ByteRandom(b"").choice("abc") == "a"
    assert ByteRandom(b"\x01").choice("abc") == "b"
