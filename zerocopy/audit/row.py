"""``AuditRow``: the calls of one framework's function at one line of code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Calls of one framework's function at one place of the code.

    The first 16 calls of a place are checked, then each 16th. `bytes` and `seconds` are sums of the
    checked calls; they are not extrapolated.

    Attributes
    ----------
    file : str
        Path of the source file, or a name such as ``"<stdin>"``.
    line : int
        Line number of the call.
    function : str
        Qualified name of the calling function, ``"<module>"`` at the top level.
    call : str
        The source text of the call, such as ``"torch.tensor(features)"``; with ``x`` as argument if the
        text is unknown.
    kind : str
        ``"avoidable"``: it copied, and ``convert`` aliases. ``"needed"``: it copied, and ``convert`` would
        copy too, or return another type, dtype or shape. ``"alias"``: it shared memory.
    source, target : str
        Type of the argument, such as ``"numpy.ndarray"``, and framework of the result.
    calls, checked : int
        Number of calls at this place, of any kind, and number of checked calls.
    counted : int
        Number of checked calls of this kind, whose results have at least `min_bytes` bytes.
    bytes : int
        Bytes of the results of the counted calls.
    seconds : float
        Duration of the counted calls.
    fix : str
        The replacement: ``'zc.convert(features, to="torch")'``. Empty unless the copy is avoidable.
    why : str
        Why the copy is needed; empty for other kinds.

    Examples
    --------
    >>> AuditRow("train.py", 12, "main", "torch.tensor(x)", "avoidable", "numpy.ndarray", "torch", 1, 1,
    ...          1, 8, 0.1).place
    'train.py:12'
    """

    file: str
    line: int
    function: str
    call: str
    kind: str
    source: str
    target: str
    calls: int
    checked: int
    counted: int
    bytes: int
    seconds: float
    fix: str = ""
    why: str = ""

    @property
    def place(self) -> str:
        """The file and the line in the form ``file:line``."""
        return f"{self.file}:{self.line}"
