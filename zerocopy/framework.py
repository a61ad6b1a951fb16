"""``Framework``: what a framework's one file says about it, and nothing more.

A framework is a *source* (``owns``, ``source``), a *target* (``reasons``,
``from_host``, and for GPUs ``from_device``), or both. Everything between the two
is the same for all frameworks and lives in :mod:`zerocopy._engine.planner`. What it says of devices
and of tables has defaults in :mod:`zerocopy.device_hooks` and :mod:`zerocopy.table_hooks`.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from zerocopy.device import Device
from zerocopy.device_hooks import DeviceHooks
from zerocopy.dtype import DType
from zerocopy.errors import FrameworkNotInstalledError, UnsupportedConversionError, lacking
from zerocopy.source import FORMS as FORMS
from zerocopy.source import Array as Array
from zerocopy.source import Source as Source
from zerocopy.strided_view import StridedView
from zerocopy.table_hooks import TableHooks


class Framework(DeviceHooks, TableHooks):
    """Base of all frameworks: subclass it in one file and say what differs.

    Attributes
    ----------
    name : str
        The import name, which is what ``to=`` takes.
    kind : str
        ``"tensor"``, ``"table"`` or ``"both"``.
    root_modules : tuple of str
        Top-level modules that define the framework's types, for finding an
        object's framework from its type without importing anything.
    distribution : str
        What ``pip install`` takes.
    device_kinds : tuple of str
        Where its arrays live, the preferred one first: ``("cpu", "cuda")``.
    mutable : bool
        Whether its arrays can be written to.
    marks_readonly : bool
        Whether it can mark an alias of immutable memory as read-only.
    can_copy_to_device : bool
        Whether it has `copy_to_device`; one that lives on the host alone needs none.
    has_datetime64 : bool
        Whether its arrays hold dates and durations of 64 bits, as NumPy's do.
    min_version : str
        The oldest version that is used; nothing for any.
    can_export_dlpack : bool
        Whether it takes device memory through each protocol and exports it through
        DLPack: then it lends its exporter to memory whose producer has none (law 7).
    pool_hook : str
        Location of its `zerocopy.pool.hook.PoolHook` as ``"module:Class"``; empty if it takes no
        allocator.

    Examples
    --------
    >>> import zerocopy as zc
    >>> class Rings(zc.Framework):
    ...     name, distribution = "ringbuf", "ringbuf"
    >>> Rings().installed()  # zc.register(Rings()) would make it known
    False
    """

    name: str = ""
    kind: str = "tensor"
    root_modules: tuple[str, ...] = ()
    distribution: str = ""
    device_kinds: tuple[str, ...] = ("cpu",)
    mutable: bool = True
    marks_readonly: bool = False
    can_copy_to_device: bool = False
    has_datetime64: bool = False
    min_version: str = ""
    can_export_dlpack: bool = False
    pool_hook: str = ""
    _module: ModuleType | None = None

    @property
    def tables(self) -> bool:
        """Whether it takes tables: then a dict is one, and columns keep their own types."""
        return self.kind != "tensor"

    # -- presence ---------------------------------------------------------------

    def module(self) -> ModuleType:
        """Import the framework and return its top module.

        Returns
        -------
        module
            Of the import name.

        Raises
        ------
        FrameworkNotInstalledError
            It is not installed, or its own import fails.
        """
        if self._module is not None and sys.modules.get(self.name) is self._module:
            return self._module
        try:
            # Not looked up in sys.modules: there stands a module that another thread
            # is still importing, and torch crashes when it is used then. This waits.
            found = importlib.import_module(self.name)
        except ImportError as error:
            absent = isinstance(error, ModuleNotFoundError) and error.name == self.name
            raise FrameworkNotInstalledError(
                f"to={self.name!r}",
                f"{self.name} is not installed" if absent else f"importing it failed: {error}",
                f"pip install {self.distribution or self.name}",
            ) from error
        version = str(getattr(found, "__version__", ""))
        if self.min_version and _numbers(version) < _numbers(self.min_version):
            raise FrameworkNotInstalledError(
                f"to={self.name!r}",
                f"{self.name} {version} is installed, and {self.min_version} is the oldest that is right",
                f"pip install '{self.distribution or self.name}>={self.min_version}'",
            )
        self._module = found
        return found

    def installed(self) -> bool:
        """Whether it could be imported; nothing is imported to find out.

        Returns
        -------
        bool
            False for a folder of that name, which Python takes for a package.
        """
        return is_installed(self.name)

    # -- as a source ------------------------------------------------------------

    def owns(self, cls: type) -> bool:
        """Whether objects of that type are this framework's; `cls` is from one of `root_modules`.

        Parameters
        ----------
        cls : type
            An object's type.

        Returns
        -------
        bool
            False makes it nobody's, unless another framework has the root too.
        """
        return False

    def source(self, obj: Any) -> Source:
        """Describe an object that the framework owns.

        Parameters
        ----------
        obj : object
            Of a type that it `owns`.

        Returns
        -------
        Source
            Its memory; nothing is copied for it.

        Raises
        ------
        ZeroCopyError
            What cannot be described at all: no memory, no values, no such dtype.
        """
        raise lacking(self.name, "source")

    # -- as a target ------------------------------------------------------------

    def is_native(self, obj: Any) -> bool:
        """Whether an owned object is already what a conversion to the framework returns.

        Parameters
        ----------
        obj : object
            Of a type that it `owns`.

        Returns
        -------
        bool
            True: such an object comes back as it is.
        """
        return True

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        """Make an object of host memory that has no `reasons` against it.

        Parameters
        ----------
        array : numpy.ndarray
            In ``dtype.storage``; read-only if the memory is immutable.
        dtype : DType
            What the elements are.
        device : Device
            Where the result is to be; on the host it aliases `array`.
        stream : int or None
            For a transfer to a device: the stream to put it on.

        Returns
        -------
        object
            One of the framework's; on the host an alias that keeps `array` alive.
        """
        raise lacking(self.name, "from_host")

    def variant(self, form: str) -> Framework | None:
        """Return the framework for ``to="name.Form"``, or None: most have one form.

        Parameters
        ----------
        form : str
            What stands after the first full stop.

        Returns
        -------
        Framework or None
            One of its own, whose name has the form.
        """
        return None

    # -- the hot path -----------------------------------------------------------

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        """Return fast exporters of one type, a form each (see `FORMS`).

        They take an object of exactly that type and return it in that form, or
        raise anything at all: then the conversion goes the careful way. What they
        return must be right. An empty dict keeps a type off the hot path.

        Parameters
        ----------
        cls : type
            One that it `owns`.

        Returns
        -------
        dict of str to callable
            ``export(obj)`` by form.
        """
        return {}

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        """Return fast importers a form, the cheapest first; the same rule about raising.

        Returns
        -------
        dict of str to callable
            ``import_(memory)`` by form, which aliases what it is given.
        """
        return {}


def is_installed(name: str) -> bool:
    """Whether a top-level module can be imported; nothing is imported."""
    if name in sys.modules:
        return sys.modules[name] is not None
    spec = importlib.util.find_spec(name)
    # A folder of that name on the path is a namespace package, which has no origin.
    return spec is not None and spec.origin is not None


def _numbers(version: str) -> list[int]:
    """Return a version's numbers, as far as there are numbers."""
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def as_it_is(obj: Any) -> Any:
    """Pass an object on: for exporters and importers whose form it already has."""
    return obj


def refuse_dtype(target: str, dtype: DType, remedy: str = "") -> UnsupportedConversionError:
    """Return the error for a dtype that a target lacks."""
    return UnsupportedConversionError(
        f"to={target!r}",
        f"{target} has no {dtype.name}",
        remedy or "cast it to a type that both have, in the source framework",
    )


def refuse_ndim(target: str, view: StridedView, most: int) -> UnsupportedConversionError:
    """Return the error for more dimensions than a target takes."""
    return UnsupportedConversionError(
        f"to={target!r}",
        f"the array has {view.ndim} dimensions and {target} takes {most} at most",
        "reshape it, or squeeze dimensions of size 1",
    )
