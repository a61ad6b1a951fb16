"""``ConversionRow``: the counts of the conversions from one type to one framework at one line of code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConversionRow:
    """Counts of the conversions from one type to one target, at one line of code.

    Only outermost calls count: the columns of a table and the leaves of a container add to the
    bytes of the call that converts the whole.

    Attributes
    ----------
    file : str
        Path of the source file, or a name such as ``"<stdin>"``; ``""`` if call sites are not recorded.
    line : int
        Line number of the call; 0 if call sites are not recorded.
    function : str
        Qualified name of the calling function, ``"<module>"`` at the top level.
    source : str
        Type of the converted objects, such as ``"numpy.ndarray"``.
    target : str
        Framework of the results, such as ``"torch"``.
    calls : int
        Number of calls: the sum of the next five.
    aliased_calls : int
        Calls whose result shares all of its memory with the source.
    copied_calls : int
        Calls that copied any bytes, although other bytes of the result may be aliased.
    unchanged_calls : int
        Calls that returned the object itself, or a container of its own leaves. Their bytes are not counted.
    refused_calls : int
        Calls that raised an exception.
    empty_calls : int
        Calls that are not known to share or copy bytes: those of arrays of size zero, and on streams.
    aliased_bytes : int
        Bytes of the results that are the memory of the sources.
    copied_bytes : int
        Bytes that were copied, transfers between devices included.
    unmeasured_calls : int
        Calls, counted above too, whose bytes are unknown, such as those on streams.
    seconds : float or None
        Duration of all calls; None if call sites are not recorded.
    why : str
        Why the most recent sampled call copied or was refused; ``""`` if none did.
    fix : str
        The change by which the call aliases or is not refused; ``""`` if there is none.
    code : str
        Stable name of the reason, such as ``"not-row-major"``; see docs/errors.md.

    Examples
    --------
    >>> row = ConversionRow("train.py", 12, "main", "pandas.DataFrame", "torch", 3, copied_calls=3,
    ...                     copied_bytes=96)
    >>> row.place
    'train.py:12'
    """

    file: str
    line: int
    function: str
    source: str
    target: str
    calls: int
    aliased_calls: int = 0
    copied_calls: int = 0
    unchanged_calls: int = 0
    refused_calls: int = 0
    empty_calls: int = 0
    aliased_bytes: int = 0
    copied_bytes: int = 0
    unmeasured_calls: int = 0
    seconds: float | None = None
    why: str = ""
    fix: str = ""
    code: str = ""

    @property
    def not_measured(self) -> str:
        """Which figures of the calls are unknown, as text; ``""`` if all are known.

        Examples
        --------
        >>> ConversionRow("a.py", 1, "f", "torch.Tensor", "cupy", 3, unmeasured_calls=2).not_measured
        'the bytes of 2 of 3 calls, the time'
        """
        calls = "call" if self.calls == 1 else "calls"
        parts = [f"the bytes of {self.unmeasured_calls:,} of {self.calls:,} {calls}"] * bool(
            self.unmeasured_calls
        )
        return ", ".join(parts + ["the time"] * (self.seconds is None and bool(self.file)))

    @property
    def place(self) -> str:
        """The file and the line in the form ``file:line``; ``""`` if call sites are not recorded."""
        return f"{self.file}:{self.line}" if self.file else ""
