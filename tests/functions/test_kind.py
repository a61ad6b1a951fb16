"""``kind``: the truth table of all frameworks, protocols and proxies; what it imports and reads."""

from __future__ import annotations

import datetime
import gc
import sys
import warnings
import weakref
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from helpers.frameworks import registry_restored

import zerocopy as zc
from zerocopy import registry
from zerocopy.describe import describe
from zerocopy.forks import is_installed
from zerocopy.tables.column import Table

FRAME = "({'a': [1, 2]})"
#: Framework, the modules to import, an expression, and what it is.
ROWS: list[tuple[str, str, str, str | None]] = [
    ("numpy", "numpy", "numpy.zeros(2)", "array"),
    ("numpy", "numpy", "numpy.zeros(())", "array"),
    ("numpy", "numpy", "numpy.ma.zeros(2)", "array"),
    ("numpy", "numpy", "numpy.zeros(2, 'i4,f8').view(numpy.recarray)", "array"),
    ("numpy", "numpy", "numpy.float64(1)", None),
    ("torch", "torch", "torch.zeros(2)", "array"),
    ("torch", "torch", "torch.nn.Parameter(torch.zeros(2))", "array"),
    ("torch", "torch", "torch.nn.parameter.UninitializedParameter()", "array"),
    ("torch", "torch", "torch.zeros(2, device='meta')", "array"),
    ("torch", "torch", "torch.eye(2).to_mkldnn()", "array"),
    ("torch", "torch", "torch.eye(2).to_sparse()", "sparse"),
    ("torch", "torch", "torch.eye(2).to_sparse_csr()", "sparse"),
    ("torch", "torch", "torch.nested.nested_tensor([torch.zeros(1)])", "ragged"),
    ("torch", "torch", "torch.nested.nested_tensor([torch.zeros(1)], layout=torch.jagged)", "ragged"),
    ("torch", "torch", "torch.nn.Linear(1, 1)", None),
    ("jax", "jax", "jax.numpy.zeros(2)", "array"),
    ("jax", "jax.experimental.sparse", "jax.experimental.sparse.BCOO.fromdense(jax.numpy.eye(2))", "sparse"),
    ("jax", "jax.experimental.sparse", "jax.experimental.sparse.BCSR.fromdense(jax.numpy.eye(2))", "sparse"),
    ("tensorflow", "tensorflow", "tensorflow.zeros(2)", "array"),
    ("tensorflow", "tensorflow", "tensorflow.Variable(1.0)", "array"),
    ("tensorflow", "tensorflow", "tensorflow.ragged.constant([[1], [1, 2]])", "ragged"),
    ("tensorflow", "tensorflow", "tensorflow.sparse.from_dense(tensorflow.eye(2))", "sparse"),
    ("tensorflow", "tensorflow", "tensorflow.IndexedSlices(tensorflow.zeros(1), [0])", "sparse"),
    ("scipy", "scipy.sparse", "scipy.sparse.csr_array((2, 2))", "sparse"),
    ("scipy", "scipy.sparse", "scipy.sparse.coo_matrix((2, 2))", "sparse"),
    ("sparse", "sparse", "sparse.zeros((2, 2))", "sparse"),
    ("awkward", "awkward", "awkward.Array([[1], [1, 2]])", "ragged"),
    ("awkward", "awkward", "awkward.Array([[1], [1, 2]]).layout", "ragged"),
    ("awkward", "awkward", "awkward.Record({'a': 1})", None),
    ("awkward", "awkward", "awkward.ArrayBuilder()", None),
    ("xarray", "xarray", "xarray.DataArray([1])", "array"),
    ("xarray", "xarray", "xarray.Variable('x', [1])", "array"),
    ("xarray", "xarray", "xarray.Dataset({'a': ('x', [1])})", "table"),
    ("pandas", "pandas", f"pandas.DataFrame{FRAME}", "table"),
    ("pandas", "pandas", "pandas.MultiIndex.from_arrays([[1], [2]])", "table"),
    ("pandas", "pandas", "pandas.Series([1])", "column"),
    ("pandas", "pandas", "pandas.RangeIndex(2)", "column"),
    ("pandas", "pandas", "pandas.array([1, None])", "column"),
    ("pandas", "pandas", f"pandas.DataFrame{FRAME}.groupby('a')", None),
    ("polars", "polars", f"polars.DataFrame{FRAME}", "table"),
    ("polars", "polars", f"polars.LazyFrame{FRAME}", "table"),
    ("polars", "polars", "polars.Series([1])", "column"),
    ("polars", "polars", "polars.col('a')", None),
    ("pyarrow", "pyarrow", f"pyarrow.table{FRAME}", "table"),
    ("pyarrow", "pyarrow", f"pyarrow.record_batch{FRAME}", "table"),
    ("pyarrow", "pyarrow", f"pyarrow.table{FRAME}.to_reader()", "table"),
    ("pyarrow", "pyarrow", "pyarrow.array([[1], None])", "column"),
    ("pyarrow", "pyarrow", "pyarrow.array([{'a': 1}])", "column"),
    ("pyarrow", "pyarrow", "pyarrow.chunked_array([[1]])", "column"),
    ("pyarrow", "pyarrow, numpy", "pyarrow.Tensor.from_numpy(numpy.zeros((2, 2)))", "array"),
    ("pyarrow", "pyarrow", "pyarrow.scalar(1)", None),
    ("pyarrow", "pyarrow", "pyarrow.schema([])", None),
    ("duckdb", "duckdb", "duckdb.sql('select 1 a')", "table"),
    ("duckdb", "duckdb", "duckdb.connect()", None),
    ("narwhals", "narwhals, polars", f"narwhals.from_native(polars.DataFrame{FRAME})", "table"),
    ("narwhals", "narwhals, polars", f"narwhals.from_native(polars.LazyFrame{FRAME})", "table"),
    ("narwhals", "narwhals, polars", "narwhals.from_native(polars.Series([1]), series_only=True)", "column"),
    ("narwhals", "narwhals.stable.v1, polars",
     f"narwhals.stable.v1.from_native(polars.DataFrame{FRAME})", "table"),
    ("nanoarrow", "nanoarrow, pyarrow", "nanoarrow.Array(pyarrow.array([1]))", "column"),
    ("nanoarrow", "nanoarrow, pyarrow", f"nanoarrow.Array(pyarrow.record_batch{FRAME})", "table"),
    ("nanoarrow", "nanoarrow, pyarrow", f"nanoarrow.ArrayStream(pyarrow.table{FRAME})", "table"),
    ("nanoarrow", "nanoarrow, pyarrow", "nanoarrow.c_array(pyarrow.array([1]))", "column"),
    ("datasets", "datasets", f"datasets.Dataset.from_dict{FRAME}", "table"),
    ("datasets", "datasets", f"datasets.Dataset.from_dict{FRAME}['a']", "column"),
    ("datasets", "datasets", f"datasets.Dataset.from_dict{FRAME}.to_iterable_dataset()", "table"),
    ("paddle", "paddle", "paddle.zeros([2])", "array"),
    ("paddle", "paddle", "paddle.sparse.sparse_coo_tensor([[0], [0]], [1.0], [2, 2])", "sparse"),
    ("warp", "warp", "warp.zeros(2, device='cpu')", "array"),
    ("mlx", "mlx.core", "mlx.core.zeros(2)", "array"),
    ("onnxruntime", "onnxruntime, numpy",
     "onnxruntime.OrtValue.ortvalue_from_numpy(numpy.zeros(2))", "array"),
    ("tvm_ffi", "tvm_ffi, numpy", "tvm_ffi.from_dlpack(numpy.zeros(2))", "array"),
    ("cuda.core", "cuda.core.utils, numpy",
     "cuda.core.utils.StridedMemoryView.from_dlpack(numpy.zeros(2), stream_ptr=-1)", "array"),
    ("PIL", "PIL.Image", "PIL.Image.new('L', (2, 2))", "array"),
    ("av", "av", "av.VideoFrame(16, 16, 'rgb24')", "array"),
    ("av", "av", "av.AudioFrame()", "array"),
    ("h5py", "h5py", "h5py.File('a', 'w', 'core', backing_store=False).create_dataset('a', 2)", "array"),
    ("zarr", "zarr", "zarr.zeros((2,))", "array"),
    ("lance", "lance, pyarrow", f"lance.write_dataset(pyarrow.table{FRAME}, 'memory://kind')", "table"),
    ("mxnet", "mxnet", "mxnet.nd.zeros((2,))", "array"),
    ("mxnet", "mxnet", "mxnet.nd.zeros((2, 2)).tostype('csr')", "sparse"),
    ("cupy", "cupy", "cupy.zeros(2)", "array"),
    ("cupy", "cupy, cupyx.scipy.sparse", "cupyx.scipy.sparse.csr_matrix(cupy.eye(2))", "sparse"),
    ("cudf", "cudf", f"cudf.DataFrame{FRAME}", "table"),
    ("cudf", "cudf", "cudf.Series([1])", "column"),
    ("cudf", "cudf", "cudf.Index([1])", "column"),
    ("pylibcudf", "pylibcudf, pyarrow", f"pylibcudf.Table(pyarrow.table{FRAME})", "table"),
    ("pylibcudf", "pylibcudf, pyarrow", "pylibcudf.Column(pyarrow.array([1]))", "column"),
    ("numba", "numba.cuda, numpy", "numba.cuda.to_device(numpy.zeros(2))", "array"),
]  # fmt: skip
ON_A_GPU = {"cupy", "cudf", "pylibcudf", "numba"}
#: Objects of no framework.
NOTHING = [[1.0], (1,), {"a": [1]}, {1}, 1, 1.5, "text", b"bytes", memoryview(b"a"), None, object(), len, np]
NOTHING += [np.ndarray, np.dtype("f8"), datetime.date(2026, 1, 1), Exception(), iter([])]


def made(framework: str, modules: str, code: str) -> Any:
    if not is_installed(framework):  # tests/mxnet can be imported as mxnet
        pytest.skip(f"{framework} is not installed")
    names = {}
    for module in modules.split(", "):
        pytest.importorskip(module)
        names[module.partition(".")[0]] = import_module(module.partition(".")[0])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's sparse and nested tensors are not stable yet
            return eval(code, names)
    except Exception:
        if framework not in ON_A_GPU:
            raise
        pytest.skip("needs a GPU")


@pytest.mark.parametrize(("framework", "modules", "code", "kind"), ROWS, ids=[row[2] for row in ROWS])
def test_the_truth_table(framework: str, modules: str, code: str, kind: str | None) -> None:
    obj = made(framework, modules, code)
    for _ in range(2):  # a new type, and a known one
        assert zc.kind(obj) == (None if kind is None else (framework, kind))
    assert (zc.is_array(obj), zc.is_column(obj), zc.is_table(obj)) == (
        kind == "array",
        kind == "column",
        kind == "table",
    )


def test_the_truth_table_has_each_framework() -> None:
    built_in = {f.name for f in registry.readers() if type(f).__module__.startswith("zerocopy._frameworks.")}
    assert built_in == {row[0] for row in ROWS}, "add rows for the framework"


#: The others are refused with a fix, or described by what they wrap; an xarray is a table for tables alone.
DESCRIBED = [row for row in ROWS if row[3] in ("column", "table") and "azy" not in row[2] + row[1]]


@pytest.mark.parametrize(("framework", "modules", "code", "kind"), DESCRIBED, ids=[r[2] for r in DESCRIBED])
def test_columns_and_tables_are_what_convert_makes_of_them(
    framework: str, modules: str, code: str, kind: str
) -> None:
    if "Iterable" in code or "iterable" in code or framework == "lance":
        pytest.skip("refused until it is read")
    described = describe(made(framework, modules, code))
    assert isinstance(described, Table)
    assert described.single == (kind == "column")


@pytest.mark.parametrize("obj", NOTHING, ids=lambda obj: type(obj).__name__)
def test_other_objects_have_no_kind(obj: object) -> None:
    assert zc.kind(obj) is None
    assert not any([zc.is_array(obj), zc.is_column(obj), zc.is_table(obj)])


def test_the_result_is_a_named_tuple_which_is_made_once() -> None:
    first = zc.kind(np.zeros(2))
    assert first is zc.kind(np.ones(3))
    assert isinstance(first, zc.Kind)
    assert first._fields == ("framework", "kind")


def test_a_tracer_of_jax_is_an_array() -> None:
    jax = pytest.importorskip("jax")
    kinds: Mapping[str, Any] = []
    jax.jit(lambda x: (kinds.append(zc.kind(x)), x)[1])(1.0)
    assert kinds == [("jax", "array")]


# -- subclasses ----------------------------------------------------------------------------


class Series(np.ndarray):
    """A subclass with the name of another framework's column."""


def test_a_subclass_has_the_kind_of_its_base_class() -> None:
    pd = pytest.importorskip("pandas")

    class Index(pd.DataFrame):
        """A table with the name of a column of its framework."""

    assert zc.kind(np.zeros(2).view(Series)) == ("numpy", "array")
    assert zc.kind(Index({"a": [1]})) == ("pandas", "table")


def test_types_that_were_made_in_a_function_are_freed() -> None:
    class Local(np.ndarray):
        pass

    class Other:
        pass

    assert zc.kind(np.zeros(2).view(Local)) == ("numpy", "array")
    assert zc.kind(Other()) is None
    kept = weakref.ref(Local), weakref.ref(Other)
    del Local, Other
    gc.collect()
    assert [each() for each in kept] == [None, None]


# -- objects without a framework -----------------------------------------------------------


def typed(**attributes: Any) -> Any:
    return type("Exporter", (), attributes)()


def schema_of(data: Any) -> Any:
    return lambda self: data.__arrow_c_schema__()


@pytest.mark.parametrize(
    "name", ["__dlpack__", "__array_interface__", "__cuda_array_interface__"], ids=lambda name: name
)
def test_a_class_with_a_protocol_of_arrays_is_an_array_of_no_framework(name: str) -> None:
    assert zc.kind(typed(**{name: None, "__arrow_c_stream__": None})) == (None, "array")


def test_arrow_objects_are_tables_or_columns_by_their_schema() -> None:
    pa = pytest.importorskip("pyarrow")
    table, column = pa.schema([("a", pa.int8())]), pa.list_(pa.int8())
    for export in ("__arrow_c_stream__", "__arrow_c_array__"):
        assert zc.kind(typed(**{export: None, "__arrow_c_schema__": schema_of(table)})) == (None, "table")
        assert zc.kind(typed(**{export: None, "__arrow_c_schema__": schema_of(column)})) == (None, "column")
    assert zc.kind(typed(__arrow_c_stream__=None)) == (None, "table")


@pytest.mark.parametrize("export", ["__arrow_c_array__", "__arrow_c_device_array__"])
def test_an_arrow_array_without_a_schema_is_what_convert_makes_of_it(export: str) -> None:
    pa = pytest.importorskip("pyarrow")
    for data, kind in ((pa.record_batch({"a": [1]}), "table"), (pa.array([1]), "column")):
        obj = typed(**{export: lambda self, data=data, **options: getattr(data, export)(**options)})
        assert zc.kind(obj) == (None, kind)
        assert describe(obj).single == (kind == "column")


def test_an_attribute_of_the_object_or_array_alone_is_no_protocol() -> None:
    obj = typed()
    obj.__array_interface__ = np.zeros(2).__array_interface__
    assert zc.kind(obj) is None
    assert zc.kind(typed(__array__=None)) is None
    assert zc.kind(typed(__array__=None, shape=(), dtype=None, ndim=0)) == (None, "array")


def test_a_proxy_has_no_kind_unless_its_class_has_a_protocol() -> None:
    wrapt = pytest.importorskip("wrapt")
    assert zc.kind(wrapt.ObjectProxy(np.zeros(2))) is None

    class Raises:
        @property
        def __class__(self) -> type:
            raise RuntimeError("unbound")

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("unbound")

    assert zc.kind(Raises()) is None


def test_lazy_arrays_of_dask_are_arrays_and_nothing_is_computed() -> None:
    da = pytest.importorskip("dask.array")
    computed = []
    x = da.map_blocks(computed.append, da.zeros(2), dtype=float, meta=np.zeros(0))
    assert zc.kind(x) == (None, "array")
    assert not computed


def test_a_class_without_the_name_of_its_module_is_read_like_others() -> None:
    names: dict[str, Any] = {}
    exec("class Exporter: __dlpack__ = None", {}, names)  # its module is "builtins"
    assert zc.kind(names["Exporter"]()) == (None, "array")
    for module in (property(), []):
        assert zc.kind(typed(__module__=module)) is None
        assert zc.kind(typed(__module__=module, __dlpack__=None)) == (None, "array")


def test_a_type_that_cannot_be_hashed_has_a_kind() -> None:
    unhashable = type("Meta", (type,), {"__eq__": lambda cls, other: cls is other})
    assert zc.kind(unhashable("Exporter", (), {"__dlpack__": None})()) == (None, "array")
    assert zc.kind(unhashable("Other", (), {})()) is None
    assert zc.kind(np.zeros(2).view(unhashable("Own", (np.ndarray,), {}))) == ("numpy", "array")


def test_a_metaclass_whose_hash_raises() -> None:
    class Meta(type):
        def __hash__(cls) -> int:
            raise ValueError

    assert zc.kind(Meta("Other", (), {})()) is None
    assert zc.kind(np.zeros(2).view(Meta("Own", (np.ndarray,), {}))) == ("numpy", "array")


def test_an_exporter_that_is_out_of_memory() -> None:
    torch = pytest.importorskip("torch")

    class Exporter:
        def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
            raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(MemoryError, match="torch could not allocate memory"):
        zc.kind(Exporter())


def test_the_results_of_zerocopy_have_a_kind() -> None:
    pa = pytest.importorskip("pyarrow")
    data = {"a": np.arange(3)}
    kinds: Mapping[str, Any] = {
        "array": [zc.view(np.zeros(2)), zc.share(np.zeros(2))],
        "column": [
            zc.convert(pa.array([1, None]), "numpy", nulls="mask"),
            zc.convert(pa.array(["a"]), "numpy", encode=True),
            zc.share(pa.array([1])),
        ],
        "table": [zc.share(pa.table(data)), zc.loader(data, "numpy")],
    }
    for kind, objects in kinds.items():
        assert [zc.kind(obj) for obj in objects] == [("zerocopy", kind)] * len(objects)
    assert zc.kind(zc.explain(np.zeros(2), "numpy")) is None


# -- what it imports, and what changes a result ----------------------------------------------


def test_nothing_is_imported(run_python) -> None:
    process = run_python(
        """
        import sys
        import zerocopy as zc
        class Own: pass
        def loaded(): return {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
        for x in ([1.0], {"a": 1}, 1, "text", None, b"", len): assert zc.kind(x) is None
        print(*loaded())
        import numpy
        before = loaded()
        assert zc.kind(numpy.zeros(2)) and zc.kind(Own()) is None and zc.kind(numpy.dtype("f8")) is None
        print(*loaded() - before)
        """
    )
    assert process.returncode == 0, process.stderr
    without_numpy, new = process.stdout.splitlines()
    assert "numpy" not in without_numpy.split()
    assert not new


def test_a_registered_framework_changes_the_kinds_of_its_types() -> None:
    obj = Ring()
    assert zc.kind(obj) is None
    with registry_restored():
        zc.register(Rings())
        assert zc.kind(obj) == ("rings", "column")
        assert zc.kind(Other()) == ("rings", "table")
    assert zc.kind(obj) is None


def test_a_class_gets_a_protocol_later() -> None:
    obj = typed()
    assert zc.kind(obj) is None
    type(obj).__dlpack__ = None
    assert zc.kind(obj) == (None, "array")


def test_a_kind_that_was_read_before_a_framework_was_registered_is_not_kept() -> None:
    class Registers(type):
        def __getattr__(cls, name: str) -> Any:
            if name == "__zerocopy_node__":  # as another thread can, while the type is read
                zc.register(Rings())
            raise AttributeError(name)

    obj = Registers("Late", (Ring,), {"__dlpack__": None})()
    with registry_restored():
        assert zc.kind(obj) == (None, "array")
        assert zc.kind(obj) == ("rings", "column")


class Ring:
    pass


class Other(Ring):
    pass


class Rings(zc.Framework):
    name = "rings"
    kinds: Mapping[str, Any] = {"Other": "table", "Ring": "column"}
    root_modules = (__name__.partition(".")[0],)
    classes = (f"{__name__}.Ring",)


def test_an_object_that_cannot_be_read_is_refused() -> None:
    pa = pytest.importorskip("pyarrow")
    shared = zc.share(pa.table({"a": [1]}))
    shared.close()
    with pytest.raises(zc.ZeroCopyError, match="closed"):
        zc.kind(shared)


def test_a_type_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    zc.kind(np.zeros(2)), zc.kind(object())
    monkeypatch.setattr(registry, "by_type", None)
    monkeypatch.setitem(sys.modules, "zerocopy.protocols.array_method", None)
    assert zc.kind(np.zeros(2)) == ("numpy", "array")
    assert zc.kind(object()) is None
