"""Install hints name packages that PyPI has, which zerocopy itself is not before its release."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

import zerocopy as zc
from zerocopy.errors import FrameworkNotInstalledError
from zerocopy.integrations import ENGINES, install_line
from zerocopy.monitor.observer import require

ROOT = Path(__file__).parents[1]
_PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_DISTRIBUTIONS = {
    re.split(r"[><=!;@ ]", requirement)[0]
    for requirements in _PYPROJECT["optional-dependencies"].values()
    for requirement in requirements
}


def test_no_hint_installs_an_extra_of_zerocopy() -> None:
    name = _PYPROJECT["name"]
    files = sorted((ROOT / "zerocopy").rglob("*.py"))
    hints = [
        str(path)
        for path in files
        if f"install '{name}" in path.read_text() or f"{name}[" in path.read_text()
    ]
    assert not hints
    assert len(files) > 300


@pytest.mark.parametrize("engine", [engine for engine, *_ in ENGINES])
def test_the_hint_of_an_engine_is_a_requirement_of_an_extra(engine: str) -> None:
    requirement = install_line(engine).removeprefix("pip install ").strip("'")
    assert requirement.partition(">=")[0] in _DISTRIBUTIONS


@pytest.mark.parametrize(
    "module", ["psutil", "prometheus_client", "prometheus_client.core", "bokeh.server.server"]
)
def test_the_hint_of_the_monitor_is_a_requirement_of_its_extra(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for absent in (module.partition(".")[0], module):  # another test can have imported it
        monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(FrameworkNotInstalledError) as caught:
        require(module, "a test")
    assert caught.value.remedy.removeprefix("pip install ") in _DISTRIBUTIONS


@pytest.mark.parametrize("dtype", ["Int64", "boolean"])
def test_nullable_columns_of_pandas_need_pyarrow(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": pd.Series([1, None], dtype=dtype), "y": [1.0, 2.0]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # pandas imports it to export the nulls
    with pytest.raises(FrameworkNotInstalledError) as caught:
        zc.convert(frame["x"], "numpy", nulls=0)
    assert caught.value.remedy == "pip install pyarrow"
    assert zc.convert(frame, "numpy", columns=["y"])["y"].tolist() == [1, 2]
