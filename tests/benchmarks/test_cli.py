"""The command line: options, errors, files."""

import subprocess
import sys
import textwrap

import pytest
from helpers.paths import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

from helpers.benchmark_suites import run, section, suite, task, timed

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
