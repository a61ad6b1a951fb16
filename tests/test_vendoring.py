"""A copy of the package under another name, made by the command of docs/in-your-library.md."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.paths import ROOT
from helpers.source_files import PACKAGE

from zerocopy import _native

PAGE = (ROOT / "docs" / "in-your-library.md").read_text(encoding="utf-8")
COMMAND = re.search(r"```bash\n(grep -rl.*?)```", PAGE, re.DOTALL)[1]

#: `zerocopy` itself cannot be imported.
START = """
import sys
sys.modules["zerocopy"] = None
import numpy as np
import mylib._vendor.zerocopy as zc
"""
CONVERSIONS = """
import pandas as pd, polars as pl, pyarrow as pa, torch
x = np.arange(4.0)
for _ in range(2):  # a plan, and a route
    t = zc.convert(x, "torch", copy=False)
    assert zc.shares_memory(x, t) and zc.view(t).shape == (4,)
    assert zc.convert(x[::-1], torch).tolist() == [3.0, 2.0, 1.0, 0.0]
    assert zc.convert({"a": [t, t]}, "numpy")["a"][0].tolist() == x.tolist()
    frame = zc.convert(pd.DataFrame({"a": [1, 2], "b": ["u", None]}), "polars")
    assert frame.rows() == [(1, "u"), (2, None)]
    assert zc.convert(frame, "pyarrow").schema.names == ["a", "b"]
    assert zc.convert(frame.select("a"), "torch", layout="matrix").shape == (2, 1)
    assert zc.convert(frame, "numpy", nulls="mask", encode=True)["b"].mask.tolist() == [False, True]
plan = zc.explain(x[::-1], "torch")
assert plan.copied_bytes == 32 and "negative strides" in str(plan)
try:
    zc.convert(pa.array([1, None]), "torch")
except zc.LossyConversionError as error:
    assert error.code == "nulls" and type(error).__module__ == "mylib._vendor.zerocopy.errors", error
    assert error.__traceback__.tb_next is None  # it ends at the caller's line
assert zc.converter(pa.schema({"a": pa.int64()}), "torch")({"a": [1]})["a"].tolist() == [1]
assert zc.accepts("torch")(torch.relu)(np.array([-1.0, 1.0])).tolist() == [0.0, 1.0]
assert [*zc.loader({"a": np.arange(3)}, "numpy", batch_size=3)][0]["a"].tolist() == [0, 1, 2]
assert zc.kind(zc.view(x)) == ("zerocopy", "array") and zc.is_table(frame)
if sys.platform == "linux":
    with zc.share(x) as shared:
        assert zc.kind(shared) == ("zerocopy", "array")
        assert zc.convert(shared, "torch").tolist() == x.tolist()
assert zc.frameworks()["numpy"].installed
assert [name for name in sys.modules if name.partition(".")[0] == "zerocopy"] == ["zerocopy"]

import mylib._vendor.zerocopy.stable.v1 as stable
assert stable.convert is zc.convert and stable.errors is zc.errors

from mylib._vendor.zerocopy import _native, registry
assert registry.ENTRY_POINTS == "mylib._vendor.zerocopy.frameworks"
print(_native.core)
"""


@pytest.fixture(scope="module")
def vendored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library mylib, which has the copy."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the command is for GNU sed")
    folder = tmp_path_factory.mktemp("vendored")
    copy = folder / "mylib" / "_vendor" / "zerocopy"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.h"))
    subprocess.run(["bash", "-ec", COMMAND], cwd=folder, check=True)
    return folder


def run(folder: Path, code: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", START + code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_a_vendored_copy_converts(vendored: Path) -> None:
    for module in ("pandas", "polars", "pyarrow", "torch"):
        pytest.importorskip(module)
    core = run(vendored, CONVERSIONS)
    assert "mylib._vendor.zerocopy._native._core" in core or _native.core is None


def test_each_module_of_a_vendored_copy_is_rewritten(vendored: Path) -> None:
    pattern = re.compile(r"^\s*(from|import) zerocopy\b(?!')", re.MULTILINE)
    left = [
        str(path)
        for path in vendored.rglob("*.py*")
        if path.suffix in (".py", ".pyi") and pattern.search(path.read_text("utf-8"))
    ]
    assert not left
