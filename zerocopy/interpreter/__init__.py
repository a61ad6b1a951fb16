"""The interpreter: imports that forks wait for, installed packages, ends of imports, programs, and shutdown.

A forked child inherits the lock of a module that another thread imports, and no thread releases it there.
A fork therefore acquires `LOADING` first, which is held while a public name is imported.

``import zerocopy`` imports this file, and nothing that takes long. Before `LOADING` is held for anything
else, `zerocopy.forks` is imported, which makes the wait the first step of a fork.
"""

import os
import sys
import time

# Without threading and operator, which import more.
from _operator import attrgetter, methodcaller
from _thread import RLock, get_ident

TYPE_CHECKING = False  # importing typing takes longer than this file
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


class _LockOf314:
    """A lock that a ``with`` of Python 3.14 always releases.

    There, a signal's handler can run after `__enter__`, if that is a function in C, and before the block. If
    the handler raises an error, the lock stays locked: gh-148874 of CPython, repaired in 3.15. A read of an
    attribute and the return of a Python function run no handler.
    """

    __slots__ = ("__weakref__", "_at_fork_reinit", "_leave", "acquire", "release")
    _acquired = property(methodcaller("acquire"))
    __exit__ = property(attrgetter("_leave"))  # a function in Python could be interrupted before the release

    def __init__(self, lock: "Any") -> None:
        self.acquire, self.release, self._leave = lock.acquire, lock.release, lock.__exit__
        self._at_fork_reinit = lock._at_fork_reinit

    def __enter__(self) -> bool:
        return self._acquired  # type: ignore[no-any-return]


safe_lock: "Any" = _LockOf314 if sys.version_info[:2] == (3, 14) else lambda lock: lock

#: Not a literal, because a library can vendor the package under another name.
_PACKAGE = f"{__name__.rpartition('.')[0]}."
#: Milliseconds that a fork waits for imports of zerocopy's own modules.
_MOST_POLLS = 2000
#: Held while zerocopy's modules are imported and kernels loaded. The thread that holds it may fork.
LOADING: RLock = safe_lock(RLock())
#: The thread of each import of another package, by any object. Holding `LOADING`, add an entry before
#: the import; remove it afterwards.
IMPORTING: dict[object, int] = {}
#: The thread that holds `LOADING` for its fork, or 0.
_forking = 0
#: Functions that `zerocopy.forks` registers. Python does not call them at a fork that waits meanwhile, so
#: `start_of_fork` does.
BEFORE_FORK: "list[Callable[[], object]]" = []


def start_of_fork() -> None:
    """Acquire `LOADING` when no other thread imports a package of `IMPORTING` or a module of zerocopy."""
    global _forking
    if _forking == get_ident():
        return  # it is registered twice
    known = len(BEFORE_FORK)
    LOADING.acquire()
    polls = 0
    while any(thread != get_ident() for thread in tuple(IMPORTING.values())) or (
        # The bound is for a fork in a module that this thread imports.
        polls < _MOST_POLLS and _is_loading()
    ):
        LOADING.release()  # the package may need it
        time.sleep(0.001)
        LOADING.acquire()
        polls += 1
    _forking = get_ident()
    for added in BEFORE_FORK[known:]:
        added()


def end_of_fork() -> None:
    global _forking
    if _forking == get_ident():
        _forking = 0
        LOADING.release()


def _is_loading() -> bool:
    """Whether a module of zerocopy is being imported, such as by a function's first call."""
    return any(
        getattr(spec_of(module), "_initializing", False)
        for name, module in tuple(sys.modules.items())
        if name.startswith(_PACKAGE)
    )


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=start_of_fork, after_in_parent=end_of_fork, after_in_child=end_of_fork)


def while_forks_wait(load: "Any") -> "Any":
    """Return ``load()``, which imports modules. A fork in another thread waits until it returns."""
    token = object()
    with LOADING:  # a fork holds it
        IMPORTING[token] = get_ident()
    try:
        return load()
    finally:
        del IMPORTING[token]


def lazy_names(
    package: str, names: dict[str, str], modules: str = "", before: "Callable[[], None] | None" = None
) -> "tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]":
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose names are imported on first use.

    `names` has the names that each module of the package defines, separated by spaces, and `modules` the
    public modules; `before` is called before each import.
    """
    module_of = {name: module for module, own in names.items() for name in own.split()}
    listed = sorted([*module_of, *modules.split()])

    def __getattr__(name: str) -> "Any":
        if name not in listed:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if before is not None:
            before()
        with LOADING:  # a fork waits for these imports
            from importlib import import_module

            import_module(f"{_PACKAGE}forks")
            value = import_module(f"{package}.{module_of.get(name, name)}")
            if name in module_of:
                value = getattr(value, name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__, lambda: listed, listed


def is_installed(name: str) -> bool:
    """Whether a module can be imported; imports nothing of it, nor the packages that it is in."""
    import importlib.util

    if name in sys.modules:
        return sys.modules[name] is not None
    top, *inner = name.split(".")
    spec = importlib.util.find_spec(top)
    for each in inner:
        folders = spec.submodule_search_locations if spec is not None else None
        top = f"{top}.{each}"
        spec = importlib.machinery.PathFinder.find_spec(top, folders) if folders is not None else None
    # A plain folder of that name is a namespace package, whose spec has no loader.
    return spec is not None and spec.loader is not None


def installed_version(name: str, distribution: str) -> str | None:
    """Return the version of a module: its own if it is imported, else that of its distribution."""
    if is_imported(name):
        loaded = getattr(sys.modules[name], "__version__", None)
        if isinstance(loaded, str):
            return loaded
    from importlib import metadata

    def names() -> "Iterator[str]":
        # Some builds for CPUs have a distribution of their own.
        yield from filter(None, [distribution.partition("=")[0], name, f"{name}-cpu"])
        # Last, because this reads the files of all distributions: 0.24 s where 128 are installed.
        yield from metadata.packages_distributions().get(name, ())

    for each in names():
        try:
            return metadata.version(each)
        except metadata.PackageNotFoundError:
            continue
    return None


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the first three numbers of a version: ``(2, 11, 0)`` for ``"2.11.0+cu130"``."""
    import re

    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def is_imported(name: str) -> bool:
    """Whether the import of a module has finished; a lazy module (`LazyLoader`) must have run.

    While a thread imports a module, ``sys.modules`` has it already, without most of its names.
    """
    module = sys.modules.get(name)
    return not (module is None or is_lazy(module) or getattr(spec_of(module), "_initializing", False))


def is_lazy(module: "Any") -> bool:
    """Whether an attribute of a module would load it; reads no attribute."""
    util = sys.modules.get("importlib.util")  # without it, nothing makes lazy modules
    return isinstance(module, getattr(util, "_LazyModule", ()))


def spec_of(module: "Any") -> "Any":
    """Return a module's spec without its own ``__getattribute__`` or ``__getattr__``."""
    try:
        return object.__getattribute__(module, "__spec__")
    except AttributeError:
        return None
