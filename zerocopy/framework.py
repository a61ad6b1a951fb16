"""``Framework``: what a framework's one file says about it, and nothing more.

A framework is a *source* (``owns``, ``source``), a *target* (``reasons``,
``from_host``, and for GPUs ``from_device``), or both. Everything between the two
is the same for all frameworks and lives in :mod:`zerocopy.planner`.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from zerocopy.device import Device, parse_device
from zerocopy.dtype import DType
from zerocopy.errors import (
    DeviceError,
    FrameworkNotInstalledError,
    Reason,
    UnsupportedConversionError,
)
from zerocopy.source import FORMS as FORMS
from zerocopy.source import Array as Array
from zerocopy.source import Source as Source
from zerocopy.strided import StridedView

if TYPE_CHECKING:
    from zerocopy.pool.hook import PoolHook
    from zerocopy.tables.column import Column, Table


class Framework:
    """Base of all frameworks: subclass it in one file and say what differs.

    Attributes
    ----------
    name : str
        The import name, which is what ``to=`` takes.
    kind : str
        ``"tensor"``, ``"table"`` or ``"both"``.
    roots : tuple of str
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
    moves : bool
        Whether it has `move`; one that lives on the host alone needs none.
    temporal : bool
        Whether its arrays hold dates and durations of 64 bits, as NumPy's do.
    oldest : str
        The oldest version that is used; nothing for any.
    lends_dlpack : bool
        Whether it takes device memory through each protocol and exports it through
        DLPack: then it lends its exporter to memory whose producer has none (law 7).
    """

    name: str = ""
    kind: str = "tensor"
    roots: tuple[str, ...] = ()
    distribution: str = ""
    device_kinds: tuple[str, ...] = ("cpu",)
    mutable: bool = True
    marks_readonly: bool = False
    moves: bool = False
    temporal: bool = False
    oldest: str = ""
    lends_dlpack: bool = False
    _module: ModuleType | None = None

    @property
    def tables(self) -> bool:
        """Whether it takes tables: then a dict is one, and columns keep their own types."""
        return self.kind != "tensor"

    # -- presence ---------------------------------------------------------------

    def module(self) -> ModuleType:
        """Import the framework and return its top module.

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
        if self.oldest and _numbers(version) < _numbers(self.oldest):
            raise FrameworkNotInstalledError(
                f"to={self.name!r}",
                f"{self.name} {version} is installed, and {self.oldest} is the oldest that is right",
                f"pip install '{self.distribution or self.name}>={self.oldest}'",
            )
        self._module = found
        return found

    def installed(self) -> bool:
        """Whether it could be imported; nothing is imported to find out."""
        if self.name in sys.modules:
            return sys.modules[self.name] is not None
        spec = importlib.util.find_spec(self.name)
        # Any folder of that name on the path is a namespace package to Python, and
        # has no origin: a checkout, say, or a folder of tests.
        return spec is not None and spec.origin is not None

    # -- as a source ------------------------------------------------------------

    def owns(self, cls: type) -> bool:
        """Whether objects of that type are this framework's; `cls` is from one of `roots`."""
        return False

    def source(self, obj: Any) -> Source:
        """Describe an object that the framework owns.

        Raises
        ------
        ZeroCopyError
            What cannot be described at all: no memory, no values, no such dtype.
        """
        raise NotImplementedError

    # -- as a target ------------------------------------------------------------

    def is_native(self, obj: Any) -> bool:
        """Whether an owned object is already what a conversion to the framework returns."""
        return True

    def reasons(self, view: StridedView) -> list[Reason]:
        """Return why host memory so laid out cannot be aliased; an empty list if it can.

        A copy is row-major, at a multiple of 64 bytes, and has the same dtype.

        Raises
        ------
        ZeroCopyError
            No copy would help either: the dtype is lacking, too many dimensions.
        """
        raise NotImplementedError

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
        """
        raise NotImplementedError

    def device_reasons(self, view: StridedView) -> list[Reason]:
        """As `reasons`, for device memory; refuses what the framework lacks."""
        return self.reasons(view)

    def from_device(self, source: Source, stream: int | None) -> Any:
        """Make an object that aliases device memory, ordered on the consumer's stream."""
        raise UnsupportedConversionError(
            f"to={self.name!r}",
            f"{self.name} takes no memory on {source.view.device}",
            "bring it to the host first",
        )

    def carries(self, view: StridedView) -> bool:
        """Whether `from_device` and a copy of what it returns are safe for such device memory.

        Asked before memory that is known by protocol alone is copied by way of the
        framework (:func:`zerocopy.registry.carrier`).
        """
        return not self.device_reasons(view)

    def move(self, obj: Any, device: Device, stream: int | None) -> Any:
        """Return a fresh copy of an own object on a device; never an alias."""
        raise UnsupportedConversionError(
            f"to={self.name!r}, device={str(device)!r}",
            f"{self.name} cannot move arrays to {device}",
            f"ask for one of its own devices: {', '.join(self.device_kinds)}",
        )

    def parse_device(self, spec: Any) -> Device:
        """Return the device of ``device=``; override to take the framework's own objects."""
        found = parse_device(spec)
        if found is None:
            raise DeviceError(
                f"to={self.name!r}, device={spec!r}",
                "it is no device",
                'write "cpu", "cuda", "cuda:1", or a DLPack pair such as (2, 0)',
            )
        return found

    def default_device(self, view: StridedView) -> Device:
        """Return where the result goes when nothing is asked: where it is, if it can be there."""
        if view.device.kind in self.device_kinds:
            return view.device
        return Device({"cpu": 1, "cuda": 2}[self.device_kinds[0]], 0)

    def check_device(self, device: Device) -> None:
        """Check that the framework can use a device.

        Raises
        ------
        DeviceError
            It cannot, or the device does not exist.
        """
        if device.kind not in self.device_kinds:
            raise DeviceError(
                f"to={self.name!r}, device={str(device)!r}",
                f"{self.name} has no arrays on {device.kind}",
                f"it has them on: {', '.join(self.device_kinds)}",
            )

    def devices(self) -> list[str]:
        """Return the devices that an imported framework sees, for people to read."""
        return list(self.device_kinds)

    def variant(self, form: str) -> Framework | None:
        """Return the framework for ``to="name.Form"``, or None: most have one form."""
        return None

    # -- tables -----------------------------------------------------------------

    def table(self, obj: Any, index: bool | None = None) -> Table | None:
        """Describe an object that the framework owns as columns; None for a tensor.

        Parameters
        ----------
        obj : object
        index : bool, optional
            What ``index=`` asks for, where rows have labels.
        """
        return None

    def column_reasons(self, column: Column) -> list[Reason]:
        """Return why a column that comes in is copied; an empty list if all of it is aliased.

        Raises
        ------
        ZeroCopyError
            The framework cannot hold it: the reason begins with what follows "column 'x'".
        """
        return column.arrow_reasons()

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        """Return why each column is copied for its place in a table, beside its `column_reasons`."""
        return [[] for _ in table.columns]

    def locks(self, column: Column) -> bool:
        """Whether a column that is aliased cannot be written to in place."""
        return False

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        """Return what of a table does not survive, and why."""
        return ()

    def alias_warnings(self, table: Table) -> tuple[str, ...]:
        """Return what to beware of where the framework aliases some of a table."""
        if self.mutable or not any(column.changes for column in table.columns):
            return ()
        return (
            f"{self.name} takes its memory never to change: writing to the source would change "
            "the result (copy=True takes a snapshot)",
        )

    def from_table(self, table: Table) -> Any:
        """Make a table of columns that `column_reasons` took."""
        raise NotImplementedError

    def from_column(self, table: Table) -> Any:
        """Make a column of the only one of a table that is a series."""
        raise NotImplementedError

    # -- memory -----------------------------------------------------------------

    def pool_hook(self) -> PoolHook | None:
        """Return how it is put on a memory pool: a fresh hook; None if it takes no allocator."""
        return None

    # -- the hot path -----------------------------------------------------------

    def exports(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        """Return fast exporters of one type, a form each (see `FORMS`).

        They take an object of exactly that type and return it in that form, or
        raise anything at all: then the conversion goes the careful way. What they
        return must be right. An empty dict keeps a type off the hot path.
        """
        return {}

    def imports(self) -> dict[str, Callable[[Any], Any]]:
        """Return fast importers a form, the cheapest first; the same rule about raising."""
        return {}


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
