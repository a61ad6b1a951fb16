"""Relations of DuckDB as streams of batches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from zerocopy._frameworks.duckdb import refuse, wrong
from zerocopy.loading.dataset import Dataset, Stream, choose
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.sources.streams import BatchStream

#: Rows of a batch.
_ROWS = 1 << 17


class Loading(LoadingHook):
    """Relations of DuckDB; each epoch runs the query again."""

    def open(self, obj: Any, columns: Any) -> Dataset | Stream | None:
        if not hasattr(obj, "to_arrow_table"):
            return None  # a connection, which convert() refuses
        relation = obj
        if columns is not None:
            names = choose(columns, obj.columns)
            relation = obj.project(", ".join('"' + str(name).replace('"', '""') + '"' for name in names))
        schema = relation.limit(0).to_arrow_table().schema
        why = "belongs to a connection, which two loaders cannot use"
        return BatchStream("duckdb.DuckDBPyRelation", schema, partial(_batches, relation), only_here=why)


def _batches(relation: Any) -> Iterator[Any]:
    """Run the query; its connection is busy until the last batch has been read."""
    reader = relation.to_arrow_reader(_ROWS)
    try:
        for batch in reader:
            columns = zip(batch.schema.names, batch.columns, strict=True)
            refuse((name, wrong(column)) for name, column in columns)
            yield batch
    finally:
        reader.close()
