"""The options of ``loader``, checked once, and errors of conversions in their terms."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from zerocopy._engine.fixes import arguments, rewrite
from zerocopy._engine.target import text
from zerocopy.errors import ZeroCopyError
from zerocopy.loading.errors import LoaderOptionError
from zerocopy.tables.options import is_encoding

#: The least number of batches in a window, if the caller passes ``shuffle=True``.
_WINDOW_BATCHES = 16
#: Least number of row groups in such a window, and its largest size in bytes.
_WINDOW_GROUPS, _WINDOW_BYTES = 4, 256 << 20


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """The options of ``loader``; their meaning is documented there."""

    to: Any
    batch: int = 8192
    columns: Sequence[Hashable] | None = None
    nulls: Any = None
    encode: Any = None
    layout: str | None = None
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
        check = _check
        rows, fix = (
            "it must be an int of at least 1",
            "the number of rows in a batch: batch=8192",
        )
        check("batch", self.batch, _is_int(self.batch, 1), rows, fix)
        modes = (False, True, None, "full")
        known = self.shuffle in modes if not _is_int(self.shuffle) else _is_int(self.shuffle, 1)
        why = 'it must be True, False, "full", or the number of rows of a window'
        check("shuffle", self.shuffle, known, why, "shuffle=True")
        check("seed", self.seed, _is_int(self.seed, 0), "it must be an int of at least 0", "an int: seed=0")
        why = "the number of batches must be an int of at least 1"
        check("prefetch", self.prefetch, _is_int(self.prefetch, 1), why, "prefetch=2")
        why = "the number of epochs must be an int of at least 1"
        check(
            "epochs",
            self.epochs,
            _is_int(self.epochs, 1),
            why,
            "epochs=1, and iterate again for the next epoch",
        )
        why = "it must be (rank, world) with 0 <= rank < world"
        check(
            "shard",
            self.shard,
            _is_shard(self.shard),
            why,
            "the number of this process and of all: shard=(0, 4)",
        )
        known = self.on_error in ("raise", "skip")
        check("on_error", self.on_error, known, 'it must be "raise" or "skip"', 'on_error="skip"')
        known = is_encoding(self.encode)
        why = 'it must be True, False, "bytes" or a dict of words by column'
        check("encode", self.encode, known, why, 'encode=True, or encode={"city": ["Bern", "Oslo"]}')
        is_list = self.columns is None or (_is_sized(self.columns) and len(self.columns) > 0)
        check("columns", self.columns, is_list, "it must be a list of labels", 'labels: columns=["x", "y"]')
        known = self.progress in (None, True, False)
        check("progress", self.progress, known, "it must be True, False or None", "progress=False")
        layouts = (None, "columns", "matrix")
        why = 'it must be "columns" or "matrix"'
        check("layout", self.layout, self.layout in layouts, why, 'layout="matrix"')

    @property
    def is_shuffled(self) -> bool:
        """Whether rows are permuted."""
        return bool(self.shuffle)

    @property
    def is_encoded(self) -> bool:
        """Whether types that tensors lack become numbers."""
        return self.encode is not None and self.encode is not False

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
        own = [each for each in fields(self) if each.name != "to"]
        values = {each.name: getattr(self, each.name) for each in own}
        # By repr, because an array compares elementwise with another value.
        return {each.name: v for each in own if repr(v := values[each.name]) != repr(each.default)}

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


def check_stream(options: LoaderOptions) -> None:
    """Refuse options that need the number of rows, which a stream does not have before it is read."""
    if options.shard[1] > 1:
        raise LoaderOptionError(
            f"loader(shard={options.shard!r})",
            "the source is a stream, whose rows cannot be divided before they are read",
            "pass a source in files or in memory, or a part of the stream to each process",
            code="stream-shard",
        )
    if options.shuffle == "full":
        raise LoaderOptionError(
            'loader(shuffle="full")',
            "the source is a stream, whose number of rows is not known before it is read",
            "pass the number of rows of a window: shuffle=1_000_000",
            code="stream-shuffle",
        )


def _is_int(value: Any, least: int | None = None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)


def _is_sized(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes))


def _is_shard(value: Any) -> bool:
    if not (isinstance(value, tuple) and len(value) == 2 and _is_int(value[0], 0) and _is_int(value[1], 1)):
        return False
    return bool(value[0] < value[1])


def _check(name: str, value: Any, is_valid: bool, why: str, fix: str) -> None:
    if not is_valid:
        raise LoaderOptionError(f"loader({name}={value!r})", why, f"pass {fix}")


#: The targets of conversions on the host.
_HOSTS = ("numpy", "pyarrow", "pyarrow.Table")
_CALL, _LOADER = "zc.convert(x, ", "zc.loader(source, "


@contextmanager
def in_terms_of_loader(options: LoaderOptions) -> Iterator[None]:
    """Rewrite errors of conversions to name the call of ``loader``, and fixes as calls of ``loader``."""
    try:
        yield
    except ZeroCopyError as error:
        if error.asked.startswith("convert("):
            _rewrite(error, options)
        raise


@contextmanager
def opening(options: LoaderOptions, source: str, is_whole: bool = True) -> Iterator[None]:
    """Rewrite errors of conversions on the host, which the caller did not ask for.

    The message names the call of ``loader`` and its target. If the object is the whole source, so do the
    fixes.
    """
    try:
        yield
    except ZeroCopyError as error:
        if error.asked.startswith("convert("):
            error.with_context(asked=f"loader({source}, to={text(options.to)})")
            if is_whole:
                # A list of arrays, such as the parts of a sparse one, is not a source.
                _drop(error, [code for code in error.calls if code.startswith("zc.convert([")])
                rewrite(error, lambda code: _with_passed(_as_loader(code, options), options))
        raise


def _as_loader(code: str, options: LoaderOptions) -> str:
    """Return a fix whose calls of ``convert`` are calls of ``loader``."""
    target = text(options.to).replace("'", '"')
    for host in _HOSTS:
        code = code.replace(f', "{host}"', f", {target}")
    return code.replace("zc.convert(", "zc.loader(")


def _rewrite(error: ZeroCopyError, options: LoaderOptions) -> None:
    """Replace calls of ``convert`` by calls of ``loader``; leave out fixes that need the table itself."""
    _drop(error, [code for code in error.calls if _CALL not in code])
    rewrite(error, lambda code: _with_passed(code.replace(_CALL, _LOADER), options))
    passed = "".join(f", {name}={value!r}" for name, value in options.passed.items())
    error.with_context(asked=f"loader(source, to={text(options.to)}{passed})")


def _with_passed(code: str, options: LoaderOptions) -> str:
    """Return a call of ``loader`` with the options that ``convert`` lacks, and the caller's columns."""
    if not code.endswith(")"):
        return code
    call = ast.parse(code).body[-1].value  # type: ignore[attr-defined]
    if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "loader":
        return code
    there = {keyword.arg for keyword in call.keywords}
    missing = {
        name: value
        for name, value in options.passed.items()
        if name not in there and name not in options.conversion
    }
    return f"{code[:-1]}{arguments(missing)})"


def _drop(error: ZeroCopyError, calls: list[str]) -> None:
    """Leave out some of the fixes of an error."""
    parts = [part for part in error.remedy.split("; or ") if not part.startswith(tuple(calls))]
    error.with_context(remedy="; or ".join(parts))
    error.calls = tuple(code for code in error.calls if code not in calls)
