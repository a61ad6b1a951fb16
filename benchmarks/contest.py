"""A contest: contenders are checked, and those that pass take turns."""

from __future__ import annotations

import ast
import importlib.util
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from benchmarks.suite import Case, Entry
from benchmarks.timing import Pace, Raised, Statement, measure

Clock = Callable[[Mapping[str, Any], Pace], Mapping[str, Any]]

#: Modules by the names that user code has for them.
MODULES = {
    "av": "av",
    "cp": "cupy",
    "cuda": "numba.cuda",
    "cudf": "cudf",
    "datasets": "datasets",
    "duckdb": "duckdb",
    "jax": "jax",
    "jnp": "jax.numpy",
    "na": "nanoarrow",
    "np": "numpy",
    "pa": "pyarrow",
    "pc": "pyarrow.compute",
    "pd": "pandas",
    "pl": "polars",
    "pq": "pyarrow.parquet",
    "rf": "numpy.lib.recfunctions",
    "tf": "tensorflow",
    "tfd": "tensorflow.experimental.dlpack",
    "torch": "torch",
    "zc": "zerocopy",
    # Other libraries. `sklearn.utils._array_api` is not public, but the best-known use of `array-api-compat`.
    "tvm_ffi": "tvm_ffi",
    "xp_torch": "array_api_compat.torch",
    "xp_numpy": "array_api_compat.numpy",
    "sklearn_array_api": "sklearn.utils._array_api",
    "optree": "optree",
    "pytree": "torch.utils._pytree",
    "dlpack": "dlpack",
}


def installed(*modules: str) -> bool:
    """Whether all modules are installed, without importing them."""
    return all(importlib.util.find_spec(name.partition(".")[0]) is not None for name in modules)


@cache
def used(code: str) -> frozenset[str]:
    """Return the names that code uses."""
    return frozenset(node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name))


def modules_of(*codes: str) -> dict[str, str]:
    """Return the modules of :data:`MODULES` that code uses, by their names in the code."""
    names = frozenset().union(*map(used, codes))
    return {name: module for name, module in MODULES.items() if name in names}


def imported(*codes: str) -> dict[str, Any]:
    """Import the modules that code uses and that are installed; return them by their names in the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of imports do not matter
        return {
            name: import_module(module) for name, module in modules_of(*codes).items() if installed(module)
        }


@dataclass(frozen=True)
class Method:
    """One way to do the work of a case, as a user would write it: an expression or a statement.

    `role` is one of :data:`benchmarks.suite.ROLES`, `note` a fact that a reader needs.
    """

    code: str
    role: str = "idiom"
    note: str = ""

    def missing(self) -> list[str]:
        """Return the libraries that it uses and that are not installed."""
        return sorted({name for name in modules_of(self.code).values() if not installed(name)})

    def statement(self, names: Mapping[str, Any]) -> Statement:
        """Return the statement to time, with the modules that it uses and these names."""
        return Statement(self.code, {**imported(self.code), **names})


def refusal(check: Callable[[], str]) -> str:
    """Return why a contender is left out: the text or the exception of its check; empty if it passes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about read-only memory and legacy capsules
            return check()
    except Exception as error:  # noqa: BLE001 - any error is the result of the check
        return Raised.of(error).why


class Contest:
    """Cases whose contenders take turns with each other."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self._able: dict[str, Any] = {}
        self._entries: dict[str, Entry] = {}

    def case(
        self, name: str, figures: Mapping[str, float] | None = None, remarks: Iterable[str] = ()
    ) -> Case:
        """Add a case, and return it."""
        self.cases.append(Case(name, figures=dict(figures or {}), remarks=list(remarks)))
        return self.cases[-1]

    def add(
        self, case: Case, label: str, role: str, contender: Any, refused: str = "", note: str = ""
    ) -> None:
        """Add a contender to a case; one that is refused is not timed, and if it is zerocopy, a failure.

        A callable makes the contender: names of one that is refused may not exist.
        """
        entry = Entry(label, role, note=note, left_out=refused)
        case.entries.append(entry)
        if not refused:
            key = f"{case.name}: {label}"
            self._able[key] = contender() if callable(contender) else contender
            self._entries[key] = entry
        elif role == "ours":
            case.failed = case.failed or f"{label} {refused}"

    def time(self, pace: Pace, clock: Clock = measure) -> list[Case]:
        """Time the contenders in turns, and return the cases."""
        for key, timing in clock(self._able, pace).items():
            self._entries[key].timing = timing
        return self.cases
