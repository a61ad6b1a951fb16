"""``accepts``: a function that is written for one framework takes arrays of any, and returns the caller's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing, closing
from types import FunctionType
from typing import Any, Literal, TypeVar, Unpack

from zerocopy._engine.options import SIGNATURE, Target, check_options
from zerocopy._engine.target import resolve
from zerocopy.errors import UnknownFrameworkError
from zerocopy.errors.tracebacks import public
from zerocopy.functions.conversions import Conversions
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.request import NAMES, ONE_CALL, ConvertOptions

#: A type variable for the whole function keeps overloads, and staticmethod and classmethod objects too.
_Function = TypeVar("_Function")


@public
def accepts(
    to: Target,
    *,
    arguments: str | Sequence[str] | None = None,
    returns: Target | Literal["same"] | None = "same",
    **options: Unpack[ConvertOptions],
) -> Callable[[_Function], _Function]:
    """Return a decorator: the function is written for one framework and takes arrays of any framework.

    Parameters
    ----------
    to : str, module or type
        The framework that the function is written for, as for :func:`zerocopy.convert`.
    arguments : str or sequence of str, optional
        Names of the parameters to convert; a name of ``*args`` or ``**kwargs`` means all of these.
        Default: each argument that is an array, a table or a container of them. A first parameter named
        ``self`` or ``cls`` is not converted, nor are default values.
    returns : str, module or type, optional
        ``"same"``: results are converted to the framework of the caller, which is that of the first array
        among the positional arguments, and then among the keywords. If that is `to`, or if the caller
        passed no array, results are returned unchanged. A result of the shape of that array gets its
        labels, such as the names of columns; one with as many rows, its index. A framework, such as
        ``"numpy"``: results are converted to it. None: results are returned unchanged.
    device : str, tuple of int, or a framework's device, optional
        The device of the converted arguments. Default: each argument's own, or that of `to` if it does
        not support that one. In both cases a result of ``returns="same"`` is returned on the caller's device
        if the arguments were moved.
    copy : bool, optional
        True: the function gets copies, into which it may write. False: neither arguments nor results are
        copied; a conversion that needs a copy raises. None: alias arguments and results where possible.
    stream, writable, dtype, leaves, validate : optional
        Options of :func:`zerocopy.convert` for the arguments.
    layout, order, columns, nulls, encode, lists, pad_value, max_length, names, index, connection : optional
        Its options for tables.

    Returns
    -------
    callable
        The decorator. It takes functions, async functions, generators and async generators, methods,
        ``staticmethod`` and ``classmethod`` objects, and other callables such as builtin functions. What it
        returns has the kind and the signature of the function, and these attributes: ``__wrapped__``, the
        function; ``explain(*args, **kwargs)``, which returns a dict from the name of each argument with
        arrays to the :class:`zerocopy.Plan` of its conversion, and calls nothing.

        Arguments that are neither arrays nor tables, such as numbers, text, bytes, None and functions,
        are passed unchanged. Containers are converted leaf by leaf, and their other leaves are kept. A
        container without arrays is passed itself. For a table framework, a dict of columns is one table.
        All arguments are converted before the function runs. Each item that a generator yields is converted
        as a result, and each value sent to it as an argument.

    Raises
    ------
    UnknownFrameworkError
        `to` or `returns` is not a known framework.
    TypeError, ValueError
        `arguments` has a name that is not a parameter, an option is invalid, or the decorated object is a
        class or cannot be called.
    DeviceError
        In a call: the arguments are on several devices, and there is no `device`.
    UnsupportedConversionError
        In a call: an argument cannot be converted, or the result is not an array. None, numbers, text, bytes,
        and 0-d results for a table or column are returned unchanged.
    CopyRequiredError, LossyConversionError
        In a call, as :func:`zerocopy.convert`. The message names the argument, or the result.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> @zc.accepts("torch")
    ... def halves(x, parts=2):
    ...     return list(x.chunk(parts))
    >>> x = np.arange(4.0)
    >>> halves(x)
    [array([0., 1.]), array([2., 3.])]
    >>> zc.shares_memory(halves(x), x)
    True
    >>> print(halves.explain(x)["x"])  # doctest: +ELLIPSIS
    numpy.ndarray float64 (4,) -> torch: zero-copy ...

    A function of a library:

    >>> import torch
    >>> softmax = zc.accepts("torch")(torch.softmax)
    >>> softmax(np.zeros(2), dim=0)
    array([0.5, 0.5])
    """
    if isinstance(to, FunctionType):
        raise TypeError(f'zc.accepts takes a framework first: @zc.accepts("torch"), above {to.__name__}()')
    resolve(to)
    if returns is not None and not (isinstance(returns, str) and returns == "same"):
        try:
            resolve(returns)
        except UnknownFrameworkError as error:
            remedy = f'pass "same" or None; or {error.remedy}'
            asked = f"accepts(returns={returns!r})"
            raise UnknownFrameworkError(asked, error.why, remedy, code=error.code) from error
    checked = check_options("accepts", options, ("arguments", "returns"))
    chosen = None if arguments is None else (arguments,) if isinstance(arguments, str) else tuple(arguments)

    def decorate(function: Any) -> Any:
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(decorate(function.__func__))
        if isinstance(function, type) or not callable(function):
            raise TypeError(
                f"zc.accepts takes functions, and {function!r} is "
                + ("a class: decorate its __init__, or its methods" if callable(function) else "not callable")
            )
        return wrap(function, Conversions(function, to, chosen, returns, checked))

    return decorate


def _signature() -> inspect.Signature:
    """Return the signature of `accepts` with the names of the options, for ``help()``."""
    signature = inspect.signature(accepts)
    own = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
    return signature.replace(
        parameters=[*own, *(SIGNATURE.parameters[name] for name in NAMES if name not in ONE_CALL)]
    )


accepts.__signature__ = _signature()  # type: ignore[attr-defined]


Function = Callable[..., Any]


def wrap(function: Any, conversions: Conversions) -> Any:
    """Return a function of the same kind that converts arguments and results."""
    # The kind of an object with __call__, such as a model, is that of the method.
    method = function if inspect.isroutine(function) else inspect.getattr_static(type(function), "__call__")
    inner = function.func if isinstance(function, functools.partial) else None
    kinds = (function, method, inner)
    wrapper = next((wrapper for test, wrapper in _KINDS if any(map(test, kinds))), _plain)
    # The attributes of an object with __call__, such as a model, are its own state.
    updated = functools.WRAPPER_UPDATES if inspect.isfunction(function) else ()
    wrapped = functools.wraps(function, updated=updated)(wrapper(function, conversions))
    wrapped.explain = conversions.explain  # type: ignore[attr-defined]
    return wrapped


def _plain(function: Function, conversions: Conversions) -> Function:
    results, single = conversions.results, 0 not in conversions.skipped

    def call(*args: Any, **named: Any) -> Any:
        # One array takes its routes here: `enter` and `leave` take 400 ns more. A route aliases or raises.
        if single and not named and len(args) == 1:
            value = args[0]
            caller: Any = type(value)
            try:
                value = conversions.routes[caller](value)
                routes_back = results[caller]
            except BaseException as error:
                if not is_error(error):
                    raise
            else:
                result = function(value)
                try:
                    return result if routes_back is None else routes_back[type(result)](result)
                except BaseException as error:
                    if not is_error(error):
                        raise
                return conversions.leave(result, caller)
        converted, named, caller = conversions.enter(args, named)
        return conversions.leave(function(*converted, **named), caller)

    return call


def _async(function: Function, conversions: Conversions) -> Function:
    async def call(*args: Any, **named: Any) -> Any:
        converted, names, caller = conversions.enter(args, named)
        return conversions.leave(await function(*converted, **names), caller)

    return call


def _generator(function: Function, conversions: Conversions) -> Function:
    def call(*args: Any, **named: Any) -> Generator[Any, Any, Any]:
        converted, names, caller = conversions.enter(args, named)
        with closing(function(*converted, **names)) as items:
            try:
                item = next(items)
                while True:
                    result = conversions.leave(item, caller)
                    try:
                        sent = yield result
                    except GeneratorExit:
                        raise
                    except BaseException as error:  # noqa: BLE001  # the caller threw it
                        item = items.throw(error)
                    else:
                        item = next(items) if sent is None else items.send(conversions.send(sent))
            except StopIteration as stop:
                return conversions.leave(stop.value, caller)

    return call


def _async_generator(function: Function, conversions: Conversions) -> Function:
    async def call(*args: Any, **named: Any) -> AsyncGenerator[Any, Any]:
        converted, names, caller = conversions.enter(args, named)
        async with aclosing(function(*converted, **names)) as items:
            try:
                item = await anext(items)
                while True:
                    result = conversions.leave(item, caller)
                    try:
                        sent = yield result
                    except GeneratorExit:
                        raise
                    except BaseException as error:  # noqa: BLE001  # the caller threw it
                        item = await items.athrow(error)
                    else:
                        item = await items.asend(None if sent is None else conversions.send(sent))
            except StopAsyncIteration:
                return

    return call


_KINDS = (
    (inspect.iscoroutinefunction, _async),
    (inspect.isasyncgenfunction, _async_generator),
    (inspect.isgeneratorfunction, _generator),
)
