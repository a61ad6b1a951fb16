"""Headers and frames that were changed: an error of zerocopy or an object that can be read, never a crash."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

#: Mutations, half of them of headers of tables.
COUNT = 20_000

PROGRAM = """
import random, sys, warnings
import numpy as np, pandas as pd, pyarrow as pa
import zerocopy as zc
from zerocopy.frames import from_frames, to_frames

warnings.simplefilter("ignore")
text = ["a", "a text longer than a view holds", None] * 3
table = pa.table({
    "number": pa.array(range(9)), "text": text, "view": pa.array(text, pa.string_view()),
    "list": [[1, 2], None, [3]] * 3, "struct": [{"a": 1, "b": "x"}, None, {"a": 2, "b": "y"}] * 3,
    "dictionary": pa.array(text).dictionary_encode(), "bool": [True, False, None] * 3,
    "fixed": pa.array([[1, 2]] * 9, pa.list_(pa.int8(), 2)),
    "map": pa.array([[("k", 1)]] * 9, pa.map_("string", "int64")),
    "views": pa.array([[1]] * 9, pa.list_view(pa.int32())), "null": pa.nulls(9),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([4, 9], pa.int32()), pa.array([1, 2])),
    "decimal": pa.array([1] * 9, pa.decimal128(5, 2)), "tensor": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int8(), [2]), pa.array([[1, 2]] * 9, pa.list_(pa.int8(), 2))),
})
union = pa.UnionArray.from_dense(
    pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["x"])])
frame = pd.DataFrame({"x": [1.0, 2.0], "b": [True, False]}, index=["p", "q"])
records = np.zeros(4, [("a", "<i4"), ("b", [("c", "<f8", (2,))])])
permuted = np.zeros((2, 3, 4), "i2").transpose(2, 0, 1)
arrays = [np.arange(6.0).reshape(2, 3), permuted, records, np.array(["ab"])]
tables = [table.select([name]) for name in table.column_names] + [table, union, frame, frame["x"]]
samples = [[to_frames(x) for x in arrays], [to_frames(x) for x in tables]]

def mutated(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        kind = rng.randrange(5)
        at = rng.randrange(len(data)) if data else 0
        if kind < 2 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2 and data:
            data[at] = rng.choice((0, 1, 127, 128, 255))
        elif kind == 3:
            del data[at : at + rng.choice((1, 4, 8, 1000))]
        else:
            data[at:at] = rng.randbytes(rng.choice((1, 4, 8)))
    return bytes(data)

def read(obj):
    if isinstance(obj, np.ndarray):
        obj.tobytes(), obj.shape
    elif isinstance(obj, (pa.Table, pa.RecordBatch, pa.ChunkedArray, pa.Array)):
        obj.validate(full=True)
        obj.to_pylist()
    else:
        len(obj), getattr(obj, "shape", None)

rng = random.Random(int(sys.argv[1]))
outcomes = {"error": 0, "object": 0, "invalid content": 0}
for i in range(int(sys.argv[2])):
    split = rng.choice(samples[i % 2])
    header, frames = mutated(rng, split.header), [bytes(part) for part in split.frames]
    if rng.random() < 0.2 and frames:
        place = rng.randrange(len(frames))
        frames[place] = frames[place][: rng.randrange(len(frames[place]) + 1)]
    try:
        result = from_frames(header, frames)
    except zc.ZeroCopyError:
        outcomes["error"] += 1
        continue
    try:
        read(result)
        outcomes["object"] += 1
    except Exception:  # the full validation, or Python's decimals and dates
        outcomes["invalid content"] += 1
print(outcomes)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_changed_headers_never_crash(run_python, seed: int) -> None:
    process = run_python(f"import sys; sys.argv[1:] = ['{seed}', '{COUNT // 2}']\n" + PROGRAM)
    assert process.returncode == 0, process.stderr
    assert "error" in process.stdout
