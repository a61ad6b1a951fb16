"""Columns that the names of folders hold: ``year=2024/``."""

from __future__ import annotations

import os
from typing import Any

from zerocopy.loading.sources.files import Files


def partition_values(files: Files) -> list[dict[str, Any]]:
    """Return the values of the partition columns of each Parquet file: Python or Arrow scalars."""
    if files.partitions is not None:
        return list(files.partitions)
    import pyarrow as pa
    from pyarrow import dataset as ds

    depth = len(files.base)
    if not files.base or not any("=" in os.path.dirname(path[depth:]) for path in files.paths):
        return [{} for _ in files.paths]
    data = ds.dataset(
        files.paths,
        format="parquet",
        filesystem=files.filesystem,
        partitioning="hive",
        partition_base_dir=files.base,
    )
    values = {each.path: ds.get_partition_keys(each.partition_expression) for each in data.get_fragments()}
    schema = data.schema
    return [
        {
            name: pa.scalar(values[path][name], schema.field(name).type)
            for name in schema.names
            if name in values[path]
        }
        for path in files.paths
    ]
