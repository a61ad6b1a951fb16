"""Callbacks after imports, for all kinds of finders and loaders.

Each test runs in a separate process, because a failure would break the imports of other tests.
"""

from __future__ import annotations

import textwrap

import pytest

START = """
import importlib.util, os, sys, threading, types, warnings
from importlib.machinery import ModuleSpec, PathFinder
from zerocopy.interpreter import imports
here = os.environ["HERE"]
sys.path.insert(0, here)
calls = []
def record(): calls.append(sys.modules["later"])
"""


@pytest.fixture
def run(run_python, tmp_path):
    (tmp_path / "later.py").write_text("import sys\nvalue = 3\n")

    def check(code: str, *before: str) -> str:
        completed = run_python(START + "\n".join(before) + textwrap.dedent(code), HERE=str(tmp_path))
        assert completed.returncode == 0, completed.stderr
        return completed.stdout + completed.stderr

    return check


def test_callback_waits_for_next_import_after_failure(run, tmp_path) -> None:
    (tmp_path / "halfway.py").write_text("import os\nif os.environ.get('BREAK'): raise RuntimeError('no')\n")
    run(
        """
        imports.when_imported("halfway", lambda: calls.append(sys.modules["halfway"]))
        os.environ["BREAK"] = "1"
        try: import halfway
        except RuntimeError: pass
        assert calls == []
        del os.environ["BREAK"]
        import halfway
        assert calls == [halfway] and imports._FINDER not in sys.meta_path
        assert type(halfway.__loader__).__name__ == "SourceFileLoader"
        assert halfway.__spec__.loader is halfway.__loader__
        assert "exec_module" not in vars(halfway.__loader__)
        import inspect
        assert "BREAK" in inspect.getsource(halfway)
        imports.when_imported("halfway", lambda: calls.append(1))
        assert calls[1:] == [1]
        imports.when_imported("never", calls.clear)
        imports.cancel(calls.clear)
        assert imports._FINDER not in sys.meta_path
        try: import never
        except ModuleNotFoundError: pass
        """
    )


def test_module_has_its_own_loader_while_it_runs(run, tmp_path) -> None:
    (tmp_path / "looking.py").write_text(
        "kinds = [type(each).__name__ for each in (__loader__, __spec__.loader, __spec__)]\n"
    )
    run(
        """
        imports.when_imported("looking", lambda: calls.append(1))
        import copy
        found = importlib.util.find_spec("looking")  # looked for and not imported
        assert found.loader.get_filename("looking") == found.origin
        assert copy.copy(found.loader).path == found.origin
        import looking
        assert looking.kinds == ["SourceFileLoader", "SourceFileLoader", "ModuleSpec"], looking.kinds
        assert calls == [1]
        """
    )


def test_import_under_way_in_another_thread_is_caught_up(run, tmp_path) -> None:
    (tmp_path / "slow.py").write_text("import builtins\nbuiltins.inside.set()\nbuiltins.go.wait(30)\n")
    run(
        """
        import builtins
        builtins.inside, builtins.go = threading.Event(), threading.Event()
        def other(): import slow
        thread = threading.Thread(target=other)
        thread.start()
        builtins.inside.wait(30)
        assert not imports.is_imported("slow")
        imports.when_imported("slow", lambda: calls.append(sys.modules["slow"]))
        assert calls == [] == imports.catch_up()
        builtins.go.set()
        thread.join()
        import slow
        assert imports.missed() == ["slow"] == imports.catch_up()
        assert calls == [slow]
        assert type(slow.__spec__) is ModuleSpec and imports._FINDER not in sys.meta_path
        """
    )


def test_callback_of_the_module_itself_is_caught_up(run, tmp_path) -> None:
    (tmp_path / "asking.py").write_text(
        "import sys\nfrom zerocopy.interpreter import imports\ncalls = []\n"
        "imports.when_imported('asking', lambda: calls.append(sys.modules['asking'].last))\n"
        "assert not calls\nlast = 1\n"
    )
    run(
        """
        import asking
        assert imports.catch_up() == ["asking"] and asking.calls == [1], asking.calls
        """
    )


NAIVE = """
class Naive:
    def find_spec(self, name, path=None, target=None):
        for other in sys.meta_path:
            if other is not self:
                spec = other.find_spec(name, path, target)
                if spec is not None: return spec
"""


@pytest.mark.parametrize("place", ["insert(0, Naive())", "insert(1, Naive())", "append(Naive())"])
@pytest.mark.parametrize("first", [True, False])
def test_finder_that_calls_all_other_finders(run, place, first) -> None:
    lines = [f"sys.meta_path.{place}", 'imports.when_imported("later", record)']
    run(
        """
        import later
        assert calls == [later] and later.value == 3
        """,
        NAIVE,
        *(lines if first else reversed(lines)),
        "",
    )


LOADERS = {
    "slots": """
class Loader:
    __slots__ = ("path",)
    def __init__(self): self.path = 1
    def create_module(self, spec): return None
    def exec_module(self, module): module.value = 3
make = Loader
""",
    "class": """
class Loader:
    create_module = classmethod(lambda cls, spec: None)
    exec_module = classmethod(lambda cls, module: setattr(module, "value", 3))
make = lambda: Loader
""",
    "shared": """
class Loader:
    def create_module(self, spec): return None
    def exec_module(self, module): module.value = 3
one = Loader()
make = lambda: one
""",
    "not a module": """
class Loader:
    def create_module(self, spec): return types.SimpleNamespace(value=3)
    def exec_module(self, module): pass
make = Loader
""",
    "replaces the module": """
class Loader:
    def create_module(self, spec): return None
    def exec_module(self, module): sys.modules[module.__name__] = types.SimpleNamespace(value=3)
make = Loader
""",
}
FINDER = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in ("later", "other"): return ModuleSpec(name, make())
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("kind", LOADERS)
def test_callback_does_not_change_the_loader(run, kind) -> None:
    run(
        """
        before = dict(vars(Loader))
        imports.when_imported("later", record)
        importlib.util.find_spec("later")
        import other
        assert calls == []
        import later
        assert calls == [later] and later.value == 3 and dict(vars(Loader)) == before
        loader = getattr(later, "__loader__", None)
        assert loader is None or type(loader).__name__ in ("Loader", "type"), loader
        """,
        LOADERS[kind],
        FINDER,
    )


def test_builtin_importer_is_unchanged(run) -> None:
    run(
        """
        from importlib.machinery import BuiltinImporter, FrozenImporter
        before = dict(vars(BuiltinImporter)), dict(vars(FrozenImporter))
        for name in ("_symtable", "__phello__"):
            sys.modules.pop(name, None)
            imports.when_imported(name, lambda: calls.append(name))
            importlib.import_module(name)
        assert calls == ["_symtable", "__phello__"], calls
        assert (dict(vars(BuiltinImporter)), dict(vars(FrozenImporter))) == before
        """
    )


def test_shared_loader_of_a_zip_file_is_supported(run, tmp_path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "z.zip", "w") as packed:
        packed.writestr("zipped/__init__.py", "from . import part\n")
        packed.writestr("zipped/part.py", "")
    run(
        """
        sys.path.insert(0, os.path.join(here, "z.zip"))
        imports.when_imported("zipped", lambda: calls.append(sys.modules["zipped"].part))
        imports.when_imported("zipped.part", lambda: calls.append(0))
        import zipped
        assert calls == [0, zipped.part] and type(zipped.__loader__).__name__ == "zipimporter"
        """
    )


BY_HAND = """
spec = importlib.util.find_spec("later")
spec.loader = importlib.util.LazyLoader(spec.loader)
module = importlib.util.module_from_spec(spec)
sys.modules["later"] = module
spec.loader.exec_module(module)
lazy = object.__getattribute__(module, "__class__").__name__ == "_LazyModule"
assert lazy
"""
BY_FINDER = """
class Lazily:
    def find_spec(self, name, path=None, target=None):
        if name == "later":
            spec = PathFinder.find_spec(name, path)
            spec.loader = importlib.util.LazyLoader(spec.loader)
            return spec
sys.meta_path.insert(1, Lazily())
WAIT
import later as module
"""


@pytest.mark.parametrize("method", [BY_HAND, BY_FINDER])
@pytest.mark.parametrize("first", [True, False])
def test_lazy_module_calls_back_when_it_runs(run, method, first) -> None:
    wait = 'imports.when_imported("later", record)\n'
    run(
        """
        assert not imports.is_imported("later") and calls == [] == imports.catch_up()
        assert object.__getattribute__(module, "__class__").__name__ == "_LazyModule", "it was run"
        assert module.value == 3
        assert calls == [module] and imports.is_imported("later") and imports._FINDER not in sys.meta_path
        assert type(module.__spec__.loader).__name__ == "SourceFileLoader" == type(module.__loader__).__name__
        """,
        *([wait, method.replace("WAIT", "")] if first else [method.replace("WAIT", ""), wait]),
        "",
    )


def test_catch_up_finds_missed_imports(run) -> None:
    run(
        """
        imports.when_imported("later", record)
        imports.when_imported("never", record)
        sys.meta_path.remove(imports._FINDER)
        import later
        sys.modules["none"] = None
        imports.when_imported("none", record)
        assert calls == [] and imports.missed() == ["later"]
        assert imports.catch_up() == ["later"] and calls == [later] and imports.missed() == []
        assert imports._FINDER in sys.meta_path
        """
    )


@pytest.mark.parametrize("error", ["ValueError('mine')", "RuntimeWarning('mine')"])
@pytest.mark.parametrize("action", ["error", "default", "ignore"])
def test_failing_callback_does_not_break_import(run, error, action) -> None:
    output = run(
        f"""
        warnings.simplefilter("{action}")
        def failing(): raise {error}
        imports.when_imported("later", failing)
        imports.when_imported("later", record)
        import later
        assert calls == [later]
        """
    )
    assert ("mine" in output) == (action != "ignore" or "Warning" in error)
    assert "Traceback" not in output


def test_fork_while_another_thread_holds_the_lock(run) -> None:
    run(
        """
        held, go = threading.Event(), threading.Event()
        def hold():
            with imports._CHANGING:
                held.set()
                go.wait(30)
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(30)
        warnings.simplefilter("ignore")  # about fork in a process with threads
        child = os.fork()
        if not child:
            imports.when_imported("later", record)
            import later
            os._exit(len(calls))
        go.set()
        thread.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        """
    )
