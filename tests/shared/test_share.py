"""``share`` and ``shared_empty``: equal values, aliases, and recognition of what lies in a segment."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.arrays import bits, sample
from helpers.frameworks import HOST
from helpers.shared_memory import run_reader
from helpers.table_cases import KINDS, TABLES, shaped

import zerocopy as zc
from zerocopy import registry
from zerocopy.dtype import ALL
from zerocopy.frames import to_frames

pa = pytest.importorskip("pyarrow")

#: Small blocks are copied when they are opened, and large ones are mapped.
SHAPES = {"small": (4, 3), "large": (257, 129, 3), "0-d": (), "empty": (0, 3)}
OPTIONS: list[dict[str, Any]] = [
    *({}, {"copy": False}, {"copy": True}, {"writable": True}, {"writable": False}, {"device": "cpu"}),
]
TENSORS = [name for name in HOST if name != "mxnet"]


def frames_of(obj: Any) -> tuple[bytes, list[bytes]]:
    split = to_frames(obj)
    return split.header, [bytes(frame) for frame in split.frames]


def outcome(x: Any, to: str, options: dict[str, Any]) -> Any:
    try:
        return zc.convert(x, to, **options)
    except zc.ZeroCopyError as error:
        return error


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", TENSORS)
def test_each_dtype_of_each_framework_comes_back(name: str, shape: str) -> None:
    """`convert(shared, shared.framework)` is the object; others are those of the object itself."""
    if (name, shape) == ("awkward", "0-d"):
        pytest.skip("awkward has no arrays without dimensions")
    checked = 0
    for dtype in ALL:
        try:
            base = sample(dtype.storage, SHAPES[shape])
            x = zc.convert(base.view(dtype.storage), name)
            if not dtype.in_numpy:
                framework = registry.by_name(name)
                framework.copy_reasons(replace(zc.view(base), dtype=dtype))
                x = framework.from_host(base, dtype, zc.device.HOST, None)
            to_frames(x)
        except Exception:  # noqa: BLE001  # the framework lacks the type
            continue
        shared = zc.share(x)
        back = zc.convert(shared, to=shared.framework)
        assert type(back) is type(x), dtype
        assert frames_of(back) == frames_of(x), dtype
        assert shared.nbytes == to_frames(x).nbytes
        checked += 1
    assert checked >= 8


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("name", "to"), list(itertools.product(TENSORS, TENSORS)))
def test_options_mean_what_they_mean_for_arrays(name: str, to: str, shape: str) -> None:
    """P1, P2, P3: values, `copy=`, and `explain` against `shares_memory`."""
    if shape == "0-d" and "awkward" in (name, to):
        pytest.skip("awkward has no arrays without dimensions")
    x = zc.convert(sample("float32", SHAPES[shape]), name)
    shared = zc.share(x)
    for options in OPTIONS:
        plan = zc.explain(shared, to, **options)
        result = outcome(shared, to, options)
        if isinstance(result, zc.ZeroCopyError):
            assert not plan.possible
            assert plan.error is not None
            assert plan.error.code == result.code
            assert shape == "large" or options.get("copy") is False, result
            continue
        assert bits(zc.convert(result, "numpy")) == bits(zc.convert(x, "numpy"))
        shares = zc.shares_memory(shared, result)
        assert plan.zero_copy == shares or shape == "empty", (options, str(plan))
        if options.get("copy") is True:
            assert not shares
        if options.get("copy") is False and shape != "empty":
            assert shares


@pytest.mark.parametrize("to", TENSORS)
def test_results_alias_one_mapping(to: str) -> None:
    shared = zc.share(np.arange(100_000, dtype="f4"))
    first, second = zc.convert(shared, "numpy"), zc.convert(shared, to)
    assert zc.view(first).ptr == zc.view(second).ptr
    assert not first.flags.writeable
    data = zc.Shared.from_bytes(bytes(shared))
    assert zc.view(zc.convert(data, "numpy")).ptr == zc.view(first).ptr


@pytest.mark.hazard("robustness#writes-to-shared-memory")
@pytest.mark.parametrize("count", [10, 100_000])
def test_a_write_changes_no_other_process(count: int) -> None:
    torch = pytest.importorskip("torch")
    x = np.arange(count, dtype="i8")
    shared = zc.share(x)
    tensor = zc.convert(shared, "torch")
    tensor += 1
    assert int(run_reader(shared).stdout) == x.sum()
    assert torch.equal(zc.convert(shared, "torch"), tensor)  # one mapping in this process


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", ["plain", "null chunks", "null slice", "empty"])
@pytest.mark.parametrize("framework", TABLES)
def test_tables_come_back(framework: str, shape: str) -> None:
    for kind in KINDS.values():
        column = shaped(kind, shape)
        table = pa.table({"x": column, "y": pa.array(np.arange(len(column)))})
        x = outcome(table, framework, {})
        if isinstance(x, zc.ZeroCopyError):
            continue
        try:
            frames_of(x)
        except zc.UnsupportedConversionError as error:
            with pytest.raises(zc.UnsupportedConversionError) as caught:
                zc.share(x)
            assert caught.value.code == error.code  # noqa: PT017
            continue
        shared = zc.share(x)
        back = zc.convert(shared, to=shared.framework)
        assert type(back) is type(x)
        if framework == "pandas":
            assert repr(back.to_dict()) == repr(x.to_dict()), kind
            assert list(back.dtypes) == list(x.dtypes), kind
            continue
        before, after = zc.convert(x, "pyarrow"), zc.convert(back, "pyarrow")
        assert frames_of(after) == frames_of(before), kind


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rows", [10, 50_000])
@pytest.mark.parametrize("to", [*TABLES, *TENSORS])
def test_plans_of_tables_are_right(to: str, rows: int) -> None:
    numbers = pa.table({"a": np.arange(rows), "b": np.arange(rows, dtype="f4")})
    mixed = numbers.append_column("c", pa.array([str(i) if i % 3 else None for i in range(rows)]))
    for table, options in itertools.product((numbers, mixed), OPTIONS):
        shared = zc.share(table)
        plan, result = zc.explain(shared, to, **options), outcome(shared, to, options)
        if isinstance(result, zc.ZeroCopyError):
            assert not plan.possible
            assert plan.error is not None
            assert plan.error.code == result.code
            continue
        if to != "duckdb":  # a relation has no memory before it is read
            assert plan.shares_memory in (None, zc.shares_memory(shared, result)), (options, str(plan))


def test_buffers_are_aligned() -> None:
    """JAX aliases memory at multiples of 64 only."""
    table = pa.table({str(i): pa.array([b"x" * i] * 30_000) for i in range(5)})
    opened = zc.convert(zc.share(table), "pyarrow")
    for column in opened.columns:
        for buffer in column.chunk(0).buffers()[1:]:
            assert buffer.size == 0 or buffer.address % 64 == 0


def test_handles_in_containers() -> None:
    shared = {"a": zc.share(np.arange(3)), "b": [zc.share(np.ones((300, 300)))]}
    opened = zc.convert(shared, "numpy")
    assert opened["a"].tolist() == [0, 1, 2]
    assert opened["b"][0].sum() == 90_000


def test_a_type_that_numpy_lacks_comes_back_without_ml_dtypes(run_python) -> None:
    pytest.importorskip("torch")
    completed = run_python("""
        import sys
        sys.modules["ml_dtypes"] = None
        import torch, zerocopy as zc
        for count in (10, 100_000):
            x = torch.arange(count).to(torch.bfloat16)
            shared = zc.share(x)
            y = zc.convert(shared, "torch")
            assert y.dtype == x.dtype and torch.equal(x, y), y
            assert zc.explain(shared, "torch").zero_copy == zc.shares_memory(shared, y)
    """)
    assert completed.returncode == 0, completed.stderr


# -- what lies in a segment ------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["numpy", *TENSORS])
def test_memory_of_shared_empty_is_recognised(to: str) -> None:
    array = zc.shared_empty((64, 100), "f4")
    array[:] = np.arange(6400).reshape(64, 100)
    for part in (array, array[3], array[2:9], array.T, array[5:6, 7:8], array.reshape(-1)[17:]):
        x = zc.convert(part, to) if zc.explain(part, to).zero_copy else part
        shared = zc.share(x)
        assert shared.copied_bytes == 0
        assert shared.nbytes == part.nbytes
        assert bits(zc.convert(shared, "numpy")) == bits(part)
    assert zc.share(array[:, 3]).copied_bytes == 256  # with gaps


def test_columns_of_a_table_over_shared_memory_are_recognised() -> None:
    array = zc.shared_empty((2, 50_000), "f8")
    array[:] = np.arange(100_000).reshape(2, -1)
    table = pa.table({"a": pa.array(array[0]), "b": pa.array(array[1]), "c": pa.array(np.zeros(50_000))})
    shared = zc.share(table)
    assert shared.copied_bytes == 400_000
    assert zc.convert(shared, "pyarrow").equals(table)
    assert zc.convert(zc.share(shared), "pyarrow").equals(table)


def test_a_handle_is_shared_as_it_is() -> None:
    shared = zc.share(np.arange(3))
    assert zc.share(shared) is shared


@pytest.mark.hazard("robustness#written-pages")
def test_a_result_is_recognised_until_it_is_written() -> None:
    """A written page is a copy of this process, which must not be handed on as the block's."""
    torch = pytest.importorskip("torch")
    shared = zc.share(np.zeros(100_000, "f4"))
    tensor = zc.convert(shared, "torch")
    assert zc.share(tensor).copied_bytes == 0
    tensor[50_000] = 5
    handed = zc.share(tensor)
    assert handed.copied_bytes == 400_000
    assert int(run_reader(handed, shared).stdout.split()[0]) == 5
    assert zc.share(tensor[:10_000]).copied_bytes == 0  # other pages
    assert torch.equal(zc.convert(handed, "torch"), tensor)


def test_freed_memory_is_not_recognised() -> None:
    """Other memory that lies at the same address later is copied."""
    array = zc.shared_empty(1 << 20, "u1")
    address = array.ctypes.data
    del array
    from zerocopy.shared.reading import addresses

    assert addresses.find(address, address + 10) is None


def test_zero_sizes_and_scalars() -> None:
    for x in (np.zeros((0, 3)), np.float32(2), zc.shared_empty((0, 2)), zc.shared_empty((), "i2")):
        opened = zc.convert(zc.share(x), "numpy")
        assert (opened.shape, opened.dtype) == (x.shape, x.dtype)
    table = zc.convert(zc.share(pa.table({})), "pyarrow")
    assert table.num_columns == 0


def test_a_read_only_source_is_shared() -> None:
    x = np.arange(100_000)
    x.flags.writeable = False
    assert int(run_reader(zc.share(x)).stdout) == x.sum()


@pytest.mark.parametrize(
    ("shape", "dtype", "error"),
    [
        (-1, "f4", ValueError),
        ((2, -1), "f4", ValueError),
        (3, "O", TypeError),
        (3, "no type", TypeError),
        (1 << 60, "u1", zc.errors.SharedMemoryError),
        (1 << 80, "u1", zc.errors.SharedMemoryError),
    ],
)
def test_shared_empty_refuses(shape: Any, dtype: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        zc.shared_empty(shape, dtype)
