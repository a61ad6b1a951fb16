"""``convert``: the hot path, on one screen."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from zerocopy import registry
from zerocopy._engine.containers import convert_container, is_container
from zerocopy._engine.planner import OPTIONS, call, is_table, known, make, no_memory, words
from zerocopy._engine.routes import TABLE, keep
from zerocopy.errors import UnsupportedConversionError, ZeroCopyError
from zerocopy.plan import Plan

if TYPE_CHECKING:

    def convert(
        obj: Any,
        to: Any,
        *,
        device: Any = None,
        copy: bool | None = None,
        stream: Any = None,
        writable: bool | None = None,
        layout: str | None = None,
        columns: Sequence[Hashable] | None = None,
        nulls: Any = None,
        encode: bool | None = None,
        names: Sequence[str] | None = None,
        index: bool | None = None,
    ) -> Any: ...

else:
    # One dictionary for all options: ten names with defaults, and a look at each of them,
    # cost 30 ns more. Type checkers, help() and inspect.signature() are told below.
    def convert(obj, to, **options):
        """Hand an array or a table to another framework, without copying wherever that is possible.

        Parameters
        ----------
        obj : object
            An array, tensor, table or column of any framework; an object that
            speaks DLPack, the CUDA Array Interface, NumPy's array interface, the
            Arrow C data interface or the buffer protocol; or a dict, list, tuple or
            namedtuple of such, which is converted leaf by leaf into the same
            container. For a table framework a dict of columns is a table.
        to : str or module
            A framework's import name, such as ``"torch"``; :func:`zerocopy.frameworks`
            lists them. Where one has several forms, ``"pyarrow.Tensor"`` names it.
        device : str, tuple of int, or a framework's device, optional
            ``"cpu"``, ``"cuda"``, ``"cuda:1"``, a DLPack ``(type, id)`` pair, a ``torch.device``.
            None keeps the device, unless the target lives on another kind only
            (CuPy, Numba): naming such a target is asking for the transfer.
        copy : bool, optional
            False: alias or raise. True: never alias. None: alias where possible.
        stream : int or stream object, optional
            The consumer's stream, as DLPack numbers them, or an object with
            ``__cuda_stream__``. None: the target's current stream.
        writable : bool, optional
            True: the result may be written without changing memory that its
            producer calls immutable; copies where it must. False: marked read-only
            where the target can. None: an alias of immutable memory is marked
            read-only where the target can; where it cannot, ``explain`` warns.
        layout : str, optional
            Of a table in a tensor framework. ``"columns"``: a dict, a tensor a
            column, which is the default. ``"matrix"``: one tensor, (rows, columns), an
            alias where the columns lie at equal distances in one allocation;
            ``"matrix:C"`` and ``"matrix:F"`` say in which order a copy lies.
            ``"records"``: one structured array, for NumPy.
        columns : list, optional
            Which of a table's columns, in that order.
        nulls : str, number or dict, optional
            Nulls in a tensor are refused, unless ``"mask"`` asks for
            :class:`zerocopy.Masked`, ``"nan"`` for NaN in floats, or a number is
            named to fill them with; a dict says it by column.
        encode : bool, optional
            True: dates, times, decimals, categories, text and lists come as
            :class:`zerocopy.Encoded` numbers; tensors have no such types.
        names : list of str, optional
            For the columns that a 2-D tensor becomes.
        index : bool, optional
            Whether pandas' index travels. None: it does if it has a name or is
            not the default one.

        Returns
        -------
        object
            The target's type, with the same values, shape and dtype. It aliases `obj`
            where that is possible, and keeps aliased memory alive; :func:`zerocopy.explain`
            says whether it does. An object of the target already comes back as it is.

        Raises
        ------
        UnknownFrameworkError, FrameworkNotInstalledError
            `to` names nothing known, or nothing installed.
        UnsupportedConversionError
            No route: not an array, or the target lacks the dtype.
        CopyRequiredError
            ``copy=False`` and a copy is needed.
        LossyConversionError
            The target would change values.
        DeviceError
            The device does not exist, or its driver does not answer.
        ValueError, TypeError
            An option has a value that it does not take, or is not known.
        MemoryError
            There is none left for the copy.

        Notes
        -----
        `device`, `copy` and `stream` mean what they mean in the array API
        standard (2023.12, ``from_dlpack``) and in DLPack's Python specification
        (``__dlpack__``). What comes from where is in the guide, under semantics.

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
        >>> zc.convert(np.arange(3), to="numpy", device="cuda")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        zerocopy.errors.DeviceError: convert(...device='cuda'): numpy has no arrays on cuda.
          To fix: it has them on: cpu
        """
        if not options:
            try:
                return TABLE[to][type(obj)](obj)
            except Exception:  # noqa: BLE001
                # Not seen before, or not for the fast way (a lazy conjugate, another
                # device): nothing is lost, since all is decided again, with reasons,
                # and what is raised then carries this exception as its context.
                return _carefully(obj, to, options)
        return _carefully(obj, to, known("convert", options))

    from inspect import Parameter, Signature

    convert.__signature__ = Signature(
        [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("obj", "to")]
        + [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in OPTIONS]
    )


def _carefully(obj: Any, to: Any, options: dict[str, Any]) -> Any:
    """Plan and run: everything that is not the fast way."""
    try:
        if is_container(obj) and not is_table(obj, to, options):
            if not obj:
                registry.by_name(to)  # of an empty container nothing else would ask for it
            return convert_container(obj, convert, to, options)
        plan = make(obj, to, **options)
        result = _run(plan, obj, to, options)
    except ZeroCopyError as error:
        if isinstance(error.__context__, KeyError) and error.__cause__ is None:
            error.__suppress_context__ = True  # the first look into the table: no news to anybody
        if not error.asked:  # found while a stream was read: the plan was made before
            error.asked = f"convert({words(obj)}, to={to!r})"
            error.args = (error.asked, error.why, error.remedy)
        raise
    if not options:
        keep(obj, to)
    return result


def _run(plan: Plan, obj: Any, to: Any, options: dict[str, Any]) -> Any:
    assert plan.run is not None
    try:
        return plan.run()
    except (ZeroCopyError, MemoryError):
        raise
    except Exception as error:
        name = registry.out_of_memory(error)
        if name is not None:
            raise no_memory(call(obj, to, options), name, error) from error
        # The guards did not foresee it: still one vocabulary, and the cause beside it (P9).
        raise UnsupportedConversionError(
            f"{plan.source} -> {plan.target}",
            f"{plan.target} raised {type(error).__name__}: {error}",
            "see the cause above; if it is a guard that we lack, please report it",
        ) from error
