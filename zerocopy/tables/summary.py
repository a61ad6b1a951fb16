"""A table's plan: the paths of its columns, and the sum of their plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy.framework import Framework
from zerocopy.plan import Plan
from zerocopy.tables.column import Table


def paths(table: Table) -> list[str]:
    """Return each column's path in a plan; labels need not be unique, and paths are."""
    if table.single:
        return [""]
    seen: dict[str, int] = {}
    paths = []
    for label in table.labels:
        path = f"[{label!r}]"
        seen[path] = seen.get(path, 0) + 1
        paths.append(path if seen[path] == 1 else f"{path}#{seen[path]}")
    return paths


def total(
    table: Table,
    target: Framework,
    leaves: dict[str, Plan],
    result: Callable[[], Any],
    beware: tuple[str, ...],
) -> Plan:
    """Return the plan of a whole from those of its leaves."""
    copied = sum(plan.copied_bytes for plan in leaves.values())
    shares = any(plan.zero_copy for plan in leaves.values())
    said = dict.fromkeys([*beware, *table.warnings, *(w for plan in leaves.values() for w in plan.warnings)])
    return Plan(
        f"{table.name} {table.shape}",
        target.name,
        zero_copy=shares and not copied,
        copied_bytes=copied,
        protocol=next((plan.protocol for plan in leaves.values()), ""),
        steps=("each column on its own",),
        warnings=tuple(said),
        leaves=leaves if not table.single or len(leaves) > 1 else {},
        reasons=next(iter(leaves.values())).reasons if table.single and len(leaves) == 1 else (),
        run=result,
    )


def run(plan: Plan) -> Any:
    """Carry a plan out."""
    assert plan.run is not None
    return plan.run()
