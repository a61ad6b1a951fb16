"""Lists and texts that the core writes as rows of one length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zerocopy._native import core

pytestmark = pytest.mark.skipif(core is None, reason="the compiled core is not built")

STARTS, COUNTS = np.array([4, 0, 2, 9]), np.array([2, 0, 3, 1])
TEXTS = [
    "",
    "a",
    "\u00e9",
    "\u20ac\u20ac",
    "\U0001f600x",
    "a\0b",
    "\ud7ff",
    "\ue000",
    "\U0010ffff",
    "x" * 300,
]


@pytest.mark.parametrize("dtype", ["i1", "?", "f2", "f4", "i8", "c16", "V3", "V12"])
def test_lists_are_followed_by_padding(dtype: str) -> None:
    items = np.arange(10).astype("u1").view("V1") if dtype[0] == "V" else np.arange(10).astype(dtype)
    if dtype[0] == "V":
        items = np.frombuffer(bytes(range(10 * np.dtype(dtype).itemsize)), dtype)
    out, pad = np.zeros((4, 3), dtype), items[7]
    core.pad_rows(out, items, STARTS, COUNTS, pad.tobytes())
    expected = [
        [items[s + k] if k < n else pad for k in range(3)] for s, n in zip(STARTS, COUNTS, strict=True)
    ]
    assert out.tolist() == np.array(expected, dtype).tolist()


@pytest.mark.parametrize(
    ("starts", "counts"),
    [([8], [3]), ([-1], [1]), ([0], [-1]), ([0], [4]), ([2**62], [2**62]), ([11], [0]), ([-(2**63)], [3])],
)
def test_lists_outside_the_items_or_the_row_are_refused(starts: list[int], counts: list[int]) -> None:
    with pytest.raises(IndexError, match="outside"):
        core.pad_rows(np.zeros((1, 3)), np.arange(10.0), np.array(starts), np.array(counts), bytes(8))


def test_invalid_arguments_are_refused() -> None:
    out, items = np.zeros((4, 3)), np.arange(10.0)
    read_only = out.copy()
    read_only.flags.writeable = False
    cases: list[tuple[Any, ...]] = [
        (read_only, items, STARTS, COUNTS),
        (out.T, items, STARTS, COUNTS),
        (out[0], items, STARTS, COUNTS),
        (out, items[::2], STARTS, COUNTS),
        (out, items, STARTS[:3], COUNTS),
        (out, items, STARTS, COUNTS.astype("i4")),
        (out.astype(object), items.astype(object), STARTS, COUNTS),
        (out, items.astype("f4"), STARTS, COUNTS),
    ]
    for arguments in cases:
        with pytest.raises(ValueError, match="must"):
            core.pad_rows(*arguments, bytes(8))
    with pytest.raises(ValueError, match="size"):
        core.pad_rows(out, items, STARTS, COUNTS, bytes(4))
    with pytest.raises(ValueError, match="size"):
        core.pad_rows(np.zeros(out.shape, "V0"), np.zeros(items.shape, "V0"), STARTS, COUNTS, b"")
    text, offsets, texts = items.astype("u1"), np.array([0, 2, 4]), np.zeros(2, "S3")
    others: list[tuple[Any, ...]] = [
        (np.zeros(2, "u8"), text, offsets),
        (texts[:1], text, offsets),
        (texts, text.astype("u2"), offsets),
        (texts, text[::2], offsets),
        (texts, text, offsets.astype("u4")),
        (texts, text, np.array([0, 9, 2, 9, 4])[::2]),
        (np.zeros(9, "u1")[1:].view("U1"), text, offsets),
    ]
    for arguments in others:
        with pytest.raises(ValueError, match="must"):
            core.write_texts(*arguments)


@pytest.mark.parametrize("kind", ["S3", "U3"])
@pytest.mark.parametrize("dtype", ["i4", "i8"])
@pytest.mark.parametrize("offsets", [[0, 2, 1], [-1, 0, 1], [0, 2, 99], [0, 4, 4], [2**31 - 1, 2, 3]])
def test_texts_outside_the_bytes_or_the_item_do_not_fit(offsets: list[int], dtype: str, kind: str) -> None:
    text = np.frombuffer(b"abcdefgh", "u1")
    assert not core.write_texts(np.zeros(2, kind), text, np.array(offsets, dtype))


@pytest.mark.parametrize("kind", ["S3", "U3"])
@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_texts_are_written_to_a_field_of_records(dtype: str, kind: str) -> None:
    records = np.full(3, 7, np.dtype([("a", "i4"), ("s", kind), ("b", "i4")], align=True))
    records["s"] = "zzz"
    text = np.frombuffer(b"xabcde", "u1")
    assert core.write_texts(records["s"], text, np.array([1, 3, 3, 6], dtype))
    assert [str(np.str_(x, "ascii") if isinstance(x, bytes) else x) for x in records["s"]] == [
        "ab",
        "",
        "cde",
    ]
    assert records["a"].tolist() == records["b"].tolist() == [7] * 3


def decoded(data: bytes, width: int) -> str | None:
    out = np.full(1, "z" * width, f"U{width}")
    fits = core.write_texts(out, np.frombuffer(data, "u1"), np.array([0, len(data)]))
    return str(out[0]) if fits else None


@pytest.mark.parametrize("text", TEXTS)
def test_utf8_becomes_code_points(text: str) -> None:
    width = max(1, len(text))
    assert decoded(text.encode(), width) == text
    assert decoded(text.encode(), width + 2) == text
    assert decoded((text + "yz").encode(), width) is None or not text


def test_exactly_the_texts_that_python_decodes_are_valid() -> None:
    edges = [
        0x00,
        0x41,
        0x7F,
        0x80,
        0x8F,
        0x90,
        0x9F,
        0xA0,
        0xBF,
        0xC0,
        0xC1,
        0xC2,
        0xDF,
        0xE0,
        0xE1,
        0xEC,
        0xED,
        0xEE,
    ]
    edges += [0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 4, 5):
        for data in {bytes(row) for row in rng.choice(edges, (4000, size)).astype("u1")}:
            try:
                expected = data.decode()
            except UnicodeDecodeError:
                expected = None
            if expected is not None and expected.endswith("\0"):
                expected = None  # NumPy drops NULs at the end
            assert decoded(data, 5) == expected, data
