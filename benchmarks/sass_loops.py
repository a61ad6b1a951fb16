"""Innermost loops of a kernel's machine code (SASS), as nvdisasm prints it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LABEL = re.compile(r"\s*(\.L_\w+):")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\w*(?:\.\w+)*)(.*?);")
_BRANCH = re.compile(r"`\((\.L_\w+)\)")
_MEMORY = ("LD", "LDG", "LDS", "ST", "STG", "STS")


@dataclass(frozen=True)
class Loop:
    """An innermost loop.

    Attributes
    ----------
    instructions : int
        All of its instructions, whether or not a branch passes some of them over.
    memory : tuple of str
        Its accesses to global (LDG, STG) and shared memory (LDS, STS), in order, with their sizes: a word
        of 4 bytes without a suffix, ``.64`` for 8 bytes, ``.U8`` and ``.U16`` for 1 and 2.
    """

    instructions: int
    memory: tuple[str, ...]


def innermost_loops(sass: str) -> Iterator[Loop]:
    """Yield the innermost loops of a kernel, in the order of their addresses.

    Examples
    --------
    >>> sass = '''
    ... .L_x_1:
    ...  /*0010*/ LDS R2, [R3] ;
    ...  /*0020*/ STG.E.64 desc[UR4][R4.64], R2 ;
    ...  /*0030*/ @!P0 BRA `(.L_x_1) ;
    ...  /*0040*/ EXIT ;
    ... '''
    >>> list(innermost_loops(sass))
    [Loop(instructions=3, memory=('LDS', 'STG.64'))]
    """
    names: list[str] = []
    labels: dict[str, int] = {}
    ranges: list[tuple[int, int]] = []
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(names)
        elif instruction := _INSTRUCTION.match(line):
            target = _BRANCH.search(instruction[2])
            # A branch to itself fills the space after the kernel.
            if instruction[1] == "BRA" and target and labels.get(target[1], len(names)) < len(names):
                ranges.append((labels[target[1]], len(names)))
            names.append(instruction[1])
    for start, stop in ranges:
        if not any((a, b) != (start, stop) and start <= a and b <= stop for a, b in ranges):
            body = names[start : stop + 1]
            memory = (name.replace(".E", "") for name in body if name.split(".")[0] in _MEMORY)
            yield Loop(len(body), tuple(memory))
