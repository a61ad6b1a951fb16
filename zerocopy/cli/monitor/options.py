"""The options of ``zerocopy monitor``, and which of them contradict each other."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command."""

    every: float = 1.0
    count: int | None = None
    pid: int | None = None
    directory: str | None = None
    order: str = "bytes"
    once: bool = False
    as_json: bool = False
    csv_path: str | None = None
    append: bool = False
    fields: str | None = None
    list_fields: bool = False
    prometheus: str | None = None
    serve: int | None = None
    address: str = "127.0.0.1"
    keep: bool | None = None
    holders: bool = False
    program: tuple[str, ...] = ()

    def problem(self) -> str:
        """Return the reason why the options contradict each other; "" if they do not."""
        single = [
            name
            for name, given in (
                ("--once", self.once),
                ("--holders", self.holders),
                ("--list-fields", self.list_fields),
                ("--prometheus without a file", self.prometheus == "-"),
            )
            if given
        ]
        outputs = [
            name
            for name, given in (
                ("--csv", self.csv_path),
                ("--serve", self.serve is not None),
                ("--prometheus FILE", self.prometheus not in (None, "-")),
                ("a program", self.program),
            )
            if given
        ]
        if single and len(single + outputs) > 1:
            return f"{single[0]} prints once and ends; it cannot be combined with {(single[1:] + outputs)[0]}"
        if math.isnan(self.every):  # click accepts it in every range
            return "--every is not a number"
        if self.as_json and not (self.once or self.holders):
            return "--json needs --once or --holders"
        if (self.append or self.fields is not None) and self.csv_path is None:
            return "--append and --fields need --csv FILE"
        if self.program and self.csv_path == "-":
            return "the rows of --csv - would mix with the output of the program: pass a file"
        if self.program and self.pid is not None:
            return "--pid cannot be combined with a program: the program and its descendants are shown"
        if self.address != "127.0.0.1" and self.serve is None:
            return "--address needs --serve"
        if self.keep is not None and not (self.program and self.serve is not None):
            return "--keep and --no-keep need --serve and a program"
        return ""
