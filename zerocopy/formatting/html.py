"""HTML tables: text is escaped, and colours are the page's own, which keep each theme's contrast."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from zerocopy.formatting import printable

_TABLE = "border-collapse:collapse;margin:0.5em 0;min-width:min(100%,36em)"
_CAPTION = (
    "caption-side:top;text-align:left;font-weight:bold;color:inherit;padding:2px 8px;white-space:pre-wrap"
)
_CELL = "text-align:left;vertical-align:top;padding:2px 8px;white-space:pre-wrap"
_HEAD = _CELL + ";border-bottom:1px solid currentColor"


def escape(text: str) -> str:
    """Return HTML that shows text; unprintable characters, except line feeds, are escaped as in Python.

    Examples
    --------
    >>> escape("<b>\\x1b")
    '&lt;b&gt;\\\\x1b'
    """
    return html.escape(printable(text, "\n"))


def table(caption: str, rows: Iterable[Sequence[str]], titles: Sequence[str] = ()) -> str:
    """Return a table; the first text of each row is its header.

    Examples
    --------
    >>> table("1 < 2", [("a", "b")]).count("&lt;")
    1
    """
    head = "".join(f'<th scope="col" style="{_HEAD}">{escape(title)}</th>' for title in titles)
    parts = [f'<table style="{_TABLE}"><caption style="{_CAPTION}">{escape(caption)}</caption>']
    if titles:
        parts.append(f"<thead><tr>{head}</tr></thead>")
    parts.append("<tbody>")
    for first, *others in rows:
        cells = "".join(f'<td style="{_CELL}">{escape(text)}</td>' for text in others)
        parts.append(f'<tr><th scope="row" style="{_CELL}">{escape(first)}</th>{cells}</tr>')
    return "".join([*parts, "</tbody></table>"])
