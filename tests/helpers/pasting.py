"""Run the calls of an error as a user who pastes them does."""

from __future__ import annotations

import ast
from typing import Any


def pasted(code: str, names: dict[str, Any]) -> Any:
    """Run statements, such as imports, and return the value of the expression that follows them."""
    *first, last = ast.parse(code).body
    assert isinstance(last, ast.Expr), code
    exec(compile(ast.Module(first, []), "fix", "exec"), names)
    return eval(compile(ast.Expression(last.value), "fix", "eval"), names)
