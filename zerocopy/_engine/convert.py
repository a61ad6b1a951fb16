"""``convert``: the hot path, on one screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from zerocopy import registry
from zerocopy._engine import recording
from zerocopy._engine.options import SIGNATURE, attributes_of, check_options
from zerocopy._engine.planner import Call, classify, make_plan
from zerocopy._engine.routes import TABLE, by_new_route, keep, keep_tree, set_slow_path
from zerocopy._engine.target import is_named, of_object
from zerocopy._native import core
from zerocopy.describe import raise_known
from zerocopy.errors import UnsupportedConversionError, ZeroCopyError
from zerocopy.errors.tracebacks import not_transformed, shorten
from zerocopy.plan import Plan
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.request import ConvertOptions


# One dictionary for all options: ten named defaults and their checks cost 30 ns more.
def convert(obj: Any, to: Any, **options: Unpack[ConvertOptions]) -> Any:
    """Hand an array or a table to another framework, without a copy wherever possible.

    Parameters
    ----------
    obj : object
        An array, tensor, table or column of any framework; an object that supports DLPack,
        the CUDA Array Interface, NumPy's array interface, the Arrow C data interface or the
        buffer protocol; or a list or tuple of Python numbers, or of such lists of one length; or a dict,
        list, tuple, dataclass, mapping, mutable sequence or pytree of these, which is converted leaf by
        leaf into the same container. For a table framework, a dict or mapping of columns is a table.
    to : str, module, type or object
        A framework's import name, such as ``"torch"``; :func:`zerocopy.frameworks`
        lists them. Or its module, or its type of arrays or tables: ``torch``, ``torch.Tensor``,
        ``"torch.Tensor"``, ``jax.numpy``. ``pyarrow.Tensor`` is one of several forms. Or one of
        its arrays or tables, whose device is then the default of `device`.
    device : str, tuple of int, or a framework's device, optional
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, a DLPack ``(type, id)`` pair, a ``torch.device``.
        Default: the device of the object passed as `to`; otherwise the source's device, or the
        target's own if it does not support that one (CuPy and Numba have only arrays on CUDA devices).
    copy : bool, optional
        False: alias or raise. True: never alias. None: alias where possible.
    stream : int or stream object, optional
        The consumer's stream, numbered as in DLPack, or an object with
        ``__cuda_stream__``. None: the target's current stream.
    writable : bool, optional
        True: writes to the result change no memory that its producer declares immutable;
        copies if necessary. False: the result is marked read-only if the target can do so.
        None: an alias of immutable memory is marked read-only if the target can do so;
        ``explain`` warns if it cannot.
    dtype : str, dtype or dict, optional
        Cast on the way: a name such as ``"float32"``, a NumPy dtype or type, a dtype of any
        framework (``torch.float32``, ``polars.Float32``), or a dict from source types or labels of
        columns to these, in which labels win. A value that does not fit raises
        ``LossyConversionError``; only a float may be rounded, to a narrower float.
    leaves : str, optional
        ``"keep"``: leaves of a container that are not arrays or tables, such as text, None and
        lists of Python numbers, are kept unchanged. A mapping is then a container for table frameworks
        too. ``"error"`` and None: such leaves are refused, but for Python numbers, which are kept in any
        case.
    validate : {"full"}, optional
        ``"full"``: check the content of Arrow columns first, with pyarrow: offsets, views, codes of
        dictionaries, run ends, UTF-8. Use it for data from untrusted sources. It reads all of it.
        None: check only lengths, counts and the first and last offsets, in constant time.
    out : array, optional
        A writable array of the target, of the shape and dtype of the values: they are copied into it, and it
        is the result. `obj` is then one array or column; with `dtype`, the values are cast first.
    layout : str, optional
        The form of a table in a tensor framework. ``"columns"``, the default: a dict with one tensor for
        each column. ``"matrix"``: one tensor of shape (rows, columns), an alias if the columns are equally
        spaced in one known allocation. These have no effect on arrays and single columns. ``"records"``: one
        structured array, for tables in NumPy.
    order : {"C", "F"}, optional
        With ``layout="matrix"``: the memory order of the matrix, row-major or column-major. None: that of
        the columns if they are aliased, and mostly row-major if they are copied.
    columns : list, optional
        Labels of the table's columns to convert, in this order.
    nulls : str, number or dict, optional
        Tensors have no nulls: a column with nulls is refused unless this is ``"mask"``
        (:class:`zerocopy.Masked`), ``"nan"`` (NaN in floats) or a number that replaces them. ``"drop"``, for
        table frameworks too: a copy without the rows that have nulls.
        A dict has one of these for each column. NaN counts as null in pandas' float columns.
    encode : "codes", "bytes", bool or dict, optional
        ``"codes"`` or True: dates, times, decimals, categories, text and lists become
        :class:`zerocopy.Encoded` numbers, since tensors have no such types; text becomes codes of its
        sorted distinct words, a copy. ``"bytes"``: the same, with UTF-8 bytes and offsets of text, which
        can be aliases. A dict has for each column ``"codes"``, a list of its words, or False for bytes.
    lists : {"dense", "ragged", "pad", "variable"}, optional
        Columns of lists of numbers. ``"dense"``: lists of one length become one more dimension, an alias of
        their elements; others are refused. ``"ragged"``: elements and offsets, as a ragged array of the
        target or as :class:`zerocopy.Encoded`. ``"pad"``: a copy with the length of the longest list. None:
        dense, but a single list column of Arrow becomes a ragged array where the target has these, and
        ``encode=`` gives elements and offsets. ``"variable"``, for table frameworks: the rows of a 2-D tensor
        become lists of variable length instead of a fixed one.
    pad_value : number or bool, optional
        With ``lists="pad"``: the value after the last element of a shorter list. None: 0.
    max_length : int, optional
        With ``lists="pad"``: elements after these are left out.
    names : list of str, optional
        Labels for the columns of a 2-D tensor.
    index : bool or sequence, optional
        Whether pandas' index is converted too. None: if it has a name or is not the default one. A
        sequence sets the labels of a pandas result, one for each row, such as ``index=frame.index``.
    connection : object, optional
        The DuckDB connection of the relation that results. None: DuckDB's default connection.

    Returns
    -------
    object
        Of the target's type, with the same values, shape and, without `dtype`, dtype. It aliases `obj`
        where possible and keeps aliased memory alive; :func:`zerocopy.explain`
        reports whether it does. An object of the target itself is returned unchanged.

    Raises
    ------
    UnknownFrameworkError, FrameworkNotInstalledError
        `to` is not a known, or not an installed, framework.
    UnsupportedConversionError
        `obj` is not an array or table, or the target lacks the dtype.
    CopyRequiredError
        ``copy=False`` and a copy is needed.
    LossyConversionError
        The target, or the cast to `dtype`, would change values.
    DeviceError
        The device does not exist, or its driver does not answer.
    OptionError, TypeError
        An option has an invalid value, or does not exist.
    MemoryError
        There is not enough memory for the copy.

    Notes
    -----
    `device`, `copy` and `stream` mean the same as in the array API standard
    (2023.12, ``from_dlpack``) and in DLPack's Python specification (``__dlpack__``).

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> raw = bytearray(8)
    >>> array = zc.convert(raw, to="numpy")
    >>> array[0] = 7                      # the same memory
    >>> raw[0]
    7
    >>> rows = [np.arange(3), {"mask": np.array([True])}]
    >>> [type(leaf).__name__ for leaf in zc.convert(rows, to="numpy", copy=True)]
    ['ndarray', 'dict']
    >>> zc.convert(np.array([1.5, 2.5]), to="numpy", dtype="float16")
    array([1.5, 2.5], dtype=float16)
    >>> zc.convert(np.array([1, 300]), to="numpy", dtype="uint8")  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
        ...
    zerocopy.errors.LossyConversionError: convert(numpy.ndarray int64 (2,), to='numpy', dtype='uint8'):
    dtype uint8 cannot hold the value 300 at [1]: it is outside 0 to 255.
      To fix: zc.convert(x, "numpy", dtype="uint16") holds it
    >>> zc.convert(np.arange(3), to="numpy", device="cuda")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    zerocopy.errors.DeviceError: convert(...device='cuda'): numpy has no arrays on cuda.
      To fix: zc.convert(x, "numpy", device="cpu")
    """
    try:
        if options:  # the compiled core has routes for some; here the planner serves them
            return convert_slowly(obj, to, options)
        try:
            return TABLE[to][type(obj)](obj)
        except BaseException as error:
            if not is_error(error):
                raise
            # A new type, or an object that the fast path cannot take (a lazy conjugate, another
            # device). The slow path starts again, and its errors have this one as context.
            return convert_slowly(obj, to, options)
    except ZeroCopyError as refusal:
        shorten(refusal)
        raise


not_transformed(convert)
convert.__signature__ = SIGNATURE  # type: ignore[attr-defined]


def convert_after_route(obj: object, to: Any, options: Mapping[str, Any], error: BaseException | None) -> Any:
    """Convert an object whose compiled route failed, with the exception `error` or without one."""
    try:
        if error is None:
            return convert_slowly(obj, to, options)
        try:
            raise error
        except BaseException as raised:
            if raised is not error or not is_error(error):
                raise
            return convert_slowly(obj, to, options)
    except ZeroCopyError as refusal:
        shorten(refusal)
        raise
    finally:
        del error  # its traceback holds this frame


def convert_slowly(obj: object, to: object, passed: Mapping[str, object]) -> object:
    """Plan the conversion, run the plan, and keep a route for the next object of this type."""
    # Other objects are refused below, where the monitor counts refusals.
    if type(to) is not str and not is_named(to) and registry.by_type(type(to)) is not None:
        # Errors of options come first, as in `explain`.
        to, passed = of_object(to, obj, check_options("convert", passed) if passed else {})
        return convert(obj, to, **passed)
    if "order" in passed:  # routes hold it as a part of layout=
        return convert(obj, to, **check_options("convert", passed))
    counters = recording.counters  # read once: another thread can set it
    try:
        if counters is None:
            return _convert_slowly(obj, to, passed, None)
        return recording.observe(counters, _convert_slowly, obj, to, passed)
    finally:
        if core is not None:
            core.drop_capsule()  # that a route has requested, and the plan did not need


set_slow_path(convert_slowly)


def _convert_slowly(obj: Any, to: Any, passed: Mapping[str, Any], observed: recording.Observed | None) -> Any:
    if not passed and observed is None and (result := by_new_route(obj, to)) is not NotImplemented:
        return result
    try:
        options = check_options("convert", passed) if passed else {}
        call = Call(obj, to, options, for_explain=observed is not None)
    except Exception as error:
        shorten(error)  # also errors of options, which are Python's TypeError and ValueError
        raise
    try:
        check = getattr(type(obj), "__zerocopy_check__", None) if "copy" in options else None
        if check is not None:
            check(obj, options)
        call.open(obj)
        classified = classify(call)
        if classified != "whole" and observed is not None:
            recording.check_guards(None, call, observed)
        if classified == "tree":
            from zerocopy._engine.containers import convert_leaves  # arrays do not need it

            result = convert_leaves(call.obj, convert, to, options)
            if call.obj is obj and not call.target.tables:
                keep_tree(type(obj), to, options)
            return result
        if classified != "whole":
            from zerocopy._engine import compounds

            return compounds.convert(call, classified, convert_slowly)
        plan = make_plan(call)
        if observed is not None:
            observed.call, observed.plan = call, plan
            recording.check_guards(plan, call, observed)
        result = _run(plan, call)
    except ZeroCopyError as error:
        if not error.asked:
            error.with_context(asked=str(call))
        if not error.calls:
            from zerocopy._engine.fixes import compose_calls  # here, because only errors need it

            compose_calls(error, call)
        elif call.unwrap:  # a leaf's error has its own calls
            from zerocopy._engine.call_text import relocate

            relocate(error, *call.unwrap.split("{x}"))
        raise
    except TypeError as error:
        raise_known(call.__str__, error)
        raise
    # A list is of numbers here. isinstance would read __class__, which may raise.
    if observed is None and not issubclass(type(obj), (list, tuple)):
        keep(obj, to, passed)
    return result


def _run(plan: Plan, call: Call) -> object:
    assert plan.run is not None
    try:
        return plan.run()
    except MemoryError:
        raise
    except BaseException as error:
        if not is_error(error):
            raise
        raise_known(call.__str__, error)
        if isinstance(error, ZeroCopyError):
            raise
        # No guard foresaw this error. It becomes one of zerocopy's, with the cause (promise P9).
        raise UnsupportedConversionError(
            f"{plan.source} -> {plan.target}",
            f"{plan.target} raised {type(error).__name__}: {error}",
            "see the cause above; please report it if zerocopy should check for it",
            code="target-raised",
        ) from error


#: The function in Python: `convert` itself without the compiled core.
convert_in_python = convert

if core is not None:
    convert = core.make_convert(convert_in_python, convert_after_route, attributes_of(convert_in_python))
