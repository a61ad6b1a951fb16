"""The command line: options, errors, files."""

import os
import subprocess
import sys
import textwrap

import pytest
from helpers.paths import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

import click
from helpers.benchmark_suites import run, section, suite, task, timed

from benchmarks import cli
from benchmarks.results import read
from benchmarks.suite import Section, Task


def test_all_suites_run_and_are_written(tiny, tmp_path):
    result = run("--json", tmp_path / "new.json")
    assert result.exit_code == 0, result.output
    written = read(tmp_path / "new.json")
    assert {key: [case.name for case in cases] for key, cases in written.cases.items()} == {
        "tiny/pairs": ["a", "b"],
        "tiny/sizes": ["c"],
    }
    assert written.complete
    assert [(goal.case, goal.section) for goal in written.goals] == [("a", "tiny/pairs"), ("b", "tiny/pairs")]
    assert written.facts["settings"]["quick"] is False
    assert {"machine", "versions", "started", "finished", "asked"} <= written.facts.keys()
    assert "0.50x -100 ns" in result.output


def test_section_or_suite_can_be_selected(tiny, tmp_path):
    run("tiny/sizes", "--json", tmp_path / "one.json")
    assert list(read(tmp_path / "one.json").cases) == ["tiny/sizes"]
    run("--suite", "tiny", "--json", tmp_path / "all.json")
    assert list(read(tmp_path / "all.json").cases) == ["tiny/pairs", "tiny/sizes"]


def test_file_name_in_folder_is_generated(tiny, tmp_path):
    run("--json", tmp_path)
    run("--json", f"{tmp_path}/new/")
    (name,) = [path.name for path in tmp_path.glob("*.json")]
    assert name.startswith("tiny-")
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]


def test_list_shows_suites_and_sections(tiny):
    output = run("--list").output
    assert "tiny/pairs: about pairs" in output
    assert "tiny/sizes: about sizes" in output


def test_options_reach_tasks(registered):
    seen = []

    def tasks(settings):
        seen.append(settings)
        return [task("a")]

    registered(suite(Section("pairs", "", tasks)))
    run("--quick", "--frameworks", "torch, numpy", "--sizes", "4,4KiB,1MiB,2g")
    (settings,) = seen
    assert settings.quick
    assert settings.frameworks == ("torch", "numpy")
    assert settings.sizes == (4, 4096, 2**20, 2**31)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tinny"], "unknown suite 'tinny'. did you mean 'tiny'? Known: tiny"),
        (["--suite", "nonsense"], "unknown suite 'nonsense'. Known: tiny"),
        (["tiny/pair"], "unknown section of tiny 'pair'. did you mean 'pairs'? Known: pairs, sizes"),
        (["--frameworks", "numppy"], "unknown framework 'numppy'. did you mean 'numpy'? Known: numpy, torch"),
        (["--sizes", "many"], "'many' is not a size"),
        (["--sizes", "4,0"], "'0' is not a size"),
        (["--sizes", ""], "'' is not a size"),
        (["--sizes", "-4"], "'-4' is not a size"),
        (["--threshold", "0.5"], "x>=1"),
        (["--compare", "no-such-file.json"], "does not exist"),
    ],
)
def test_invalid_option_is_reported_with_known_values(tiny, arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_unwritable_file_is_reported_before_measuring(registered, tmp_path):
    ran = []
    registered(suite(section("pairs", Task("a", lambda: ran.append(1) or [timed("a")]))))
    (tmp_path / "file").write_text("")
    result = run("--json", tmp_path / "file" / "new.json")
    assert result.exit_code == 1
    assert "cannot write" in result.output
    assert not ran


def test_missing_matplotlib_is_reported_before_measuring(registered, tmp_path, monkeypatch):
    ran = []
    registered(suite(section("pairs", Task("a", lambda: ran.append(1) or [timed("a")]))))
    from benchmarks import plots

    monkeypatch.setattr(plots.importlib.util, "find_spec", lambda name: None)
    result = run("--plot", tmp_path / "out")
    assert result.exit_code == 1
    assert "pip install matplotlib" in result.output
    assert not ran
    assert not (tmp_path / "out").exists()


def test_missing_dependencies_are_reported_with_install_command():
    hidden = textwrap.dedent("""
        import importlib.util, runpy
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *a: None if name in ("rich", "psutil") else find(name, *a)
        runpy.run_module("benchmarks", run_name="__main__")
    """)
    completed = subprocess.run(
        [sys.executable, "-c", hidden], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 1
    assert completed.stderr.startswith("python -m benchmarks needs psutil, rich: pip install psutil rich")
    assert "Traceback" not in completed.stderr


def test_invalid_pool_variable_is_reported_in_one_line():
    for text, message in (("nonsense", "no such kind of pool"), ("auto,limit=many", "limit='many'")):
        completed = subprocess.run(
            [sys.executable, "-m", "benchmarks", "--list"],
            cwd=ROOT,
            env=os.environ | {"ZEROCOPY_POOL": text},
            capture_output=True,
            text=True,
        )
        assert completed.returncode == 2
        assert completed.stderr.startswith(f"Error: ZEROCOPY_POOL={text!r}: ")
        assert message in completed.stderr
        assert completed.stderr.count("\n") == 1
        assert completed.stdout == ""


@pytest.mark.parametrize(
    ("name", "least"),
    [("layout/to-columns", 256), ("layout/to-rows", 256), ("layout/fresh", 256), ("layout/fields", 64)],
)
def test_size_below_one_record_is_refused(name, least):
    result = run(name, "--sizes", least - 1)
    assert result.exit_code == 2
    assert f"use {least} or more" in " ".join(result.output.split())


def test_file_behind_link_is_written(tmp_path):
    (tmp_path / "target.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("target.json")
    assert cli._file(str(tmp_path / "link.json"), None) == tmp_path / "target.json"
    assert (tmp_path / "link.json").is_symlink()


def test_device_file_is_not_replaced():
    with pytest.raises(click.ClickException, match="not a regular file"):
        cli._file(os.devnull, None)
