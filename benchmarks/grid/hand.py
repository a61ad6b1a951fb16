"""Code by hand for each pair: direct calls, and paths through Arrow or NumPy.

``{x}`` is the source, and ``{t}`` the Arrow object or the array of a path. Candidates that give another type
or other values than zerocopy are left out when they are checked, so a list may hold calls that some inputs
refuse.
"""

from __future__ import annotations

from itertools import product

Pair = tuple[str, str]

_COLUMNS = "zip({x}.column_names, {x}.columns)"

#: A table to a ``pyarrow.Table``.
TABLE_TO_ARROW = {
    "pandas": (
        "pa.Table.from_pandas({x})",
        "pa.Table.from_pandas({x}, preserve_index=False, nthreads=1)",
        "pa.table({{n: pa.array(c) for n, c in {x}.items()}})",
        "pa.Table.from_arrays([pa.array(c.to_numpy()) for _, c in {x}.items()], names=list({x}.columns))",
    ),
    "polars": (
        "{x}.to_arrow()",
        "pa.table({x})",
        "pa.table({{s.name: s.to_arrow() for s in {x}}})",
        "pa.table({{s.name: pa.chunked_array(s) for s in {x}}})",
    ),
    "pyarrow": ("{x}",),
    "duckdb": ("{x}.to_arrow_table()", "{x}.to_arrow_reader().read_all()", "pa.table({x})"),
    "nanoarrow": (
        "pa.table({x})",
        "pa.RecordBatchReader.from_stream({x}).read_all()",
        "pa.Table.from_batches([pa.record_batch({x})])",
    ),
}
#: A ``pyarrow.Table`` to a table.
ARROW_TO_TABLE = {
    "pandas": (
        "{t}.to_pandas()",
        "{t}.to_pandas(split_blocks=True, use_threads=False)",
        "{t}.to_pandas(types_mapper=pd.ArrowDtype)",
        "pd.DataFrame.from_arrow({t})",
    ),
    "polars": ("pl.from_arrow({t})", "pl.DataFrame({t})", "pl.from_arrow({t}, rechunk=False)"),
    "pyarrow": ("{t}",),
    "duckdb": ("duckdb.from_arrow({t})",),
    "nanoarrow": ("na.Array({t})", "na.array({t})"),
}
#: Calls between tables that need no pyarrow in the code.
TABLE_DIRECT: dict[Pair, tuple[str, ...]] = {
    ("pandas", "polars"): (
        "pl.from_pandas(x)",
        "pl.DataFrame({n: c.to_numpy() for n, c in x.items()})",
        "pl.DataFrame(x.to_numpy(), schema=list(x.columns))",
    ),
    ("polars", "pandas"): (
        "x.to_pandas()",
        "x.to_pandas(use_pyarrow_extension_array=True)",
        "pd.DataFrame({s.name: s.to_numpy() for s in x}, copy=False)",
        "pd.DataFrame.from_arrow(x)",
    ),
    ("pandas", "duckdb"): ("duckdb.from_df(x)", 'duckdb.sql("FROM x")'),
    ("polars", "duckdb"): ('duckdb.sql("FROM x")', "duckdb.from_arrow(x)"),
    ("pyarrow", "duckdb"): ('duckdb.sql("FROM x")',),
    ("nanoarrow", "duckdb"): ("duckdb.from_arrow(x)",),
    ("duckdb", "pandas"): ("x.df()", "pd.DataFrame(x.fetchnumpy(), copy=False)"),
    ("duckdb", "polars"): ("x.pl()", "pl.DataFrame(x.fetchnumpy())", "pl.DataFrame(x)"),
    ("duckdb", "nanoarrow"): ("na.Array(x)", "na.Array(x.to_arrow_reader())"),
    ("pandas", "nanoarrow"): ("na.Array(x)",),
    ("polars", "nanoarrow"): ("na.Array(x)",),
    ("nanoarrow", "pandas"): ("pd.DataFrame.from_arrow(x)",),
    ("nanoarrow", "polars"): ("pl.DataFrame(x)", "pl.from_arrow(x)"),
}
#: A column to a ``pyarrow.Array``, and back.
SERIES_TO_ARROW = {
    "pandas": ("pa.array({x})", "pa.Array.from_pandas({x})", "pa.array({x}.to_numpy())"),
    "polars": ("{x}.to_arrow()", "pa.array({x})", "pa.chunked_array({x}).chunk(0)"),
    "pyarrow": ("{x}",),
    "nanoarrow": ("pa.array({x})", "pa.chunked_array({x}).chunk(0)"),
}
ARROW_TO_SERIES = {
    "pandas": (
        "{t}.to_pandas()",
        "pd.Series({t}.to_numpy(), copy=False)",
        "pd.Series(pd.arrays.ArrowExtensionArray({t}), copy=False)",
        "pd.Series.from_arrow({t})",
    ),
    "polars": ("pl.from_arrow({t})", "pl.Series({t})", 'pl.Series("", {t})'),
    "pyarrow": ("{t}",),
    "duckdb": (
        'duckdb.from_arrow(pa.table({{"column_0": {t}}}))',
        'duckdb.from_arrow(pa.table([{t}], names=["column_0"]))',
        'duckdb.from_arrow(pa.Table.from_arrays([{t}], ["column_0"]))',
    ),
    "nanoarrow": ("na.Array({t})", "na.array({t})"),
}
SERIES_DIRECT: dict[Pair, tuple[str, ...]] = {
    ("pandas", "polars"): ("pl.from_pandas(x)", "pl.Series(x.name, x.to_numpy())", "pl.Series(x)"),
    ("polars", "pandas"): (
        "x.to_pandas()",
        "x.to_pandas(use_pyarrow_extension_array=True)",
        "pd.Series(x.to_numpy(), name=x.name, copy=False)",
    ),
    ("pandas", "nanoarrow"): ("na.Array(x)",),
    ("polars", "nanoarrow"): ("na.Array(x)",),
    ("nanoarrow", "pandas"): ("pd.Series.from_arrow(x)",),
    ("nanoarrow", "polars"): ("pl.Series(x)", "pl.from_arrow(x)"),
}
#: A column, or an array, to NumPy, and from NumPy.
TO_NUMPY = {
    "pandas": ("{x}.to_numpy()", "np.asarray({x})", "{x}.array.to_numpy()"),
    "polars": ("{x}.to_numpy()", "np.asarray({x})", "{x}.to_numpy(allow_copy=False)"),
    "pyarrow": ("{x}.to_numpy()", "np.from_dlpack({x})", "{x}.to_numpy(zero_copy_only=False)"),
    "nanoarrow": ("np.asarray({x})", "pa.array({x}).to_numpy()", "np.from_dlpack(pa.array({x}))"),
    "numpy": ("{x}",),
    "torch": ("{x}.numpy()", "np.asarray({x})", "np.from_dlpack({x})"),
    "jax": ("np.asarray({x})", "np.from_dlpack({x})", "jax.device_get({x})"),
    "tensorflow": ("{x}.numpy()", "np.asarray(memoryview({x}))", "np.from_dlpack({x})"),
}
NUMPY_TO = {
    "numpy": ("{t}",),
    "torch": ("torch.from_numpy({t})", "torch.as_tensor({t})"),
    "jax": ("jnp.from_dlpack({t})", "jnp.asarray({t})", "jax.device_put({t}, may_alias=True)"),
    "tensorflow": ("tf.convert_to_tensor({t})", "tf.constant({t})"),
    "pyarrow": ("pa.array({t})", "pa.Array.from_dlpack({t})", "pa.Array.from_pandas({t})"),
    "pandas": ("pd.Series({t}, copy=False)", "pd.Series({t})"),
    "polars": ("pl.Series({t})", 'pl.Series("", {t})', "pl.from_numpy({t}).to_series()"),
    "nanoarrow": (
        "na.Array(pa.array({t}))",
        "na.array(pa.array({t}))",
        "na.Array(pa.Array.from_dlpack({t}))",
    ),
    "duckdb": tuple(template.replace("{t}", "pa.array({t})") for template in ARROW_TO_SERIES["duckdb"]),
}
#: The columns of a table, as pairs of name and column.
COLUMNS = {
    "pandas": ("{x}.items()",),
    "polars": ("((s.name, s) for s in {x})", "{x}.to_dict().items()"),
    "pyarrow": (
        "((n, c.chunk(0)) for n, c in zip({x}.column_names, {x}.columns))",
        "zip({x}.column_names, {x}.to_batches()[0].columns)",
    ),
    "duckdb": ("{x}.fetchnumpy().items()",),
    "nanoarrow": ("((c.schema.name, c) for c in {x}.iter_children())", "_ROWS"),
}
COLUMNS_DIRECT: dict[Pair, tuple[str, ...]] = {
    ("duckdb", "torch"): ("x.torch()",),
    ("duckdb", "tensorflow"): ("x.tf()",),
    ("duckdb", "numpy"): ("x.fetchnumpy()",),
    ("polars", "torch"): ('x.to_torch("dict")',),
    ("polars", "jax"): ('x.to_jax("dict")',),
    ("pandas", "numpy"): ("dict(zip(x.columns, x.to_numpy().T))",),
}
#: A table to one matrix in NumPy.
TO_MATRIX = {
    "pandas": ("{x}.to_numpy()", "{x}.values", "np.asarray({x})"),
    "polars": ("{x}.to_numpy()", "{x}.to_numpy(order='c')", "np.column_stack([s.to_numpy() for s in {x}])"),
    "pyarrow": (
        "np.column_stack([c.to_numpy() for c in {x}.columns])",
        "np.asarray(pa.RecordBatch.to_tensor({x}.to_batches()[0], row_major=False))",
        "{x}.to_pandas().to_numpy()",
        "np.array([c.to_numpy() for c in {x}.columns]).T",
    ),
    "duckdb": (
        "np.column_stack(list({x}.fetchnumpy().values()))",
        "np.array(list({x}.fetchnumpy().values())).T",
        "{x}.df().to_numpy()",
    ),
    "nanoarrow": (
        "np.column_stack([c.to_numpy() for c in pa.record_batch({x}).columns])",
        "np.array([np.asarray(c) for c in {x}.iter_children()]).T",
        "pa.table({x}).to_pandas().to_numpy()",
    ),
}
#: A dict of NumPy arrays, and a matrix in NumPy with ``names``, to a table.
DICT_TO = {
    "pyarrow": ("pa.table({t})", "pa.Table.from_arrays(list(map(pa.array, {t}.values())), names=list({t}))"),
    "pandas": ("pd.DataFrame({t}, copy=False)", "pd.DataFrame({t})"),
    "polars": (
        "pl.DataFrame({t})",
        "pl.from_dict({t})",
        "pl.DataFrame([pl.Series(n, a) for n, a in {t}.items()])",
    ),
    "duckdb": ("duckdb.from_arrow(pa.table({t}))",),
    "nanoarrow": ("na.Array(pa.table({t}))", "na.Array(pa.record_batch({t}))"),
}
_FROM_ROWS = "pa.Table.from_arrays([pa.array({t}[:, i]) for i in range({t}.shape[1])], names=names)"
_FROM_ONE = "pa.Table.from_arrays(list(map(pa.array, np.ascontiguousarray({t}.T))), names=names)"
MATRIX_TO = {
    "pyarrow": (_FROM_ROWS, _FROM_ONE, "pa.table(dict(zip(names, {t}.T)))"),
    "pandas": ("pd.DataFrame({t}, columns=names, copy=False)", "pd.DataFrame({t}, columns=names)"),
    "polars": ("pl.DataFrame({t}, schema=names)", "pl.from_numpy({t}, schema=names)"),
    "duckdb": tuple(f"duckdb.from_arrow({code})" for code in (_FROM_ROWS, _FROM_ONE)),
    "nanoarrow": tuple(f"na.Array({code})" for code in (_FROM_ROWS, _FROM_ONE)),
}


def tables(source: str, target: str) -> list[str]:
    """Return code that converts a table to a table."""
    return [*TABLE_DIRECT.get((source, target), ()), *_path(TABLE_TO_ARROW[source], ARROW_TO_TABLE[target])]


def series(source: str, target: str) -> list[str]:
    """Return code that converts a column to a column, or to an array."""
    arrow = _path(SERIES_TO_ARROW[source], ARROW_TO_SERIES[target]) if target in ARROW_TO_SERIES else []
    return [*SERIES_DIRECT.get((source, target), ()), *arrow, *arrays(source, target)]


def arrays(source: str, target: str) -> list[str]:
    """Return code that converts an array to a column."""
    return _path(TO_NUMPY[source], NUMPY_TO[target])


def columns(source: str, target: str) -> list[str]:
    """Return code that converts a table to a dict of arrays."""
    once = ("{x}",) if source == "duckdb" else TO_NUMPY[source]
    numpy = [
        f"{{n: {each.format(x='c')} for n, c in {pairs.format(x='x')}}}"
        for pairs, each in product(COLUMNS[source], once)
    ]
    if target == "numpy":
        return [*COLUMNS_DIRECT.get((source, target), ()), *numpy]
    inner = _path(once, NUMPY_TO[target], "c")
    paths = [
        f"{{n: {each} for n, c in {pairs.format(x='x')}}}" for pairs, each in product(COLUMNS[source], inner)
    ]
    return [*COLUMNS_DIRECT.get((source, target), ()), *paths]


def to_matrix(source: str, target: str) -> list[str]:
    """Return code that converts a table to one matrix."""
    direct = {("polars", "torch"): ["x.to_torch()"], ("polars", "jax"): ["x.to_jax()"]}.get(
        (source, target), []
    )
    return [*direct, *_path(TO_MATRIX[source], NUMPY_TO[target])]


def from_dict(source: str, target: str) -> list[str]:
    """Return code that converts a dict of arrays to a table."""
    if source == "numpy":
        return _path(("{x}",), DICT_TO[target])
    dicts = [f"{{n: {each.format(x='v')} for n, v in x.items()}}" for each in TO_NUMPY[source][:2]]
    return [
        code.replace("{t}", inner)
        for inner, code in product(dicts, DICT_TO[target])
        if code.count("{t}") == 1
    ]


def from_matrix(source: str, target: str) -> list[str]:
    """Return code that converts a matrix, with ``names``, to a table."""
    if source == "numpy":
        return _path(("{x}",), MATRIX_TO[target])
    # The array is evaluated once: the first path names it in a lambda.
    return [
        f"(lambda a: {code.format(t='a')})({each.format(x='x')})"
        for each, code in product(TO_NUMPY[source][:2], MATRIX_TO[target])
    ]


def _path(firsts: tuple[str, ...], seconds: tuple[str, ...], x: str = "x") -> list[str]:
    return [second.format(t=first.format(x=x)) for first, second in product(firsts, seconds)]
