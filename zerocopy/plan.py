"""``Plan``: how one conversion will run, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from zerocopy.errors import Reason, ZeroCopyError
from zerocopy.formatting import printable

#: Leaves that a plan shows one by one; of more, those that differ in the path alone are shown once.
_MOST_LEAVES = 32


#: The first words of the warning about an alias whose layout the target reads slowly.
STRIDED_ALIAS = "strided alias: "


@dataclass(slots=True, eq=False, repr=False)
class Plan:
    """How one conversion will run, and why.

    Attributes
    ----------
    source, target : str
        Short texts for the object and the target.
    possible : bool
        Whether :func:`zerocopy.convert` would succeed; if not, `reasons` has the reason.
    zero_copy : bool
        Whether the result will share memory with the source. False for a
        zero-size array, which has no memory to share or copy.
    copied_bytes : int
        Number of bytes to copy, transfers between devices included.
    new_bytes : int
        Number of bytes of new memory that hold no values of the source, such as a mask for a
        column without nulls.
    protocol : str
        The protocol that exports the memory: ``"dlpack"``, ``"buffer"``, ...
    steps : tuple of str
        The steps of the conversion, in order.
    reasons : tuple of Reason
        Why the conversion copies or is refused, each with its remedy.
    warnings : tuple of str
        Side effects of using the result, such as writes that change the source.
    error : ZeroCopyError or None
        The error that ``convert`` would raise.
    leaves : dict of str to Plan
        For a container: the plan of each leaf by its path.
    partial : bool
        For a column that is copied: whether the target may still alias some of its buffers,
        such as the bytes of text or one field of structs. ``copy=True`` copies all of them.
    unread : bool
        Whether the object is a stream or a query. The number of copied bytes is then known only
        after reading.
    kept : bool
        Whether the object is returned unchanged because it is not an array, under ``leaves="keep"``;
        for a container, whether all of its leaves are.
    run : callable or None
        Runs the plan; keeps the source alive. None for refusals, containers and plans
        that were pickled.
    aliased_bytes : int
        Number of bytes of the result that are the source's memory: for a table or container, the sum of
        its leaves. 0 if their number is unknown, as for a sparse tensor that is returned unchanged.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> plan = zc.explain(np.zeros(4, dtype=">f4"), "numpy", copy=True)
    >>> plan.zero_copy, plan.copied_bytes
    (False, 16)
    >>> zc.explain({"a": np.zeros(4), "b": np.zeros(2)}, "numpy").aliased_bytes
    48
    """

    source: str
    target: str
    possible: bool = True
    zero_copy: bool = False
    copied_bytes: int = 0
    new_bytes: int = 0
    protocol: str = ""
    steps: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[str, ...] = ()
    error: ZeroCopyError | None = None
    leaves: dict[str, Plan] = field(default_factory=dict)
    partial: bool = False
    unread: bool = False
    kept: bool = False
    run: Callable[[], Any] | None = field(default=None, repr=False)
    aliased_bytes: int = 0

    @property
    def shares_memory(self) -> bool | None:
        """What :func:`zerocopy.shares_memory` returns for the source and the result.

        Returns
        -------
        bool or None
            For an array, `zero_copy`. For a table or container, whether any leaf shares memory:
            True, although `zero_copy` is False, if some leaves are aliased and others copied, or if some
            buffers of a column are. None
            if it depends on how the target copies a column (`partial`), or is known only after reading.

        Examples
        --------
        >>> import numpy as np, zerocopy as zc
        >>> columns = {"a": np.zeros(2), "b": np.array([True, False])}
        >>> plan = zc.explain(columns, "polars")
        >>> plan.zero_copy, plan.shares_memory, plan.leaves["['a']"].zero_copy
        (False, True, True)
        """
        if self.zero_copy or self.aliased_bytes:
            return True
        answers = [leaf.shares_memory for leaf in self.leaves.values()]
        if any(answers):
            return True
        unknown = self.partial or self.unread or None in answers
        return None if unknown else False

    def __repr__(self) -> str:
        return printable(f"<zerocopy.Plan: {self.source} -> {self.target}: {self._verdict()}>")

    def __str__(self) -> str:
        return printable(self._text("x"), "\n")

    def _text(self, place: str) -> str:
        """Return the plan as text; `place` is an expression for the object."""
        lines = [f"{self.source} -> {self.target}: {self._verdict()}"]
        for name, text in self._rows(place):
            number = name.removeprefix("step ")
            lines.append(f"  {name}: {text}" if number == name else f"  {number}. {text}")
        alike: dict[str, tuple[list[str], str]] = {}
        for path, leaf in self.leaves.items():
            text = leaf._text(item(place, path))
            rest = text.replace(path, "") if len(self.leaves) > _MOST_LEAVES else path
            alike.setdefault(rest, ([], text))[0].append(path)
        for paths, text in alike.values():
            more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
            lines.append(f"  {paths[0]}{more}: {text}".replace("\n", "\n  "))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return tables for notebooks: the conversion and, for a container or table, its leaves."""
        from zerocopy.formatting import html

        caption = f"{self.source} \u2192 {self.target}: {self._verdict()}"
        tables = [html.table(caption, self._rows() or [("protocol", self.protocol or "none")])]
        if self.leaves:
            rows = [
                (
                    path,
                    leaf.source,
                    leaf._verdict(),
                    "\n".join(f"{name}: {text}" for name, text in leaf._rows(item("x", path))),
                )
                for path, leaf in self.leaves.items()
            ]
            tables.append(html.table("Leaves", rows, ("leaf", "source", "result", "details")))
        return "".join(tables)

    def _rows(self, place: str = "x") -> list[tuple[str, str]]:
        """Return names and texts of the steps, the reasons with their fixes, and the warnings."""
        rows: list[tuple[str, str]] = []
        if len(self.steps) > 1 or not (self.zero_copy or self.kept):
            rows += [(f"step {number}", step) for number, step in enumerate(self.steps, 1)]
        for reason in self.reasons:
            rows.append(("why", reason.why))
            if remedy := reason.remedy_at(place):
                rows.append(("fix", remedy))
        for warning in self.warnings:
            rows.append(("warning", warning))
        return rows

    def __reduce__(self) -> Any:
        return Plan, tuple(None if f.name == "run" else getattr(self, f.name) for f in fields(self))

    def _verdict(self) -> str:
        if not self.possible:
            return "refused"
        if self.zero_copy:
            return f"zero-copy ({self.protocol})" if self.protocol else "zero-copy"
        if self.copied_bytes:
            aliased = f", aliases {self.aliased_bytes:,}" if self.aliased_bytes and not self.leaves else ""
            return f"copies {self.copied_bytes:,} byte{'s' if self.copied_bytes > 1 else ''}{aliased}"
        if self.kept:
            return "kept unchanged"
        if self.new_bytes:
            return f"new memory of {self.new_bytes:,} byte{'s' if self.new_bytes > 1 else ''}"
        if self.unread:
            return "known after it has been read"
        return "nothing to copy (zero-size)"


def of_leaves(source: str, target: str, leaves: dict[str, Plan], **other: Any) -> Plan:
    """Return the plan of a table, container or compound array: it counts the bytes of its leaves."""
    copied = new = aliased = 0
    shares = False
    for leaf in leaves.values():
        copied += leaf.copied_bytes
        new += leaf.new_bytes
        aliased += leaf.aliased_bytes
        shares |= leaf.zero_copy
    whole = Plan(
        source, target, True, shares and not copied, copied, new, leaves=leaves, aliased_bytes=aliased
    )
    return replace(whole, **other)


def item(place: str, path: str) -> str:
    """Return an expression for a leaf; "x" for a column that its name does not identify."""
    return place + path if path[:1] in ("[", ".") and "#" not in path else "x"
