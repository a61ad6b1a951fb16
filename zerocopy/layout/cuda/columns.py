"""Records on a CUDA device to columns, and back: what is checked, and what is launched."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from numba import cuda

from zerocopy.errors import UnsupportedConversionError
from zerocopy.layout.cuda import kernels, memory
from zerocopy.layout.cuda.memory import SIMULATED, Block, Stream
from zerocopy.layout.cuda.plan import THREADS, plan
from zerocopy.layout.cuda.resident import resident
from zerocopy.layout.schema import Leaf

_AOS = "aos_to_soa(records)"
_SOA = "soa_to_aos(columns)"

#: Rows from one column of the arena to the next are a multiple of this, so that each column
#: begins at a multiple of as many bytes: whole lines, and what all libraries take for aligned.
_ALIGNMENT = 256

#: Numba warns of grids of fewer blocks than this, whatever there is to do. Those that have no
#: tile end at once.
_FEWEST_BLOCKS = 1 if SIMULATED else 128


def aos_to_soa(
    buffer: Any,
    leaves: Sequence[Leaf],
    itemsize: int,
    *,
    out: Sequence[Any] | None = None,
    stream: Any = None,
) -> list[Any]:
    """Return the leaves of records on a CUDA device as columns.

    Parameters
    ----------
    buffer : object with ``__cuda_array_interface__``
        Contiguous memory of records, whatever its type says, at any address.
    leaves : sequence of Leaf
        What is wanted of a record.
    itemsize : int
        Bytes of a record.
    out : sequence of objects with ``__cuda_array_interface__``, optional
        Where to write: a column a leaf, each of shape ``(n, *leaf.shape)``, contiguous, of the
        leaf's type. None: one allocation for all of them.
    stream : optional
        Where the work is put: an int as DLPack numbers streams, an object with
        ``__cuda_stream__``, a Numba stream. None: Numba's default stream.

    Returns
    -------
    list
        `out`; or Numba's device arrays in the order of the leaves, never an alias: contiguous,
        each at a multiple of 256 bytes of the allocation, and of leaves of one width as many
        bytes apart from one to the next. They are bound to `stream`, if it is given.

    Raises
    ------
    UnsupportedConversionError
        The buffer is not contiguous or holds no whole number of records; `out` does not fit,
        is read-only, or overlaps. Nothing is written then.
    LossyConversionError
        It has a mask.
    DeviceError
        Not all memory is on one device; `stream` is none.

    Notes
    -----
    The work waits for the stream that the buffer's interface names (version 3,
    "Synchronization"), and that stream for the work; the host and the device do not wait. An
    object whose interface names none is asked through ``__dlpack__`` where it has that: torch.
    Fresh columns are in Numba's memory, which comes and goes on its default stream: work on
    another one waits for what that has been given, and that for the work. With `out` it does not.
    """
    leaves, on = tuple(leaves), Stream.of(stream)
    source = memory.block(buffer, "the buffer", _AOS)
    if itemsize <= 0 or source.nbytes % itemsize:
        raise UnsupportedConversionError(
            _AOS,
            f"{source.nbytes} bytes are no whole number of records of {itemsize} bytes",
            "cut what is left over off, or look at the type: align=True adds padding",
        )
    rows = source.nbytes // itemsize
    if out is None:
        return _fresh_columns(source, leaves, itemsize, rows, on)
    columns = _given_columns(out, leaves, "aos_to_soa(records, out=out)", "out", rows)
    asked = "aos_to_soa(records, out=out)"
    for column in columns:
        _refuse_readonly(column, asked)
    memory.refuse_other_devices([source, *columns], asked)
    memory.refuse_overlaps(columns, [source], asked)
    with _device(source.device):
        on.wait_for([source, *columns])
        _launch(source, leaves, itemsize, rows, on, columns=columns)
        on.release([source, *columns])
    return list(out)


def soa_to_aos(
    columns: Sequence[Any],
    leaves: Sequence[Leaf],
    itemsize: int,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Return columns on a CUDA device as the records whose leaves they are.

    Parameters
    ----------
    columns : sequence of objects with ``__cuda_array_interface__``
        One a leaf, each of shape ``(n, *leaf.shape)``, contiguous, of the leaf's type; aligned
        to its items at least.
    leaves : sequence of Leaf
        Of a record. Where they overlap, the last one is seen, as with NumPy.
    itemsize : int
        Bytes of a record.
    out : object with ``__cuda_array_interface__``, optional
        Where to write: contiguous, n records of `itemsize` bytes, or as many bytes.
    stream : optional
        See :func:`aos_to_soa`.

    Returns
    -------
    numba.cuda device array of uint8, shape (n * itemsize,)
        The records, padding zero; or `out`.

    Raises
    ------
    UnsupportedConversionError
        There is no column; one is not contiguous, not of its leaf's type or shape, or not as
        long as the others; `out` does not fit, is read-only, or overlaps. Nothing is written
        then.
    LossyConversionError
        One has a mask.
    DeviceError
        Not all memory is on one device; `stream` is none.
    """
    leaves, on = tuple(leaves), Stream.of(stream)
    given = _given_columns(columns, leaves, _SOA, "columns", None)
    if not given:
        raise UnsupportedConversionError(_SOA, "there is no column", "pass one a field")
    rows = given[0].shape[0]
    target = None if out is None else _given_records(out, rows, itemsize)
    blocks = given if target is None else [*given, target]
    asked = _SOA if target is None else "soa_to_aos(columns, out=out)"
    memory.refuse_other_devices(blocks, asked)
    if target is not None:
        _refuse_readonly(target, asked)
        memory.refuse_overlaps([target], given, asked)
    device = next((b.device for b in blocks if b.nbytes), blocks[0].device)
    with _device(device):
        made = None
        if target is None:
            made = cuda.device_array(rows * itemsize, np.uint8)
            target = memory.block(made, "the records", asked)
            blocks = [*given, target]  # see _fresh_columns
        on.wait_for(blocks)
        _launch(target, leaves, itemsize, rows, on, columns=given, to_rows=True)
        on.release(blocks)
        if made is not None and on.bound:
            made = made.bind(on.numbas(device))
    return out if made is None else made


# -- what is given ----------------------------------------------------------------


def _given_columns(
    columns: Sequence[Any], leaves: tuple[Leaf, ...], asked: str, name: str, rows: int | None
) -> list[Block]:
    """Return the blocks of some columns, if they fit the leaves and are of one length."""
    if len(columns) != len(leaves):
        raise UnsupportedConversionError(
            asked, f"{name} has {len(columns)} columns, the records {len(leaves)}", "pass one a field"
        )
    blocks = []
    for leaf, column in zip(leaves, columns, strict=True):
        found = memory.block(column, f"{name}[{leaf.name!r}]", asked)
        if rows is None and found.shape:
            rows = found.shape[0]
        shape = (rows, *leaf.shape)
        if found.shape != shape:
            raise UnsupportedConversionError(
                asked, f"{found.name} has the shape {found.shape}, not {shape}", "columns have one length"
            )
        if found.typestr != leaf.dtype.str:
            raise UnsupportedConversionError(
                asked, f"{found.name} is of {found.typestr}, not {leaf.dtype.str}", "cast it first"
            )
        blocks.append(found)
    return blocks


def _given_records(out: Any, rows: int, itemsize: int) -> Block:
    asked = "soa_to_aos(columns, out=out)"
    found = memory.block(out, "out", asked)
    fits = ((rows,), itemsize), ((rows * itemsize,), 1)
    if (found.shape, np.dtype(found.typestr).itemsize) not in fits:
        raise UnsupportedConversionError(
            asked,
            f"out has the shape {found.shape} and the type {found.typestr}",
            f"pass {rows} records of {itemsize} bytes, or {rows * itemsize} bytes of uint8",
        )
    return found


def _refuse_readonly(block: Block, asked: str) -> None:
    if block.readonly:
        raise UnsupportedConversionError(asked, f"{block.name} is read-only", "pass memory to write to")


# -- what is launched -------------------------------------------------------------


def _device(index: int) -> Any:
    """Make a device current."""
    return nullcontext() if SIMULATED else cuda.gpus[index]


def _fresh_columns(
    source: Block, leaves: tuple[Leaf, ...], itemsize: int, rows: int, on: Stream
) -> list[Any]:
    """Make the arena, fill it, and cut it into columns while the device is at work."""
    pitch = -(-rows // _ALIGNMENT) * _ALIGNMENT
    with _device(source.device):
        bound = on.numbas(source.device) if on.bound else 0
        # Numba's memory comes and goes on its default stream: a pool's may still be written there,
        # and is given to the next one as soon as the last column is dropped. So it is an array of
        # that stream, as any other, until the work has been put on ours.
        arena = cuda.device_array(pitch * sum(leaf.width for leaf in leaves), np.uint8)
        whole = memory.block(arena, "the columns", _AOS)
        on.wait_for([source, whole])
        if whole.nbytes:
            _launch(source, leaves, itemsize, rows, on, columns=[whole], pitch=pitch)
        on.release([source, whole])
        columns, start = [], 0
        for leaf in leaves:
            shape = (rows, *leaf.shape)
            if rows and leaf.width:
                column = arena[start : start + rows * leaf.width].view(leaf.dtype)
                column = (column.reshape(shape) if leaf.shape else column).bind(bound)
            else:
                column = memory.no_bytes(shape, leaf.dtype, bound)
            columns.append(column)
            start += pitch * leaf.width
    return columns


def _launch(
    records: Block,
    leaves: tuple[Leaf, ...],
    itemsize: int,
    rows: int,
    on: Stream,
    *,
    columns: list[Block],
    pitch: int = 0,
    to_rows: bool = False,
) -> None:
    """Put the kernel that suits a layout on a stream.

    With a `pitch` the columns are one block, and lie in it as the plan says.
    """
    if not records.nbytes or not columns:
        return
    head = records.address % 8
    low, size = memory.windows(columns)
    places = None
    if not pitch:
        places = tuple(b.address - low if b.nbytes else 0 for b in columns)
    made = plan(leaves, itemsize, head, places, to_rows)

    def over(address: int, nbytes: int, *names: str) -> list[Any]:
        return [memory.window(address, nbytes, name, records.device) for name in names]

    stream, table = on.numbas(records.device), resident(made, records.device)
    inner = ("uint8", "uint64") if made.shared else ("uint8", "uint16", "uint32")
    arguments = [
        *over(records.address - head, head + records.nbytes, *inner),
        *over(low, size, "uint8", "uint32", "uint64"),
        table.array_for(on),
        rows,
        itemsize,
        *([head, *made.swizzle] if made.shared else []),
        made.rows,
        pitch,
    ]
    if made.shared and to_rows:
        arguments.append(made.padded)
    kernel = {
        (True, False): kernels.to_columns,
        (True, True): kernels.to_rows,
        (False, False): kernels.to_columns_direct,
        (False, True): kernels.to_rows_direct,
    }[bool(made.shared), to_rows]
    blocks = max(_FEWEST_BLOCKS, -(-rows // made.rows))
    kernel[blocks, THREADS, stream, made.shared](*arguments)
    table.used_on(on)
