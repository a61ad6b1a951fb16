"""Calls of pyarrow that copy arrays and tables of other frameworks, or its own tables to pandas."""

from __future__ import annotations

from typing import Any

from zerocopy import registry
from zerocopy.audit.hook import AuditHook, CopyCall


class Audit(AuditHook):
    """Methods of pyarrow's classes cannot be replaced; ``Table.to_pandas`` calls a function that can."""

    def calls(self) -> list[CopyCall]:
        pa = registry.by_name("pyarrow").module()
        from pyarrow import pandas_compat

        to_pandas = CopyCall(
            pandas_compat, "table_to_dataframe", "pa.Table.to_pandas", "pandas", "method", "table", 1
        )
        return [
            CopyCall(pa, "array", "pa.array", "pyarrow", keyword="obj"),
            CopyCall(pa, "table", "pa.table", "pyarrow", keyword="data"),
            to_pandas,
        ]

    def traits(self, obj: Any) -> dict[str, str]:
        traits = super().traits(obj)
        schema = getattr(obj, "schema", None)
        return {**traits, "schema": str(getattr(obj, "type", None) if schema is None else schema)}
