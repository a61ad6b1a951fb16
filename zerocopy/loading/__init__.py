"""``loader``: batches for training from files, tables, queries, streams and arrays."""
