"""Frameworks by name, by type and by entry point; a new framework is one file."""

from __future__ import annotations

import copy
import errno
import gc
import os
import re
import sys
import textwrap
import weakref

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import HOST, registry_restored
from helpers.free_threaded import with_gil
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy import registry
from zerocopy.registry import FrameworkInfo
from zerocopy.source import FORMS


def test_built_in_frameworks_are_listed() -> None:
    assert {"numpy", "torch", "jax", "tensorflow", "mxnet", "cupy", "numba", "pyarrow"} <= set(
        zc.frameworks()
    )


def test_versions_are_read_without_the_files_of_all_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them takes 0.24 s. Only TensorFlow may need it, whose builds have other names."""
    calls = []
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: calls.append(1) or {})
    monkeypatch.setattr("zerocopy.interpreter.is_imported", lambda name: False)
    rows = zc.frameworks().values()
    assert all(row.version for row in rows if row.installed and row.name != "tensorflow")
    assert len(calls) <= 1


def test_frameworks_lists_versions_devices_and_install_commands() -> None:
    rows = zc.frameworks()
    for name, row in rows.items():
        assert row.name == name
        assert row.install.startswith("pip install ")
        assert row.devices
        assert (row.version is not None) <= row.installed
    assert rows["numpy"].version == np.__version__


def test_frameworks_in_a_terminal_are_one_line_each() -> None:
    rows = zc.frameworks()
    head, *lines = repr(rows).splitlines()
    assert head.split() == ["name", "kind", "devices", "installed"]
    assert [line.split()[0] for line in lines] == list(rows)
    assert all(row.version in line for row, line in zip(rows.values(), lines, strict=True) if row.version)
    many = FrameworkInfo("a\nb\x1b", "tensor", True, "1.0" * 40, ("cpu", "cuda:0") * 9, "pip install a")
    head, *lines = repr(registry.Frameworks({"a": many})).splitlines()
    assert len(lines) == 1
    assert all(len(line) <= 80 and line.isprintable() for line in (*repr(rows).splitlines(), *lines))


WITH_MINIMUM = [
    name
    for name, row in registry.frameworks().items()
    if row.installed and registry.by_name(name).min_version
]


@pytest.mark.parametrize("name", WITH_MINIMUM)
def test_a_version_below_the_minimum_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    framework = registry.by_name(name)
    monkeypatch.setattr(framework.module(), "__version__", "0.0.1")
    monkeypatch.setattr(framework, "_module", None)
    why = f"{name} 0.0.1 is installed; the oldest supported version is {framework.min_version}"
    with pytest.raises(zc.FrameworkNotInstalledError, match=re.escape(why)):
        framework.module()


@pytest.mark.filterwarnings("ignore:xarray subclass:FutureWarning")
@pytest.mark.parametrize("name", HOST)
def test_objects_find_their_framework(name: str) -> None:
    x = zc.convert(sample("f4"), to=name)
    assert registry.by_type(type(x)).name == name

    try:

        class Sub(type(x)):
            pass

    except TypeError:
        return
    assert registry.by_type(Sub).name == name


@pytest.mark.parametrize("name", HOST)
def test_forms_of_routes_are_known(name: str) -> None:
    """A misspelled form would never be used."""
    framework, cls = registry.by_name(name), type(zc.convert(sample("f4"), to=name))
    assert {*framework.fast_importers(), *framework.fast_exporters(cls)} <= {*FORMS}


def test_register_refuses_objects_that_are_not_frameworks() -> None:
    with pytest.raises(TypeError):
        zc.register("torch")
    with pytest.raises(TypeError):
        zc.register(zc.Framework())


def test_tensor_example_of_the_docs_runs(run_warm) -> None:
    """The first example of docs/adding-a-framework.md is run unchanged."""
    page = (ROOT / "docs" / "adding-a-framework.md").read_text()
    blocks = [b.split("```")[0] for b in page.split("```python\n")[1:]]
    library, framework, use = blocks[:3]
    code = textwrap.dedent(
        f"""
        import sys, types
        library = types.ModuleType("ringbuf"); sys.modules["ringbuf"] = library
        exec({library!r}, library.__dict__)
        file = types.ModuleType("ringbuf_zerocopy"); sys.modules["ringbuf_zerocopy"] = file
        exec({framework!r}, file.__dict__)
        exec({use!r}, {{}})
        """
    )
    process = run_warm(code)
    assert process.returncode == 0, process.stderr


def test_entry_point_registers_a_framework(tmp_path, run_python) -> None:
    """A package registers a framework through its metadata."""
    info = tmp_path / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[zerocopy.frameworks]\ntoy = toy:Toy\n")
    (tmp_path / "toy.py").write_text(
        textwrap.dedent(
            """
            import zerocopy as zc
            class Box(list): pass
            class Toy(zc.Framework):
                name = "toy"
                def owns(self, cls): return cls is Box
                def copy_reasons(self, view): return []
                def from_host(self, array, dtype, device, stream): return Box([array])
            """
        )
    )
    process = run_python(
        f"""
        import sys; sys.path.insert(0, {str(tmp_path)!r})
        import numpy as np, zerocopy as zc
        x = np.arange(3)
        box = zc.convert(x, to="toy")
        assert np.shares_memory(box[0], x)
        assert zc.frameworks()["toy"].version == "1.0"
        """
    )
    assert process.returncode == 0, process.stderr


def test_hooks_of_a_plugin_are_files_of_its_folder_or_classes_of_its_file(tmp_path, run_python) -> None:
    files = {
        "rings/__init__.py": """
            import zerocopy
            class Rings(zerocopy.Framework):
                name = "rings"
            """,
        "rings/audit.py": """
            from zerocopy.audit.hook import AuditHook
            class Audit(AuditHook):
                def calls(self): return ["rings.array"]
            """,
        "rings/pool.py": "class Pool: 'not a hook of zerocopy'",
        "rings/gradients.py": "",
        "rings/frames.py": """
            from zerocopy.frames.hook import FramesHook
            class Frames(FramesHook): pass
            """,
        "boxes.py": """
            from rings import Rings
            from zerocopy.loading.hook import LoadingHook
            from multiprocessing.dummy import Pool
            class Frames: "not a hook of zerocopy"
            class Boxes(Rings):
                name = "boxes"
            class Loading(LoadingHook):
                can_decode = True
            """,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    process = run_python(
        f"""
        import sys; sys.path.insert(0, {str(tmp_path)!r})
        from boxes import Boxes
        from zerocopy.audit.hook import AuditHook
        from zerocopy.frames.hook import FramesHook
        from zerocopy.framework import hook_class, hook_of
        from zerocopy.loading.hook import LoadingHook
        from zerocopy.pool.hook import PoolHook
        boxes = Boxes()
        names = [name for name in ("audit", "frames", "loading", "pool") if boxes.has_hook(name)]
        assert names == ["audit", "frames", "loading", "pool"], names
        assert not {{"rings.audit", "rings.frames", "rings.pool"}} & sys.modules.keys()  # no import
        assert hook_of(boxes, AuditHook).calls() == ["rings.array"]
        assert hook_of(boxes, AuditHook) is hook_of(boxes, AuditHook)
        assert hook_of(boxes, LoadingHook).can_decode and not hook_of(None, LoadingHook).can_decode
        assert hook_class(Boxes, FramesHook).__module__ == "rings.frames"  # of the base class
        assert hook_class(Boxes, PoolHook) is PoolHook
        import numpy as np, zerocopy as zc
        from zerocopy.pool.attachments import framework_names
        zc.register(boxes)
        assert "" not in framework_names() and "boxes" not in framework_names()
        try: zc.bridge(lambda x: x, to="boxes", source="numpy")
        except zc.UnsupportedConversionError as error: assert error.code == "no-gradients", error
        else: raise AssertionError("it has no gradients")
        """
    )
    assert process.returncode == 0, process.stderr


def test_file_in_the_folder_is_a_framework(tmp_path, run_python) -> None:
    """Law 1: a file in the folder is enough; no other file changes."""
    (tmp_path / "filebased.py").write_text(
        textwrap.dedent(
            """
            from zerocopy.framework import Framework
            class FileBased(Framework):
                name = "filebased"
                def module(self): import types; return types
                def copy_reasons(self, view): return []
                def from_host(self, array, dtype, device, stream): return array
            FRAMEWORK = FileBased()
            """
        )
    )
    process = run_python(
        f"""
        import zerocopy._frameworks as folder; folder.__path__.append({str(tmp_path)!r})
        import zerocopy as zc
        assert zc.convert(b"abc", to="filebased").tolist() == [97, 98, 99]
        """
    )
    assert process.returncode == 0, process.stderr


def test_lookup_by_type_imports_nothing(monkeypatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [])
    assert registry.by_type(dict) is None
    assert registry.by_type(np.ndarray).name == "numpy"


def test_known_types_are_looked_up_without_a_write(monkeypatch) -> None:
    """On free-threaded builds a write locks the dict for all threads."""

    class ReadOnly(dict):
        __setitem__ = None

    registry.by_type(np.ndarray)
    for name in ("_by_type", "_by_lasting_type"):
        monkeypatch.setattr(registry, name, ReadOnly(getattr(registry, name)))
    assert registry.by_type(np.ndarray).name == "numpy"


def test_an_owner_that_another_thread_replaces_during_the_lookup_is_not_kept() -> None:
    class Thing:
        pass

    class New(zc.Framework):
        name = "replaced"
        root_modules = (__name__.partition(".")[0],)

        def owns(self, cls: type) -> bool:
            return cls is Thing

    class Old(New):
        def owns(self, cls: type) -> bool:
            if cls is Thing:
                zc.register(new)
            return cls is Thing

    new = New()
    with registry_restored():
        zc.register(Old())
        registry.by_type(Thing)
        assert registry.by_type(Thing) is new


@with_gil("after the other tests of this file, the type is freed later than gc.collect() returns")
def test_types_that_are_created_at_run_time_are_freed() -> None:
    cls = type("Local", (np.ndarray,), {"__module__": __name__})
    assert registry.by_type(cls).name == "numpy"
    reference = weakref.ref(cls)
    del cls
    gc.collect()
    assert reference() is None


def test_error_for_an_incomplete_framework_names_the_hook(run_python) -> None:
    process = run_python(
        """
import sys, types, importlib.machinery
import numpy as np, zerocopy as zc
mine = types.ModuleType("mine")
mine.__spec__ = importlib.machinery.ModuleSpec("mine", None, origin="mine")
sys.modules["mine"] = mine
mine.Array = type("Array", (), {"__module__": "mine"})

class Mine(zc.Framework):
    name, root_modules = "mine", ("mine",)
    def owns(self, cls):
        return cls is mine.Array

zc.register(Mine())
for call, hook in (
    (lambda: zc.convert(np.zeros(3), to="mine"), "copy_reasons"),
    (lambda: zc.convert(mine.Array(), to="numpy"), "as_ndarray"),
):
    try:
        call()
    except zc.UnsupportedConversionError as error:
        assert f"does not implement {hook}()" in str(error), error
    else:
        raise SystemExit("the conversion succeeded")
assert not zc.explain(np.zeros(3), to="mine").possible
mine.name = 3
Mine.name = 3
try:
    zc.register(Mine())
except TypeError:
    pass
else:
    raise SystemExit("register() accepted a name that is not a string")
"""
    )
    assert process.returncode == 0, process.stderr


def test_loaded_folder_of_frameworks_is_not_listed_again(monkeypatch) -> None:
    """No framework owns dicts; listing the folder was most of the time to convert one."""
    zc.frameworks()
    monkeypatch.setattr(registry, "_builtin_names", lambda: pytest.fail("the folder is listed again"))
    zc.convert({"x": np.zeros(3)}, to="numpy")
    assert registry.by_type(dict) is None


#: Imports what a first conversion needs, and takes every file descriptor.
WITHOUT_DESCRIPTORS = """
import difflib, errno, importlib.metadata, importlib.util, os, resource, numpy as np
import zerocopy as zc, zerocopy._frameworks.{name}, zerocopy._engine.containers, zerocopy._engine.fixes
zc.convert(np.ones(3), "numpy"), importlib.util.find_spec("{name}")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
fds = []
try:
    while True: fds.append(os.dup(0))
except OSError: pass
attempts = [
    lambda: zc.convert(np.ones(3), "{name}"),
    lambda: zc.frameworks(),
    lambda: zc.convert(np.ones(3), "unknown"),
    lambda: zc.explain(np.ones(3), "{name}"),
]
for attempt in attempts:
    try:
        attempt()
        raise SystemExit("no error")
    except OSError as error:
        assert error.errno == errno.EMFILE, error
for fd in fds: os.close(fd)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resource limits are those of Linux")
@pytest.mark.parametrize("name", ["pyarrow", "polars", "duckdb"])
def test_a_framework_is_known_after_an_attempt_without_a_free_descriptor(name: str, run_python) -> None:
    pytest.importorskip(name)
    code = WITHOUT_DESCRIPTORS.format(name=name)
    code += f'\nzc.convert({{"a": np.ones(3)}}, "{name}")\nassert "torch" in zc.frameworks()\n'
    completed = run_python(code)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE), "a.py"),
        ImportError(f"a.so: cannot open shared object file: {os.strerror(errno.EMFILE)}"),
        ImportError(f"a.so: cannot open shared object file: {os.strerror(errno.ENFILE)}"),
    ],
    ids=["file", "library", "system"],
)
def test_an_import_without_a_free_descriptor_raises_the_error_of_the_system(monkeypatch, error) -> None:
    framework = copy.copy(registry.by_name("pyarrow"))
    framework._module = None

    def fail(self: object) -> None:
        raise error

    monkeypatch.setattr(type(framework), "_import", fail)
    with pytest.raises(OSError, match="pyarrow was not imported") as caught:
        framework.module()
    assert caught.value.errno in (errno.EMFILE, errno.ENFILE)
    assert caught.value.__cause__ is error
