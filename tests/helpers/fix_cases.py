"""Calls that are refused or that copy, over the registry, and the walk that pastes their fixes."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

import zerocopy as zc
from helpers import fix_objects
from helpers.pasting import pasted
from helpers.table_cases import KINDS, shaped
from zerocopy import registry
from zerocopy.strided_view import MAX_NDIM

#: The modules that a pasted fix can name.
MODULES = (
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "duckdb",
    "torch",
    "tensorflow",
    "jax",
    "sparse",
    "scipy",
    "awkward",
)
#: Codes of errors for which no call of the same object helps, each with the reason.
NO_CALL = {
    "not-installed": "a package must be installed",
    "no-memory": "the object has no memory",
    "traced": "the call must move out of the traced function",
    "not-an-array": "the object has no values",
    "different-lengths": "the caller knows which rows belong together",
    "python-objects": "Arrow has no type for the objects",
}
#: The longest chain of fixes, each for the next reason.
MOST_STEPS = 8


@dataclass(frozen=True)
class Case:
    """One call: `make` returns a new object each time, because a stream can be read once."""

    name: str
    make: Callable[[], Any]
    to: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} -> {self.to} {self.options}"


def namespace(x: Any) -> dict[str, Any]:
    """Return the names that a user would have: ``x``, ``zc`` and the frameworks."""
    names: dict[str, Any] = {"x": x, "zc": zc}
    for name in MODULES:
        try:
            names[name] = importlib.import_module(name)
        except ImportError:
            continue
    if "pyarrow" in names:
        importlib.import_module("pyarrow.compute")
    return names


class Recorder:
    """``zc`` as a fix sees it: `convert` remembers its object, which the next fix calls ``x``."""

    def __init__(self) -> None:
        self.obj: Any = None
        self.result: Any = None

    def keep(self, result: Any) -> None:
        self.result = result

    def convert(self, obj: Any, to: Any, **options: Any) -> Any:
        self.obj = obj
        return zc.convert(obj, to, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(zc, name)


def paste(code: str, x: Any, recorder: Recorder) -> Any:
    """Run a fix as a user would: statements, and then an expression whose value is returned.

    A user has ``x`` and ``zc``, and no module by its full name: the fix imports what it names.
    """
    return pasted(code, {"x": x, "zc": recorder})


def restore() -> None:
    """Undo the global settings that a fix can change."""
    pool = zc.installed_pool()
    if pool is not None:
        pool.close()
    if importlib.util.find_spec("jax"):
        importlib.import_module("jax").config.update("jax_enable_x64", False)


def default_settings() -> Iterator[None]:
    """Run a test with the defaults, as a new user has them; a body of fixtures."""
    jax = importlib.import_module("jax") if importlib.util.find_spec("jax") else None
    x64 = jax and jax.config.jax_enable_x64  # of the other tests
    restore()
    yield
    restore()
    if jax:
        jax.config.update("jax_enable_x64", x64)


def attempt(run: Callable[[], Any]) -> zc.ZeroCopyError | None:
    """Return the error of a call, or None; other exceptions propagate."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run()
        except zc.ZeroCopyError as error:
            return error
    return None


def follow(case: Case, error: zc.ZeroCopyError) -> list[str]:
    """Paste each fix of an error, and the first fix of each next error; return the problems."""
    problems = []
    for first in error.calls:
        seen, code, x = {(error.code, error.why)}, first, case.make()
        for _ in range(MOST_STEPS):
            recorder = Recorder()
            try:
                then = attempt(lambda code=code, x=x, recorder=recorder: paste(code, x, recorder))
            except Exception as raised:  # noqa: BLE001
                problems.append(f"{case}: {code}\n    raised {type(raised).__name__}: {raised}")
                break
            if then is None:
                break
            if (then.code, then.why) in seen or (then.asked, then.why) == (error.asked, error.why):
                problems.append(f"{case}: {code}\n    did not help: {then}")
                break
            if not then.calls:
                if then.code not in NO_CALL:
                    problems.append(f"{case}: {code}\n    has no next call: {then}")
                break
            seen.add((then.code, then.why))
            code, x = then.calls[0], recorder.obj
        else:
            problems.append(f"{case}: {first}\n    no end after {MOST_STEPS} steps: {code}")
        if ";" in first:
            restore()
    return problems


def walk(cases: Iterable[Case]) -> tuple[set[str], list[str]]:
    """Run all cases; return the codes of their errors and the problems of their fixes."""
    codes, problems = set(), []
    for case in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = zc.explain(case.make(), case.to, **case.options)
        codes |= {reason.code for p in (plan, *plan.leaves.values()) for reason in p.reasons}
        problems += [f"{case}: {r}" for r in plan.reasons if "{x}" in r.remedy]
        error = attempt(lambda case=case: zc.convert(case.make(), case.to, **case.options))
        if error is None:
            continue
        codes |= {error.code, *(reason.code for reason in error.columns.values())}
        if not error.calls and error.code not in NO_CALL:
            problems.append(f"{case}: no call: {error}")
        problems += follow(case, error)
    return codes, problems


# -- arrays -----------------------------------------------------------------------------


def arrays() -> dict[str, Callable[[], Any]]:
    """Return functions that make arrays with one obstacle each, by name."""
    made: dict[str, Callable[[], Any]] = {
        "int64": lambda: np.arange(6),
        "float64": lambda: np.arange(6.0),
        "complex": lambda: np.arange(6) * 1j,
        "bool matrix": lambda: np.eye(3, dtype=bool),
        "reversed": lambda: np.arange(6, dtype="f4")[::-1],
        "strided": lambda: np.arange(12, dtype="f4")[::2],
        "fortran": lambda: np.asfortranarray(np.ones((3, 4), "f4")),
        "offset": lambda: np.zeros(64, "f4")[1:9],
        "misaligned": lambda: np.zeros(33, "u1")[1:].view("f4"),
        "packed field": lambda: np.zeros(4, [("a", "u1"), ("b", "f4")])["b"],
        "big-endian": lambda: np.arange(6, dtype=">f4"),
        "big-endian buffer": lambda: memoryview(np.arange(6, dtype=">f4")),
        "read-only": lambda: np.frombuffer(b"12345678", "u1"),
        "dates": lambda: np.zeros((2, 2), "M8[s]"),
        "durations": lambda: np.zeros((2, 2), "m8[us]"),
        "text": lambda: np.array([["a", "bb"]]),
        "bytes": lambda: np.array([[b"a", b"bb"]]),
        "objects": lambda: np.array([[1, 2.5]], object),
        "records": lambda: np.zeros((2, 2), [("a", "f4")]),
        "long double": lambda: np.zeros(3, np.longdouble),
        "text column": lambda: np.array(["a", "bb"]),
        "bytes column": lambda: np.array([b"a", b"bb"]),
        "object column": lambda: np.array(["a", "b", None], object),
        "days": lambda: np.array(["2020-01-01", "NaT"], "M8[D]"),
        "picoseconds": lambda: np.zeros(3, "M8[ps]"),
        "record table": lambda: np.zeros(3, [("a", "f4"), ("b", "U3"), ("c", "i8")]),
        "masked": lambda: np.ma.masked_equal(np.arange(4.0), 2.0),
        "scalar": lambda: np.float32(3),
        "0-d": lambda: np.array(3.0, "f4"),
        "3-d": lambda: np.zeros((2, 3, 4), "f4"),
        "number": lambda: 3.5,
        "string": lambda: "text",
        "generator": lambda: iter([np.zeros(2, "f4")]),
        "33-d": lambda: np.zeros((1,) * min(33, MAX_NDIM), "f4"),
        "tree": lambda: {"w": [np.arange(4, dtype=">f4")], "s": 3},
        "dict of columns": lambda: {"a": np.arange(3), "b": [1, 2, 3]},
        "dict with a scalar": lambda: {"a": np.arange(3), "b": np.array(3.0)},
        "lengths": lambda: {"a": np.arange(3), "b": np.arange(4)},
    }
    lists = {
        "list": [1.0, 2.0],
        "tuple": (1, 2),
        "rows": [[1, 2], [3, 4]],
        "ragged": [[1], [2, 3]],
        "mixed list": [1.0, None],
        "words": ["a", "b"],
        "arrays and numbers": [np.ones(2), 3, [1, 2]],
        "dict of lists": {"a": [1, 2], "b": [0.5, 1.5], "n": None},
    }
    made |= {name: lambda value=value: value for name, value in lists.items()}
    return made | _of_frameworks()


def _of_frameworks() -> dict[str, Callable[[], Any]]:
    made: dict[str, Callable[[], Any]] = {}
    names = namespace(None)
    if torch := names.get("torch"):
        made |= {
            "torch grad": lambda: torch.ones(3, requires_grad=True),
            "torch conjugate": lambda: torch.ones(3, dtype=torch.complex64).conj(),
            "torch negative": lambda: torch.ones(3, dtype=torch.complex64).conj().imag,
            "torch sparse": lambda: torch.eye(3).to_sparse(),
            "torch csr": lambda: torch.eye(3).to_sparse_csr(),
            "torch nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            "torch transposed": lambda: torch.ones(3, 4).T,
            "torch bfloat16": lambda: torch.ones(3, 4, dtype=torch.bfloat16).T,
            "torch bool": lambda: torch.ones(3, 4, dtype=torch.bool),
            "torch complex": lambda: torch.ones(3, dtype=torch.complex64),
            "torch meta": lambda: torch.ones(3, device="meta"),
            "torch offset": lambda: torch.ones(9)[1:],
        }
    if jax := names.get("jax"):
        sparse = importlib.import_module("jax.experimental.sparse")
        made |= {
            "jax key": lambda: jax.random.key(0),
            "jax BCOO": lambda: sparse.BCOO.fromdense(jax.numpy.eye(3)),
            "jax int4": lambda: jax.numpy.ones(4, jax.numpy.int4),
        }
    if tf := names.get("tensorflow"):
        made |= {
            "tf ragged": lambda: tf.ragged.constant([[1.0], [2.0, 3.0]]),
            "tf sparse": lambda: tf.sparse.from_dense([[1.0, 0.0]]),
            "tf slices": lambda: tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0]), tf.constant([3, 2])),
            "tf text": lambda: tf.constant(["a"]),
        }
    if pa := names.get("pyarrow"):
        made["pyarrow scalar"] = lambda: pa.scalar(3.0)
    return made


def array_cases(to: str) -> Iterator[Case]:
    """Yield each array with one target and the options that refuse most."""
    for name, make in arrays().items():
        for options in ({}, {"copy": False}, {"nulls": 0}):
            yield Case(name, make, to, options)
    yield Case("immutable", lambda: memoryview(b"12345678"), to, {"writable": True, "copy": False})
    yield Case("matrix", lambda: np.zeros((3, 2), "f4"), to, {"names": ["a"]})
    yield Case("device", lambda: np.zeros(3, "f4"), to, {"device": "vulkan:0"})


def object_cases(module: str, targets: Iterable[str]) -> Iterator[Case]:
    """Yield the objects of one framework, with each target and the options that cause the most refusals."""
    for name, make in fix_objects.objects(module).items():
        if name in fix_objects.NO_FIX:
            continue
        for to, options in itertools.product(targets, fix_objects.OPTIONS):
            yield Case(name, make, to, options)


# -- tables -----------------------------------------------------------------------------


#: Columns of several types, with nulls.
_MIXED = {"price": [1.5, 2.5], "qty": [1, None], "name": ["a", None], "vip": [True, False]}
#: The product of options with which frames of mixed types are converted.
_PRODUCT = {
    "layout": (None, "columns", "matrix", "records"),
    "encode": (None, True),
    "nulls": (None, 0, "mask"),
    "dtype": (None, "float32"),
}


def mixed_frames(source: str) -> dict[str, Any]:
    """Return frames of mixed types of one framework: with words as row labels, with dates and categories."""
    pa = importlib.import_module("pyarrow")
    table = pa.table(_MIXED)
    frames = {"mixed": zc.convert(table, source)}
    if source == "pandas":
        frames["indexed"] = frames["mixed"].set_axis(["r", "s"])
        frames["named index"] = frames["mixed"].set_index("name")
    kinds = pa.array(["a", "b"]).dictionary_encode()
    dated = table.append_column("when", pa.array([0, 1], pa.timestamp("us"))).append_column("kind", kinds)
    return frames | {"dated": zc.convert(dated, source)}


def mixed_cases(source: str, to: str) -> Iterator[Case]:
    """Yield frames of mixed types of one framework with each combination of options for tables."""
    for name, frame in mixed_frames(source).items():
        # The first frame with all options, and the others with those that decide which columns are refused.
        few = name != "mixed" or to == "jax"
        product = _PRODUCT | {"nulls": (0,), "dtype": (None,)} if few else _PRODUCT
        for values in itertools.product(*product.values()):
            options = {name: v for name, v in zip(product, values, strict=True) if v is not None}
            yield Case(f"{source} {name}", lambda frame=frame: frame, to, options)


def first_fixes(case: Case) -> list[str]:
    """Paste each fix of a refusal, and return those that do not work by themselves."""
    error = attempt(lambda: zc.convert(case.make(), case.to, **case.options))
    if error is None:
        return []
    problems = [] if error.calls else [f"{case}: no call: {error}"]
    for code in error.calls:
        then = attempt(lambda code=code: paste(code, case.make(), Recorder()))
        if then is not None or "..." in code:
            problems.append(f"{case}: {code}\n    {then}")
        if ";" in code:
            restore()
    return problems


def _targets() -> list[str]:
    return [
        name
        for name, info in registry.frameworks().items()
        if info.installed and "cpu" in registry.by_name(name).device_kinds
    ]


TABLE_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"copy": False},
    {"encode": True, "copy": False},
    {"nulls": "nan"},
    {"nulls": "mask"},
    {"layout": "matrix"},
    {"layout": "matrix", "copy": False},
    {"layout": "records"},
    {"columns": ["xx", "n"]},
)


def columns(source: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield functions that make a table of each type, and of each shape, in one framework."""
    pa = importlib.import_module("pyarrow")
    for kind in KINDS:
        chunks, nulls = shaped(KINDS[kind], "chunks"), shaped(KINDS[kind], "nulls")
        forms = {"column": chunks, "table": pa.table({"x": nulls, "n": pa.array(range(len(nulls)))})}
        for noun, form in forms.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    obj = zc.convert(form, source)
                except zc.ZeroCopyError:
                    continue  # a case of the target, below
            yield f"{source} {noun} of {kind}", lambda obj=obj: obj


def objects() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield data frames of kinds that only one framework has."""
    pd, pl, duckdb = (importlib.import_module(n) for n in ("pandas", "polars", "duckdb"))
    frames = {
        "decimals": {"x": [Decimal("1.5"), None]},
        "objects": {"x": ["a", None]},
        "mixed": {"x": ["a", 3]},
        "numbers and nulls": {"x": pd.array([1, None], "Int64"), "y": [0.5, 1.5], "z": [1, 2]},
        "sparse": {"x": pd.arrays.SparseArray([0, 1])},
        "booleans": {"x": pd.array([True, None], "boolean")},
        "big-endian": {"x": np.arange(2, dtype=">f4")},
        "categories": {"x": pd.Categorical(["a", "b"])},
        "zoned": {"x": pd.to_datetime(["2020-01-01", None], utc=True)},
    }
    for name, data in frames.items():
        yield f"pandas {name}", lambda data=data: pd.DataFrame(data)
        yield f"pandas series of {name}", lambda data=data: pd.Series(data["x"])
    yield "pandas index", lambda: pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index([3, 4], name="i"))
    yield "pandas levels", lambda: pd.DataFrame({"x": [1.0]}, index=pd.MultiIndex.from_tuples([(1, "a")]))
    yield "polars int128", lambda: pl.DataFrame({"x": pl.Series([1, 2], dtype=pl.Int128), "n": [1, 2]})
    yield "polars lazy", lambda: pl.LazyFrame({"x": [1, 2]})
    yield "polars chunks", lambda: pl.concat([pl.Series("x", [1.0]), pl.Series("x", [2.0])], rechunk=False)
    for sql in ("1::UHUGEINT", "'infinity'::DATE", "'101'::BIT", "1.5::DECIMAL(10, 2)", "'a'", "[1, 2]"):
        yield f"duckdb {sql}", lambda sql=sql: duckdb.sql(f"select {sql} as f, 1 as n")


def table_cases(source: str, to: str) -> Iterator[Case]:
    """Yield the tables of one framework with one target and all options."""
    for name, make in objects() if source == "objects" else columns(source):
        for options in TABLE_OPTIONS:
            yield Case(name, make, to, options)
