"""A plugin for the tests of scikit-learn and narwhals, whose own conversions it replaces by zerocopy's.

A conversion that zerocopy refuses, such as a column with nulls for NumPy, is done by the library's own code,
as in a library that adopts zerocopy. The summary has the numbers of both.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import zerocopy as zc

OUTCOMES: Counter[str] = Counter()


def convert_or(own: Callable[[], Any], x: Any, to: str, **options: Any) -> Any:
    """Return the object that zerocopy makes of `x`, or that of `own` if zerocopy refuses."""
    try:
        result = zc.convert(x, to, **options)
    except zc.ZeroCopyError as error:
        OUTCOMES[f"refused ({error.code or type(error).__name__})"] += 1
        return own()
    OUTCOMES[f"converted to {to}"] += 1
    return result


def replace_in_sklearn(array_api: ModuleType) -> None:
    """Replace ``move_to``, also in modules that have imported it by name."""
    own, namespace_of = array_api.move_to, array_api.get_namespace_and_device

    def target_of(xp: Any) -> str:
        names = (name for name in ("torch", "cupy") if array_api._is_xp_namespace(xp, name))
        return "numpy" if array_api._is_numpy_namespace(xp) else next(names, "")

    def moved(array: Any, xp: Any, device: Any) -> Any:
        to = target_of(xp)
        if array is None or not to or array_api.sp.issparse(array):
            return own(array, xp=xp, device=device)
        xp_array, _, device_array = namespace_of(array)
        if xp == xp_array and device == device_array:
            return array
        return convert_or(lambda: own(array, xp=xp, device=device), array, to, device=device)

    @functools.wraps(own)
    def move_to(*arrays: Any, xp: Any, device: Any) -> Any:
        results = tuple(moved(array, xp, device) for array in arrays)
        return results[0] if len(results) == 1 else results

    for name, module in list(sys.modules.items()):
        if name.startswith("sklearn.") and vars(module).get("move_to") is own:
            module.move_to = move_to


#: Methods of narwhals' classes, by module and class: the target of each, and options.
METHODS: dict[tuple[str, str], dict[str, tuple[str, dict[str, Any]]]] = {
    (f"narwhals._{backend}.{kind.lower()}", f"{prefix}{kind}"): {
        "to_numpy": ("numpy", {} if kind == "Series" else {"layout": "matrix"}),
        **{f"to_{each}": (to, {}) for each, to in others.items()},
    }
    for backend, prefix, others in (
        ("arrow", "Arrow", {"polars": "polars"}),  # narwhals expects NumPy's types in pandas, not Arrow's
        ("pandas_like", "PandasLike", {"polars": "polars", "arrow": "pyarrow"}),
        ("polars", "Polars", {"pandas": "pandas", "arrow": "pyarrow"}),
    )
    for kind in ("Series", "DataFrame")
}


def replace_in_narwhals() -> None:
    """Replace the methods that hand a column or a table to another library."""
    for (module, name), methods in METHODS.items():
        cls = getattr(__import__(module, fromlist=[name]), name)
        for method, (to, options) in methods.items():
            replace_method(cls, method, to, options)


def replace_method(cls: Any, method: str, to: str, options: dict[str, Any]) -> None:
    own = getattr(cls, method, None)
    if own is None:
        return

    @functools.wraps(own)
    def replaced(self: Any, dtype: Any = None, *, copy: Any = None) -> Any:
        arguments = {"dtype": dtype, "copy": copy} if method == "to_numpy" else {}
        result = convert_or(lambda: own(self, **arguments), self.native, to, **options, **arguments)
        is_series = to == "polars" and hasattr(result, "alias")  # pyarrow's columns have no public name
        return result.alias(self.name) if is_series else result

    setattr(cls, method, replaced)


def pytest_configure(config: pytest.Config) -> None:
    """Replace the conversions of the library whose tests run."""
    if config.rootpath.name.startswith("narwhals"):
        replace_in_narwhals()
    else:
        import sklearn.utils._array_api as array_api

        replace_in_sklearn(array_api)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.section("zerocopy")
    for outcome, count in sorted(OUTCOMES.items()):
        terminalreporter.line(f"{count:7,} {outcome}")
