"""Standard output: colours and symbols in a terminal, plain ASCII in a pipe or file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from zerocopy.formatting import printable
from zerocopy.formatting.lines import Line

PLAIN_WIDTH = 80

# SIMPLE_HEAD with a hyphen for its line.
_PLAIN_BOX = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


@dataclass(frozen=True, slots=True)
class Signs:
    """The symbols and the box to draw with. Symbols differ in shape too, for readers without colours."""

    broken: str
    yes: str
    no: str
    ellipsis: str
    rule: str
    box: Box


_UNICODE = Signs("✗", "✓", "–", "…", "─", SIMPLE_HEAD)
_ASCII = Signs("!", "+", "-", "...", "-", _PLAIN_BOX)


class Printable:
    """A part of the output; unprintable characters of the names in it are escaped."""

    def __init__(self, part: RenderableType) -> None:
        self._part = part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self._part, options):
            yield Segment(text if control else printable(text, "\n"), style, control)


class Output:
    """Standard output: a terminal, or a pipe or file, which gets 80 columns of text."""

    def __init__(self, file: IO[str] | None = None) -> None:
        # Names may contain characters that the terminal cannot encode.
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if file is None and reconfigure is not None:
            reconfigure(errors="backslashreplace")
        console = Console(highlight=False, file=file, force_jupyter=False)
        self.plain: bool = file is not None or not console.is_terminal
        if self.plain:
            # Rich would use the width of standard error, so that the text depended on the window.
            columns = os.environ.get("COLUMNS", "")
            console.width = int(columns) if columns.isdecimal() and int(columns) else PLAIN_WIDTH
        self.console: Console = console
        self.width: int = console.width
        self.unicode: bool = not self.plain and console.encoding.lower().startswith("utf")
        self.signs: Signs = _UNICODE if self.unicode else _ASCII

    def show(self, *parts: RenderableType) -> None:
        """Print some parts, one below the other."""
        parts = tuple(map(Printable, parts))
        if not self.plain:
            self.console.print(*parts, sep="\n")
            return
        with self.console.capture() as capture:
            self.console.print(*parts, sep="\n")
        # Tables pad their lines to the full width.
        lines = [line.rstrip() for line in capture.get().split("\n")]
        self.console.file.write("\n".join(lines))

    def show_lines(self, lines: Iterable[Line]) -> None:
        """Print lines that fit the width."""
        self.show(*(Text.assemble(*line, no_wrap=True, overflow="ignore") for line in lines))


def quiet_imports() -> None:
    """Hide TensorFlow's messages at import, unless the user has set these variables.

    TensorFlow logs about oneDNN before it reads the log level, so the second variable disables
    oneDNN. It selects kernels, and conversions run none.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document."""
    print(json.dumps(document, indent=2, allow_nan=False))
