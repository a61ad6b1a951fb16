"""The known frameworks, by name and by type; this file names none of them.

A file or folder under ``zerocopy/_frameworks/`` registers a framework: its name is the import
name, with ``_`` for a dot, and it defines ``FRAMEWORK``, an instance of :class:`Framework`. Other packages
register through the entry point group ``zerocopy.frameworks``, or call :func:`register`.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from zerocopy import _frameworks, forks
from zerocopy.errors import DeviceError, UnknownFrameworkError, ZeroCopyError
from zerocopy.forks import installed_version, is_imported as is_imported
from zerocopy.formatting import printable
from zerocopy.framework import Framework, while_forks_wait
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView

ENTRY_POINTS = f"{__package__}.frameworks"

# Held while the tables below change, never to convert or import: the module of an entry point can call
# register() in one thread while another thread waits for its import.
_lock = forks.lock()


class _Known(dict[type, "Framework | None"]):
    """Frameworks by type, or None: in CPython 3.13t, ``dict.get`` spins on the lock that it has."""

    def __missing__(self, cls: type) -> None:
        return None


_known: dict[str, Framework] = {}
_by_root: dict[str, list[Framework]] = {}
# Weak references, so that classes created at run time can be freed.
_by_type: WeakKeyDictionary[type, Framework] = WeakKeyDictionary()
# Types that their modules define, which last as long as the process. Looking one up takes half the time that
# it takes with weak references, and no lock on free-threaded builds.
_by_lasting_type: _Known = _Known()
_variants: dict[tuple[str, str], Framework] = {}
#: Containers that no framework owns: each call asks several times, and a negative answer is not cached.
_OF_PYTHON = frozenset((dict, list, tuple))
_all_loaded = False
_listeners: list[Any] = []


@dataclass(frozen=True, slots=True)
class FrameworkInfo:
    """One known framework, as :func:`frameworks` lists it.

    Attributes
    ----------
    name : str
        The import name; ``to=`` takes it.
    kind : str
        ``"tensor"``, ``"table"`` or ``"both"``.
    installed : bool
        Whether it can be imported; it is not imported to find out.
    version : str or None
        None if it is not installed, or has no known version.
    devices : tuple of str
        If it is imported, the devices that it sees; otherwise the kinds that it supports.
    install : str
        Command that installs it.

    Examples
    --------
    >>> import zerocopy as zc
    >>> row = zc.frameworks()["numpy"]
    >>> row.kind, row.devices, row.install
    ('tensor', ('cpu',), 'pip install numpy')
    """

    name: str
    kind: str
    installed: bool
    version: str | None
    devices: tuple[str, ...]
    install: str


_COLUMNS = ("name", "kind", "devices", "installed")


class Frameworks(dict[str, FrameworkInfo]):
    """The known frameworks by name; terminals and notebooks show a table."""

    def _rows(self) -> list[tuple[str, str, str, str]]:
        """Return the cells of the table."""
        return [
            (
                each.name,
                each.kind,
                ", ".join(each.devices),
                (each.version or "yes") if each.installed else each.install,
            )
            for each in self.values()
        ]

    def __repr__(self) -> str:
        rows = [_COLUMNS, *self._rows()]
        rows = [(name, kind, _cut(devices, 16), installed) for name, kind, devices, installed in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join(_cut(printable(line), 80) for line in lines)

    def _repr_html_(self) -> str:
        from zerocopy.formatting import html

        return html.table(f"{len(self)} frameworks", self._rows(), _COLUMNS)


def _cut(text: str, width: int) -> str:
    """Return a text, shortened to a number of characters."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def register(framework: Framework) -> None:
    """Add a framework, or replace the one with the same name.

    Parameters
    ----------
    framework : Framework
        An instance of a subclass; ``to=`` then takes its ``name``, unless its ``kind`` is ``"source"``.

    Raises
    ------
    TypeError
        It is not a :class:`zerocopy.Framework`, or has no name.

    Examples
    --------
    >>> import zerocopy as zc
    >>> class Mine(zc.Framework):
    ...     name = "mine"
    ...     root_modules = ("mine",)
    >>> zc.register(Mine())
    """
    given: Any = framework
    if not isinstance(given, Framework) or not given.name or not isinstance(given.name, str):
        raise TypeError(f"register() takes an instance of zerocopy.Framework, not {framework!r}")
    add(framework)
    for clear in _listeners:
        clear()


def on_change(clear: Any) -> None:
    """Call `clear` whenever a framework is added or replaced, to drop cached routes."""
    _listeners.append(clear)


def add(framework: Framework, replaces: bool = True) -> None:
    """Add a framework whose types no route has seen; one that `replaces` none can be registered already."""
    global _by_type, _by_lasting_type, _variants
    with _lock:
        old = _known.get(framework.name)
        if old is not None and not replaces:
            return
        for owners in _by_root.values():
            if old in owners:
                owners.remove(old)
        for root in framework.root_modules or (framework.name,):
            owners = _by_root.setdefault(root, [])
            if framework not in owners:
                owners.append(framework)
        # Last, because a forked child continues with the tables as they are: a framework that `_known`
        # lacks is loaded again.
        if framework.kind != "source":
            _known[framework.name] = framework
        # New tables: a thread that found an owner before stores it in the old ones.
        _by_type, _by_lasting_type, _variants = WeakKeyDictionary(), _Known(), {}


@cache
def _builtin_names() -> tuple[str, ...]:
    path = _frameworks.__path__
    names = tuple([m.name for m in pkgutil.iter_modules(path) if m.name[0] != "_"])
    if not names:
        os.listdir(path[0])  # raises the error that pkgutil hides, such as that no file descriptor is free
    return names


def _load(name: str) -> None:
    """Load a framework's file if it is not loaded yet."""
    if not _all_loaded and name not in _known and name in _builtin_names():
        with forks.LOADING:  # a fork waits for this import
            module = import_module(f"{__package__}._frameworks.{name}")
        add(module.FRAMEWORK, replaces=False)


def _load_all() -> None:
    global _all_loaded
    if _all_loaded:
        return
    for name in _builtin_names():
        _load(name)
    while_forks_wait(_load_entry_points)
    _all_loaded = True


def _load_entry_points() -> None:
    # Imported here because the import takes 14 ms of the 30 ms of a first convert.
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        if point.name not in _known:
            loaded = point.load()
            add(loaded() if isinstance(loaded, type) else loaded, replaces=False)


def by_name(to: Any, option: str = "to") -> Framework:
    """Return the framework that the argument ``to`` names.

    Parameters
    ----------
    to : str or module
        ``"torch"``, or ``"pyarrow.Tensor"`` if a framework has several forms.

    Raises
    ------
    UnknownFrameworkError
        The remedy has the nearest known names.
    """
    if (framework := find(to)) is not None:
        return framework
    why = "it is not the name of a known framework"
    raise UnknownFrameworkError(f"{option}={to!r}", why, suggest(str(getattr(to, "__name__", to))))


def find(to: Any) -> Framework | None:
    """Return the framework that a name, a name with a form, or a module names; None for anything else."""
    if type(to) is str and to in _known:
        return _known[to]
    name: Any = getattr(to, "__name__", None) if type(to) is type(sys) else to
    if not issubclass(type(name), str):  # not isinstance, which reads __class__: a property can raise
        return None
    top, _, form = name.partition(".")
    # An import name can have a dot.
    named = (_variant(top, form) or _known.get(name)) if form else _find(name)
    if named is None and name is not to:  # a module can have another name than that of its import
        named = next((known for known in _known.values() if sys.modules.get(known.name) is to), None)
    return named


def suggest(name: str) -> str:
    """Return the advice for a name that is not known: the nearest names, and all names."""
    import difflib

    _load_all()
    lower = name.lower()
    near = [f.name for f in _known.values() if lower in f.aliases or lower.partition(".")[0] == f.name]
    near = near or difflib.get_close_matches(lower, _known, n=1, cutoff=0.5)
    owners = (f for f in readers() if lower and f.kind == "source")
    source = next((f for f in owners if lower in (f.name.lower(), f.distribution.lower())), None)
    if source is not None:
        made = f"{source.made_by} makes one; or " if source.made_by else ""
        return f"{made}{source.name} is a source and not a target: choose from {', '.join(sorted(_known))}"
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return f"{hint}choose from {', '.join(sorted(_known))}"


def _variant(top: str, form: str) -> Framework | None:
    variants = _variants
    framework = variants.get((top, form))
    if framework is None:
        base = _find(top)
        framework = base.variant(form) if base is not None else None
        if framework is not None:
            variants[top, form] = framework
    return framework


def _find(name: str) -> Framework | None:
    framework = _known.get(name)
    if framework is None:
        _load(name)
        framework = _known.get(name)
    if framework is None and not _all_loaded:
        _load_all()
        framework = _known.get(name)
    return framework


def by_type(cls: type) -> Framework | None:
    """Return the framework that owns a type, or None.

    The modules that define the type and its bases decide; no framework is imported
    (law 2). A negative answer is not cached (law 3): a framework can be registered later.
    """
    is_hashable = type(cls).__hash__ is type.__hash__  # that of a metaclass can be missing, or raise
    if is_hashable:
        framework = _by_lasting_type[cls] or _by_type.get(cls)
        if framework is not None or cls in _OF_PYTHON:
            return framework
    # The file named after the type's root module comes first: loading the other files and
    # the entry points takes 14 ms, once.
    _load(root := _root(cls))
    lasting, others = _by_lasting_type, _by_type  # before the search, because `add` replaces them
    framework = _owner(cls, root)
    if framework is None:
        _load_all()
        owners = (_owner(cls, _root(base)) for base in cls.__mro__)
        framework = next((owner for owner in owners if owner is not None), None)
    if framework is not None and is_hashable:
        (lasting if lasts(cls) else others)[cls] = framework
    return framework


def target_of(cls: type) -> Framework | None:
    """Return the framework that owns a type, if it is a target."""
    framework = by_type(cls)
    return None if framework is None or framework.kind == "source" else framework


def lasts(cls: type) -> bool:
    """Whether the module of a type has it under its name; reads no attribute of a lazy module."""
    module = sys.modules.get(str(getattr(cls, "__module__", "")))
    return type(module) is type(sys) and vars(module).get(cls.__name__) is cls


def by_metadata_key(key: bytes) -> Framework | None:
    """Return the framework whose import name is a key of an Arrow schema's metadata, or None."""
    _load(name := key.decode(errors="replace"))
    return _known.get(name)


def _root(cls: type) -> str:
    return str(getattr(cls, "__module__", "")).partition(".")[0]


def _owner(cls: type, root: str) -> Framework | None:
    """Return the framework that owns `cls`, among those of a root module."""
    for framework in tuple(_by_root.get(root, ())):
        if framework.owns(cls):
            return framework
    return None


def by_root(cls: type) -> tuple[Framework, ...]:
    """Return the frameworks whose root modules define a type, whether or not they own it."""
    root = _root(cls)
    if root not in _by_root and root not in ("numpy", "builtins"):
        _load_all()
    return tuple(_by_root.get(root, ()))


def relay(view: StridedView, *, dlpack: bool = False, cast: bool = False) -> Framework:
    """Return a framework, preferably imported, that copies or exports device memory for a producer.

    Parameters
    ----------
    view : StridedView
        The memory. The framework must accept its layout: torch aborts on negative strides.
    dlpack, cast : bool
        Whether its arrays must export DLPack; whether it must be able to cast them on their device.

    Raises
    ------
    DeviceError
        No installed framework reaches the device and accepts the memory.
    """
    from zerocopy.protocols import cuda_driver  # here, because most memory is on the host

    _load_all()
    device = view.device
    on_device = [f for f in _known.values() if f.can_copy_to_device and device.kind in f.device_kinds]
    candidates = [f for f in on_device if f.can_export_dlpack >= dlpack and f.can_cast >= cast]
    refusals = []
    # Importing a framework takes seconds, and without a driver none reaches the device.
    imports = device.kind != "cuda" or cuda_driver.driver() is not None
    for framework in sorted(candidates, key=lambda f: (not is_imported(f.name), not f.can_export_dlpack)):
        if not framework.installed() or not (imports or is_imported(framework.name)):
            continue
        try:
            framework.module()
            framework.check_device(device)
            if framework.can_relay(view):
                return framework
            refusals.append(f"{framework.name} does not accept its layout")
        except ZeroCopyError as error:
            refusals.append(f"{framework.name}: {error.why}")
    verb = "cast" if cast else "export" if dlpack else "copy"
    raise DeviceError(
        f"device={str(device)!r}",
        f"no installed framework can {verb} this memory on {device}"
        + "".join(f"; {refusal}" for refusal in refusals),
        "install one that can: " + ", ".join(sorted(f.name for f in candidates)),
        code="no-relay",
    )


def dlpack_producer(source: Source) -> Any:
    """Return a producer of device memory that exports DLPack, for consumers that import nothing else.

    Of memory that has only the CUDA Array Interface, it is an array of a framework that has both (law 7).
    """
    if hasattr(type(source.producer), "__dlpack__"):
        return source.producer
    framework = relay(source.view, dlpack=True)
    return framework.source(framework.from_device(source, None)).producer


def source_of(framework: Framework, obj: Any) -> Source:
    """Describe an object of a framework as one array."""
    source = framework.source(obj)
    source.framework, source.obj = framework, obj
    return source


class RelayedCopy:
    """``Source.to_host`` of device memory whose producer has protocols only: a framework copies it."""

    __slots__ = ("_source",)

    def __init__(self, source: Source) -> None:
        self._source = source

    def check(self) -> None:
        """Raise the `DeviceError` of `relay` if no framework can copy the memory."""
        relay(self._source.view)

    def __call__(self, stream: int | None) -> Array:
        framework = relay(self._source.view)
        relayed = framework.source(framework.from_device(self._source, None))
        assert relayed.to_host is not None
        return relayed.to_host(stream)


def out_of_memory(error: Exception) -> str | None:
    """Return the framework whose out-of-memory error this is, or None.

    All imported frameworks are tried: a relay can run out of memory with another framework's memory.
    """
    for framework in tuple(_known.values()):
        # A framework that another thread is still importing has not raised it.
        if is_imported(framework.name) and framework.is_out_of_memory(error):
            return framework.name
    return None


def imported() -> list[Framework]:
    """Return the known frameworks whose modules are imported."""
    _load_all()
    return [framework for framework in tuple(_known.values()) if is_imported(framework.name)]


def known() -> list[Framework]:
    """Return all known frameworks."""
    _load_all()
    return list(_known.values())


def readers() -> list[Framework]:
    """Return all known frameworks, and those that are sources alone."""
    _load_all()
    return list(dict.fromkeys(owner for owners in _by_root.values() for owner in owners))


def frameworks() -> dict[str, FrameworkInfo]:
    """Return the known frameworks with their versions and devices; import none of them.

    Returns
    -------
    dict of str to FrameworkInfo
        In alphabetical order of the names.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.frameworks()["numpy"].installed
    True
    """
    _load_all()
    # Reading the metadata of distributions imports modules.
    return while_forks_wait(lambda: Frameworks((n, _info(f)) for n, f in sorted(_known.items())))  # type: ignore[no-any-return]


def _info(framework: Framework) -> FrameworkInfo:
    installed = framework.installed()
    loaded = is_imported(framework.name)
    return FrameworkInfo(
        framework.name,
        framework.kind,
        installed,
        installed_version(framework.name, framework.distribution) if installed else None,
        tuple(framework.devices()) if installed and loaded else framework.device_kinds,
        f"pip install {framework.distribution or framework.name}",
    )
