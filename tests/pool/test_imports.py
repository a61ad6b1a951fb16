"""Being told when modules are imported: all the ways in which Python and others import them.

In processes of their own: a test that fails here would spoil the imports of all others.
"""

from __future__ import annotations

import textwrap

import pytest

START = """
import importlib.util, os, sys, threading, types, warnings
from importlib.machinery import ModuleSpec, PathFinder
from zerocopy.pool import imports
here = os.environ["HERE"]
sys.path.insert(0, here)
told = []
def tell(): told.append(sys.modules["later"])
"""


@pytest.fixture
def run(run_python, tmp_path):
    (tmp_path / "later.py").write_text("import sys\nvalue = 3\n")

    def check(code: str, *before: str) -> str:
        done = run_python(START + "\n".join(before) + textwrap.dedent(code), HERE=str(tmp_path))
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return check


def test_an_import_that_fails_is_waited_for_again(run, tmp_path) -> None:
    (tmp_path / "halfway.py").write_text("import os\nif os.environ.get('BREAK'): raise RuntimeError('no')\n")
    run(
        """
        imports.when_loaded("halfway", lambda: told.append(sys.modules["halfway"]))
        os.environ["BREAK"] = "1"
        try: import halfway
        except RuntimeError: pass
        assert told == []
        del os.environ["BREAK"]
        import halfway
        assert told == [halfway] and imports._FINDER not in sys.meta_path
        assert type(halfway.__loader__).__name__ == "SourceFileLoader"
        assert halfway.__spec__.loader is halfway.__loader__
        assert "exec_module" not in vars(halfway.__loader__)
        import inspect
        assert "BREAK" in inspect.getsource(halfway)
        imports.when_loaded("halfway", lambda: told.append(1))
        assert told[1:] == [1]
        imports.when_loaded("never", told.clear)
        imports.forget(told.clear)
        assert imports._FINDER not in sys.meta_path
        try: import never
        except ModuleNotFoundError: pass
        """
    )


def test_the_module_has_its_own_loader_while_it_runs(run, tmp_path) -> None:
    (tmp_path / "looking.py").write_text(
        "kinds = [type(each).__name__ for each in (__loader__, __spec__.loader, __spec__)]\n"
    )
    run(
        """
        imports.when_loaded("looking", lambda: told.append(1))
        import copy
        found = importlib.util.find_spec("looking")  # looked for and not imported
        assert found.loader.get_filename("looking") == found.origin
        assert copy.copy(found.loader).path == found.origin
        import looking
        assert looking.kinds == ["SourceFileLoader", "SourceFileLoader", "ModuleSpec"], looking.kinds
        assert told == [1]
        """
    )


@pytest.mark.parametrize("fails", [False, True])
def test_an_import_that_is_under_way_is_noticed(run, tmp_path, fails) -> None:
    (tmp_path / "slow.py").write_text(
        "import builtins\nbuiltins.inside.set()\nbuiltins.go.wait(30)\n"
        + ("if builtins.fails: raise RuntimeError('no')\n")
    )
    run(
        f"""
        import builtins
        builtins.inside, builtins.go, builtins.fails = threading.Event(), threading.Event(), {fails}
        def other():
            try: import slow
            except RuntimeError: pass
        thread = threading.Thread(target=other)
        thread.start()
        builtins.inside.wait(30)
        assert not imports.loaded("slow")
        imports.when_loaded("slow", lambda: told.append(sys.modules["slow"]))
        imports.when_loaded("slow", lambda: told.append(type(sys.modules["slow"].__spec__)))
        assert told == []
        builtins.go.set()
        thread.join()
        if builtins.fails:
            assert told == []
            builtins.fails = False
        import slow
        assert told == [slow, ModuleSpec], told
        assert type(slow.__spec__) is ModuleSpec and imports._FINDER not in sys.meta_path
        """
    )


def test_one_that_is_asked_for_by_the_module_itself(run, tmp_path) -> None:
    (tmp_path / "asking.py").write_text(
        "import sys\nfrom zerocopy.pool import imports\ntold = []\n"
        "imports.when_loaded('asking', lambda: told.append(sys.modules['asking'].last))\n"
        "assert not told\nlast = 1\n"
    )
    run("import asking; assert asking.told == [1], asking.told")


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
def test_another_finder_that_asks_all_the_others(run, place, first) -> None:
    lines = [f"sys.meta_path.{place}", 'imports.when_loaded("later", tell)']
    run(
        """
        import later
        assert told == [later] and later.value == 3
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
    "one for all": """
class Loader:
    def create_module(self, spec): return None
    def exec_module(self, module): module.value = 3
one = Loader()
make = lambda: one
""",
    "a module that is none": """
class Loader:
    def create_module(self, spec): return types.SimpleNamespace(value=3)
    def exec_module(self, module): pass
make = Loader
""",
    "one that puts another in its place": """
class Loader:
    def create_module(self, spec): return None
    def exec_module(self, module): sys.modules[module.__name__] = types.SimpleNamespace(value=3)
make = Loader
""",
}
OURS = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in ("later", "other"): return ModuleSpec(name, make())
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("kind", LOADERS)
def test_loaders_of_all_kinds(run, kind) -> None:
    run(
        """
        before = dict(vars(Loader))
        imports.when_loaded("later", tell)
        importlib.util.find_spec("later")
        import other
        assert told == []
        import later
        assert told == [later] and later.value == 3 and dict(vars(Loader)) == before
        loader = getattr(later, "__loader__", None)
        assert loader is None or type(loader).__name__ in ("Loader", "type"), loader
        """,
        LOADERS[kind],
        OURS,
    )


def test_loaders_of_before_python_3_4(run) -> None:
    run(
        """
        if sys.version_info >= (3, 15): raise SystemExit(0)  # it takes them no more
        class Loader:
            def load_module(self, name):
                sys.modules[name] = module = types.ModuleType(name)
                module.value = 3
                return module
        make = Loader
        imports.when_loaded("later", tell)
        warnings.simplefilter("ignore")
        import later
        assert told == [later] and type(later.__spec__.loader) is Loader
        """,
        OURS,
    )


def test_the_builtin_importer_is_left_as_it_is(run) -> None:
    run(
        """
        from importlib.machinery import BuiltinImporter, FrozenImporter
        before = dict(vars(BuiltinImporter)), dict(vars(FrozenImporter))
        for name in ("_symtable", "__phello__"):
            sys.modules.pop(name, None)
            imports.when_loaded(name, lambda: told.append(name))
            importlib.import_module(name)
        assert told == ["_symtable", "__phello__"], told
        assert (dict(vars(BuiltinImporter)), dict(vars(FrozenImporter))) == before
        """
    )


def test_a_zip_whose_loader_is_shared(run, tmp_path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "z.zip", "w") as packed:
        packed.writestr("zipped/__init__.py", "from . import part\n")
        packed.writestr("zipped/part.py", "")
    run(
        """
        sys.path.insert(0, os.path.join(here, "z.zip"))
        imports.when_loaded("zipped", lambda: told.append(sys.modules["zipped"].part))
        imports.when_loaded("zipped.part", lambda: told.append(0))
        import zipped
        assert told == [0, zipped.part] and type(zipped.__loader__).__name__ == "zipimporter"
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


@pytest.mark.parametrize("way", [BY_HAND, BY_FINDER])
@pytest.mark.parametrize("first", [True, False])
def test_a_lazy_module_is_told_of_when_it_runs_and_not_before(run, way, first) -> None:
    wait = 'imports.when_loaded("later", tell)\n'
    run(
        """
        assert not imports.loaded("later") and told == [] == imports.catch_up()
        assert object.__getattribute__(module, "__class__").__name__ == "_LazyModule", "it was run"
        assert module.value == 3
        assert told == [module] and imports.loaded("later") and imports._FINDER not in sys.meta_path
        assert type(module.__spec__.loader).__name__ == "SourceFileLoader" == type(module.__loader__).__name__
        """,
        *([wait, way.replace("WAIT", "")] if first else [way.replace("WAIT", ""), wait]),
        "",
    )


def test_what_went_past_is_caught_up_with(run) -> None:
    run(
        """
        imports.when_loaded("later", tell)
        imports.when_loaded("never", tell)
        sys.meta_path.remove(imports._FINDER)
        import later
        sys.modules["none"] = None
        imports.when_loaded("none", tell)
        assert told == [] and imports.missed() == ["later"]
        assert imports.catch_up() == ["later"] and told == [later] and imports.missed() == []
        assert imports._FINDER in sys.meta_path
        """
    )


@pytest.mark.parametrize("error", ["ValueError('mine')", "RuntimeWarning('mine')"])
@pytest.mark.parametrize("action", ["error", "default", "ignore"])
def test_what_goes_wrong_in_us_breaks_no_import(run, error, action) -> None:
    said = run(
        f"""
        warnings.simplefilter("{action}")
        def failing(): raise {error}
        imports.when_loaded("later", failing)
        imports.when_loaded("later", tell)
        import later
        assert told == [later]
        """
    )
    assert ("mine" in said) == (action != "ignore" or "Warning" in error)
    assert "Traceback" not in said


def test_a_fork_while_another_thread_holds_the_lock(run) -> None:
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
        warnings.simplefilter("ignore")  # of a fork beside threads
        child = os.fork()
        if not child:
            imports.when_loaded("later", tell)
            import later
            os._exit(len(told))
        go.set()
        thread.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        """
    )
