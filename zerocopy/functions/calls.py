"""The wrappers of functions, async functions, generators and async generators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing
from typing import Any

from zerocopy.functions.conversions import Conversions
from zerocopy.protocols.exporter_errors import is_error

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
