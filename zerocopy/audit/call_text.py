"""The text of a call, and of the expression that it converts, from the source line of a frame."""

from __future__ import annotations

import ast
import linecache
from itertools import islice
from types import FrameType
from typing import Any

from zerocopy.audit.hook import CopyCall

#: Longer expressions are written as ``x``.
_LONGEST = 60
_MISSING: Any = object()


def texts(frame: FrameType, call: CopyCall, source: Any) -> tuple[str, str]:
    """Return the call, and the expression of its argument; with ``x`` if the source text is unknown.

    Examples
    --------
    For the line ``t = torch.tensor(rows[0])``: ``("torch.tensor(rows[0])", "rows[0]")``.
    """
    code = _code(frame)
    try:
        node = ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError):  # no source text, or the file has changed since it was imported
        return _default(call), "x"
    argument = _argument(node, call, frame, source)
    if argument is None:
        return _default(call), "x"
    text = _text(argument, code)
    return (_text(node, code), text) if len(text) <= _LONGEST else (_default(call), "x")


def _text(node: ast.expr, code: str) -> str:
    text = ast.get_source_segment(code, node)
    return ast.unparse(node) if text is None or "\n" in text else text


def _default(call: CopyCall) -> str:
    name = call.label.rpartition(".")[2]
    if call.form == "method":
        return f"x.{name}()"
    return f"x.{name}" if call.form == "property" else f"{call.label}(x)"


def _code(frame: FrameType) -> str:
    """Return the text of the expression that a frame runs, in parentheses; empty if it is unknown."""
    position = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    if position is None or None in position:
        return ""
    first, last, start, end = position
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    if first is None or last is None or last > len(lines):
        return ""
    encoded = [line.encode() for line in lines[first - 1 : last]]
    encoded[-1] = encoded[-1][:end]
    encoded[0] = encoded[0][start:]
    return f"({b''.join(encoded).decode(errors='replace')})"


def _argument(node: ast.expr, call: CopyCall, frame: FrameType, source: Any) -> ast.expr | None:
    """Return the expression of the converted argument, or None if the line calls another function."""
    argument: ast.expr | None = None
    if call.form == "property":
        if isinstance(node, ast.Attribute) and node.attr == call.attribute:
            argument = node.value
    elif isinstance(node, ast.Call):
        if call.form == "method":
            name = call.label.rpartition(".")[2]
            if isinstance(node.func, ast.Attribute) and node.func.attr == name:
                argument = node.func.value
        elif _calls(node.func, call, frame):
            argument = _passed(node, call, source)
    if isinstance(argument, ast.Name) and _value(argument, frame) is not source:
        return None
    return argument


def _passed(node: ast.Call, call: CopyCall, source: Any) -> ast.expr | None:
    for keyword in node.keywords:
        if keyword.arg == call.keyword:
            return keyword.value
    position = call.position - (call.form == "constructor")
    if any(isinstance(each, ast.Starred) for each in node.args[: position + 1]):
        return None
    if len(node.args) > position:
        return node.args[position]
    return node.args[0] if len(node.args) == 1 and not node.keywords else None


def _calls(function: ast.expr, call: CopyCall, frame: FrameType) -> bool:
    """Whether an expression such as ``torch.tensor`` is the wrapped function or class."""
    value = _value(function, frame)
    target = call.owner if call.form == "constructor" else vars(call.owner).get(call.attribute)
    return value is target and target is not None


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Return the value of a name, or of a name with attributes of modules; runs no code of the program."""
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals):
            if node.id in names:
                return names[node.id]
    elif isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        if isinstance(owner, type(ast)):
            return vars(owner).get(node.attr, _MISSING)
    return _MISSING
