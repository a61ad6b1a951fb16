"""Choose faults at random: ``python -m tests.faults.choose --count 120 --seed 31 > chosen.json``.

A fault changes one line: an operator, a bound, a condition that is always false, a reference that is not
counted. Each package gets faults in proportion to its lines. faults.json holds the list, and after these
faults those that were chosen by hand from the guards of docs/hazards/ and docs/robustness.md.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_ARITHMETIC = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*")}
_BOOLEANS = {ast.And: ("and", "or"), ast.Or: ("or", "and")}

# In C, what a line holds and what replaces it.
_C_CHANGES = [
    (r"\bPy_X?INCREF\([^()]*\);", ";"),
    (r"\bPy_X?DECREF\([^()]*\);", ";"),
    (r"\bPy_CLEAR\([^()]*\);", ";"),
    (r"\bPy_NewRef\(([^()]*)\)", r"(\1)"),
    (r" == ", " != "),
    (r" != ", " == "),
    (r" <= ", " < "),
    (r" < ", " <= "),
    (r" >= ", " > "),
    (r" && ", " || "),
    (r" \|\| ", " && "),
    (r" \+ 1\b", ""),
    (r"\bif \((?=.*\) (?:\{|return|goto))", "if (0 && "),
]


@dataclass(frozen=True)
class Fault:
    """One line of a file, and the line that replaces it."""

    file: str
    line: int
    old: str
    new: str
    why: str = "random"


def python_faults(path: Path) -> Iterator[Fault]:
    """Yield the faults of one operator or condition that the file can get."""
    lines = path.read_text().splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        for start, end, old, new in _changes(node):
            if start[0] != end[0]:
                continue
            line = lines[start[0] - 1]
            # Offsets of nodes count bytes of UTF-8.
            left, between, right = (part.decode() for part in _cut(line.encode(), start[1], end[1]))
            changed = left + re.sub(rf"(?<![=<>]){re.escape(old)}(?![=<>])", new, between, count=1) + right
            if changed != line:
                yield Fault(str(path.relative_to(ROOT)), start[0], line, changed)


def _cut(line: bytes, start: int, end: int) -> tuple[bytes, bytes, bytes]:
    return line[:start], line[start:end], line[end:]


def _changes(node: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int], str, str]]:
    """Yield where the text of an operator or a condition lies, with the old and the new text."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            yield _end(left), _start(right), *_COMPARISONS[type(op)]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC and not _is_text(
            left, right
        ):
            yield _end(left), _start(right), *_ARITHMETIC[type(op)]
        case ast.BoolOp(op=op, values=[left, right, *_]):
            yield _end(left), _start(right), *_BOOLEANS[type(op)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _start(node), _start(operand), "not ", ""
        case ast.If(test=test, body=[ast.Raise() | ast.Return(), *_]):
            yield _start(test), _start(test), "", "False and "
        case ast.Constant(value=bool() as value):
            yield _start(node), _end(node), str(value), str(not value)
        case ast.Constant(value=int() as value):
            yield _start(node), _end(node), str(value), str(value + 1)


def _is_text(*operands: ast.expr) -> bool:
    return any(isinstance(one, ast.JoinedStr | ast.Constant) and not _is_number(one) for one in operands)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _start(node: ast.expr | ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def c_faults(path: Path) -> Iterator[Fault]:
    """Yield the faults of one operator, condition or reference that a C file can get."""
    in_comment = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        in_comment = (in_comment or "/*" in line) and "*/" not in line
        if in_comment or line.lstrip().startswith(("/*", "*", "//", "#")):
            continue
        for pattern, new in _C_CHANGES:
            changed = re.sub(pattern, new, line, count=1)
            if new == "if (0 && " and changed != line:
                changed = _closed(changed)
            if changed != line:
                yield Fault(str(path.relative_to(ROOT)), number, line, changed)


def _closed(line: str) -> str:
    """Put the condition after ``0 &&`` into parentheses of its own."""
    start = line.index("if (0 && ") + len("if (0 && ")
    depth = 1
    for position, character in enumerate(line[start:], start):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if not depth:
            return f"{line[:start]}({line[start:position]}){line[position:]}"
    return line


def choose(count: int, seed: int) -> list[Fault]:
    """Return faults of every package, in proportion to its lines."""
    generator = random.Random(seed)
    packages: dict[str, list[Path]] = {}
    for path in sorted(ROOT.glob("zerocopy/**/*")):
        if path.suffix in (".py", ".c", ".h") and "tests" not in path.parts:
            name = path.relative_to(ROOT / "zerocopy").parts[0]
            packages.setdefault(name if "." not in name else "", []).append(path)
    sizes = {name: sum(path.read_bytes().count(b"\n") for path in paths) for name, paths in packages.items()}
    chosen: list[Fault] = []
    for name, paths in packages.items():
        possible = [fault for path in paths for fault in _faults(path)]
        number = max(1, round(count * sizes[name] / sum(sizes.values())))
        by_line: dict[tuple[str, int], list[Fault]] = {}
        for fault in possible:
            by_line.setdefault((fault.file, fault.line), []).append(fault)
        lines = generator.sample(sorted(by_line), min(number, len(by_line)))
        chosen += [generator.choice(by_line[line]) for line in lines]
    return sorted(chosen, key=lambda fault: (fault.file, fault.line))


def _faults(path: Path) -> Iterator[Fault]:
    return python_faults(path) if path.suffix == ".py" else c_faults(path)


def main() -> None:
    """Print a list of faults as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.choose", description=__doc__)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, default=31)
    options = parser.parse_args()
    json.dump([asdict(fault) for fault in choose(options.count, options.seed)], sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
