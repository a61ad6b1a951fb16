"""Copies read no byte past the end of a buffer: the pages behind the buffers have no access."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

_PROGRAM = """
import sys
sys.path.insert(0, "tests")
import faulthandler; faulthandler.enable()
import pyarrow as pa, zerocopy as zc
from helpers.guarded_memory import guarded
from helpers.table_cases import KINDS, shaped
from zerocopy.tables.hub import hub

codes = pa.array([0, 1] * 4, pa.int8())
places = pa.array([0, 0, 1, 1, 2, 2, 3, 3], pa.int32())
numbers, texts = pa.array(range(8), pa.int16()), pa.array([str(i) for i in range(8)])
sparse = pa.UnionArray.from_sparse(codes, [numbers, texts])
dense = pa.UnionArray.from_dense(codes, places, [numbers[:4], texts[:4]])
lists = [[i] * (i % 3) for i in range(8)]
cases = {
    "sparse": sparse, "dense": dense, "struct": pa.StructArray.from_arrays([sparse, dense], ["x", "y"]),
    "list": pa.ListArray.from_arrays(pa.array(range(8), pa.int32()), dense),
    "large list view": pa.array(lists, pa.large_list_view(pa.int8())),
    "view of unions": pa.ListViewArray.from_arrays(places, pa.array([2] * 8, pa.int32()), sparse),
    "binary view": pa.array([b"a text of twenty bytes", None] * 4, pa.binary_view()),
    "run ends": pa.RunEndEncodedArray.from_arrays(pa.array([2, 5, 8], pa.int32()), numbers[:3]),
}
cases.update({name: shaped(kind, "plain").chunk(0) for name, kind in KINDS.items()})
cases.update({f"{name} nulls": shaped(kind, "nulls").chunk(0) for name, kind in KINDS.items()})
for name, array in cases.items():
    whole = guarded(array)
    assert whole.equals(array), name
    for start in range(len(whole)):
        part = whole[start:]
        print(name, start, flush=True)
        assert hub().copied(part).to_pylist() == part.to_pylist(), name
        table = pa.table({"x": part})
        with pa.ipc.new_stream(pa.BufferOutputStream(), table.schema) as writer:
            writer.write_table(hub().writable(table))
        assert zc.convert(part, "pyarrow", copy=True).to_pylist() == part.to_pylist(), name
"""


@pytest.mark.hazard("pyarrow#slices-of-unions-and-list-views-in-ipc")
def test_copies_of_slices_end_with_their_buffers(run_warm) -> None:
    result = run_warm(_PROGRAM)
    assert result.returncode == 0, (result.stdout.splitlines()[-1:], result.stderr[-2000:])
