"""The pages are correct: examples run, links resolve, named tests exist, figures were measured."""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import pkgutil
import re
import runpy
import shlex
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.page_examples import FENCE, RUNNER, blocks, called, calls
from helpers.paths import ROOT

from zerocopy import errors, registry
from zerocopy.cli import main
from zerocopy.errors.codes import CODES

TOP = sorted((ROOT / "docs").glob("*.md"))
#: The pages below another one are in a folder of its name.
DOCS = [*TOP, *sorted(page for parent in TOP for page in parent.with_suffix("").glob("*.md"))]
PROJECT = ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY", "GOVERNANCE", "CODE_OF_CONDUCT")
PAGES = [*(ROOT / f"{page}.md" for page in PROJECT), *DOCS]

# The blocks of the first are separate files: test_registry runs three, and a test below the others.
# The sections of the second need different packages: test_training_frameworks runs them.
OWN_TEST = {"adding-a-framework.md", "training-frameworks.md"}
#: Packages that a page needs besides those of all pages.
NEEDS = {"labelled.md": ("xarray", "dask"), "weights.md": ("safetensors",)}
#: Pages that write files into the current folder: they run in a new one.
WRITES = {"cheatsheet.md", "embeddings.md", "weights.md"}
#: Pages whose tables have calls that run after the blocks of the page.
RUN_CALLS = {"cheatsheet.md"}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.full  # a process a page; .ci/run has a step for them
@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in OWN_TEST and blocks(p)], ids=name)
def test_examples_run(page: Path, run_warm, tmp_path: Path) -> None:
    """Run all examples of a page in one process, with JAX's defaults (x64 off)."""
    tables = ("pyarrow", "pandas", "polars", "duckdb", "nanoarrow")
    for framework in ("torch", "jax", "tensorflow", "ml_dtypes", *tables, *NEEDS.get(page.name, ())):
        pytest.importorskip(framework)
    folder = f"import os; os.chdir({str(tmp_path)!r})\n" if page.name in WRITES else ""
    examples = [*blocks(page), *(calls(page) if page.name in RUN_CALLS else ())]
    code = folder + RUNNER.format(page=name(page), blocks=examples)
    completed = run_warm(code)
    assert completed.returncode == 0, completed.stderr


def test_blocks_run_or_say_that_they_do_not() -> None:
    tags = {"", "python", "bash", "console", "ini", "sh", "text", "toml", "yaml", "{include}"}
    for page in PAGES:
        assert {block[1] for block in FENCE.finditer(page.read_text(encoding="utf-8"))} <= tags, page
        for _, block in blocks(page, run=False):
            assert block.startswith("# not run"), f"{page}: {block}"
            ast.parse(block)


#: A command in a block of a shell, a unit file or a manifest, and one in a sentence.
BLOCK_COMMAND = re.compile(
    r"^(?:\$ |ExecStart=\S*/|.*&& |(?:\w+=\S+ )+)?zerocopy ([a-z]+)(| .*)$", re.MULTILINE
)
INLINE_COMMAND = re.compile(r"`(?:\w+=\S+ )*zerocopy ([a-z]+)(| [^`]*)`")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_parse(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse the commands of a page; one in a sentence can lack arguments, or name them as in PORT."""
    click = pytest.importorskip("click")
    monkeypatch.chdir(tmp_path)  # click opens files for writing
    text = page.read_text(encoding="utf-8")
    shells = "\n".join(block[3] for block in FENCE.finditer(text))
    shells = re.sub(
        r"^.*command: (\[.*\])$", lambda line: shlex.join(json.loads(line[1])), shells, flags=re.M
    )
    for command, arguments in BLOCK_COMMAND.findall(shells):
        for file in re.findall(r"\S+\.toml\b", arguments):
            (tmp_path / file).touch()
        parse_command(command, arguments)
    for command, arguments in INLINE_COMMAND.findall(FENCE.sub("", text)):
        with contextlib.suppress(click.BadParameter, click.BadOptionUsage, click.exceptions.Exit):  # --help
            parse_command(command, arguments)


def parse_command(command: str, arguments: str) -> None:
    parser = main.command().get_command(None, command)
    if parser:  # otherwise a sentence in an output
        with parser.make_context(command, shlex.split(arguments, comments=True)) as context:
            given = SimpleNamespace(**context.params)
        if command == "monitor":
            from zerocopy.cli.monitor.command import problem

            why = problem(given)
            assert not why, why


def test_a_wrong_command_is_found() -> None:
    click = pytest.importorskip("click")
    with pytest.raises(AssertionError, match="--keep"):
        parse_command("monitor", "--serve 5006 --keep")
    with pytest.raises(click.NoSuchOption):
        parse_command("monitor", "--token x")


CALLS = [page for page in PAGES if "benchmarks" not in page.name and [*calls(page)]]


@pytest.mark.parametrize("page", CALLS, ids=name)
def test_calls_in_tables_have_names_and_options_that_exist(page: Path) -> None:
    for _, statement in calls(page):
        for call in called(statement):
            root, *path = ast.unparse(call.func).split(".")
            if root in ("zc", "zerocopy") and all(map(str.isidentifier, path)):
                function = pkgutil.resolve_name(".".join(["zerocopy", *path]))
                parameters = inspect.signature(function).parameters
                named = {keyword.arg for keyword in call.keywords} - {None}
                free = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
                assert free or named <= parameters.keys(), statement


def test_table_framework_example_runs(run_warm) -> None:
    """Run the page's last three blocks, each as a separate module."""
    for framework in ("torch", "pyarrow"):
        pytest.importorskip(framework)
    _, _, _, *files = (block for _, block in blocks(ROOT / "docs" / "adding-a-framework.md"))
    library, framework, use = files
    completed = run_warm(
        f"""
import sys, types
library = types.ModuleType("sheets"); sys.modules["sheets"] = library
exec({library!r}, library.__dict__)
file = types.ModuleType("sheets_zerocopy"); sys.modules["sheets_zerocopy"] = file
exec({framework!r}, file.__dict__)
exec({use!r}, {{}})
"""
    )
    assert completed.returncode == 0, completed.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", prose):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{path} does not exist"
        if anchor:
            assert anchor in _anchors(target), f"{path} has no heading #{anchor}"


def _anchors(page: Path) -> set[str]:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_tests_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"\btests/[\w/]+\.py\b", text):
        assert (ROOT / path).exists(), path
    for test in re.findall(r"`(?:tests/\w+\.py::)?(test_\w+)`", text):
        assert test in _tests(), test


@cache
def _tests() -> set[str]:
    names: set[str] = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        names |= set(re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))
    return names


def reason_codes() -> set[str]:
    """Return each ``code`` in zerocopy/: of a call, ``code=...``, and the default of a class or parameter."""
    values: list[ast.expr | None] = []
    for file in (ROOT / "zerocopy").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                values += [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            elif isinstance(node, ast.arguments):
                named = zip(reversed([*node.posonlyargs, *node.args]), reversed(node.defaults), strict=False)
                values += [value for parameter, value in named if parameter.arg == "code"]
                values += [
                    v for p, v in zip(node.kwonlyargs, node.kw_defaults, strict=True) if p.arg == "code"
                ]
            elif isinstance(node, ast.ClassDef):
                for line in node.body:
                    if isinstance(line, (ast.Assign, ast.AnnAssign)):
                        targets = line.targets if isinstance(line, ast.Assign) else [line.target]
                        values += [line.value for target in targets if ast.unparse(target) == "code"]
    leaves = [leaf for value in values if value is not None for leaf in ast.walk(value)]
    texts = {leaf.value for leaf in leaves if isinstance(leaf, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and text}


def test_the_table_of_reason_codes_has_the_codes_in_use() -> None:
    assert list(CODES) == sorted(reason_codes())


def test_page_of_reason_codes_has_every_code() -> None:
    page = (ROOT / "docs" / "errors" / "codes.md").read_text(encoding="utf-8")
    assert runpy.run_path(str(ROOT / "docs" / "reason_codes.py"))["page"]() == page, (
        "run python docs/reason_codes.py"
    )
    assert len(re.findall(r"^\| `[a-z0-9-]+` \|", page, re.MULTILINE)) == len(CODES)


def test_support_page_has_the_table_of_versions() -> None:
    with_tables = runpy.run_path(str(ROOT / "docs" / "support.py"))["with_tables"]
    guards, page = (
        (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("version-guards", "support")
    )
    assert [with_tables(guards), with_tables(page)] == [guards, page], "run python docs/support.py"
    for name in registry.frameworks():
        assert f"\n| {name} |" in page or f"`{name}`" in page


def test_errors_page_lists_every_error() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, errors.ZeroCopyError):
            assert f"`{error.__name__}`" in page


def _result_pages() -> dict[str, str]:
    """Return the pages that are generated from results, by name."""
    pages = (ROOT / "docs").glob("*benchmarks.md")
    return {page.name: page.read_text(encoding="utf-8") for page in pages}


@pytest.mark.parametrize("page", sorted(_result_pages()))
def test_benchmark_pages_show_full_runs(page: str) -> None:
    """tests/benchmarks compares the pages with their results byte by byte."""
    files = set(re.findall(r"benchmarks/results/([\w.-]+\.json)", _result_pages()[page]))
    assert files
    for file in files:
        results = json.loads((ROOT / "benchmarks" / "results" / file).read_text(encoding="utf-8"))
        assert results["complete"]
        assert not results["settings"]["quick"]


def test_index_lists_every_page() -> None:
    """docs/index.md has them by group, docs/measurements.md those of benchmarks, a page those below it."""
    for page in DOCS:
        below = page.parent.name != "docs"
        parent = page.parent.name if below else "measurements" if "benchmarks" in page.name else "index"
        text = (ROOT / "docs" / f"{parent}.md").read_text(encoding="utf-8")
        link = f"{parent}/{page.name}" if below else page.name
        assert page.name == "index.md" or f"| [{_title(page)}]({link}) |" in text.replace(" · ", " | ")
    table = (ROOT / "docs" / "index.md").read_text(encoding="utf-8").partition("| part | pages |\n|---|")[2]
    groups = ("Start", "Arrays and tables", "Training", "Processes and clusters", "In your library")
    assert re.findall(r"^\| (.+?) \|", table, re.MULTILINE) == [*groups, "Reference", "Development"]


def _title(page: Path) -> str:
    return next(line[2:] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("# "))


def test_source_layout_matches_package() -> None:
    """docs/how-it-works.md lists every file and folder of zerocopy/."""
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    block = page.split("## Source layout")[1].split("```")[1]
    listed = {line.split()[0].rstrip("/") for line in block.splitlines() if re.match(r"  [\w.]+/? ", line)}
    package = ROOT / "zerocopy"
    entries = {
        entry.name
        for entry in package.iterdir()
        if not entry.name.startswith("__") and (entry.suffix == ".py" or any(entry.glob("*.py")))
    }
    assert listed - {"__init__.py"} == entries


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_modules_exist(page: Path) -> None:
    """Paths of the package, relative to the repository or to zerocopy/, except the page's own example."""
    text = page.read_text(encoding="utf-8")
    folders = "|".join(entry.name for entry in (ROOT / "zerocopy").iterdir() if entry.is_dir())
    paths = re.findall(rf"`((?:zerocopy/)?(?:{folders})/(?:[\w/]+\.py|[\w/]*/))`", text)
    assert not [
        path
        for path in paths
        if not (ROOT / path).exists() and not (ROOT / "zerocopy" / path).exists() and "ringbuf" not in path
    ]


def test_ci_runs_existing_tests() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    paths = re.findall(r"\btests/[\w/.]+", script)
    assert paths
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_pre_commit_and_tests_use_the_same_tool_versions() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r'"((?:ruff|mypy|zizmor)[^"]*)"', hooks)) == set(groups["lint"])


def test_files_name_no_foreign_repository_or_distribution() -> None:
    """The project owns no repository address, and ``zerocopy`` on PyPI is another project."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    foreign = re.compile(
        "github[.]com/zerocopy/" + "|" + r"pip install [^`\n]*\bzerocopy(?!-interchange)[\[\s'\"`]"
    )
    for file in listed.stdout.split():
        path = ROOT / file
        if path.suffix in (".py", ".md", ".in", ".toml", ".yml", ".cff", ".rst") and path.exists():
            text = path.read_text(encoding="utf-8")
            matches = [match[0] for match in foreign.finditer(text) if "&& zerocopy" not in match[0]]
            assert not matches, f"{file}: {matches}"
