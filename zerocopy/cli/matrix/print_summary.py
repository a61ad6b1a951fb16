"""Print the summary of a matrix: one screen at 80 columns."""

from __future__ import annotations

from rich.text import Text

import zerocopy
from zerocopy.cli.matrix.cell_style import STYLES, choose_sign
from zerocopy.cli.matrix.footnotes import format_reason, print_rows
from zerocopy.cli.matrix.print_grid import print_grid
from zerocopy.cli.matrix.summary import Square, Summary
from zerocopy.cli.terminal import Output
from zerocopy.formatting.printable import printable

_HINT = "--full prints the times, all reasons, the warnings and the types of columns."


def print_summary(summary: Summary, out: Output, hint: str = _HINT) -> None:
    """Print the verdict, the grid, the most frequent reasons, `hint`, and the verdict again."""
    print_verdict(summary, out)
    caption = Text(printable(summary.caption)).append(f"  (zerocopy {zerocopy.__version__})", "dim")
    out.show("", caption)
    if summary.squares:
        heads = {name: Text(printable(name), "bold") for name in summary.sources}
        texts = {pair: _format_square(square, out) for pair, square in summary.squares.items()}
        if not _print_narrow_grid(heads, summary.targets, texts, out):
            print_grid(heads, summary.targets, texts, Text(out.signs.corner, "dim"), 0, out)
        out.show(_legend(summary, out))
    if summary.reasons:
        more = f" ({summary.more_reasons} more)" if summary.more_reasons else ""
        out.show("", Text.assemble(("Most frequent reasons", "bold"), (more, "dim")))
        rows = [
            (Text(f"[{note.number}]", "bold"), format_reason(note.why, note.remedy))
            for note in summary.reasons
        ]
        print_rows(rows, out)
    remarks = [*summary.remarks, *([hint] if hint else [])]
    out.show("", *(Text(printable(remark), "dim") for remark in remarks))
    print_verdict(summary, out, details=False)


def print_verdict(summary: Summary, out: Output, *, details: bool = True) -> None:
    """Print whether every promise held, and how often each outcome occurred."""
    sign = out.signs.broken if summary.is_broken else out.signs.yes
    colour = "bold red" if summary.is_broken else "bold green"
    text, _, counts = summary.verdict.partition(": ")
    out.show(Text.assemble((f"{sign} {text}", colour), f": {counts}" if details else "."))


def _print_narrow_grid(
    heads: dict[str, Text], targets: list[str], texts: dict[tuple[str, str], Text], out: Output
) -> bool:
    """Print a grid with one blank between columns; return False, and print nothing, if it is too wide."""
    first = max(len(out.signs.corner), *(head.cell_len for head in heads.values())) + 1
    names = {target: printable(target) for target in targets}
    widths = {
        target: max(len(name), *(texts[source, target].cell_len for source in heads)) + 1
        for target, name in names.items()
    }
    if first + sum(widths.values()) - 1 > out.width:
        return False
    title = Text(out.signs.corner.ljust(first), "dim")
    for target, name in names.items():
        title.append(name.ljust(widths[target]), "bold")
    lines = [Text(""), title]
    for source, head in heads.items():
        line = head.copy()
        line.pad_right(first - head.cell_len)
        for target, width in widths.items():
            text = texts[source, target].copy()
            text.pad_right(width - text.cell_len)
            line.append_text(text)
        lines.append(line)
    out.show(*lines)
    return True


def _format_square(square: Square, out: Output) -> Text:
    text = square.text or choose_sign(square.outcome, out.signs)
    numbers = ",".join(map(str, square.numbers))
    return Text.assemble((text, STYLES[square.outcome].colour), f" {numbers}" if numbers else "")


def _legend(summary: Summary, out: Output) -> Text:
    """Return the meaning of the signs, in one line."""
    if any(square.text for square in summary.squares.values()):
        return Text(" numbers after a count: reasons", "dim")
    outcomes = {square.outcome for square in summary.squares.values()}
    signs = [
        f"{choose_sign(outcome, out.signs)} {style.word}"
        for outcome, style in STYLES.items()
        if outcome in outcomes
    ]
    return Text(" " + "   ".join([*signs, "1, 2, ... reasons"]), "dim")
