"""``Framework``: all that zerocopy knows about one framework, in one class.

A framework is a source (`owns`, `as_ndarray`, for tables `table`), a target (`copy_reasons`,
`of_ndarray`, for devices `from_device`, for tables `from_table`), or both. The base class derives the
rest for arrays on the host. A plugin author subclasses `Framework` and imports from this module alone.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NewType, TypeVar

from zerocopy.device import HOST as HOST, Device as Device, parse_device
from zerocopy.dtype import DType as DType, by_name as by_name, from_numpy as from_numpy
from zerocopy.errors import (
    CopyRequiredError as CopyRequiredError,
    DeviceError as DeviceError,
    DeviceOptionError,
    Fix as Fix,
    FrameworkNotInstalledError,
    LossyConversionError as LossyConversionError,
    Reason as Reason,
    UnsupportedConversionError as UnsupportedConversionError,
)
from zerocopy.forks import (
    is_installed as is_installed,
    version_numbers as version_numbers,
    while_forks_wait as while_forks_wait,
)
from zerocopy.protocols.array_interface import aligned_copy, host_view
from zerocopy.protocols.exporter_errors import check_descriptors, is_error
from zerocopy.source import (
    FORMS as FORMS,
    Array as Array,
    Source as Source,
    identity as identity,
    lacking,
    refuse_dtype as refuse_dtype,
    refuse_ndim as refuse_ndim,
)
from zerocopy.strided_view import StridedView as StridedView

if TYPE_CHECKING:
    from zerocopy.tables.column import Column, Table

#: A name that a program reads or computes, for type checkers: ``to=FrameworkName(name)``.
FrameworkName = NewType("FrameworkName", str)

#: Names that a table framework needs, by module of zerocopy.tables; loaded on first use.
_TABLE_NAMES = {"Table": "column", "Column": "column", "Masked": "result", "Encoded": "result"}
_TABLE_NAMES |= {"ArrowColumn": "arrow_column", "TensorColumn": "tensor_column"}
_TABLE_NAMES |= {"Decoder": "decode", "Nulls": "nulls"}


def __getattr__(name: str) -> Any:
    if name not in _TABLE_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__package__}.tables.{_TABLE_NAMES[name]}"), name)


class Framework:
    """Base class of all frameworks.

    Attributes
    ----------
    name, aliases : str, tuple of str
        The import name, which ``to=`` takes; other names, for which an error suggests it: ``"np"``.
    kind : str
        ``"tensor"``, ``"table"``, ``"both"``, ``"column"`` for any columns, ``"compound"`` for sparse arrays,
        ``"source"`` for objects that are converted, of a library that is neither a target nor listed.
    kinds : mapping of str
        By class: the result of `zerocopy.kind`, None, or a function of the object. `kind` decides for others.
    types, forms : tuple of str
        Attributes of its module that ``to=`` takes too: ``torch.Tensor`` for ``"Tensor"``.
        Classes of its module that ``to="name.Class"`` chooses; the framework for one has it as its `form`.
    root_modules, classes : tuple of str
        Top-level modules that define its types; full names of classes that it owns, with their subclasses.
    distribution, install_hint, min_version, made_by : str
        The argument of ``pip install``; how else to install it; oldest version; code that makes one of ``x``.
    device_kinds : tuple of str
        Kinds of devices that hold its arrays, the preferred one first: ``("cpu", "cuda")``.
    can_copy_to_device, can_cast, can_export_dlpack : bool
        Whether it implements `copy_to_device`, and `cast`. Whether it takes device memory by each protocol,
        and exports it by DLPack for other producers (law 7).
    aliases_host, packs_booleans : bool
        Whether `from_host` aliases memory; if False, it copies, and `copy_reasons` always has a reason.
        Whether `from_host` packs booleans into bits, and keeps bytes as Arrow's ``bool8``.
    mutable, marks_readonly : bool
        Whether callers can write to its arrays; whether it can mark memory as read-only.
    has_datetime64, has_records : bool
        Whether its arrays hold NumPy's ``datetime64`` and ``timedelta64``; its structured types.
    has_dimensions, keeps_metadata, reads_views, runs_queries, nan_is_null : bool
        Whether columns of a table can have different rows; whether tables keep a schema's metadata;
        whether it takes Arrow's views of text; whether its tables are queries, which each export runs;
        whether ``nulls=`` applies to NaN in its floats.
    max_ndim, options : int, tuple of str
        The most dimensions of its arrays. By default NumPy 2's limit, because NumPy passes host memory on.
        Options that few targets support, such as ``"connection"``; `from_table` reads ``table.options``.
    actions : mapping of str to Fix
        Expressions over its objects, by the `Fix.action` that they replace in messages.
    slow_reads, unwrap : str
        The layout of aliases that it reads slowly: ``"gaps"``, ``"not row-major"``; how to call `unwrapped`.

    Examples
    --------
    >>> import zerocopy as zc
    >>> class Rings(zc.Framework):
    ...     name, distribution = "ringbuf", "ringbuf"
    >>> Rings().installed()  # zc.register(Rings()) adds it to the known frameworks
    False
    """

    name: str = ""
    aliases: tuple[str, ...] = ()
    kind: str = "tensor"
    kinds: Mapping[str, Any] = {}
    types: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    form: str | None = None
    root_modules: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    made_by: str = ""
    distribution: str = ""
    install_hint: str = ""
    min_version: str = ""
    device_kinds: tuple[str, ...] = ("cpu",)
    can_copy_to_device: bool = False
    can_cast: bool = False
    can_export_dlpack: bool = False
    aliases_host: bool = True
    slow_reads: str = ""
    packs_booleans: bool = False
    mutable: bool = True
    marks_readonly: bool = False
    has_datetime64: bool = False
    has_records: bool = False
    keeps_metadata: bool = True
    has_dimensions: bool = False
    reads_views: bool = True
    runs_queries: bool = False
    nan_is_null: bool = False
    max_ndim: int = 64
    options: tuple[str, ...] = ()
    actions: Mapping[str, Fix] = {}
    unwrap: str = ""
    _module: ModuleType | None = None

    @property
    def tables(self) -> bool:
        """Whether it has tables: a dict of columns then converts to one table."""
        return self.kind in ("table", "both")

    def module(self) -> ModuleType:
        """Import the framework and return its top-level module.

        Raises
        ------
        FrameworkNotInstalledError
            It is not installed, is older than `min_version`, or its import fails.
        """
        if self._module is not None and sys.modules.get(self.name) is self._module:
            return self._module
        try:
            module = self._import()
        except Exception as error:  # TypeError: TensorFlow with a new protobuf; AttributeError: MXNet
            if not is_error(error):
                raise
            check_descriptors(error, self.name)
            absent = isinstance(error, ModuleNotFoundError) and error.name == self.name
            why = f"{self.name} is not installed" if absent else f"importing it failed: {error}"
            remedy = self.install_hint or f"pip install {self.distribution or self.name}"
            raise FrameworkNotInstalledError(f"to={self.name!r}", why, remedy) from error
        version = str(getattr(module, "__version__", ""))
        if self.min_version and version_numbers(version) < version_numbers(self.min_version):
            why = f"{self.name} {version} is installed; the oldest supported version is {self.min_version}"
            remedy = f"pip install '{self.distribution or self.name}>={self.min_version}'"
            raise FrameworkNotInstalledError(f"to={self.name!r}", why, remedy)
        self._module = module
        return module

    def _import(self) -> ModuleType:
        if not self.installed():  # a plain folder of that name can be imported
            raise ModuleNotFoundError(f"No module named {self.name!r}", name=self.name)
        # It waits for a thread that is still importing the module; torch crashes if used earlier.
        module: ModuleType = while_forks_wait(partial(importlib.import_module, self.name))
        return module

    def installed(self) -> bool:
        """Whether the framework can be imported; imports nothing."""
        return is_installed(self.name)

    def has_hook(self, name: str) -> bool:
        """Whether there is a file or class of the hook `name`, such as ``"pool"``; imports nothing."""
        return bool(hook_modules(type(self), name))  # type: ignore[arg-type]

    def owns(self, cls: type) -> bool:
        """Whether `cls`, or one of its bases, is a class of its arrays; by default, one of `classes`."""
        return any(f"{base.__module__}.{base.__name__}" in self.classes for base in cls.__mro__)

    def as_ndarray(self, obj: Any) -> tuple[Array, DType]:
        """Return a new ndarray that aliases `obj`, an owned object on the host, and the dtype of its values.

        The ndarray has that dtype's ``storage``, is read-only if the memory is immutable, and keeps the
        memory alive. Raises ``ZeroCopyError`` if no memory holds the values.
        """
        raise lacking(self.name, "as_ndarray")

    def source(self, obj: Any) -> Source:
        """Describe the memory of `obj`, an owned object, without a copy; raise if it has none or no dtype."""
        array, dtype = self.as_ndarray(obj)
        return Source(f"{self.name}.{type(obj).__name__}", host_view(array, dtype), array.view)

    def allocation(self, obj: Any, address: int) -> tuple[int, int] | None:
        """Return the bounds of the allocation that holds `obj`, an owned object, at `address`, if known."""
        return None

    def table(self, obj: Any, index: bool | None = None) -> Table | None:
        """Describe `obj` as columns, without a copy; None for a tensor. `index` is the option ``index=``."""
        return None

    def unwrapped(self, obj: Any) -> Any:
        """Return the object of another framework, or the dict, that `obj` stands for; or `obj` itself."""
        return obj

    def is_native(self, obj: Any) -> bool:
        """Whether ``convert`` returns `obj`, an owned object, itself."""
        return self.form is None or isinstance(obj, getattr(self.module(), self.form))

    def like(self, obj: Any) -> Framework:
        """Return the framework that makes objects with the labels of `obj`, an owned object."""
        return self

    def labelled(self, result: Any, obj: Any) -> Any:
        """Return `result` with the labels of `obj`, both owned objects, for the dimensions that agree."""
        return result

    def label_warnings(self, obj: Any, target: Framework, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return which labels of `obj`, an owned object, a conversion to `target` with `options` loses."""
        return ()

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        """Return why `view`, host memory, must be copied before the framework can alias it.

        The copy is row-major, 64-byte aligned and of the same dtype. Raises ``ZeroCopyError``
        if a copy does not help: the framework lacks the dtype or the number of dimensions.
        """
        raise lacking(self.name, "copy_reasons")

    def check_view(
        self,
        view: StridedView,
        names: Collection[str] | None = None,
        fixes: Callable[[DType], list[Fix]] | None = None,
    ) -> None:
        """Check that `view` has a dtype in `names`, else with `fixes` or a cast, and few dimensions."""
        if names is not None and view.dtype.name not in names:
            raise refuse_dtype(self.name, view.dtype, fixes=() if fixes is None else fixes(view.dtype))
        if len(view.shape) > self.max_ndim:
            raise refuse_ndim(self.name, view, self.max_ndim)

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        """Return an object of the framework over `array`, which has no `copy_reasons`.

        `array` holds elements of `dtype` as ``dtype.storage``, and is read-only if the memory is
        immutable. It is aliased, or copied if `aliases_host` is False.
        """
        raise lacking(self.name, "of_ndarray")

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        """Return `of_ndarray` of `array` and `dtype`, or a copy on another `device`, ordered on `stream`."""
        result = self.of_ndarray(array, dtype)
        return result if device.is_host else self.copy_to_device(result, device, stream)

    def variant(self, form: str) -> Framework | None:
        """Return the framework for ``to="name.form"``; None if it does not have `form`."""
        if form not in self.forms:
            return None
        framework = copy.copy(self)
        framework.form = form
        return framework

    def device_copy_reasons(self, view: StridedView) -> list[Reason]:
        """Return why `view`, memory of any device, must be copied on that device; as `copy_reasons`."""
        return self.copy_reasons(view)

    def from_device(self, source: Source, stream: int | None) -> Any:
        """Return an object that aliases `source`, device memory without `device_copy_reasons`.

        It is ordered on `stream`, the consumer's, and keeps the memory alive.

        Raises
        ------
        UnsupportedConversionError
            The framework cannot import memory of that device.
        """
        asked, why = f"to={self.name!r}", f"{self.name} cannot import memory on {source.view.device}"
        raise UnsupportedConversionError(asked, why, "copy it to the host first", code="other-device")

    def can_relay(self, view: StridedView) -> bool:
        """Whether `from_device` and a copy are safe for `view`, memory that its producer cannot copy."""
        return not self.device_copy_reasons(view)

    def fill(self, obj: Any) -> Callable[[Any], Any]:
        """Return a function that copies an owned array of the same shape, dtype and device into `obj`."""
        return partial(self._write, obj)

    def _write(self, obj: Any, value: Any) -> None:
        self.source(obj).view.numpy()[...] = self.source(value).host()

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        """Return a copy on `device` of `obj`, an object of the framework, ordered on `stream`.

        Raises
        ------
        UnsupportedConversionError
            The framework has no such device.
        """
        if device.is_host and _implements(self, "of_ndarray"):
            array, dtype = self.as_ndarray(obj)
            return self.of_ndarray(aligned_copy(array), dtype)
        asked = f"to={self.name!r}, device={str(device)!r}"
        why = f"{self.name} cannot copy arrays to {device}"
        remedy = f"pass one of its devices: {', '.join(self.device_kinds)}"
        raise UnsupportedConversionError(asked, why, remedy, code="other-device")

    def cast(self, obj: Any, dtype: DType) -> tuple[Any, bool]:
        """Return `obj`, an owned object, cast to `dtype` on its device, and whether all values fit.

        False also means that the framework cannot check them: zerocopy then checks them on the host.
        """
        raise lacking(self.name, "cast")

    def parse_dtype(self, spec: Any) -> DType | None:
        """Return the type of numbers that `spec`, a dtype object whose text is not a standard name, names."""
        return None

    def parse_device(self, spec: Any) -> Device:
        """Return the device that `spec`, the option ``device=`` or a device object of its own, names.

        Raises
        ------
        DeviceOptionError
            `spec` does not name a device.
        """
        device = parse_device(spec)
        if device is None:
            remedy = 'pass "cpu", "cuda", "cuda:1" or a DLPack pair such as (2, 0)'
            asked, fix = f"to={self.name!r}, device={spec!r}", Fix(options={"device": self.device_kinds[0]})
            raise DeviceOptionError(asked, "it does not name a device", remedy, fixes=[fix])
        return device

    def default_device(self, view: StridedView) -> Device:
        """Return the result's device if the caller names none: that of `view`, or else the preferred one."""
        if view.device.kind in self.device_kinds:
            return view.device
        return Device({"cpu": 1, "cuda": 2}[self.device_kinds[0]], 0)

    def check_device(self, device: Device) -> None:
        """Check that the framework can use `device`.

        Raises
        ------
        DeviceError
            The framework does not support it, or it does not exist.
        """
        if device.kind not in self.device_kinds:
            why = f"{self.name} has no arrays on {device.kind}"
            fixes = [Fix(options={"device": kind}) for kind in self.device_kinds]
            raise DeviceError(f"to={self.name!r}, device={str(device)!r}", why, fixes=fixes)

    def devices(self) -> list[str]:
        """Return the devices that the imported framework sees: ``"cpu"``, ``"cuda:0"``, ..."""
        return list(self.device_kinds)

    def is_out_of_memory(self, error: Exception) -> bool:
        """Whether `error`, never a ``MemoryError``, means out of memory; ``convert`` then raises that."""
        return False

    def column_reasons(self, column: Column) -> list[Reason]:
        """Return why `column` must be copied, none if all is aliased; ``ZeroCopyError`` refuses it."""
        return column.arrow_reasons()

    def partial_bytes(self, column: Column) -> tuple[int, int] | None:
        """Return the bytes that are aliased and copied of a `column` with reasons; None if unknown."""
        return None

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        """Return, for each column of `table`, reasons for a copy that depend on others; raise for labels."""
        return [[] for _ in range(len(table.columns))]

    def guards_writes(self, column: Column) -> bool:
        """Whether the framework itself prevents writes to an alias of `column`."""
        return False

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        """Return warnings about properties of `table` that the framework cannot keep; raise nothing."""
        return ()

    def alias_warnings(self, table: Table) -> tuple[str, ...]:
        """Return warnings for a result that aliases part of `table`."""
        if self.mutable or not any(column.changes for column in table.columns):
            return ()
        why = f"{self.name} assumes that its memory is immutable"
        return (f"{why}: writing to the source would change the result (copy=True takes a snapshot)",)

    def select_metadata(self, metadata: dict[bytes, bytes], labels: Sequence[str]) -> dict[bytes, bytes]:
        """Return a schema's `metadata`, with its entry `name` adapted to the columns `labels`."""
        return metadata

    def unnamed_index(self, metadata: dict[bytes, bytes]) -> Collection[str]:
        """Return the columns that are row labels without a name, by a schema's `metadata`."""
        return ()

    def is_tensor_type(self, extension: str) -> bool:
        """Whether tensors hold the storage of `extension`, the name of an Arrow type of the framework."""
        return False

    def from_table(self, table: Table) -> Any:
        """Return a table over `table`: it aliases columns without `column_reasons`, and keeps them alive."""
        raise lacking(self.name, "from_table")

    def from_column(self, table: Table) -> Any:
        """Return a column of the framework over the only column of `table`; as `from_table`."""
        raise lacking(self.name, "from_column")

    def fast_exporters(self, cls: type) -> dict[str, Callable[..., Any]]:
        """Return exporters for objects of exactly the type `cls`, by form (see `FORMS`).

        An exporter returns the object in that form. If it raises anything, the conversion takes
        the slow path. An empty dict keeps the type off the fast path. The form ``native`` may be None.
        """
        return {"ndarray": self._export_ndarray} if _implements(self, "as_ndarray") else {}

    def fast_importers(self) -> dict[str, Callable[..., Any]]:
        """Return importers by form, the cheapest first; each aliases its argument or raises."""
        return {"ndarray": self._import_ndarray} if _implements(self, "of_ndarray") else {}

    def _export_ndarray(self, obj: Any) -> Array:
        array, dtype = self.as_ndarray(obj)
        if not dtype.in_numpy or array.base is None:  # an array without a base is a copy
            raise BufferError("a dtype that NumPy lacks, or a copy")
        return array

    def _import_ndarray(self, array: Array) -> Any:
        dtype = from_numpy(array.dtype)
        if dtype is None or (self.copy_reasons(host_view(array, dtype)) and self.aliases_host):
            raise BufferError("a dtype or layout that needs a copy")
        # A view, because the caller can change the shape of the array itself.
        return self.of_ndarray(array.view(dtype.storage), dtype)


def _implements(framework: Framework, hook: str) -> bool:
    return getattr(type(framework), hook) is not getattr(Framework, hook)


# A hook is the part of a framework that one package of zerocopy calls, such as the pool. It is a class with
# the name of its base class without "Hook", in the framework's own file, or in ``pool.py`` in its folder. A
# framework inherits the hooks of its base classes.
Hook = TypeVar("Hook")


def hook_of(framework: Framework | None, base: type[Hook]) -> Hook:
    """Return the framework's hook of the class `base`, made once; a `base()` if it has none."""
    return _hook(type(framework), base)  # type: ignore[arg-type, no-any-return]


def hook_class(framework: type, base: type[Hook]) -> type[Hook]:
    """Return the class of the hook of a framework's class; `base` if it has none."""
    name = base.__name__.removesuffix("Hook")
    for module in hook_modules(framework, name.lower()):
        cls = getattr(importlib.import_module(module), name, None)
        # A plugin's folder can have a file of that name for another purpose.
        if isinstance(cls, type) and issubclass(cls, base):
            return cls
    return base


@cache
def _hook(framework: type, base: type[Any]) -> Any:
    return hook_class(framework, base)()


@cache
def hook_modules(framework: type, name: str) -> tuple[str, ...]:
    """Return the modules that can have the hook `name` of a framework's class; imports none of them."""
    title, modules = name.capitalize(), []
    for cls in framework.__mro__:
        module = sys.modules.get(cls.__module__)
        hook = vars(module).get(title) if module is not None else None
        # A plugin's file can have another class of that name, such as multiprocessing's Pool.
        if any(base.__name__ == f"{title}Hook" for base in getattr(hook, "__mro__", ())):
            modules.append(cls.__module__)
        elif hasattr(module, "__path__") and importlib.util.find_spec(f"{cls.__module__}.{name}") is not None:
            modules.append(f"{cls.__module__}.{name}")
    return tuple(modules)
