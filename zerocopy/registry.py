"""Which frameworks there are, by name and by object; nothing here names one.

A framework's file under ``zerocopy/_frameworks/`` is its registration: the file's
name is the import name, and it holds one subclass of :class:`Framework` called
``FRAMEWORK``. Packages elsewhere register through the entry point group
``zerocopy.frameworks``, or by calling :func:`register`.
"""

from __future__ import annotations

import pkgutil
import sys
import threading
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

import zerocopy._frameworks
from zerocopy.errors import DeviceError, UnknownFrameworkError, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.strided_view import StridedView

ENTRY_POINTS = "zerocopy.frameworks"

# Guards loading and registering, never a conversion; re-entrant, since an entry
# point's module may call register() while it is being loaded.
_lock = threading.RLock()
_known: dict[str, Framework] = {}
_by_root: dict[str, list[Framework]] = {}
# Weak, so that classes made on the fly can go.
_by_type: WeakKeyDictionary[type, Framework] = WeakKeyDictionary()
_variants: dict[tuple[str, str], Framework] = {}
_all_loaded = False
_listeners: list[Any] = []


@dataclass(frozen=True, slots=True)
class FrameworkInfo:
    """One row of :func:`frameworks`.

    Attributes
    ----------
    name : str
        The import name, which is what ``to=`` takes.
    kind : str
        ``"tensor"``, ``"table"`` or ``"both"``.
    installed : bool
        Whether it could be imported; it has not been tried.
    version : str or None
        None if it is not installed, or does not say it.
    devices : tuple of str
        Of one that is imported, those that it sees; otherwise those that it can have.
    install : str
        The line that installs it.

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


def register(framework: Framework) -> None:
    """Add a framework, or replace the one of that name.

    Parameters
    ----------
    framework : Framework
        An instance of a subclass; its ``name`` is what ``to=`` will take.

    Raises
    ------
    TypeError
        It is no :class:`zerocopy.Framework`, or has no name.

    Examples
    --------
    >>> import zerocopy as zc
    >>> class Mine(zc.Framework):
    ...     name = "mine"
    ...     root_modules = ("mine",)
    >>> zc.register(Mine())
    """
    if not isinstance(framework, Framework) or not framework.name or not isinstance(framework.name, str):
        raise TypeError(f"register() takes an instance of zerocopy.Framework, not {framework!r}")
    with _lock:
        _add(framework)
    for forget in _listeners:
        forget()


def on_change(forget: Any) -> None:
    """Have `forget` called whenever a framework is added or replaced, to drop what was built."""
    _listeners.append(forget)


def _add(framework: Framework) -> None:
    old = _known.get(framework.name)
    if old is not None:
        for owners in _by_root.values():
            if old in owners:
                owners.remove(old)
    _known[framework.name] = framework
    for root in framework.root_modules or (framework.name,):
        _by_root.setdefault(root, []).append(framework)
    _by_type.clear()
    _variants.clear()


def _builtin_names() -> list[str]:
    return [m.name for m in pkgutil.iter_modules(zerocopy._frameworks.__path__)]


def _load(name: str) -> None:
    """Load a framework's own file, once; with the lock held."""
    # Once all are loaded the folder is not listed again: for a dict, which is nobody's,
    # that was most of what convert took.
    if not _all_loaded and name not in _known and name in _builtin_names():
        module = import_module(f"zerocopy._frameworks.{name}")
        _add(module.FRAMEWORK)


def _load_all() -> None:
    global _all_loaded
    if _all_loaded:
        return
    with _lock:
        for name in _builtin_names():
            _load(name)
        # Here and not above: it takes 14 ms to import, of the 30 that a first convert takes.
        from importlib.metadata import entry_points

        for point in entry_points(group=ENTRY_POINTS):
            if point.name not in _known:
                loaded = point.load()
                _add(loaded() if isinstance(loaded, type) else loaded)
        _all_loaded = True


def by_name(to: Any) -> Framework:
    """Return the framework that ``to=`` names.

    Parameters
    ----------
    to : str or module
        ``"torch"``, or ``"pyarrow.Tensor"`` where a framework has several forms.

    Raises
    ------
    UnknownFrameworkError
        With the nearest names that are known.
    """
    name = getattr(to, "__name__", None) if type(to) is type(sys) else to
    if isinstance(name, str):
        top, _, form = name.partition(".")
        found = _variant(top, form) if form else _find(name)
        if found is not None:
            return found
    _load_all()
    import difflib

    near = difflib.get_close_matches(str(name).lower(), _known, n=3, cutoff=0.5)
    raise UnknownFrameworkError(
        f"to={to!r}",
        "it names no framework that is known",
        (f"did you mean {' or '.join(map(repr, near))}? " if near else "")
        + f"Known: {', '.join(sorted(_known))}",
    )


def _variant(top: str, form: str) -> Framework | None:
    found = _variants.get((top, form))
    if found is None:
        base = _find(top)
        found = base.variant(form) if base is not None else None
        if found is not None:
            _variants[top, form] = found
    return found


def _find(name: str) -> Framework | None:
    found = _known.get(name)
    if found is None:
        with _lock:
            _load(name)
        found = _known.get(name)
    if found is None and not _all_loaded:
        _load_all()
        found = _known.get(name)
    return found


def by_type(cls: type) -> Framework | None:
    """Return the framework whose objects have that type, or None.

    Found from the names of the modules that define the type and its bases; no
    import is tried (law 2). A negative answer is not kept (law 3): a framework
    may be registered later.
    """
    found = _by_type.get(cls)
    if found is None:
        # A type that its own framework's file claims needs no other file, and no look
        # at the entry points, which takes 14 ms once.
        with _lock:
            _load(_root(cls))
        found = _owner(cls, cls)
    if found is None:
        _load_all()
        owners = (_owner(cls, base) for base in cls.__mro__)
        found = next((owner for owner in owners if owner is not None), None)
    if found is not None:
        _by_type[cls] = found
    return found


def _root(cls: type) -> str:
    return str(getattr(cls, "__module__", "")).partition(".")[0]


def _owner(cls: type, base: type) -> Framework | None:
    """Return the framework that claims `cls`, asked because of where `base` is defined."""
    owners = (f for f in tuple(_by_root.get(_root(base), ())) if f.owns(cls))
    return next(owners, None)


def relay(view: StridedView, *, dlpack: bool = False) -> Framework:
    """Return a framework that can copy or export memory on a device, for producers that cannot.

    One that is imported already is preferred to one that would have to be.

    Parameters
    ----------
    view : StridedView
        The memory: not every framework takes every layout (torch aborts the process
        over negative strides), so the one that is lent must.
    dlpack : bool
        Ask for one whose arrays export DLPack, to lend its exporter to a producer that
        has the CUDA Array Interface alone.

    Raises
    ------
    DeviceError
        None that is installed reaches the device and takes the memory.
    """
    _load_all()
    device = view.device
    able = [f for f in _known.values() if f.can_copy_to_device and device.kind in f.device_kinds]
    if dlpack:
        able = [f for f in able if f.can_export_dlpack]
    why = []
    for framework in sorted(able, key=lambda f: (f.name not in sys.modules, not f.can_export_dlpack)):
        if not framework.installed():
            continue
        try:
            framework.module()
            framework.check_device(device)
            if framework.can_relay(view):
                return framework
            why.append(f"{framework.name} does not take its layout")
        except ZeroCopyError as error:
            why.append(f"{framework.name}: {error.why}")
    raise DeviceError(
        f"device={str(device)!r}",
        f"no installed framework can {'export' if dlpack else 'copy'} this memory on {device}"
        + "".join(f"; {reason}" for reason in why),
        "install one that can: " + ", ".join(sorted(f.name for f in able)),
    )


def out_of_memory(error: Exception) -> str | None:
    """Return the framework whose error says that there is no memory left; None if none's does.

    All that are imported are asked: one may have been lent to memory that is another's.
    """
    for framework in tuple(_known.values()):
        if sys.modules.get(framework.name) is not None and framework.is_out_of_memory(error):
            return framework.name
    return None


def pool_hooks() -> list[Any]:
    """Return a new hook of each framework that has a `Framework.pool_hook`."""
    _load_all()
    locations = (framework.pool_hook for framework in _known.values() if framework.pool_hook)
    return [pkgutil.resolve_name(location)() for location in locations]


def frameworks() -> dict[str, FrameworkInfo]:
    """Return what is known: installed or not, its version, its devices.

    Nothing is imported: devices are those that a framework can have in principle
    until it is imported, and those that it sees afterwards.

    Returns
    -------
    dict of str to FrameworkInfo
        By name, in alphabetical order.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.frameworks()["numpy"].installed
    True
    """
    _load_all()
    return {name: _info(framework) for name, framework in sorted(_known.items())}


def _info(framework: Framework) -> FrameworkInfo:
    installed = framework.installed()
    loaded = framework.name in sys.modules
    return FrameworkInfo(
        framework.name,
        framework.kind,
        installed,
        _version(framework) if installed else None,
        tuple(framework.devices()) if installed and loaded else framework.device_kinds,
        f"pip install {framework.distribution or framework.name}",
    )


def _version(framework: Framework) -> str | None:
    loaded = getattr(sys.modules.get(framework.name), "__version__", None)
    if isinstance(loaded, str):
        return loaded
    from importlib import metadata

    names = metadata.packages_distributions().get(framework.name) or []
    for distribution in [*names, framework.distribution.partition("=")[0], framework.name]:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
        except ValueError:  # an empty distribution name
            continue
    return None
