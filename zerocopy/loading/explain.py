"""``explain``: plans the batches of a loader and their copies."""

from __future__ import annotations

from typing import Any

from zerocopy._engine.target import text
from zerocopy.errors import Reason
from zerocopy.loading import blank
from zerocopy.loading.batch_plan import BatchPlan
from zerocopy.loading.chunks import table_bytes
from zerocopy.loading.contents import slice_rows
from zerocopy.loading.dataset import Dataset, Stream
from zerocopy.loading.loader_plan import ColumnPlan, LoaderPlan
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.order import Run
from zerocopy.loading.portion import Portion

#: The largest alignment that targets require, in bytes; rows this far apart have equal alignment.
_ALIGNMENT = 64
#: Batches of different alignment that are planned for tables, whose results depend little on it.
_OFFSETS = 4


def explain(
    source: Dataset | Stream,
    options: LoaderOptions,
    plan: BatchPlan,
    portion: Portion,
    window_rows: int,
) -> LoaderPlan:
    """Return the plan of a loader; `portion` has the rows of an epoch, and `window_rows` are for windows."""
    run = (portion.runs() or [Run(0, 0)])[0]
    is_stream = isinstance(source, Stream)
    groups = [] if isinstance(source, Stream) else source.groups
    rows = -1 if is_stream else run.rows
    count = options.batch if is_stream else min(options.batch, rows)
    uses_windows = plan.template is not None and (options.is_shuffled or options.is_matrix)
    offsets = [0] if options.is_shuffled else _offsets(groups, run, options.batch)
    # The target converts rows on the device, of which there is no sample.
    sample = None if plan.is_decoded else blank.sample(source, count + _ALIGNMENT)
    if plan.template is None:
        columns, copies = _table_columns(plan, sample, count, offsets, options.is_shuffled)
        row_bytes = 0
    else:
        columns, copies = _array_columns(plan, sample, count, [0] if uses_windows else offsets, uses_windows)
        row_bytes = plan.template.pitch
    batch_bytes = count * row_bytes or sum(column.nbytes for column in columns.values())
    largest = max((group.rows for group in groups), default=0)
    return LoaderPlan(
        source=source.name,
        target=text(options.to).strip("'"),
        rows=rows,
        batches=portion.batches(),
        groups=len(groups),
        files=len({group.file for group in groups if group.file}),
        batch=options.batch,
        order=_order(options, portion.window),
        columns=columns,
        batch_bytes=-1 if plan.is_decoded else batch_bytes,
        copies=copies,
        joined=-1
        if is_stream
        else 0
        if uses_windows or options.is_shuffled
        else _joined(groups, run, options),
        memory_bytes=_memory(
            window_rows * row_bytes if uses_windows else 0, largest * row_bytes, is_stream, row_bytes
        ),
        notes=_notes(source, options, plan),
    )


def _array_columns(
    plan: BatchPlan, sample: Any, count: int, offsets: list[int], uses_windows: bool
) -> tuple[dict[str, ColumnPlan], dict[str, int]]:
    """Return the plans of columns that become arrays on the host first, and the copies of a batch."""
    arrays = plan.to_arrays(sample)
    host = plan.explain_host(slice_rows(sample, 0, count)).leaves
    names = _names(sample)
    prefixes = {f"[{name!r}]": name for name in names}
    columns: dict[str, ColumnPlan] = {}
    decoded = placed = 0
    for field, array in zip(plan.fields, arrays, strict=True):
        nbytes = field.nbytes * count
        on_host = host[field.path]
        # Masks of columns without nulls are new memory.
        copied = on_host.copied_bytes + on_host.new_bytes
        reasons = on_host.reasons
        verdicts: list[bool] = []
        if not uses_windows:
            lows = {low * field.nbytes % _ALIGNMENT: low for low in offsets if low < len(array)}.values()
            leaves = [plan.explain_array(array[low : low + count]) for low in lows]
            verdicts = [leaf.zero_copy and not copied for leaf in leaves]
            moved = max((leaf.copied_bytes for leaf in leaves), default=0)
            copied += moved
            placed += moved
            reasons += tuple(reason for leaf in leaves for reason in leaf.reasons)
        decoded += on_host.copied_bytes + on_host.new_bytes
        aliased = False if uses_windows else _common(verdicts)
        name = str(_column_of(field.path, prefixes))
        _add(
            columns, name, field.path.endswith(".mask"), ColumnPlan(aliased, nbytes, copied, _unique(reasons))
        )
    columns = {str(name): columns[str(name)] for name in names}
    copies = {"conversion of columns": decoded}
    if uses_windows:
        scattered = count * (plan.template.pitch if plan.template is not None else 0)
        copies["rows to their places in a window"] = scattered
        if plan.is_matrix:
            rows = blank.rows(count + _ALIGNMENT, plan).view(plan.fields[0].dtype)
            copies["the target's copy"] = max(
                plan.explain_array(rows[low : low + count]).copied_bytes
                for low in {k * count % _ALIGNMENT for k in range(_ALIGNMENT)}
            )
        else:
            copies["rows of a window to columns"] = scattered
            fresh = [blank.aligned_array((count, *field.shape), field.dtype) for field in plan.fields]
            copies["the target's copy"] = sum(plan.explain_array(array).copied_bytes for array in fresh)
    else:
        copies["the target's copy"] = placed
    return columns, {name: nbytes for name, nbytes in copies.items() if nbytes}


def _table_columns(
    plan: BatchPlan, sample: Any, count: int, offsets: list[int], is_shuffled: bool
) -> tuple[dict[str, ColumnPlan], dict[str, int]]:
    """Return the plans of columns of tables, which are converted batch by batch."""
    if plan.is_decoded:
        return {}, {}
    columns: dict[str, ColumnPlan] = {}
    converted = 0
    first = slice_rows(sample, 0, count)
    names = _names(first)
    batches = [slice_rows(sample, low, low + count) for low in offsets[:_OFFSETS]]
    plans = [plan.explain_batch(batch).leaves for batch in batches]
    for place, name in enumerate(names):
        prefix = f"[{name!r}]"
        leaves = [
            [
                leaf
                for path, leaf in each.items()
                if path.startswith(prefix) and ".categories" not in path[len(prefix) :]
            ]
            for each in plans
        ]
        verdicts = [all(leaf.zero_copy or not _bytes(leaf) for leaf in each) for each in leaves]
        copied = max(sum(_bytes(leaf) for leaf in each) for each in leaves)
        reasons = tuple(reason for each in leaves for leaf in each for reason in leaf.reasons)
        nbytes = first[name].nbytes if isinstance(first, dict) else table_bytes(first.select([place]))
        aliased = False if is_shuffled else _common(verdicts)
        columns[str(name)] = ColumnPlan(aliased, nbytes, copied, _unique(reasons))
        converted += copied
    copies = {
        "rows of a window, by Table.take": sum(c.nbytes for c in columns.values()) if is_shuffled else 0
    }
    copies["conversion of columns"] = converted
    return columns, {name: nbytes for name, nbytes in copies.items() if nbytes}


def _bytes(leaf: Any) -> int:
    return int(leaf.copied_bytes + leaf.new_bytes)


def _common(verdicts: list[bool]) -> bool | None:
    return None if any(verdicts) and not all(verdicts) else all(verdicts)


def _unique(reasons: Any) -> tuple[Reason, ...]:
    return tuple({reason.code or reason.why: reason for reason in reasons}.values())


def _names(content: Any) -> list[Any]:
    return list(content) if isinstance(content, dict) else list(content.column_names)


def _column_of(path: str, prefixes: dict[str, Any]) -> Any:
    """Return the column of a path: ``"['x'].mask"`` is a part of ``x``. Names may contain brackets."""
    end = path.find("]")
    while path[: end + 1] not in prefixes:
        end = path.index("]", end + 1)
    return prefixes[path[: end + 1]]


def _add(columns: dict[str, ColumnPlan], name: str, is_mask: bool, part: ColumnPlan) -> None:
    """Add a part of a column; its mask is new, whether or not its values are aliased."""
    old = columns.get(name)
    if old is None:
        columns[name] = part
        return
    aliased = old.aliased if is_mask else _common([old.aliased is True, part.aliased is True])
    nbytes, copied = old.nbytes + part.nbytes, old.copied_bytes + part.copied_bytes
    columns[name] = ColumnPlan(aliased, nbytes, copied, _unique((*old.reasons, *part.reasons)))


def _offsets(groups: Any, run: Run, batch: int) -> list[int]:
    """Return first rows of batches, modulo 64, because alignment repeats after 64 rows."""
    starts, position = set(), 0
    for group in groups:
        low = max(run.start - position, (run.start - position) % batch)
        if low < group.rows and position < run.stop:
            starts.add((low % _ALIGNMENT, min(-(-(group.rows - low) // batch), _ALIGNMENT)))
        position += group.rows
    if run.stop < 0:
        starts.add((0, _ALIGNMENT))
    return sorted({(low + k * batch) % _ALIGNMENT for low, batches in starts for k in range(batches)}) or [0]


def _joined(groups: Any, run: Run, options: LoaderOptions) -> int:
    """Return the number of batches with rows of several groups."""
    position, joined = 0, set()
    for group in groups:
        position += group.rows
        place = position - run.start
        if 0 < place < run.stop - run.start and place % options.batch:
            joined.add(place // options.batch)
    whole = run.rows // options.batch
    return len({number for number in joined if number < whole or not options.drop_last})


def _memory(window_bytes: int, group_bytes: int, is_stream: bool, row_bytes: int) -> int:
    """Return the bytes of three windows and two row groups, or of three row groups.

    The consumer holds one, one is ready, and the thread fills a third while the next group is read.
    """
    if window_bytes:
        return 3 * window_bytes + 2 * group_bytes
    return -1 if is_stream or not row_bytes else 3 * group_bytes


def _order(options: LoaderOptions, window: int) -> str:
    if not options.is_shuffled:
        return "that of the source"
    return f"groups permuted, rows shuffled in windows of {window:,}; seed {options.seed}"


def _notes(source: Dataset | Stream, options: LoaderOptions, plan: BatchPlan) -> tuple[str, ...]:
    notes = [source.note] if source.note else []
    if options.nulls is not None and options.nulls != "mask" and not source.in_memory:
        notes.append("a column of a row group that has nulls is copied to fill them")
    if plan.template is None and not plan.is_decoded and not source.in_memory:
        notes.append("the bytes of text and lists are not known before they are read")
    if source.dictionaries:
        notes.append(f"text is read as codes: {', '.join(source.dictionaries)}")
    return (*notes, *plan.warnings)
