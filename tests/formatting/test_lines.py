"""Lines of fixed width: grids that fit, and texts that wrap below their label."""

from __future__ import annotations

import pytest

from zerocopy.formatting.lines import Line, grid, labelled, paragraph, shorten, width_of


def text_of(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines]


@pytest.mark.parametrize(("text", "width"), [("", 0), ("ab", 2), ("日本", 4), ("e\u0301", 1)])
def test_width_of_wide_characters_and_accents(text: str, width: int) -> None:
    assert width_of(text) == width


def test_a_long_text_is_cut_with_an_ellipsis() -> None:
    assert shorten("abcdef", 6, "...") == "abcdef"
    assert shorten("abcdefg", 6, "...") == "abc..."
    assert shorten("日本語日本語", 7, "…") == "日本語…"


def test_texts_wrap_below_their_label() -> None:
    rows: list[tuple[str, str, list[Line]]] = [
        ("[1]", "bold", [[("one two three", "")], [("fix: ", "dim"), ("four five", "")]]),
        ("[12]", "bold", [[("six", "")]]),
    ]
    lines = labelled(rows, 15)
    assert text_of(lines) == [" [1]  one two", "      three", "      fix: four", "      five", " [12] six"]
    assert lines[0][1] == ("[1]", "bold")
    assert lines[2][-2] == ("four", "")


def test_a_long_label_wraps_too() -> None:
    assert text_of(labelled([("a label", "", [[("text", "")]])], 18)) == [" a      text", " label"]


def test_paragraphs_wrap_at_blanks_alone() -> None:
    assert text_of(paragraph("zero-copy zero-copy", "", 12)) == ["zero-copy", "zero-copy"]


@pytest.mark.parametrize("width", [10, 14, 18, 40])
def test_a_grid_is_split_to_fit(width: int) -> None:
    titles = ["aa", "bb", "cc"]
    rows: dict[str, list[Line]] = {"one": [[("one", "bold")]], "日本": [[("日本", "")], [("2", "dim")]]}
    cells: dict[tuple[str, str], list[Line]] = {
        (row, title): [[("=", "")]] for row in rows for title in titles
    }
    lines = text_of(grid([("to", "")], rows, titles, cells, width, rule="-"))
    assert max(map(width_of, lines)) <= width
    assert [title for title in titles if any(title in line for line in lines)] == titles
    assert lines.count("2") == lines.count("") == {10: 3, 14: 2, 18: 1, 40: 1}[width]
