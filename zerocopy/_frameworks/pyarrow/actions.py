"""Expressions over pyarrow's objects, for the fixes of messages."""

from __future__ import annotations

from zerocopy.errors import Fix

ACTIONS = {
    "column": Fix("{x}[{label}]"),
    "replace": Fix("{x}.set_column({x}.schema.get_field_index({label}), {label}, {value})"),
    "cast": Fix("{x}.cast('{type}')"),
    "cast:bool8": Fix("{x}.cast(pyarrow.bool8())"),
    "objects": Fix("{x}.to_pylist()"),
    "fill-nulls": Fix("{x}.fill_null(0)"),
    "drop-nulls": Fix("{x}.drop_null()"),
    "decode-runs": Fix("pyarrow.compute.run_end_decode({x})"),
    "decode-dictionary": Fix("{x}.cast({x}.type.value_type)"),
    "lists": Fix("pyarrow.array({x}.to_pylist(), pyarrow.large_list({x}.type.value_type))"),
    "join-lists": Fix("pyarrow.compute.list_flatten({x})"),
    "combine-chunks": Fix("{x}.combine_chunks()"),
    "unify-dictionaries": Fix("{x}.unify_dictionaries().combine_chunks()"),
    "read": Fix("{x}.read_all()"),
}
