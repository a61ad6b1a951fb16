"""A table of numbers to a dict of tensors, compared with a loop by hand and with libraries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.suite import Case, Goal, Section, median
from benchmarks.tables.contest import Method, Question, tasks, tensors
from benchmarks.tables.data import COLUMNS, ROWS, floats

LOOP, LIBRARIES = 1.2, 0.01  # goals relative to their times

#: The call that each tensor framework documents for DLPack.
_IMPORTS = {"torch": "torch.from_dlpack", "numpy": "np.from_dlpack", "jax": "jax.dlpack.from_dlpack"}


def _loops(target: str) -> list[Method]:
    call = _IMPORTS[target]
    return [
        Method(f"{{n: {call}(t[n].chunk(0)) for n in t.column_names}}", "documented"),
        Method(f"{{n: {call}(c.chunk(0)) for n, c in zip(t.column_names, t.columns)}}", "documented"),
    ]


_ARROW = {
    "torch": [
        *_loops("torch"),
        Method("{n: torch.from_numpy(t[n].chunk(0).to_numpy()) for n in t.column_names}"),
        Method("{n: torch.from_numpy(t[n].to_numpy()) for n in t.column_names}"),
        Method('d.to_torch("dict")', "library"),
        Method("d.to_torch()", "reference", "one 2-D tensor"),
        Method("rel.torch()", "library"),
        # It converts each row in Python.
        Method("ds_torch[:]", "library", 'datasets, with_format("torch", dtype=torch.float64)', slow=True),
    ],
    "numpy": [
        *_loops("numpy"),
        Method("{n: t[n].chunk(0).to_numpy() for n in t.column_names}"),
        Method("{n: t[n].to_numpy() for n in t.column_names}"),
        Method("{s.name: s.to_numpy() for s in d}", "library"),
        Method("rel.fetchnumpy()", "library"),
        Method("ds_numpy[:]", "library", 'datasets, with_format("numpy", dtype=np.float64)', slow=True),
    ],
    "jax": [
        *_loops("jax"),
        Method("{n: jax.device_put(t[n].chunk(0).to_numpy(), may_alias=True) for n in t.column_names}"),
        Method('d.to_jax("dict")', "library"),
        Method("ds_jax[:]", "library", 'datasets, with_format("jax", dtype=np.float64)', slow=True),
    ],
}

_BATCH = {
    target: [
        Method(f"{{n: {call}(b[n]) for n in b.schema.names}}", "documented"),
        Method(f"{{n: {call}(c) for n, c in zip(b.schema.names, b.columns)}}", "documented"),
    ]
    for target, call in _IMPORTS.items()
}

_POLARS = {
    "torch": [
        Method('d.to_torch("dict")', "documented"),
        Method("d.to_torch()", "reference", "one 2-D tensor"),
        Method("{s.name: torch.from_numpy(s.to_numpy()) for s in d}"),
        Method("{s.name: torch.from_dlpack(s.to_numpy()) for s in d}"),
        Method("{s.name: s.to_torch() for s in d}"),
    ],
    "numpy": [
        Method("{s.name: s.to_numpy() for s in d}", "documented"),
        Method("{s.name: s.to_numpy(allow_copy=False) for s in d}", "documented"),
    ],
    "jax": [
        Method('d.to_jax("dict")', "documented"),
        Method("{s.name: jax.device_put(s.to_numpy(), may_alias=True) for s in d}"),
    ],
}

_PANDAS = {
    "torch": [
        Method("{n: torch.from_numpy(c.to_numpy()) for n, c in df.items()}"),
        Method("{n: torch.tensor(c.to_numpy()) for n, c in df.items()}"),
    ],
    "numpy": [Method("{n: c.to_numpy() for n, c in df.items()}", "documented")],
    "jax": [Method("{n: jax.device_put(c.to_numpy(), may_alias=True) for n, c in df.items()}")],
}

#: Sources by the name of their case: framework, name in the code, other contenders.
_SOURCES = {
    "pyarrow.Table": ("pyarrow", "t", _ARROW),
    "pyarrow.RecordBatch": ("pyarrow", "b", _BATCH),
    "polars": ("polars", "d", _POLARS),
    "pandas": ("pandas", "df", _PANDAS),
}


def questions(rows: int = ROWS) -> list[Question]:
    """Return a question for each source and target."""
    return [
        Question(
            f"{label} -> {target}",
            partial(floats, rows),
            [Method(f'zc.convert({name}, "{target}")', "ours"), *methods[target]],
            tensors,
            (source, target),
        )
        for label, (source, name, methods) in _SOURCES.items()
        for target in methods
    ]


#: Contenders that should be far slower, by the start of their code.
_FAR = {"d.to_torch": "polars.DataFrame.to_torch", "ds_torch": "datasets with the format torch"}


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Compare zerocopy with the loop over DLPack, and with libraries."""
    judged = []
    for case in cases:
        (ours,) = case.timed("ours")
        loops = [entry for entry in case.timed("documented") if "from_dlpack" in entry.label]
        if loops and case.name.startswith("pyarrow"):
            value = median(ours) / min(map(median, loops))
            judged.append(Goal(f"the loop over DLPack by hand: {LOOP}x at most", case.name, value, LOOP, "x"))
        for entry in case.timed("library", "documented", "reference"):
            for call, name in _FAR.items():
                if entry.label.startswith(call):
                    against = f"{case.name} against {entry.label}"
                    goal = f"{name}: {LIBRARIES} of its time at most"
                    judged.append(Goal(goal, against, median(ours) / median(entry), LIBRARIES))
    return judged


SECTIONS = (
    Section(
        "columns",
        f"{ROWS:,} rows x {COLUMNS} columns of float64, to a dict of tensors",
        partial(tasks, questions),
        "rivals",
        goals,
    ),
)
