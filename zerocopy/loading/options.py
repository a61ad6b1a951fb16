"""The options of ``loader``, checked once, and errors of conversions in their terms."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from zerocopy._engine.call_text import arguments, renamed, rewrite, with_imports
from zerocopy._engine.target import text
from zerocopy.errors import Fix, OptionError, ZeroCopyError
from zerocopy.errors.invalid_option import nearest
from zerocopy.tables.options import is_encoding, plain_encoding

#: The least number of batches in a window, if the caller passes ``shuffle=True``.
_WINDOW_BATCHES = 16
#: Least number of row groups in such a window, and its largest size in bytes.
_WINDOW_GROUPS, _WINDOW_BYTES = 4, 256 << 20
_OF_COLUMNS = "(?:encode|nulls|lists|pad_value|max_length)"
_CALL, _LOADER = "zc.convert(x, ", "zc.loader(source, "


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """The options of ``loader``; their meaning is documented there."""

    to: Any
    batch_size: int = 8192
    columns: Sequence[Hashable] | None = None
    nulls: Any = None
    encode: Any = None
    layout: str | None = None
    lists: str | None = None
    pad_value: Any = None
    max_length: int | None = None
    dtype: Any = None
    shuffle: bool | int | str = False
    seed: int = 0
    prefetch: int = 2
    device: Any = None
    drop_last: bool = False
    rank: int | None = None
    world_size: int | None = None
    epochs: int = 1
    on_error: str = "raise"
    schema: Any = None
    progress: bool | None = None
    engine: str | None = None

    def __post_init__(self) -> None:
        """Check the values that need no data."""
        for name, (is_valid, why, fix) in _CHECKS.items():
            value = getattr(self, name)
            if not is_valid(value):
                near = nearest(value, _NAMES.get(name, ()))
                raise OptionError(
                    f"loader({name}={value!r})",
                    why,
                    f'did you mean {name}="{near}"?' if near else f"pass {fix}",
                )
        object.__setattr__(self, "encode", plain_encoding(self.encode))
        is_alone = (self.rank is None) != (self.world_size is None)
        if is_alone or self.shard[0] >= self.shard[1]:
            missing = "rank" if self.rank is None else "world_size"
            why = f"{missing}= is missing" if is_alone else "ranks are numbered from 0 to world_size - 1"
            asked = f"loader(rank={self.rank}, world_size={self.world_size})"
            raise OptionError(asked, why, "pass the rank and the number of processes: rank=0, world_size=4")

    def of_columns(self, names: Sequence[str]) -> LoaderOptions:
        """Return the options of the conversion of some columns alone."""
        given = {name: value for name, value in self.decoding.items() if isinstance(value, Mapping)}
        own: dict[str, Any] = {
            name: {key: value[key] for key in names if key in value} for name, value in given.items()
        }
        return replace(self, **own)

    @property
    def shard(self) -> tuple[int, int]:
        """The number of this process, and the number of processes."""
        return self.rank or 0, self.world_size or 1

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
        options |= {"lists": self.lists, "pad_value": self.pad_value, "max_length": self.max_length}
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
        """Return the rows of a window, a multiple of `batch_size`.

        `rows` is the number of rows of the shard, or -1; `largest_group` that of the largest group.
        """
        if self.shuffle == "full":
            wanted = max(rows, 1)
        elif self.shuffle is True:
            limit = max(_WINDOW_BYTES // max(row_bytes, 1), 1)
            wanted = min(max(_WINDOW_BATCHES * self.batch_size, _WINDOW_GROUPS * largest_group), limit)
        else:
            wanted = int(self.shuffle)
        if rows >= 0:
            wanted = min(wanted, max(rows, 1))
        return -(-wanted // self.batch_size) * self.batch_size

    def check_stream(self) -> None:
        """Refuse options that need the number of rows, which a stream does not have before it is read."""
        if self.shard[1] > 1:
            raise OptionError(
                f"loader(rank={self.rank}, world_size={self.world_size})",
                "the source is a stream, whose rows cannot be divided before they are read",
                "pass a source in files or in memory, or a part of the stream to each process",
                code="stream-shard",
            )
        if self.shuffle == "full":
            raise OptionError(
                'loader(shuffle="full")',
                "the source is a stream, whose number of rows is not known before it is read",
                "pass the number of rows of a window: shuffle=1_000_000",
                code="stream-shuffle",
            )


def _at_least(least: int, or_none: bool = False) -> Callable[[Any], bool]:
    def is_valid(value: Any) -> bool:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return value >= least if is_number else or_none and value is None

    return is_valid


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _is_shuffle(value: Any) -> bool:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value > 0 if is_number else value in (False, True, None, "full")


def _is_list(value: Any) -> bool:
    is_sized = hasattr(value, "__len__") and not isinstance(value, (str, bytes))
    return value is None or (is_sized and len(value) > 0)


#: The values of options that are names.
_NAMES = {
    "lists": ("dense", "ragged", "pad"),
    "layout": ("columns", "matrix"),
    "on_error": ("raise", "skip"),
    "encode": ("codes", "bytes"),
    "shuffle": ("full",),
}
#: By option: whether a value is valid, the reason if it is not, and a value to pass.
_CHECKS: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    "batch_size": (_at_least(1), "it must be an int of at least 1", "the rows of a batch: batch_size=8192"),
    "shuffle": (_is_shuffle, 'it must be True, False, "full", or the rows of a window', "shuffle=True"),
    "seed": (_at_least(0), "it must be an int of at least 0", "an int: seed=0"),
    "prefetch": (_at_least(1), "the number of batches must be an int of at least 1", "prefetch=2"),
    "epochs": (
        _at_least(1),
        "the number of epochs must be an int of at least 1",
        "epochs=1, and iterate again for the next epoch",
    ),
    "rank": (_at_least(0, or_none=True), "it must be an int of at least 0", "rank=0, world_size=4"),
    "world_size": (_at_least(1, or_none=True), "it must be an int of at least 1", "rank=0, world_size=4"),
    "on_error": (_one_of(*_NAMES["on_error"]), 'it must be "raise" or "skip"', 'on_error="skip"'),
    "encode": (
        is_encoding,
        'it must be "codes" or True, "bytes", False or a dict of words by column',
        'encode="codes", or encode={"city": ["Bern", "Oslo"]}',
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


def in_terms_of_loader(error: ZeroCopyError, options: LoaderOptions) -> None:
    """Rewrite an error of a conversion to name the call of ``loader``, and fixes as calls of ``loader``.

    Fixes that need the table itself are kept if there are no others: they are for each batch.
    """
    if error.asked.startswith("convert("):
        host = "pyarrow" if error.asked.startswith("convert(pyarrow.") else "numpy"  # a dict of arrays
        own = {name: value for name, value in options.passed.items() if name not in options.conversion}
        batches = f'for x in zc.loader(source, "{host}"{arguments(own)})'
        of_table = [code for code in error.calls if _CALL not in code]
        if len(of_table) < len(error.calls):
            _drop(error, of_table)

        def as_loader(code: str) -> str:
            if _CALL in code:
                return _with_passed(code.replace(_CALL, _LOADER), options)
            before, semicolon, last = code.rpartition("; ")
            return f"{before}{semicolon}({last} {batches})"

        rewrite(error, as_loader)
        passed = "".join(f", {name}={value!r}" for name, value in options.passed.items())
        error.with_context(asked=f"loader(source, to={text(options.to)}{passed})")
    elif error.fixes and not error.calls:
        error.calls = tuple(
            with_imports(f"zc.loader({fix.source.format(x='source')}, {_target(options)}{arguments(given)})")
            for fix, given in ((each, _changed(options, each)) for each in error.fixes)
        )
        texts = [f"{c} {f.effect}".rstrip() for c, f in zip(error.calls, error.fixes, strict=True)]
        error.with_context(remedy="; or ".join(texts))


def _target(options: LoaderOptions) -> str:
    return text(options.to).replace("'", '"')


def _changed(options: LoaderOptions, fix: Fix) -> dict[str, Any]:
    """Return the options that the caller passed with those of a fix; choices of other columns remain."""
    changed = options.passed
    for name, value in fix.options.items():
        both = isinstance(value, dict) and isinstance(changed.get(name), Mapping)
        merged = {**changed[name], **value} if both else value
        changed[name] = {k: v for k, v in merged.items() if v is not None} or None if both else merged
    return {name: value for name, value in changed.items() if value is not None}


@contextmanager
def opening(
    options: LoaderOptions, source: str, place: str = "source", label: Hashable = None
) -> Iterator[None]:
    """Rewrite errors of conversions on the host, which the caller did not ask for.

    The message names the call of ``loader``, and so do the fixes: `place` is the expression of the object
    that was converted, or of the dict of it if it has a label.
    """

    def as_loader(code: str) -> str:
        before, semicolon, call = code.rpartition("; ")
        if label is not None:
            call, given = f"{{**{place}, {label!r}: {renamed(call, f'{place}[{label!r}]')}}}", ""
        else:
            # The loader converts another object itself, with options of text and lists.
            own = re.fullmatch(rf'zc\.convert\((?!x,)(.*), "{host}"((?:, {_OF_COLUMNS}=[^=]*)*)\)', call)
            call, given = own.groups() if own else (call, "")
            call = renamed(call, place).replace("{'data': source}['data']", "source")
            call = call.replace("{**{'data': source}, ", "{")
        there = re.findall(r", (\w+)=", given or call if call.startswith("zc.convert(") else given)
        others = {name: value for name, value in options.passed.items() if name not in there}
        return f"{before}{semicolon}zc.loader({call}, {_target(options)}{given}{arguments(others)})"

    try:
        yield
    except ZeroCopyError as error:
        if error.asked.startswith("convert("):
            host = error.asked.rpartition("to='")[2].partition("'")[0]
            error.with_context(asked=f"loader({source}, to={text(options.to)})")
            # Python objects, masks, codes and a list of arrays, such as sparse parts, are not sources.
            is_source = rf"(.*; )?zc\.convert\((?!\[|x, .*{_OF_COLUMNS}=|.*(leaves=|Tensor\"))"
            _drop(error, [code for code in error.calls if not re.match(is_source, code)])
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
