"""``case(seed)``: one integer makes one conversion, on any machine with the same frameworks."""

from __future__ import annotations

from random import Random
from typing import Any

from helpers.hostile import (
    arrow_structs,
    distances,
    dlpack_capsules,
    files,
    interfaces,
    nested,
    objects,
    one_shot,
    real_arrays,
    tables,
)
from helpers.hostile.case import Built, Case, Family

#: The builder of each family, and how many of 100 cases it has.
FAMILIES: dict[str, tuple[Family, int]] = {
    "dlpack": (dlpack_capsules.build, 18),
    "array-interface": (interfaces.build_array_interface, 12),
    "cuda-interface": (interfaces.build_cuda_interface, 4),
    "array-method": (interfaces.build_array_method, 4),
    "buffer": (interfaces.build_buffer, 5),
    "arrow-array": (arrow_structs.build_array, 14),
    "arrow-stream": (arrow_structs.build_stream, 8),
    "file": (files.build, 8),
    "object": (objects.build, 9),
    "array": (real_arrays.build, 12),
    "table": (tables.build_table, 6),
}
#: Further families, with their parts of 100: apart from the others, whose seeds stay theirs.
_FURTHER: dict[str, tuple[Family, int]] = {
    "distances": (distances.build_columns, 8),
    "one-shot": (one_shot.build, 4),
    "nested": (nested.build, 6),
}

TENSORS = ["numpy", "torch", "jax", "tensorflow", "numba"]
TABLES = ["pyarrow", "pandas", "polars", "duckdb", "nanoarrow"]
FORMS = [
    "pyarrow.Tensor",
    "pyarrow.Array",
    "pyarrow.FixedShapeTensorArray",
    "pyarrow.Table",
    "pyarrow.RecordBatch",
]
_ODD_TARGETS: list[Any] = [
    "cupy",
    "cudf",
    "nothing",
    "",
    None,
    3,
    object(),
    int,
    "numpy.x",
    [],
    {},
    ("numpy",),
]


def family_of(seed: int) -> str:
    """Return the family of a seed."""
    further = {name: weight for name, (_, weight) in _FURTHER.items()}
    names = [*further, ""]
    name = Random(f"further {seed}").choices(names, [*further.values(), 100 - sum(further.values())])[0]
    if name:
        return name
    return Random(f"family {seed}").choices(list(FAMILIES), [weight for _, weight in FAMILIES.values()])[0]


def case(seed: int) -> Case:
    """Return the conversion of a seed."""
    family = family_of(seed)
    build = (FAMILIES | _FURTHER)[family][0]

    def make() -> Built:
        return build(Random(f"{family} {seed}"))

    rng = Random(f"call {seed}")
    to = _target(rng)
    options, odd = _options(rng)
    if family in _FURTHER:  # whose inputs have options of their own
        kept = [name for name in ("copy", "writable") if name in options and not odd]
        options, odd = {name: options[name] for name in kept}, False
    return Case(seed, family, make, to, options, odd)


def _target(rng: Random) -> Any:
    way = rng.random()
    if way < 0.55:
        return rng.choice(TENSORS)
    if way < 0.88:
        return rng.choice(TABLES)
    return rng.choice(FORMS) if way < 0.97 else rng.choice(_ODD_TARGETS)


def _options(rng: Random) -> tuple[dict[str, Any], bool]:
    """Return options, and whether one of them has a wrong type or value."""
    options: dict[str, Any] = {}
    if rng.random() < 0.4:
        return options, False
    for name, (values, chance) in _VALID.items():
        if rng.random() < chance:
            options[name] = rng.choice(values)
    if options.get("layout") == "matrix" and rng.random() < 0.7:
        options["order"] = rng.choice("CF")
    if arrow_structs.CAN_VALIDATE and rng.random() < 0.2:
        options["validate"] = "full"
    odd = rng.random() < 0.12
    if odd:
        name = rng.choice(list(_ODD))
        options[name] = rng.choice(_ODD[name])
    return options, odd


_VALID: dict[str, tuple[list[Any], float]] = {
    "copy": ([None, True, False], 0.5),
    "writable": ([None, True, False], 0.25),
    "device": (["cpu", (1, 0), None, "cpu:0"], 0.2),
    "encode": ([True, False], 0.2),
    "nulls": (["mask", "nan", 0, -1.5], 0.15),
    "layout": (["columns", "matrix", "matrix", "records"], 0.12),
    "columns": ([["a0"], ["c0"], [], ["nothing"], ["a0", "a0"], [0]], 0.05),
    "names": ([["x"], ["x", "y"], ["x", "y", "z"], []], 0.06),
    "index": ([True, False], 0.08),
}


class _Strange:
    """An option whose comparison, truth and text raise."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("compared")

    def __bool__(self) -> bool:
        raise ValueError("truth")

    def __repr__(self) -> str:
        return "<strange>"

    __hash__ = None  # type: ignore[assignment]


_ANYTHING: list[Any] = [
    2,
    0,
    "yes",
    "",
    [],
    {},
    object(),
    1.5,
    float("nan"),
    b"x",
    _Strange(),
    2**70,
    -1,
    (),
    int,
    len,
]

_ODD: dict[str, list[Any]] = {
    **dict.fromkeys(("copy", "writable", "stream", "encode", "layout", "index"), _ANYTHING),
    "device": [
        *_ANYTHING,
        "cuda",
        "cuda:99",
        "gpu",
        "cpu:1",
        "cpu:x",
        (1,),
        (99, 0),
        (1, 2**70),
        "meta",
        "CPU",
    ],
    "nulls": [*_ANYTHING, {"a": "mask"}, {"a": {}}, {1: 2}, True, "zero", None, 10**400, 1j],
    "columns": [
        *_ANYTHING,
        [[]],
        [None],
        ["a0", ["b"]],
        range(3),
        {"a0"},
        "a0",
        [float("nan")],
    ],
    "names": [*_ANYTHING, [1], [None], [[]], ["x"] * 1000, range(2)],
    "unknown": [1, None],
}
