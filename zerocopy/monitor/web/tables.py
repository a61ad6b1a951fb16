"""Tables of the page, as HTML in which every text is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bokeh.models import InlineStyleSheet
from bokeh.models.widgets import Div

from zerocopy.monitor.web.feed import Moment
from zerocopy.monitor.web.look import STYLE
from zerocopy.notebooks.html import escape


class Cell(NamedTuple):
    """A text and its style: "number", "code" or "bad"."""

    text: str
    look: str = ""


Row = Sequence[Cell | str]


class Table(NamedTuple):
    """The content of a table.

    Attributes
    ----------
    title : str
    heads : sequence of str
        Titles of the columns; those that begin with "#" are of numbers.
    rows : callable
        ``rows(moment)`` returns the rows. A row of one cell is a note on the row above it.
    absent : str
        Text instead of the table if there are no rows; "" shows nothing, not even the title.
    """

    title: str
    heads: Sequence[str]
    rows: Callable[[Moment], Sequence[Row]]
    absent: str = "none"


class TableView:
    """A table in one open page.

    The text is replaced as a whole: Bokeh's DataTable kept its first figures for three seconds, although its
    source had changed (Bokeh 3.9).
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.model = Div(
            stylesheets=[InlineStyleSheet(css=STYLE)],
            sizing_mode="stretch_width",
            min_width=280,
            disable_math=True,  # file names may contain TeX, for which Bokeh would load MathJax
        )

    def update(self, moments: Sequence[Moment], keep: int) -> None:
        """Show the newest moment."""
        if moments:
            self.model.text = self.html(moments[-1])
            self.model.visible = bool(self.model.text)

    def set_theme(self, theme: str) -> None:
        """Do nothing: the style sheet follows the browser."""

    def html(self, moment: Moment) -> str:
        """Return the table as HTML."""
        title = f"<h2>{escape(self._table.title)}</h2>" if self._table.title else ""
        rows = self._table.rows(moment)
        if not rows:
            return f"{title}<p>{escape(self._table.absent)}</p>" if self._table.absent else ""
        heads = [
            (head.removeprefix("#"), "number" if head.startswith("#") else "") for head in self._table.heads
        ]
        head = "".join(f'<th class="{look}" scope="col">{escape(text)}</th>' for text, look in heads)
        body = "".join(_row(row, heads) for row in rows)
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Text(NamedTuple):
    """Paragraphs: ``lines(moment)`` returns them."""

    title: str
    lines: Callable[[Moment], Sequence[str]]


class TextView(TableView):
    """Paragraphs in one open page; hidden, with the title, if there are none."""

    def __init__(self, text: Text) -> None:
        super().__init__(Table(text.title, (), lambda moment: ()))
        self._text = text

    def html(self, moment: Moment) -> str:
        """Return the paragraphs as HTML."""
        lines = self._text.lines(moment)
        title = f"<h2>{escape(self._text.title)}</h2>" if self._text.title and lines else ""
        return title + "".join(f"<p>{escape(line)}</p>" for line in lines)


def _row(row: Row, heads: Sequence[tuple[str, str]]) -> str:
    cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
    if len(cells) == 1 and len(heads) > 1:
        return f'<tr class="note"><td colspan="{len(heads)}">{_inner(cells[0])}</td></tr>'
    texts: list[Any] = [
        f'<td class="{look}" data-title="{escape(title)}">{_inner(cell)}</td>'
        for cell, (title, look) in zip(cells, heads, strict=True)
    ]
    return f"<tr>{''.join(texts)}</tr>"


def _inner(cell: Cell) -> str:
    text = escape(cell.text)
    if not text:
        return ""
    if cell.look == "code":
        return f"<code>{text}</code>"
    return f'<span class="{cell.look}">{text}</span>' if cell.look else text
