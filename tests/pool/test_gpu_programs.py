"""The programs of tests/gpu/test_pool*.py use names that exist: most machines cannot run them."""

from __future__ import annotations

import ast
import builtins
import importlib
import textwrap
from pathlib import Path

import pytest
from helpers import gpu_pool_programs
from helpers.paths import ROOT

FILES = sorted((ROOT / "tests" / "gpu").glob("*.py"))
POOL_FILES = [file for file in FILES if file.name.startswith(("test_pool", "test_gpu_pool"))]


def programs(file: Path) -> list[ast.Module]:
    """Return the programs of a file; a part of one that cannot be parsed alone is left out."""
    parsed = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            try:
                parsed.append(ast.parse(textwrap.dedent(node.value)))
            except SyntaxError:
                continue
    return parsed


def names(tree: ast.AST) -> set[str]:
    """Return every name that a tree defines or receives: variables, functions, arguments, imports."""
    defined = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)):
            defined.add(node.name or "")
        elif isinstance(node, (ast.arg, ast.keyword)):
            defined.add(node.arg or "")
        elif isinstance(node, ast.alias):
            defined.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
    return defined


def loaded(tree: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


@pytest.mark.parametrize("file", POOL_FILES, ids=lambda file: file.name)
def test_programs_use_existing_names(file: Path) -> None:
    trees = programs(file)
    assert trees
    # A program can be joined from parts, and keywords of run() become its variables.
    known = names(ast.parse(file.read_text(encoding="utf-8"))).union(*map(names, trees))
    known |= set(vars(gpu_pool_programs)) | set(dir(builtins))
    assert set().union(*map(loaded, trees)) <= known


@pytest.mark.parametrize("file", POOL_FILES, ids=lambda file: file.name)
def test_programs_use_existing_attributes_of_sides(file: Path) -> None:
    attributes = {
        node.attr
        for tree in programs(file)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (
            (isinstance(node.value, ast.Name) and node.value.id == "each")  # the name of a `Side`
            or (isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "side")
        )
    }
    assert attributes
    assert attributes <= {*dir(gpu_pool_programs.Side), "module"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_gpu_tests_import_existing_names(file: Path) -> None:
    for tree in (ast.parse(file.read_text(encoding="utf-8")), *programs(file)):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zerocopy"):
                module = importlib.import_module(node.module or "")
                for alias in node.names:
                    if not hasattr(module, alias.name):
                        importlib.import_module(f"{node.module}.{alias.name}")
