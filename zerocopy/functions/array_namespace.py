"""``array_namespace``: the array API namespace of arrays, through array-api-compat."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from zerocopy import registry
from zerocopy.errors import Fix, FrameworkNotInstalledError, UnsupportedConversionError
from zerocopy.errors.tracebacks import public
from zerocopy.framework import while_forks_wait
from zerocopy.protocols.producer import exports_arrays
from zerocopy.source import type_name


@public
def array_namespace(x: Any, *others: Any) -> Any:
    """Return the array API namespace of arrays: the module whose functions take them.

    It is that of `array-api-compat <https://data-apis.org/array-api-compat/>`_, which adds to NumPy, CuPy,
    torch and dask the names that their own modules lack. JAX, sparse and other libraries with the method
    ``__array_namespace__`` return their own.

    Parameters
    ----------
    x : array
        Of a framework that supports the array API standard.
    *others : array, number or None
        Further arguments of the caller's function, which must have the same namespace. Numbers and None
        have no namespace.

    Returns
    -------
    module
        The namespace.

    Raises
    ------
    FrameworkNotInstalledError
        array-api-compat is not installed.
    UnsupportedConversionError
        One of them has no namespace, such as a table, or they have several.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> def softmax(x):
    ...     xp = zc.array_namespace(x)
    ...     e = xp.exp(x - xp.max(x))
    ...     return e / xp.sum(e)
    >>> softmax(zc.convert(np.zeros(2), "torch"))
    tensor([0.5000, 0.5000], dtype=torch.float64)
    >>> zc.array_namespace([1.0, 2.0])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    zerocopy.errors.UnsupportedConversionError: array_namespace(list): a list has no array API namespace.
      To fix: numpy.asarray(x)
    """
    try:
        compat = while_forks_wait(lambda: import_module("array_api_compat"))
    except ImportError as error:
        raise FrameworkNotInstalledError(
            "array_namespace()", "array-api-compat is not installed", "pip install array-api-compat"
        ) from error
    first = _namespace_of(compat, x)
    for other in others:
        if other is None or type(other) in (bool, int, float, complex):
            continue
        another = _namespace_of(compat, other)
        if another is not first:
            raise UnsupportedConversionError(
                f"array_namespace({type_name(x)}, {type_name(other)})",
                f"the first has the namespace {first.__name__}, and the second {another.__name__}",
                f"convert all arrays to one framework: {_conversion(x)}",
                code="several-namespaces",
            )
    return first


def _namespace_of(compat: Any, x: Any) -> Any:
    try:
        return compat.array_namespace(x)
    except (TypeError, ValueError) as error:
        name = type_name(x)
        framework = registry.by_type(type(x))
        if framework is not None and framework.kind == "compound":
            remedy = "convert it to a framework of sparse arrays with one: zc.convert(x, 'sparse')"
            why = f"a {name} has no array API namespace"
            raise UnsupportedConversionError(
                f"array_namespace({name})", why, remedy, code="no-namespace"
            ) from error
        owned = framework is not None or exports_arrays(x)
        code = 'zc.array_namespace(zc.convert({x}, "numpy"))' if owned else "numpy.asarray({x})"
        raise UnsupportedConversionError(
            f"array_namespace({name})",
            f"a {name} has no array API namespace",
            fixes=[Fix(code, alone=True)],
            code="no-namespace",
        ) from error


def _conversion(x: Any) -> str:
    """Return the call that converts another array to the framework of `x`."""
    framework = registry.by_type(type(x))
    return f'zc.convert(x, "{framework.name}")' if framework is not None else 'zc.convert(x, "numpy")'
