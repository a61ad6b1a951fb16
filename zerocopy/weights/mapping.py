"""``Weights``: the lazy mapping that ``open_weights`` returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from zerocopy._engine import recording
from zerocopy._engine.convert import convert
from zerocopy._engine.explain import explain
from zerocopy._engine.options import ResultT
from zerocopy.errors import CopyRequiredError, Reason, ZeroCopyError
from zerocopy.errors.tracebacks import public
from zerocopy.formatting import format_bytes, format_count, printable
from zerocopy.plan import Plan
from zerocopy.protocols.array_interface import ALIGNMENT, address
from zerocopy.weights.file import Array, Tensor, WeightFile, read_block

#: The format of which the command writes an aligned copy, and the fix that names it.
_ALIGNED = ".safetensors"
_ALIGN = "zerocopy align {path} writes a copy of the file in which it is aliased"
_COMPRESSED = "the archive's member is compressed, and each use inflates it into new memory"
_PAD = _ALIGN.replace("align {path}", "align --pad {path}")


class Weights(Mapping[str, ResultT]):
    """The tensors of files of weights by their names; :func:`zerocopy.open_weights` returns it.

    A tensor is converted each time that it is taken: ``weights["name"]``. `read` converts several in one
    pass. Keys, `tensors` and `metadata` come from the headers of the files.

    Attributes
    ----------
    to : str, module or type
        The target of the conversions.
    tensors : mapping of str to Tensor
        For each name: ``dtype``, ``shape``, ``nbytes``, ``file``, ``offset``, and ``packed``, the name of
        a type that is loaded as bytes.
    metadata : dict
        The metadata of the files.

    Examples
    --------
    >>> import numpy as np, tempfile, zerocopy as zc
    >>> path = tempfile.mkdtemp() + "/model.npz"
    >>> np.savez(path, w=np.ones((2, 3), "float32"), b=np.zeros(3, "float32"))
    >>> weights = zc.open_weights(path, to="numpy")
    >>> list(weights), weights.tensors["w"].shape, weights["b"]
    (['w', 'b'], (2, 3), array([0., 0., 0.], dtype=float32))
    """

    def __init__(
        self,
        sources: dict[str, tuple[WeightFile, Tensor]],
        metadata: Mapping[str, Any],
        to: Any,
        options: Mapping[str, Any],
        paths: Sequence[str],
        reload: Callable[..., Weights[ResultT]],
    ) -> None:
        self._sources = sources
        self.tensors: Mapping[str, Tensor] = MappingProxyType({n: t for n, (_, t) in sources.items()})
        self.metadata: dict[str, Any] = dict(metadata)
        self.to: Any = to
        self._options, self._paths, self._reload = dict(options), tuple(paths), reload
        self._writable = self._options.get("writable") is True
        self._is_copied: dict[Any, bool] = {}  # whether convert copies tensors of one dtype and alignment

    def __getitem__(self, name: str) -> ResultT:
        return self.read([name])[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def keys(self) -> KeysView[str]:
        """Return the names, in the order of the files.

        Returns
        -------
        KeysView of str
            A set whose text has the names.
        """
        return self._sources.keys()

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __eq__(self, other: object) -> bool:  # Mapping's would read the tensors
        return object.__eq__(self, other)

    __hash__ = object.__hash__

    @property
    def nbytes(self) -> int:
        """Number of bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @public
    def read(self, names: Iterable[str] | None = None) -> dict[str, ResultT]:
        """Return tensors in the target framework.

        Parameters
        ----------
        names : iterable of str, optional
            Default: all.

        Returns
        -------
        dict of str to array
            Arrays that alias the mapping keep it. Those that the target can only alias at a multiple of
            64 bytes, and all of them with ``copy=True``, are read in parallel into one block of memory,
            which each of them keeps.

        Raises
        ------
        KeyError
            A name is not that of a tensor.
        ReadError
            A file has changed since it was opened, or cannot be read.
        ZeroCopyError
            As :func:`zerocopy.convert`.
        """
        names = self._checked(names)
        options = self._options
        self.__zerocopy_check__(options, names)
        arrays = self._arrays(names)
        copied = [name for name, array in arrays.items() if self._is_read(name, array)]
        converted = {}
        if copied:
            blocks = read_block([self._sources[name] for name in copied])
            of_block = {name: value for name, value in options.items() if name != "copy"}
            converted = {
                name: self._convert(name, block, of_block) for name, block in zip(copied, blocks, strict=True)
            }
        return {
            name: converted[name] if name in converted else self._convert(name, array, options)
            for name, array in arrays.items()
        }

    @public
    def explain(self, names: Iterable[str] | None = None) -> Plan:
        """Describe how `read` would give tensors: which are aliased, which are copied, and why.

        Parameters
        ----------
        names : iterable of str, optional
            Default: all.

        Returns
        -------
        Plan
            ``leaves`` has the plan of each tensor by its path, such as ``"['name']"``. The error that `read`
            would raise, such as `ReadError` for damaged bytes, is in the attribute ``error``.

        Raises
        ------
        KeyError
            A name is not that of a tensor.
        ReadError
            A file has changed since it was opened.
        """
        sources = {name: self._sources[name] for name in self._checked(names)}
        part: Weights[Any] = Weights(
            sources, self.metadata, self.to, self._options, self._paths, self._reload
        )
        return explain(part, self.to, **{"leaves": "keep", **self._options})

    def __zerocopy_annotate__(
        self, leaves: dict[str, Plan], options: Mapping[str, Any]
    ) -> tuple[str, dict[str, Plan]]:
        """Return a text for all tensors, and their plans completed; ``zc.explain`` calls it."""
        is_alias = options.get("copy") is False
        pairs = zip(self.tensors, leaves.items(), strict=True)
        completed = {path: self._completed(name, leaf, is_alias) for name, (path, leaf) in pairs}
        return self._summary(self._sources), completed

    def _completed(self, name: str, leaf: Plan, is_alias: bool) -> Plan:
        """Return the plan of a tensor with the warnings and fixes of its file."""
        tensor, warnings = self.tensors[name], leaf.warnings
        if warnings:  # a write to an alias of read-only memory
            warnings = ("a write to the result changes it for this process alone, and not the file",)
        if tensor.packed:
            warnings += (f"it has the bytes of {tensor.packed}, a type that NumPy lacks",)
        reasons, steps = leaf.reasons, leaf.steps
        if leaf.possible and tensor.file.endswith(_ALIGNED):
            reasons = tuple(_with_align(reason, tensor) for reason in reasons)
        if tensor.order == "F" and _are_read({reason.code for reason in reasons}):
            steps = tuple(step.replace("row-major", "column-major") for step in steps)
        leaf = replace(leaf, warnings=warnings, reasons=reasons, steps=steps)
        is_inflated = tensor.read is not None and tensor.nbytes and leaf.possible
        return self._with_inflation(name, leaf, is_alias) if is_inflated else leaf

    def _with_inflation(self, name: str, leaf: Plan, is_alias: bool) -> Plan:
        """Return the plan of a compressed tensor with the memory into which it is inflated."""
        error = self._compressed(name)
        leaf = replace(leaf, zero_copy=False, aliased_bytes=0)
        if is_alias:
            refused = replace(leaf, possible=False, copied_bytes=0, steps=(), warnings=())
            return replace(refused, error=error, reasons=(error.reason,))
        return replace(
            leaf,
            copied_bytes=leaf.copied_bytes + self.tensors[name].nbytes,
            steps=("inflate it into new memory", *leaf.steps),
            reasons=(Reason(_COMPRESSED, error.remedy, code="compressed"), *leaf.reasons),
        )

    def _compressed(self, name: str) -> CopyRequiredError:
        """Return the error for a compressed tensor with ``copy=False``."""
        path = self.tensors[name].file
        stored = f"{os.path.splitext(path)[0]}.stored.npz"
        fix = f"numpy.savez({stored!r}, **numpy.load({path!r})) writes a file without compression"
        asked = f"open_weights({path!r}, to={self.to!r})[{name!r}]"
        return CopyRequiredError(asked, f"copy=False, but {_COMPRESSED}", fix)

    def __zerocopy_check__(self, options: Mapping[str, Any], names: Iterable[str] | None = None) -> None:
        """Refuse ``copy=False`` of compressed tensors; ``convert`` calls it before `__zerocopy_open__`."""
        if options.get("copy") is False:
            for name in self.tensors if names is None else names:
                if self.tensors[name].read is not None and self.tensors[name].nbytes:
                    raise self._compressed(name)

    def __zerocopy_open__(self, target: str = "", names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return tensors as arrays over the mappings; ``convert`` and ``save`` call it."""
        return self._arrays(self._checked(names))

    def __reduce__(self) -> Any:
        paths = [os.path.abspath(path) for path in self._paths]  # of any working directory
        return self._reload, (paths, self.to, self._options)

    def __repr__(self) -> str:
        return printable(f"<zerocopy.Weights: {self._summary(self._sources)}, to={self.to!r}>")

    def _summary(self, names: Collection[str]) -> str:
        nbytes = sum(self.tensors[each].nbytes for each in names)
        return f"{self._files()} with {format_count(len(names), 'tensor')} of {format_bytes(nbytes)}"

    def _files(self) -> str:
        return self._paths[0] if len(self._paths) == 1 else format_count(len(self._paths), "file")

    def _checked(self, names: Iterable[str] | None) -> list[str]:
        """Return names of tensors, whose files have not changed."""
        names = list(self._sources if names is None else names)
        for file in {self._sources[name][0] for name in names if name in self._sources}:
            file.check()
        for name in names:
            if name not in self._sources:
                near = get_close_matches(str(name), self._sources, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                verb = "has" if len(self._paths) == 1 else "have"
                raise KeyError(f"{self._files()} {verb} no tensor {name!r}{hint}")
        return names

    def _arrays(self, names: Iterable[str]) -> dict[str, Array]:
        sources = ((name, *self._sources[name]) for name in names)
        return {name: file.array(tensor, self._writable) for name, file, tensor in sources}

    def _convert(self, name: str, array: Array, options: Mapping[str, Any]) -> Any:
        tensor = self.tensors[name]
        path = tensor.file
        recording.thread.place = f"zc.open_weights({path!r})[{name!r}]"
        try:
            return convert(array, self.to, **options)
        except ZeroCopyError as error:
            if isinstance(error, CopyRequiredError):
                remedy = error.remedy  # of `forbid_copies`
                if options.get("copy") is False:
                    remedy = f"zc.open_weights({path!r}, to={self.to!r}) copies where a copy is needed"
                if path.endswith(_ALIGNED) and tensor.offset % ALIGNMENT:
                    remedy = f"{_align(tensor)}; or {remedy}"
                error.with_context(remedy=remedy)
            elif error.calls:  # they name the array x
                first = f"x = {recording.thread.place}; "
                error.calls = tuple(first + call for call in error.calls)
                error.with_context(remedy=first + error.remedy)
            asked = f"open_weights({path!r}, to={self.to!r})[{name!r}]"
            raise error.with_context(asked=asked) from error.__cause__
        finally:
            recording.thread.place = "x"

    def _is_read(self, name: str, array: Array) -> bool:
        """Whether a tensor is read into a block, because the target would copy it from the mapping."""
        tensor, options = self.tensors[name], self._options
        # A recording counts the copies that `convert` makes, with their reasons.
        if recording.counters is not None:
            return False
        if tensor.offset < 0 or not array.size or options.get("copy") is False or "dtype" in options:
            return False
        key = (array.dtype, address(array) % ALIGNMENT, array.ndim > 0, tensor.order)
        known = self._is_copied.get(key)
        if known is None:
            plan = explain(array, self.to, **options)
            codes = {reason.code for reason in plan.reasons}
            known = plan.possible and _are_read(codes)
            self._is_copied[key] = known
        return known


def _are_read(codes: set[str]) -> bool:
    """Whether a tensor that is copied for reasons of these codes is read into a block instead."""
    return bool(codes) and codes <= {"misaligned", "copy-requested"}


def _align(tensor: Tensor) -> str:
    """Return the command after which a tensor is aligned: without gaps, those of odd sizes are not."""
    return (_PAD if tensor.nbytes % ALIGNMENT else _ALIGN).format(path=tensor.file)


def _with_align(reason: Reason, tensor: Tensor) -> Reason:
    return Reason(reason.why, _align(tensor), code=reason.code) if reason.code == "misaligned" else reason
