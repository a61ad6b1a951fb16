"""``python -m zerocopy.pool``: options, the environment variable, and how programs are run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from helpers.paths import ROOT

#: Prints the settings of its pool and of the pool of a child process.
PRINT_SETTINGS = """
import os, subprocess, sys
import zerocopy as zc
from zerocopy.pool import install
print(install.installed_pool().settings, install.installed_pool() is zc.install_pool())
child = "import zerocopy as zc; from zerocopy.pool import install; print(install.installed_pool().settings)"
done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True)
print(done.stdout.strip() or done.stderr)
"""


@pytest.fixture
def pool(tmp_path, monkeypatch):
    """Run the command in a separate process."""
    monkeypatch.delenv("ZEROCOPY_POOL", raising=False)

    def run(*arguments: object, before: tuple[str, ...] = ("-m", "zerocopy.pool"), **env: str):
        return subprocess.run(
            [sys.executable, *before, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        )

    return run


@pytest.fixture
def program(tmp_path):
    def write(code: str, name: str = "program.py") -> Path:
        (tmp_path / name).write_text(textwrap.dedent(code))
        return tmp_path / name

    return write


def test_program_runs_on_pool(pool, program) -> None:
    path = program(
        PRINT_SETTINGS + "print(__name__, sys.argv[1:], sys.path[0] == os.path.dirname(__file__), __spec__)\n"
    )
    completed = pool("--host", "recycle", "--report", "--", path, "a", "--kind")
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.splitlines() == [
        "auto,host=recycle True",
        "auto,host=recycle",
        "__main__ ['a', '--kind'] True None",
    ]
    assert "host: recycle" in completed.stderr


@pytest.mark.parametrize(
    ("options", "variable", "settings"),
    [
        ((), "auto,host=recycle", "auto,host=recycle"),
        ((), "off", "auto"),
        pytest.param((), "", "auto", marks=pytest.mark.full),
        pytest.param((), "1", "auto", marks=pytest.mark.full),
        pytest.param(("--kind", "auto"), "auto,host=recycle", "auto", marks=pytest.mark.full),
        (("--host", "recycle"), "off", "auto,host=recycle"),
        pytest.param(("--host", "off"), "auto,host=recycle", "auto", marks=pytest.mark.full),
        (("--frameworks", "torch,cupy"), "rmm,nonsense", "auto,frameworks=torch+cupy"),
        (("--frameworks", "cupy+torch", "--track"), "", "auto,frameworks=torch+cupy,track=True"),
        pytest.param(("--fraction", "0.5", "--host", "off"), "", "auto,fraction=0.5", marks=pytest.mark.full),
        (("--limit", "1.5GiB"), "", "auto,limit=1610612736"),
    ],
)
def test_options_override_the_variable(pool, program, options, variable, settings) -> None:
    completed = pool(*options, "--", program(PRINT_SETTINGS), ZEROCOPY_POOL=variable)
    assert completed.stdout.splitlines() == [f"{settings} True", settings], completed.stderr


@pytest.mark.parametrize(
    ("options", "variable", "message"),
    [
        (["--kind", "rrm"], "", "did you mean 'rmm'"),
        (["--limit", "8 apples"], "", "it is not a size"),
        (["--devices", "0,x"], "", "devices='0,x'"),
        (["--devices", "0,0"], "", "one twice"),
        (["--kind", "driver", "--limit", "8GiB"], "", "no limit"),
        (["--frameworks", ""], "", "cannot use a pool"),
        ([], "rrm", "ZEROCOPY_POOL='rrm': kind='rrm': no such kind of pool"),
        ([], "auto,limit=8 apples", "ZEROCOPY_POOL='auto,limit=8 apples': limit="),
    ],
)
@pytest.mark.parametrize("runs", [True, pytest.param(False, marks=pytest.mark.full)])
def test_invalid_option_is_a_one_line_error(pool, program, options, variable, message, runs) -> None:
    rest = ["--", program("print('it ran')")] if runs else []
    completed = pool(*options, *rest, ZEROCOPY_POOL=variable)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert message in completed.stderr
    assert completed.stderr.count("\n") == 1
    assert completed.stderr.startswith("python -m zerocopy.pool: error: ")


def test_help_needs_no_pool(pool) -> None:
    completed = pool("--help", ZEROCOPY_POOL="rrm")
    assert completed.returncode == 0, completed.stderr
    assert "ZEROCOPY_POOL" in completed.stdout


def test_preview_changes_nothing(pool, tmp_path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        "def end():\n"
        "    from zerocopy.pool.host import MODES\n"
        "    from zerocopy.pool import install\n"
        "    print('at the end:', [n for n, m in MODES.items() if m.installed], install.installed_pool())\n"
        "atexit.register(end)\n"
    )
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    for options, variable in (([], "auto,host=recycle"), (["--host", "aligned"], "auto,host=recycle")):
        completed = pool(*options, ZEROCOPY_POOL=variable, PYTHONPATH=path)
        assert completed.returncode == 0, completed.stderr
        assert f"host: {options[1] if options else 'recycle'}" in completed.stdout
        assert "at the end: [] None" in completed.stdout


@pytest.mark.parametrize(
    "before",
    [
        ("-m", "zerocopy.pool"),
        pytest.param(("-mzerocopy.pool",), marks=pytest.mark.full),
        ("-um", "zerocopy.pool"),
        ("-m", "zerocopy.pool.__main__"),
    ],
)
def test_options_may_precede_or_follow_the_module(pool, program, before) -> None:
    completed = pool(
        "--kind", "auto", "--", program(PRINT_SETTINGS), before=before, ZEROCOPY_POOL="auto,host=recycle"
    )
    assert completed.stdout.startswith("auto True\n"), completed.stderr


@pytest.mark.parametrize("arguments", [("-m", "zerocopy.pool"), ("zerocopy.pool",)])
def test_other_programs_get_the_pool_of_the_variable(pool, program, arguments) -> None:
    completed = pool(*arguments, before=(str(program(PRINT_SETTINGS)),), ZEROCOPY_POOL="auto,host=recycle")
    assert completed.stdout.startswith("auto,host=recycle True\n"), completed.stderr


# -- the program, as under Python ----------------------------------------------------

PRINT_MAIN = """
import sys
print(__name__, __package__ or None, __spec__ and __spec__.name, sys.argv[1:])
print([n for n in dir() if n[0] != "_"])
print(sys.path[0], __file__, __annotations__ if "__annotations__" in dir() else {})
"""


def _same(pool, *program: object) -> None:
    """The program prints the same under the command and under Python."""
    plain, ours = pool(*program, before=()), pool("--host", "off", "--", *program)
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout), ours.stderr


def test_script_runs_as_under_python(pool, program, tmp_path) -> None:
    _same(pool, program(PRINT_MAIN), "a", "--", "-m")
    (tmp_path / "link.py").symlink_to(program(PRINT_MAIN, "there.py"))
    _same(pool, tmp_path / "link.py")
    _same(pool, os.path.relpath(tmp_path / "there.py", ROOT))
    _same(pool, program("import inspect, sys\ndef f(): pass\nprint(inspect.getsource(f))\nsys.exit(3)"))
    _same(pool, program("raise SystemExit('no')"))
    # Without the command's own `from __future__ import annotations`.
    _same(pool, program("def f(x: 1 + 1): pass\nprint(f.__annotations__)"))


def test_module_runs_as_under_python(pool, program, tmp_path, monkeypatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import sys\nfrom zerocopy.pool import install\n"
        "print(sys.argv, install.installed_pool() is not None, file=sys.stderr)\n"
    )
    (package / "__main__.py").write_text(PRINT_MAIN)
    (package / "part.py").write_text(PRINT_MAIN)
    path = os.pathsep.join((str(tmp_path), str(ROOT)))

    def run(*arguments: str, **more: object):
        return pool(*arguments, PYTHONPATH=path, **more)

    for name in ("package", "package.part", "package.__main__"):
        _same(run, "-m", name, "x", "--y")
    # The parent packages of a module are imported on the pool.
    assert run("--", "-m", "package.part", "x").stderr == "['-m', 'x'] True\n"


@pytest.mark.full
def test_directory_archive_and_compiled_code_run_as_programs(pool, program, tmp_path) -> None:
    import py_compile

    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text(PRINT_MAIN + "import neighbour\n")
    (tmp_path / "app" / "neighbour.py").write_text("print(__name__)\n")
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as packed:
        for name in ("__main__.py", "neighbour.py"):
            packed.write(tmp_path / "app" / name, name)
    py_compile.compile(str(program(PRINT_MAIN)), str(tmp_path / "program.pyc"))
    for name in ("app", "app.zip", "program.pyc"):
        _same(pool, tmp_path / name)
        _same(pool, os.path.relpath(tmp_path / name, ROOT))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py"], "nowhere.py does not exist"),
        (["-m"], "the name of a module is missing"),
        (["-m", "no_such_module"], "No module named no_such_module"),
        (["-m", "no_such_package.part"], "No module named"),
        (["-m", "collections"], "cannot be directly executed"),
        (["-m", "_thread"], "No code object available"),
        (["docs"], "can't find '__main__' module"),
    ],
)
def test_missing_program_is_an_error(pool, arguments, message) -> None:
    completed = pool("--", *arguments)
    assert completed.returncode == 2
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


def test_main_module_is_the_program_until_exit(pool, program) -> None:
    path = program(
        """
        import atexit, multiprocessing, pickle, sys
        class Mine: pass
        def work(n):
            from zerocopy.pool import install
            return n, str(install.installed_pool().settings)
        def late():
            print(isinstance(pickle.loads(pickle.dumps(Mine())), Mine))
            print(sys.modules["__main__"].__file__ == __file__)
        if __name__ == "__main__":
            atexit.register(late)
            for method in ("spawn", "forkserver"):
                with multiprocessing.get_context(method).Pool(1) as processes:
                    print(processes.map(work, [1]))
        """
    )
    completed = pool("--host", "recycle", "--", path)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.splitlines() == [*["[(1, 'auto,host=recycle')]"] * 2, "True", "True"]
