"""`ZeroCopyError` and the parts of its message: `Reason`, and `Fix`, from which a call is composed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from zerocopy.formatting import printable


@dataclass(frozen=True, slots=True)
class Fix:
    """One fix of an obstacle, in parts from which ``convert`` composes a call that can be pasted.

    Attributes
    ----------
    source : str
        The expression to pass in place of the object or column, which it names ``{x}``.
    effect : str
        What the call does, such as "gives a mask with the values".
    options : dict
        Options of ``convert`` to pass; None for one to leave out.
    to, before : str
        Another target; a statement to run first.
    action : str
        The key of `Framework.actions` whose expression replaces `source`, such as "cast:float64".
    alone : bool
        Whether `source` is used as it is and not converted. It may contain ``{array}``: the array that
        the call returns with `to` and `options`.
    shortens : bool
        Whether `source` has fewer elements than ``x``; one column of several cannot be replaced by it.
    sample : str
        A cheap expression of an object with the type of `source`, such as ``{x}[:2]``: it is evaluated to
        find what the call would be refused for. Default: the call is not planned.

    Examples
    --------
    >>> Reason("it has nulls", fixes=[Fix(options={"nulls": 0}), Fix("{x}.dropna()")]).remedy
    'nulls=0; or x.dropna()'
    """

    source: str = "{x}"
    effect: str = ""
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    to: str = ""
    before: str = ""
    action: str = ""
    alone: bool = False
    shortens: bool = False
    sample: str = ""

    def __str__(self) -> str:
        return self.text("x")

    def of(self, expression: str) -> Fix:
        """Return the fix of an expression that is in place of ``{x}``, such as ``{x}.data``.

        Examples
        --------
        >>> print(Fix("{x}.dropna()").of("{x}.data"))
        x.data.dropna()
        """
        source, sample = (text.replace("{x}", expression) for text in (self.source, self.sample))
        return replace(self, source=source, sample=sample)

    def text(self, place: str) -> str:
        """Return the fix as text, with an expression for the object or column.

        Examples
        --------
        >>> Fix("{x}.dropna()").text("x['a']"), Fix(options={"dtype": "bool8"}).text("x['a']")
        ("x['a'].dropna()", "dtype={'a': 'bool8'}")
        """
        texts = {n: repr(v) for n, v in self.options.items() if v is not None or self.source == "{x}"}
        label = place[2:-1] if place[:2] == "x[" and place.count("[") == 1 else ""
        if label and type(self.options.get("dtype")) is str:  # of one column
            texts["dtype"] = f"{{{label}: {texts['dtype']}}}"
        parts = [f"{name}={text}" for name, text in texts.items()]
        if "{array}" in self.source:
            array = f"zc.convert({', '.join([place, repr(self.to), *parts])})"
            return f"{self.source.format(x=place, array=array)} {self.effect}".rstrip()
        parts += [f"to={self.to!r}"] * bool(self.to)
        if self.source != "{x}" or not (parts or self.action or self.before):
            parts.append(self.source.format(x=place))
        elif self.action:
            parts.append(self.action.replace("-", " ").replace(":", " to "))
        code = "; ".join(part for part in (self.before, ", ".join(parts)) if part)
        return f"{code} {self.effect}".rstrip()


@dataclass(frozen=True, slots=True, init=False)
class Reason:
    """Why a conversion copies or is refused, and what to do about it.

    Attributes
    ----------
    why : str
        The obstacle, as a sentence without a full stop.
    remedy : str
        How to avoid it, by default the text of `fixes`; empty if nothing can be done.
    code : str
        Stable identifier for programs, such as ``"negative-strides"``. `zerocopy.errors.codes.CODES`
        has their meanings; a plugin may add its own.
    fixes : sequence of Fix
        Alternatives, the best first.

    Examples
    --------
    >>> print(Reason("the strides are negative", "numpy.ascontiguousarray(x)"))
    the strides are negative (numpy.ascontiguousarray(x))
    """

    why: str
    _remedy: str = field(init=False, repr=False)
    code: str
    fixes: Sequence[Fix]

    def __init__(self, why: str, remedy: str = "", *, code: str = "other", fixes: Sequence[Fix] = ()) -> None:
        for name, value in (("why", why), ("_remedy", remedy), ("code", code), ("fixes", tuple(fixes))):
            object.__setattr__(self, name, value)

    @property
    def remedy(self) -> str:
        """How to avoid it; the text of `fixes` is composed here, because few plans are printed."""
        return self.remedy_at("x")

    def remedy_at(self, place: str) -> str:
        """Return `remedy`, with an expression for the object or column in the text of `fixes`.

        Parameters
        ----------
        place : str
            An expression, such as ``"x['a']"``.

        Returns
        -------
        str
            Empty if nothing can be done.

        Examples
        --------
        >>> Reason("it has nulls", fixes=[Fix("{x}.dropna()")]).remedy_at("x['a']")
        "x['a'].dropna()"
        """
        return self._remedy or "; or ".join(fix.text(place) for fix in self.fixes)

    def __str__(self) -> str:
        return printable(f"{self.why} ({self.remedy})" if self.remedy else self.why, "\n")


class ZeroCopyError(Exception):
    """Base of all errors raised by zerocopy.

    Parameters
    ----------
    asked, why, remedy : str
        The call that was made; why it cannot be done; what to do instead.
    code : str, optional
        As `Reason.code`. Default: the class's own.

    Attributes
    ----------
    columns : dict of hashable to Reason
        The reason for each refused column of a table, by the column's label.
    fixes : sequence of Fix
        Alternatives that each remove all obstacles.
    obstacles : list of (label, Reason)
        All to be removed; `label` is the column's in a tuple, which is empty for the whole object.
    calls : tuple of str
        Python code of the alternatives in `remedy`, in which ``x`` is the object.

    Examples
    --------
    >>> print(ZeroCopyError("convert(x, to='torch')", "x is a string", "pass an array"))
    convert(x, to='torch'): x is a string.
      To fix: pass an array
    """

    __module__ = "zerocopy.errors"  # in tracebacks, as of its subclasses
    code: str = "other"
    preface: str = ""  # of the remedy: a step that no call can do

    def __init__(
        self, asked: str, why: str, remedy: str = "", *, code: str = "", fixes: Sequence[Fix] = ()
    ) -> None:
        remedy = remedy or "; or ".join(map(str, fixes))
        # OSError's __init__ would take the parts as errno, strerror and filename.
        Exception.__init__(self, asked, why, remedy)
        if isinstance(self, OSError):
            setattr(self, "strerror", why)  # noqa: B010 -- mypy would take it for an attribute of this class
        self.asked: str = asked
        self.why: str = why
        self.remedy: str = remedy
        self.fixes: tuple[Fix, ...] = tuple(fixes)
        self.columns: dict[Hashable, Reason] = {}
        self.obstacles: list[tuple[tuple[Hashable, ...], Reason]] = []
        self.calls: tuple[str, ...] = ()
        if code:
            self.code = code

    def __reduce__(self) -> tuple[Any, ...]:  # Dask's tblib cannot restore a MemoryError without it
        return type(self), (self.asked, self.why, self.remedy), self.__dict__

    def __str__(self) -> str:
        text = f"{self.asked}: {self.why.rstrip('.')}.".removeprefix(": ")
        return printable(f"{text}\n  To fix: {self.remedy}" if self.remedy else text, "\n")

    def with_context(
        self, *, asked: str | None = None, why: str | None = None, remedy: str | None = None
    ) -> Self:
        """Replace parts of the message, where an outer caller has more context.

        Parameters
        ----------
        asked, why, remedy : str, optional
            None keeps the present part.

        Returns
        -------
        ZeroCopyError
            The same object, so that ``raise error.with_context(...)`` keeps its traceback.

        Examples
        --------
        >>> print(ZeroCopyError("", "x is a string").with_context(asked="convert(x)"))
        convert(x): x is a string.
        """
        self.asked = self.asked if asked is None else asked
        self.why = self.why if why is None else why
        self.remedy = self.remedy if remedy is None else remedy
        self.args: tuple[Any, ...] = (self.asked, self.why, self.remedy)
        return self

    @property
    def reason(self) -> Reason:
        """The error as a `Reason`, for a plan that refuses."""
        return Reason(self.why, self.remedy, code=self.code, fixes=self.fixes)
