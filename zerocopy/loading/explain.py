"""``explain``: plans the batches of a loader and their copies."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zerocopy._engine.target import text as target_name
from zerocopy.errors import Reason
from zerocopy.formatting import format_count, printable
from zerocopy.loading.batch_plan import BatchPlan
from zerocopy.loading.dataset import Dataset, Stream, concatenate, slice_rows, table_bytes
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.order import Order, Piece, Portion, Run
from zerocopy.loading.reading import groups_ahead
from zerocopy.protocols.array_interface import aligned_empty
from zerocopy.tables.hub import hub

#: The most groups of columns with equal plans that the text lists.
_LISTED = 20
_WIDTH = 80
#: The largest alignment that targets require, in bytes; rows this far apart have equal alignment.
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The aliases and copies of one column of the first batch.

    Attributes
    ----------
    aliased : bool
        Whether the batch aliases the memory of the source, or of a decoded row group. JAX and TensorFlow copy
        later batches that do not start at a multiple of 64 bytes. False for a source without rows.
    nbytes : int
        Bytes of the column in a batch; for text and lists, unknown and 0 before a file is read.
    copied_bytes : int
        Bytes of it that its conversion copies for each batch: packed bits, masks, casts, dates, and arrays
        that the target does not alias.
    reasons : tuple of Reason
        Reasons for the copies, each with its remedy.

    Examples
    --------
    >>> import pyarrow as pa, zerocopy as zc
    >>> plan = zc.loader(pa.table({"late": [True, False]}), to="numpy", batch_size=2).explain()
    >>> plan.columns["late"].copied_bytes, plan.columns["late"].reasons[0].why
    (2, 'Arrow packs booleans into bits')
    """

    aliased: bool
    nbytes: int
    copied_bytes: int
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class LoaderPlan:
    """The batches of a loader, its copies, and the reasons; returned by ``loader.explain()``.

    Attributes
    ----------
    source, target : str
        Short descriptions of the source and the target framework.
    rows, batches : int
        Rows and batches of one epoch of this shard; -1 for a stream, whose rows are unknown in advance.
    groups, files : int
        Groups of rows that are read at once, and files; 0 for a stream.
    batch_size : int
        Rows of a batch.
    order : str
        The order of the rows.
    columns : dict of str to ColumnPlan
        Each column of the source, in the first batch.
    batch_bytes : int
        Bytes of a whole batch; -1 for sparse rows, and for those that a device decodes. `columns` and
        `copies` are then empty: unknown.
    copies : dict of str to int
        The bytes that are copied for the first batch, by operation. Decoding of files is not included.
    joined : int
        Batches whose rows are in several groups, and which are copied together for that reason; -1 for a
        stream.
    memory_bytes : int
        Memory for windows, or for row groups, that the loader uses at most; -1 if it is unknown.
    notes : tuple of str
        Effects that depend on the data or the machine.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> plan = zc.loader({"x": np.arange(8.0)}, to="numpy", batch_size=4, shuffle=True).explain()
    >>> plan.copies
    {'rows to their places in a window': 32, 'rows of a window to columns': 32}
    """

    source: str
    target: str
    rows: int
    batches: int
    groups: int
    files: int
    batch_size: int
    order: str
    columns: dict[str, ColumnPlan]
    batch_bytes: int
    copies: dict[str, int]
    joined: int
    memory_bytes: int
    notes: tuple[str, ...] = ()

    @property
    def copied_bytes(self) -> int:
        """Bytes that are copied for a batch, without decoding."""
        return sum(self.copies.values())

    def __str__(self) -> str:
        return "\n".join(map(printable, self._lines()))

    def _repr_html_(self) -> str:
        """Return tables for notebooks: the batches, and the columns."""
        from zerocopy.formatting import html

        caption = f"{self.source} \u2192 {self.target}"
        copies = "".join(f"\n{nbytes:,}  {name}" for name, nbytes in self.copies.items())
        rows = [(name, text + copies if name == "copied" else text) for name, text in self._rows()]
        tables = [html.table(caption, rows)]
        columns = [(", ".join(names), verdict, "\n".join(facts)) for names, verdict, facts in self._alike()]
        if columns:
            tables.append(html.table("Columns", columns, ("columns", "result", "details")))
        return "".join(tables)

    def _rows(self) -> Iterator[tuple[str, str]]:
        """Return names and texts of the facts about a whole batch."""
        if self.rows >= 0:
            files = f" of {format_count(self.files, 'file')}" if self.files else ""
            yield "rows", f"{self.rows:,} in {format_count(self.groups, 'group')}{files}"
        number = f"{self.batches:,} of" if self.batches >= 0 else "of"
        size = f", {self.batch_bytes:,} bytes each" if self.batch_bytes >= 0 else ""
        yield "batches", f"{number} {self.batch_size:,} rows{size}"
        yield "order", self.order
        if self.batch_bytes >= 0:
            yield "copied", f"{self.copied_bytes:,} bytes for a batch" + ":" * bool(self.copies)
        if self.joined > 0:
            yield "joined", f"{format_count(self.joined, 'batch', 'batches')} with rows of several groups"
        if self.memory_bytes >= 0:
            yield "memory", f"at most about {self.memory_bytes:,} bytes for rows in advance"
        for note in self.notes:
            yield "note", note

    def _alike(self) -> list[tuple[list[str], str, list[str]]]:
        """Return groups of columns with the same result, reasons and fixes."""
        alike: dict[tuple[str, tuple[Reason, ...]], list[str]] = {}
        for name, column in self.columns.items():
            verdict = _verdict(column) if self.rows else "no rows"
            alike.setdefault((verdict, column.reasons), []).append(name)
        return [
            (
                names,
                f"{verdict} each" if len(names) > 1 and "bytes" in verdict else verdict,
                _facts(reasons, f"x[{names[0]!r}]"),  # of a batch x of the source, as in plans of `convert`
            )
            for (verdict, reasons), names in alike.items()
        ]

    def _lines(self) -> Iterator[str]:
        yield from _wrapped(f"{self.source} -> {self.target}", "")
        for name, text in self._rows():
            yield from _wrapped(text, f"  {name:<9} ", " " * 12)
            for operation, nbytes in self.copies.items() if name == "copied" else ():
                yield f"              {nbytes:>13,}  {operation}"
        if self.columns:
            yield "  columns"
        alike = self._alike()
        for names, verdict, facts in alike[:_LISTED]:
            yield from _wrapped(f"{', '.join(names)}: {verdict}", "    ")
            for fact in facts:
                yield from _wrapped(fact, "      ")
        if len(alike) > _LISTED:
            yield f"    and {sum(len(names) for names, _, _ in alike[_LISTED:]):,} more"


def _facts(reasons: tuple[Reason, ...], place: str) -> list[str]:
    """Return the texts of reasons, whose fixes name the column by the expression `place`."""
    pairs = [(f"why: {each.why}", each.remedy_at(place)) for each in reasons]
    return [text for why, fix in pairs for text in (why, f"fix: {fix}" if fix else "") if text]


def _verdict(column: ColumnPlan) -> str:
    if column.aliased and column.copied_bytes:
        return f"values are aliased; {column.copied_bytes:,} bytes are new or copied"
    if column.copied_bytes:
        return f"{column.copied_bytes:,} bytes copied"
    return "aliased" if column.aliased else "copied with its rows"


def _wrapped(content: str, first: str, rest: str | None = None) -> Iterator[str]:
    yield from textwrap.wrap(content, _WIDTH, initial_indent=first, subsequent_indent=rest or f"{first}  ")


def explain(
    source: Dataset | Stream, options: LoaderOptions, plan: BatchPlan, portion: Portion, window_rows: int
) -> LoaderPlan:
    """Return the plan of a loader; `portion` has the rows of an epoch, and `window_rows` are for windows."""
    run = (portion.runs() or [Run(0, 0)])[0]
    groups = () if isinstance(source, Stream) else source.groups
    is_stream, is_shuffled = isinstance(source, Stream), options.is_shuffled
    count = options.batch_size if is_stream else min(options.batch_size, run.rows)
    row_bytes = plan.pitch
    uses_windows = plan.template is not None and (is_shuffled or plan.is_matrix)
    is_assembled = uses_windows or is_shuffled
    columns: dict[str, ColumnPlan] = {}
    copies: dict[str, int] = {}
    if not plan.is_decoded:  # a device converts its rows, of which there is no sample
        sample, is_joined = _first_rows(source, run.start, count)
        if is_assembled and not isinstance(sample, dict):
            sample = sample.combine_chunks()  # each group is converted alone
        if plan.own_items:
            sample = hub().own_items(sample)
        columns, copies = _first_batch(plan, sample, count, uses_windows, is_shuffled)
        if is_assembled or is_joined or not count:  # without rows there is no memory to share
            columns = {name: replace(column, aliased=False) for name, column in columns.items()}
    group_bytes = max((group.rows for group in groups), default=0) * row_bytes
    if uses_windows:
        # The consumer holds one, others are ready, and the thread fills one from a group; groups are read.
        windows = 3 + options.prefetch * options.batch_size // window_rows
        memory_bytes = windows * window_rows * row_bytes + (1 + groups_ahead(group_bytes)) * group_bytes
    else:
        memory_bytes = -1 if is_stream or not row_bytes else (2 + groups_ahead(group_bytes)) * group_bytes
    batch_bytes = count * row_bytes or sum(column.nbytes for column in columns.values())
    order = f"groups permuted, rows shuffled in windows of {portion.window:,}; seed {options.seed}"
    return LoaderPlan(
        source=source.name,
        target=target_name(options.to).strip("'"),
        rows=-1 if is_stream else run.rows,
        batches=portion.batches(),
        groups=len(groups),
        files=len({group.file for group in groups if group.file}),
        batch_size=options.batch_size,
        order=order if is_shuffled else "that of the source",
        columns=columns,
        batch_bytes=-1 if plan.is_decoded else batch_bytes,
        copies={name: nbytes for name, nbytes in copies.items() if nbytes},
        joined=-1 if is_stream else 0 if is_assembled else _joined(groups, run, options),
        memory_bytes=memory_bytes,
        notes=_notes(source, options, plan),
    )


def _first_batch(
    plan: BatchPlan, sample: Any, count: int, uses_windows: bool, is_shuffled: bool
) -> tuple[dict[str, ColumnPlan], dict[str, int]]:
    """Return the plans of the columns of a batch, and the bytes of its copies, by operation."""
    parts, target = {}, 0
    if plan.template is None:  # tables are converted batch by batch
        leaves = plan.explain_batch(sample).leaves
        parts = {path: _part(0, leaf) for path, leaf in leaves.items()}
    else:
        host = plan.explain_host(sample).leaves
        for field, array in zip(plan.fields, plan.to_arrays(sample), strict=True):
            steps = [host[field.path]]
            if not uses_windows:
                steps.append(plan.explain_array(array))
                target += steps[1].copied_bytes
            parts[field.path] = _part(field.nbytes * count, *steps)
    columns = {}
    for place, name in enumerate(list(sample) if isinstance(sample, dict) else sample.column_names):
        columns[str(name)] = column = _column(name, parts)
        if plan.template is None:
            nbytes = sample[name].nbytes if isinstance(sample, dict) else table_bytes(sample.select([place]))
            columns[str(name)] = replace(column, nbytes=nbytes)
    copies = {"conversion of columns": sum(column.copied_bytes for column in columns.values()) - target}
    if plan.template is None and is_shuffled:
        copies["rows of a window, by Table.take"] = sum(column.nbytes for column in columns.values())
    if plan.template is not None and uses_windows:
        copies["rows to their places in a window"] = window = count * plan.pitch
        if plan.is_matrix:
            # The second batch of a window, because the first one is always aligned.
            rows = aligned_empty((2 * count, plan.pitch), np.dtype(np.uint8))[count:]
            arrays = [rows.view(plan.fields[0].dtype)]
        else:
            copies["rows of a window to columns"] = window
            arrays = [aligned_empty((count, *field.shape), field.dtype) for field in plan.fields]
        target = sum(plan.explain_array(array).copied_bytes for array in arrays)
    return columns, copies | {"the target's copy": target}


def _part(nbytes: int, *steps: Any) -> ColumnPlan:
    """Return the plan of an array of a batch from those of its conversions, one after the other."""
    copied = [_bytes(leaf) for leaf in steps]
    is_aliased = all(leaf.zero_copy or not count for leaf, count in zip(steps, copied, strict=True))
    return ColumnPlan(is_aliased, nbytes, sum(copied), sum((leaf.reasons for leaf in steps), ()))


def _bytes(leaf: Any) -> int:
    """Return the bytes that are copied, or new, such as the mask of a column without nulls."""
    return int(leaf.copied_bytes + leaf.new_bytes)


def _column(name: Any, parts: dict[str, ColumnPlan]) -> ColumnPlan:
    """Return the plan of a column: of its values, mask and offsets, but not its words, which batches share.

    The mask is new, whether or not the values are aliased.
    """
    start = f"[{name!r}]"
    rests = {path: path[len(start) :] for path in parts if path.startswith(start)}
    own = {rest: parts[path] for path, rest in rests.items() if ".categories" not in rest}
    return ColumnPlan(
        all(part.aliased for rest, part in own.items() if not rest.endswith(".mask")),
        sum(part.nbytes for part in own.values()),
        sum(part.copied_bytes for part in own.values()),
        tuple({each.code or each.why: each for part in own.values() for each in part.reasons}.values()),
    )


def _first_rows(source: Dataset | Stream, start: int, count: int) -> tuple[Any, bool]:
    """Return the rows of the first batch, or zeros for files, and whether several groups have them."""
    pieces: list[Piece] = []
    if isinstance(source, Dataset):
        pieces = list(Order([group.rows for group in source.groups]).pieces(start, start + count))
        if source.in_memory or source.has_rows or source.schema is None:
            parts = [slice_rows(source.read(piece.group), piece.low, piece.high) for piece in pieces]
            return concatenate(parts) if parts else source.empty(), len(parts) > 1
    import pyarrow as pa

    low = pieces[0].low % _ALIGNMENT if pieces else 0
    columns = [
        _codes(field.type, source.dictionaries[field.name], low + count)
        if field.name in source.dictionaries
        else _zeros(field.type, low + count)
        for field in source.schema
    ]
    return pa.Table.from_arrays(columns, schema=source.schema).slice(low), len(pieces) > 1


def _zeros(type_: Any, rows: int) -> Any:
    """Return an Arrow array of zeros, empty text and empty lists, without nulls where possible."""
    import pyarrow as pa

    types = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return type_.wrap_array(_zeros(type_.storage_type, rows))
    if types.is_dictionary(type_):
        return _codes(type_, _zeros(type_.value_type, 1), rows)
    buffers, inner = pa.nulls(rows, type_).buffers(), 0
    if types.is_struct(type_) or types.is_fixed_size_list(type_):
        buffers, inner = buffers[:1], rows * (1 if types.is_struct(type_) else type_.list_size)
    elif types.is_list(type_) or types.is_large_list(type_):
        buffers = buffers[:2]
    elif types.is_nested(type_) or types.is_null(type_):
        return pa.nulls(rows, type_)
    children = [_zeros(type_.field(k).type, inner) for k in range(type_.num_fields)]
    return pa.Array.from_buffers(type_, rows, [None, *buffers[1:]], null_count=0, children=children)


def _codes(type_: Any, words: Any, rows: int) -> Any:
    """Return codes of the first word; if there are no words, of an empty or zero word."""
    import pyarrow as pa

    words = words if len(words) else _zeros(words.type, 1)
    return pa.DictionaryArray.from_arrays(_zeros(type_.index_type, rows), words, ordered=type_.ordered)


def _joined(groups: Any, run: Run, options: LoaderOptions) -> int:
    """Return the number of batches with rows of several groups."""
    ends = np.cumsum([group.rows for group in groups], dtype=np.int64) - run.start
    ends = ends[(ends > 0) & (ends < run.stop - run.start) & (ends % options.batch_size != 0)]
    numbers = np.unique(ends // options.batch_size)
    return int(np.sum(numbers < run.rows // options.batch_size)) if options.drop_last else len(numbers)


def _notes(source: Dataset | Stream, options: LoaderOptions, plan: BatchPlan) -> tuple[str, ...]:
    notes = [source.note] if source.note else []
    if options.nulls is not None and options.nulls != "mask" and not source.in_memory:
        notes.append("a column of a row group that has nulls is copied to fill them")
    if plan.template is None and not plan.is_decoded and not (source.in_memory or source.has_rows):
        notes.append("the bytes of text and lists are not known before they are read")
    if source.dictionaries:
        notes.append(f"text is read as codes: {', '.join(source.dictionaries)}")
    return (*notes, *plan.warnings)
