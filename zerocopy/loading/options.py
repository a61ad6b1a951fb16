"""The options of ``loader``, checked once, and errors of conversions in their terms."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from zerocopy._engine.call_text import arguments, rewrite
from zerocopy._engine.target import text
from zerocopy.errors import ZeroCopyError
from zerocopy.errors.invalid_option import nearest
from zerocopy.loading.errors import LoaderOptionError
from zerocopy.tables.options import is_encoding

#: The least number of batches in a window, if the caller passes ``shuffle=True``.
_WINDOW_BATCHES = 16
#: Least number of row groups in such a window, and its largest size in bytes.
_WINDOW_GROUPS, _WINDOW_BYTES = 4, 256 << 20
#: The targets of conversions on the host.
_HOSTS = ("numpy", "pyarrow", "pyarrow.Table")
_CALL, _LOADER = "zc.convert(x, ", "zc.loader(source, "


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """The options of ``loader``; their meaning is documented there."""

    to: Any
    batch: int = 8192
    columns: Sequence[Hashable] | None = None
    nulls: Any = None
    encode: Any = None
    layout: str | None = None
    lists: str | None = None
    pad: Any = None
    max_length: int | None = None
    dtype: Any = None
    shuffle: bool | int | str = False
    seed: int = 0
    prefetch: int = 2
    device: Any = None
    drop_last: bool = False
    shard: tuple[int, int] = (0, 1)
    epochs: int = 1
    on_error: str = "raise"
    schema: Any = None
    progress: bool | None = None
    decode: str | None = None

    def __post_init__(self) -> None:
        """Check the values that need no data."""
        for name, (is_valid, why, fix) in _CHECKS.items():
            value = getattr(self, name)
            if not is_valid(value):
                near = nearest(value, _NAMES.get(name, ()))
                raise LoaderOptionError(
                    f"loader({name}={value!r})",
                    why,
                    f'did you mean {name}="{near}"?' if near else f"pass {fix}",
                )

    @property
    def is_shuffled(self) -> bool:
        """Whether rows are permuted."""
        return bool(self.shuffle)

    @property
    def is_encoded(self) -> bool:
        """Whether types that tensors lack become numbers."""
        return self.encode is not None and self.encode is not False

    @property
    def has_masks(self) -> bool:
        """Whether a column has a mask."""
        return self._has_choice("mask")

    @property
    def drops_rows(self) -> bool:
        """Whether rows with nulls are left out of batches."""
        return self._has_choice("drop")

    def _has_choice(self, name: str) -> bool:
        choices = self.nulls.values() if isinstance(self.nulls, Mapping) else [self.nulls]
        return any(isinstance(choice, str) and choice == name for choice in choices)

    @property
    def is_matrix(self) -> bool:
        """Whether a batch is one tensor."""
        return self.layout == "matrix"

    @property
    def decoding(self) -> dict[str, Any]:
        """Options of the conversion of columns to arrays on the host."""
        encode = self.encode if self.is_encoded else None
        if isinstance(encode, Mapping):  # the source has the codes; text of other columns stays bytes
            encode = {name: False for name, choice in encode.items() if choice is False} or True
        options = {"nulls": self.nulls, "encode": encode, "dtype": self.dtype}
        options |= {"lists": self.lists, "pad": self.pad, "max_length": self.max_length}
        return {name: value for name, value in options.items() if value is not None}

    @property
    def placement(self) -> dict[str, Any]:
        """Options of the conversion of an array on the host to the target."""
        return {} if self.device is None else {"device": self.device}

    @property
    def conversion(self) -> dict[str, Any]:
        """Options of a whole conversion, from a table to a batch."""
        layout = {"layout": "matrix"} if self.is_matrix else {}
        return self.decoding | layout | self.placement

    @property
    def passed(self) -> dict[str, Any]:
        """All options that differ from the defaults, for messages."""
        own = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        del own["to"]
        # By repr, because an array compares elementwise with another value.
        return {name: value for name, (value, default) in own.items() if repr(value) != repr(default)}

    def window_rows(self, rows: int, largest_group: int, row_bytes: int) -> int:
        """Return the rows of a window, a multiple of `batch`.

        `rows` is the number of rows of the shard, or -1; `largest_group` that of the largest group.
        """
        if self.shuffle == "full":
            wanted = max(rows, 1)
        elif self.shuffle is True:
            limit = max(_WINDOW_BYTES // max(row_bytes, 1), 1)
            wanted = min(max(_WINDOW_BATCHES * self.batch, _WINDOW_GROUPS * largest_group), limit)
        else:
            wanted = int(self.shuffle)
        if rows >= 0:
            wanted = min(wanted, max(rows, 1))
        return -(-wanted // self.batch) * self.batch

    def check_stream(self) -> None:
        """Refuse options that need the number of rows, which a stream does not have before it is read."""
        if self.shard[1] > 1:
            raise LoaderOptionError(
                f"loader(shard={self.shard!r})",
                "the source is a stream, whose rows cannot be divided before they are read",
                "pass a source in files or in memory, or a part of the stream to each process",
                code="stream-shard",
            )
        if self.shuffle == "full":
            raise LoaderOptionError(
                'loader(shuffle="full")',
                "the source is a stream, whose number of rows is not known before it is read",
                "pass the number of rows of a window: shuffle=1_000_000",
                code="stream-shuffle",
            )


def _at_least(least: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _is_shuffle(value: Any) -> bool:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value > 0 if is_number else value in (False, True, None, "full")


def _is_shard(value: Any) -> bool:
    is_pair = isinstance(value, tuple) and len(value) == 2
    return is_pair and _at_least(0)(value[0]) and _at_least(1)(value[1]) and bool(value[0] < value[1])


def _is_list(value: Any) -> bool:
    is_sized = hasattr(value, "__len__") and not isinstance(value, (str, bytes))
    return value is None or (is_sized and len(value) > 0)


#: The values of options that are names.
_NAMES = {
    "lists": ("dense", "ragged", "pad"),
    "layout": ("columns", "matrix"),
    "on_error": ("raise", "skip"),
    "encode": ("bytes",),
    "shuffle": ("full",),
}
#: By option: whether a value is valid, the reason if it is not, and a value to pass.
_CHECKS: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    "batch": (_at_least(1), "it must be an int of at least 1", "the number of rows in a batch: batch=8192"),
    "shuffle": (_is_shuffle, 'it must be True, False, "full", or the rows of a window', "shuffle=True"),
    "seed": (_at_least(0), "it must be an int of at least 0", "an int: seed=0"),
    "prefetch": (_at_least(1), "the number of batches must be an int of at least 1", "prefetch=2"),
    "epochs": (
        _at_least(1),
        "the number of epochs must be an int of at least 1",
        "epochs=1, and iterate again for the next epoch",
    ),
    "shard": (
        _is_shard,
        "it must be (rank, world) with 0 <= rank < world",
        "the number of this process and of all: shard=(0, 4)",
    ),
    "on_error": (_one_of(*_NAMES["on_error"]), 'it must be "raise" or "skip"', 'on_error="skip"'),
    "encode": (
        is_encoding,
        'it must be True, False, "bytes" or a dict of words by column',
        'encode=True, or encode={"city": ["Bern", "Oslo"]}',
    ),
    "columns": (_is_list, "it must be a list of labels", 'labels: columns=["x", "y"]'),
    "drop_last": (_is_bool, "it must be True or False", "drop_last=True"),
    "progress": (_one_of(None, True, False), "it must be True, False or None", "progress=False"),
    "lists": (
        _one_of(None, *_NAMES["lists"]),
        'it must be "dense", "ragged" or "pad"',
        'lists="pad"',
    ),
    "layout": (_one_of(None, *_NAMES["layout"]), 'it must be "columns" or "matrix"', 'layout="matrix"'),
}


@contextmanager
def in_terms_of_loader(options: LoaderOptions) -> Iterator[None]:
    """Rewrite errors of conversions to name the call of ``loader``, and fixes as calls of ``loader``.

    Fixes that need the table itself are left out.
    """
    try:
        yield
    except ZeroCopyError as error:
        if error.asked.startswith("convert("):
            _drop(error, [code for code in error.calls if _CALL not in code])
            rewrite(error, lambda code: _with_passed(code.replace(_CALL, _LOADER), options))
            passed = "".join(f", {name}={value!r}" for name, value in options.passed.items())
            error.with_context(asked=f"loader(source, to={text(options.to)}{passed})")
        raise


@contextmanager
def opening(options: LoaderOptions, source: str, is_whole: bool = True) -> Iterator[None]:
    """Rewrite errors of conversions on the host, which the caller did not ask for.

    The message names the call of ``loader`` and its target. If the object is the whole source, so do the
    fixes.
    """

    def as_loader(code: str) -> str:
        target = text(options.to).replace("'", '"')
        for host in _HOSTS:
            code = code.replace(f', "{host}"', f", {target}")
        return _with_passed(code.replace("zc.convert(", "zc.loader("), options)

    try:
        yield
    except ZeroCopyError as error:
        if error.asked.startswith("convert("):
            error.with_context(asked=f"loader({source}, to={text(options.to)})")
            if is_whole:
                # A list of arrays, such as the parts of a sparse one, is not a source.
                _drop(error, [code for code in error.calls if code.startswith("zc.convert([")])
                rewrite(error, as_loader)
        raise


def _with_passed(code: str, options: LoaderOptions) -> str:
    """Return a call of ``loader`` with the options that ``convert`` lacks, and the caller's columns."""
    if not code.endswith(")"):
        return code
    call = ast.parse(code).body[-1].value  # type: ignore[attr-defined]
    if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "loader":
        return code
    there = {keyword.arg for keyword in call.keywords} | options.conversion.keys()
    return f"{code[:-1]}{arguments({k: v for k, v in options.passed.items() if k not in there})})"


def _drop(error: ZeroCopyError, calls: list[str]) -> None:
    """Leave out some of the fixes of an error."""
    parts = [part for part in error.remedy.split("; or ") if not part.startswith(tuple(calls))]
    error.with_context(remedy="; or ".join(parts))
    error.calls = tuple(code for code in error.calls if code not in calls)
