"""How each outcome looks: the sign, colour and word of a cell, and its meaning in the legend."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from zerocopy.cli.matrix.cell import Cell
from zerocopy.cli.terminal import Signs


@dataclass(frozen=True, slots=True)
class CellStyle:
    """The style of one outcome; `sign` is a field of `Signs`, or a letter. Rich defines the colours."""

    sign: str
    colour: str
    word: str
    meaning: str


#: By outcome, in the order of the legend and of the last line.
STYLES = {
    "zero-copy": CellStyle("zero_copy", "green", "zero-copy", "the result is in the source's memory"),
    "empty": CellStyle("empty", "dim", "empty", "a zero-size array: nothing to share or copy"),
    "copy": CellStyle("copy", "yellow", "copy", "the result has its own memory"),
    "encoded": CellStyle("e", "green", "encoded", 'refused by default; encode="bytes" returns numbers'),
    "masked": CellStyle("m", "green", "masked", 'refused by default; nulls="mask" returns a mask as well'),
    "refused": CellStyle("refused", "cyan", "refused", "an error with the reason and the fix"),
    "no source": CellStyle("no_source", "dim", "no source", "the source's framework cannot hold the data"),
    "broken": CellStyle("broken", "bold white on red", "BROKEN", "a promise does not hold"),
}


def choose_sign(outcome: str, signs: Signs) -> str:
    """Return the sign of an outcome in the terminal's symbols."""
    sign = STYLES[outcome].sign
    return getattr(signs, sign, sign)


def format_outcome(outcome: str, signs: Signs) -> Text:
    """Return an outcome's sign and word, in its colour."""
    style = STYLES[outcome]
    return Text(f"{choose_sign(outcome, signs)} {style.word}", style.colour)


def format_mark(cell: Cell, options: dict[str, object], signs: Signs) -> Text:
    """Return a cell's sign alone, after a letter for each option that the conversion needs."""
    if not options:
        return Text(choose_sign(cell.outcome, signs), STYLES[cell.outcome].colour)
    shared = "zero-copy" if cell.zero_copy else "copy"
    letters = [
        STYLES[name].sign
        for name, option in (("encoded", "encode"), ("masked", "nulls"))
        if option in options
    ]
    return Text("".join(letters) + choose_sign(shared, signs), STYLES[shared].colour)
