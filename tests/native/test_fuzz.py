"""The fuzzer: its corpus, inputs of hypothesis, and an oracle that sees wrong results."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from helpers.native_core import require_core
from hypothesis import HealthCheck, given, settings, strategies as st

require_core()

HERE = Path(__file__).parent
spec = importlib.util.spec_from_file_location("native_fuzz", HERE / "fuzz.py")
fuzz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fuzz)

CORPUS = sorted(fuzz.CORPUS.glob("*.bin"))


@pytest.fixture(scope="module")
def fuzzer():
    return fuzz.Fuzzer()


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_corpus(fuzzer, path):
    for way in range(9):  # each description in every kind of route
        fuzzer.run(path.read_bytes(), way)


@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.binary(max_size=120))
def test_inputs_of_hypothesis(fuzzer, data):
    fuzzer.run(data)


def test_random_inputs_reach_every_outcome(fuzzer):
    fuzzer.outcomes.clear()
    for seed in range(4000):
        fuzzer.run(fuzz.random_bytes(seed))
    kinds = ("array", "capsule", "column", "buffer", "ndarray", "table")
    missing = {(kind, taken) for kind in kinds for taken in (True, False)} - set(fuzzer.outcomes)
    assert not missing
