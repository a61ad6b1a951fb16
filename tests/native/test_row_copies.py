"""The compiled copies between columns and rows: references, arguments and positions that change."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

from zerocopy._native import core

if not hasattr(core, "write_rows"):
    pytest.skip("needs the compiled core", allow_module_level=True)


def test_references_are_balanced() -> None:
    out, columns, offsets = np.zeros((100, 12), np.uint8), [np.ones(100), np.ones(100, np.float32)], [0, 8]
    positions = np.arange(100)
    wrong = positions + 1
    objects = [out, columns, *columns, offsets, positions, wrong]
    counts = [sys.getrefcount(x) for x in objects]
    for _ in range(100):
        core.write_rows(out, columns, offsets, positions)
        core.write_rows(out, columns, offsets)
        core.read_rows(out, columns, offsets)
        with pytest.raises(IndexError):
            core.write_rows(out, columns, offsets, wrong)
        with pytest.raises(ValueError, match="offsets"):
            core.read_rows(out, columns, [0, 9])
        with pytest.raises(TypeError):
            core.write_rows(out, [columns[0], None], offsets)
    assert [sys.getrefcount(x) for x in objects] == counts


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (np.zeros((1, 8), np.uint8),),
        ([[0]], [np.zeros(1)], [0]),
        (np.zeros((1, 8), np.uint8), 5, [0]),
        (np.zeros((1, 8), np.uint8), [np.zeros(1)], 5),
        (np.zeros((1, 8), np.uint8), [5], [0]),
    ],
)
def test_arguments_of_other_types_are_refused(arguments: Any) -> None:
    for function in (core.write_rows, core.read_rows):
        with pytest.raises(TypeError):
            function(*arguments)


def test_positions_that_another_thread_changes_stay_inside_the_rows() -> None:
    count = 20_000
    block = np.full((count + 2, 64), 0xA5, np.uint8)
    columns, positions = [np.ones(count)] * 8, np.arange(count)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            positions[count // 2 :] = -1
            positions[count // 2 :] = np.arange(count // 2, count)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(100):
            try:
                core.write_rows(block[1:-1], columns, [8 * k for k in range(8)], positions)
            except IndexError:
                continue
    finally:
        stop.set()
        thread.join()
    assert {*block[0], *block[-1]} == {0xA5}
