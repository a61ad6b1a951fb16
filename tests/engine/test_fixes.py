"""Fixes of messages work when pasted: each succeeds, or names the next reason."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine import explain
from zerocopy.errors import Fix

for framework in ("jax", "torch", "tensorflow", "nanoarrow"):
    pytest.importorskip(framework)
pa, pd, pl = (pytest.importorskip(name) for name in ("pyarrow", "pandas", "polars"))
duckdb = pytest.importorskip("duckdb")
fix_cases = pytest.importorskip("helpers.fix_cases")  # it needs pyarrow

FORMS = ("pyarrow.Tensor", "pyarrow.Array", "pyarrow.FixedShapeTensorArray")
ARRAY_TARGETS = ("numpy", "torch", "jax", "tensorflow", "pyarrow", "pandas", "polars", "duckdb", *FORMS)
SOURCES = ("pyarrow", "pandas", "polars", "duckdb", "nanoarrow", "objects")
TABLE_TARGETS = ("torch", "numpy", "pandas", "polars", "duckdb")
#: Codes that the walk reaches on a machine without a GPU; the number only grows.
REACHED = 34


#: How the text of a fix begins whose action no framework has replaced.
_NAMES = {name.partition(":")[0].replace("-", " ") for f in registry.known() for name in f.actions} - {"cast"}
ACTIONS = tuple(f"{name} " for name in _NAMES | {"cast to", "align", "contiguous"})


_settings = pytest.fixture(autouse=True)(fix_cases.default_settings)


def error_of(obj: Any, to: str, **options: Any) -> zc.ZeroCopyError:
    error = fix_cases.attempt(lambda: zc.convert(obj, to, **options))
    assert error is not None
    return error


def pasted(code: str, x: Any) -> Any:
    return fix_cases.paste(code, x, fix_cases.Recorder())


# -- the walk -----------------------------------------------------------------------------


@pytest.mark.parametrize("to", ARRAY_TARGETS)
def test_the_fixes_of_arrays_work_when_pasted(to: str) -> None:
    cases = list(sampled(7, list(fix_cases.array_cases(to)), first=ARRAY_TARGETS.index(to)))
    _, problems = fix_cases.walk(case for (case,) in cases)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("to", TABLE_TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_the_fixes_of_tables_work_when_pasted(source: str, to: str) -> None:
    first = SOURCES.index(source) + TABLE_TARGETS.index(to)
    cases = [case for (case,) in sampled(9, list(fix_cases.table_cases(source, to)), first=first)]
    _, problems = fix_cases.walk(cases)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("to", ["torch", "numpy", "jax"])
@pytest.mark.parametrize("source", ["pyarrow", "pandas", "polars"])
def test_each_fix_of_a_mixed_frame_works_by_itself(source: str, to: str) -> None:
    cases = sampled(2, list(fix_cases.mixed_cases(source, to)), first=len(source))
    problems = [p for (case,) in cases for p in fix_cases.first_fixes(case)]
    assert not problems, "\n".join(problems)


def test_no_fix_lists_labels_of_rows_as_columns() -> None:
    errors = [
        fix_cases.attempt(lambda case=case: zc.convert(case.make(), case.to, **case.options))
        for case in fix_cases.mixed_cases("pandas", "torch")
        if "index" in case.name
    ]
    lists = [re.findall(r"columns=(\[.*?\])", call) for error in errors if error for call in error.calls]
    assert any(lists)
    assert not any("__index_level_0__" in text for each in lists for text in each)


@pytest.mark.parametrize("options", [{"layout": "matrix"}, {"layout": "matrix", "encode": True}])
def test_the_first_fix_of_a_matrix_keeps_all_columns(options: dict[str, Any]) -> None:
    frames = fix_cases.mixed_frames("pandas")
    for frame in (frames["mixed"], frames["indexed"]):
        error = error_of(frame, "torch", nulls=0, **options)
        assert "__index" not in error.why  # a matrix has no labels of rows
        assert {*frame.columns} <= pasted(error.calls[0], frame).keys()


def test_jax_is_asked_for_64_bits_without_a_cast() -> None:
    frame = fix_cases.mixed_frames("polars")["dated"]
    error = error_of(frame, "jax", encode=True, nulls=0)
    x64 = "import jax; jax.config.update('jax_enable_x64', True); "
    assert error.calls[0] == f'{x64}zc.convert(x, "jax", encode=True, nulls=0)'
    assert not any("dtype=" in call for call in error.calls)  # dates and categories keep their types
    assert "; or dtype=" not in error.remedy
    numbers = frame.select("price", "qty")
    _, narrow, *_ = error_of(numbers, "jax", nulls=0).calls
    assert narrow == 'zc.convert(x, "jax", nulls=0, dtype={"price": "float32", "qty": "int32"})'
    assert pasted(narrow, numbers)["price"].tolist() == [1.5, 2.5]


@pytest.mark.parametrize("table", [False, True])
def test_a_wider_type_that_jax_holds_in_x64_mode_comes_with_the_setting(table: bool) -> None:
    x = np.array([2**40])
    error = error_of({"a": x} if table else x, "jax", dtype="int32", **({"columns": ["a"]} if table else {}))
    call = error.calls[0]
    assert call.startswith("import jax; jax.config.update('jax_enable_x64', True); zc.convert(x, \"jax\"")
    assert 'dtype="int64"' in call
    assert error.remedy == f"{call} keeps 64 bits"


@pytest.mark.parametrize("options", [{}, {"copy": False}])
def test_a_cast_that_the_target_needs_is_not_advised_against(options: dict[str, Any]) -> None:
    plan = zc.explain(np.arange(3.0), "jax", dtype="float32", **options)
    assert not any('"jax")' in call for call in (plan.error.calls if plan.error else ()))
    assert not any("keeps float64" in reason.remedy for reason in plan.reasons)
    assert any(
        "keeps float64" in r.remedy for r in zc.explain(np.arange(3.0), "torch", dtype="float32").reasons
    )


def test_mappings_without_items_are_read_by_their_own_method() -> None:
    class SafeOpen:
        """As ``safetensors.safe_open``, which has neither ``__iter__`` nor ``__getitem__``."""

        def keys(self) -> list[str]:
            return ["a"]

        def get_tensor(self, name: str) -> np.ndarray:
            return np.arange(3)

    (call,) = error_of(SafeOpen(), "torch").calls
    assert pasted(call, SafeOpen())["a"].tolist() == [0, 1, 2]


def test_a_type_that_a_plugin_lacks_has_a_fix_by_dtype() -> None:
    from zerocopy.framework import refuse_dtype

    class Grid(zc.Framework):
        name, root_modules = "grid", ("grid",)

        def module(self) -> Any:
            return re

        def copy_reasons(self, view: Any) -> list[zc.Reason]:
            if view.dtype.name != "float64":
                raise refuse_dtype("grid", view.dtype)
            return []

        def from_host(self, array: Any, dtype: Any, device: Any, stream: Any) -> Any:
            return array

    zc.register(Grid())
    assert error_of(np.zeros(3, "f2"), "grid").calls == ('zc.convert(x, "grid", dtype="float64")',)


def test_rows_with_gaps_are_padded_and_split() -> None:
    import torch

    values, offsets, lengths = torch.arange(10.0), torch.tensor([0, 3, 6, 10]), torch.tensor([2, 3, 4])
    x = torch.nested.nested_tensor_from_jagged(values, offsets=offsets, lengths=lengths)
    padded, parts = (pasted(call, x) for call in error_of(x, "numpy").calls)
    assert padded.shape == (3, 4)
    assert parts[0].tolist() == [0, 1, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.full
def test_the_walk_reaches_most_codes_of_conversions() -> None:
    """From one error of each case, without pasting: the corpus cannot shrink silently."""
    cases = [case for to in ("numpy", "torch", "jax", "polars") for case in fix_cases.array_cases(to)]
    for source in ("pyarrow", "pandas", "objects"):
        for to in ("torch", "numpy", "polars", "pandas"):
            cases += fix_cases.table_cases(source, to)
    codes = set()
    for case in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = zc.explain(case.make(), case.to, **case.options)
        codes |= {reason.code for p in (plan, *plan.leaves.values()) for reason in p.reasons}
        codes |= {reason.code for reason in plan.error.columns.values()} if plan.error else set()
    assert len(codes) >= REACHED, sorted(codes)


# -- a call is composed from the fixes of all obstacles -----------------------------------


def test_fixes_that_are_all_needed_make_one_call() -> None:
    table = pa.table({"a": [1, None], "b": ["x", "y"]})
    error = error_of(table, "torch")
    assert error.calls[0] == 'zc.convert(x, "torch", nulls="mask", encode=True)'
    assert pasted(error.calls[0], table)["a"].mask.tolist() == [False, True]
    assert error.why.startswith("column 'a' has 1 null in 2 rows; column 'b' is string")


def test_nulls_have_one_policy_per_column_if_columns_need_different_ones() -> None:
    table = pa.table({"a": [1, None], "b": [0.5, None]})
    assert any("nulls={" in call for call in error_of(table, "torch").calls)


def test_the_calls_repeat_the_options_that_were_passed() -> None:
    table = pa.table({"a": ["x"], "b": [1]})
    call = error_of(table, "torch", columns=["a", "b"], copy=False).calls[0]
    assert call == 'zc.convert(x, "torch", columns=["a", "b"], copy=False, encode="bytes")'


@pytest.mark.parametrize("make", [lambda: np.arange(6)[::-1], lambda: pa.chunked_array([["a"], ["b"]])])
@pytest.mark.parametrize("to", ["torch", "jax", "polars"])
def test_copy_none_is_a_fix_only_if_copy_was_passed(make: Callable[[], Any], to: str) -> None:
    with_copy = fix_cases.attempt(lambda: zc.convert(make(), to, copy=False))
    without = fix_cases.attempt(lambda: zc.convert(make(), to))
    assert with_copy is None or any("copy=" in call for call in with_copy.calls)
    assert without is None or "copy=None" not in str(without)


def test_an_option_to_leave_out_is_absent_from_the_call() -> None:
    error = error_of(pa.table({"a": [1]}), "pandas", nulls=0)
    assert error.calls == ('zc.convert(x, "pandas")',)


def test_a_fix_of_a_leaf_names_its_path() -> None:
    tree = {"w": [np.arange(4, dtype=">f4")]}
    call = error_of(tree, "torch", copy=False).calls[0]
    assert "x['w'][0].astype(" in call
    assert pasted(call, tree).dtype is not None


def test_a_column_that_is_refused_can_be_left_out() -> None:
    error = error_of(pl.DataFrame({"a": [1], "b": ["x"]}), "torch")
    assert error.calls[-1] == 'zc.convert(x, "torch", columns=["a"])'


def test_errors_with_fixes_can_be_pickled_and_copied() -> None:
    error = error_of(np.arange(6)[::-1], "torch", copy=False)
    for each in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert each.calls == error.calls
        assert each.fixes == error.fixes


def test_the_text_of_a_reason_is_composed_of_its_fixes() -> None:
    reason = zc.Reason(
        "it has nulls", code="nulls", fixes=[Fix(options={"nulls": 0}), Fix(action="fill-nulls")]
    )
    assert reason.remedy == "nulls=0; or fill nulls"
    assert hash(reason) == hash(zc.Reason("it has nulls", code="nulls", fixes=reason.fixes))
    assert zc.Reason("why", "by hand", code="x").fixes == ()


# -- the expressions are those of the object's framework -----------------------------------


@pytest.mark.parametrize(
    ("make", "expression"),
    [
        (lambda: pa.table({"f": [Decimal("1.5")]}), "x['f'].cast('float64')"),
        (lambda: pd.DataFrame({"f": [Decimal("1.5")]}), "x['f'].astype('float64')"),
        (lambda: pl.DataFrame({"f": [Decimal("1.5")]}), "x['f'].cast(polars.Float64)"),
        (lambda: duckdb.sql("select 1.5::decimal(9, 2) as f"), 'CAST("f" AS DOUBLE)'),
    ],
)
def test_decimals_are_cast_in_the_terms_of_their_framework(make: Callable[[], Any], expression: str) -> None:
    calls = error_of(make(), "torch").calls
    chosen = [call for call in calls if expression in call]
    assert chosen, calls
    assert pasted(chosen[0], make())["f"].tolist() == [1.5]


@pytest.mark.parametrize(
    ("make", "expression"),
    [
        (lambda: pa.array(["a"]), "x.to_pylist()"),
        (lambda: pl.Series(["a"]), "x.to_list()"),
        (lambda: pd.Series(["a"], dtype="string"), "x.tolist()"),
    ],
)
def test_text_becomes_objects_in_the_terms_of_its_framework(make: Callable[[], Any], expression: str) -> None:
    error = error_of(make(), "torch")
    assert expression in error.calls
    assert pasted(expression, make()) == ["a"]


def test_views_of_bytes_are_cast_to_bytes() -> None:
    column = pa.array([b"a longer value than a view"], pa.binary_view())
    error = error_of(column, "torch", encode=True, copy=False)
    assert "x.cast('binary')" in error.calls[0]
    assert "bytes are not in one buffer" in error.why or "binary_view" in error.why


@pytest.mark.parametrize("source", ["numpy", "torch", "pandas", "polars", "pyarrow", "nanoarrow", "duckdb"])
@pytest.mark.parametrize(
    "to", ["jax", "tensorflow", "torch", "numpy", "pandas", "polars", "pyarrow", "duckdb"]
)
def test_plans_name_no_actions(source: str, to: str) -> None:
    """An action, such as "align", stands for the expression of a framework; a user cannot call it."""
    memory = np.zeros(4096, np.uint8)
    first = -memory.ctypes.data % 64 + 8
    misaligned = memory[first : first + 48].view(np.float32)
    for array in (misaligned, misaligned[::2], misaligned[::-1], misaligned.reshape(3, 4)[:, ::2]):
        try:
            x = zc.convert(array, source, copy=False)
        except zc.ZeroCopyError:
            continue  # the source cannot hold it
        plan = zc.explain(x, to)
        for reason in (*plan.reasons, *(reason for leaf in plan.leaves.values() for reason in leaf.reasons)):
            assert not any(fix.action for fix in reason.fixes), reason
            parts = reason.remedy.split("; or ")
            assert len({*parts}) == len(parts)
            assert not any(part.startswith(ACTIONS) for part in parts), parts
            for fix in reason.fixes:
                if "align" not in fix.before:
                    eval(fix.source.format(x="x"), fix_cases.namespace(x))


def test_a_misaligned_series_has_a_fix_that_works() -> None:
    memory = np.zeros(4096, np.uint8)
    first = -memory.ctypes.data % 64 + 8
    series = pd.Series(memory[first : first + 48].view(np.float32), copy=False)
    plan = zc.explain(series, "tensorflow")
    assert plan.copied_bytes == 48
    (fix,) = plan.reasons[0].fixes
    assert zc.explain(eval(fix.source.format(x="x"), fix_cases.namespace(series)), "tensorflow").zero_copy


def test_copies_to_jax_and_tensorflow_name_the_aligned_allocator() -> None:
    for to in ("jax", "tensorflow"):
        calls = error_of(np.zeros(33, "u1")[1:].view("f4"), to, copy=False).calls
        assert 'zc.install_pool(host="aligned")' in calls[0]


def test_sparse_arrays_name_their_parts() -> None:
    import jax
    from jax.experimental.sparse import BCOO

    calls = error_of(BCOO.fromdense(jax.numpy.eye(3)), "numpy").calls
    assert any("[x.data, x.indices]" in call for call in calls)


def test_reversed_memory_is_not_sent_to_a_form_that_refuses_it() -> None:
    for to in ("pyarrow", "duckdb", "nanoarrow"):
        error = error_of(np.arange(6)[::-1], to, copy=False)
        assert "pyarrow.Tensor" not in str(error)
    assert "pyarrow" not in error.why


def test_a_table_plugin_is_not_advised_to_pass_options_for_tensors() -> None:
    """pandas stands for a target that decodes columns and has no option for nulls."""
    from zerocopy.framework import Decoder, Nulls

    class Sheets(zc.Framework):
        name, kind, root_modules = "sheets", "table", ("sheets",)

        def module(self) -> Any:
            return re

        def column_reasons(self, column: zc.Column) -> list[zc.Reason]:
            Decoder(Nulls()).decode(column)
            return []

    zc.register(Sheets())
    error = error_of(pl.DataFrame({"a": [1, None], "b": [1, 2]}), "sheets")
    assert "nulls=" not in str(error)
    assert "encode=" not in str(error)
    assert "fill_null(0)" in error.calls[0]


def test_nulls_of_pyarrow_are_refused_without_a_deprecated_capsule() -> None:
    zc.convert(pa.array([1, 2]), "numpy")  # keeps the route
    with pytest.raises(zc.LossyConversionError) as caught:
        zc.convert(pa.array([1, None]), "numpy")
    context: BaseException | None = caught.value
    while context is not None:
        assert not isinstance(context, DeprecationWarning)
        context = context.__cause__ or context.__context__


# -- what a new user tries first ------------------------------------------------------------


def test_messages_lead_from_a_frame_with_nulls_to_a_float32_matrix() -> None:
    import torch

    frame = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [0.5, 1.5], "c": [1, 2]})
    error = error_of(frame, "torch", layout="matrix")
    call = next(call for call in error.calls if "float32" in call)
    matrix = pasted(call, frame)
    assert matrix.dtype is torch.float32
    assert matrix[0].tolist() == [1.0, 0.5, 1.0]
    # With nulls filled first, the next message names the types.
    then = error_of(frame, "torch", layout="matrix", nulls=0)
    call = next(call for call in then.calls if "float32" in call)
    assert pasted(call, frame).tolist() == [[1.0, 0.5, 1.0], [0.0, 1.5, 2.0]]


def test_messages_lead_from_numpy_to_jax_without_a_copy() -> None:
    x = np.arange(1000.0)
    error = error_of(x, "jax", copy=False)
    assert [("dtype=" in call, "jax_enable_x64" in call) for call in error.calls[:2]] == [
        (False, True),
        (True, False),
    ]
    recorder, code = fix_cases.Recorder(), error.calls[0]
    for _ in range(3):
        then = fix_cases.attempt(lambda code=code, x=x: recorder.keep(fix_cases.paste(code, x, recorder)))
        if then is None:
            break
        x, code = recorder.obj, then.calls[0]
    assert then is None
    assert zc.shares_memory(recorder.obj, recorder.result)


def test_messages_lead_from_a_checkpoint_with_scalars_to_numpy() -> None:
    import torch

    checkpoint = {"weight": torch.ones(2, 2), "step": 7, "name": "run", "lr": None}
    call = error_of(checkpoint, "numpy").calls[0]
    assert call == 'zc.convert(x, "numpy", leaves="keep")'
    arrays = pasted(call, checkpoint)
    assert isinstance(arrays["weight"], np.ndarray)
    assert (arrays["step"], arrays["name"], arrays["lr"]) == (7, "run", None)


def test_the_calls_of_a_container_make_arrays_of_its_lists_of_numbers() -> None:
    """leaves="keep" keeps lists of numbers too."""
    x = {"p": {"a": [1, 2]}, "name": "run", "rate": 0.5}
    error = error_of(x, "torch")
    code = "zc.convert({**x, 'p': {**x['p'], 'a': numpy.asarray(x['p']['a'])}}, \"torch\", leaves=\"keep\")"
    assert error.calls[0] == f"import numpy; {code}"
    assert zc.explain(x, "torch").error.calls == error.calls  # type: ignore[union-attr]
    result = pasted(error.calls[0], x)
    assert result["p"]["a"].tolist() == [1, 2]
    assert (result["name"], result["rate"]) == ("run", 0.5)


@pytest.mark.parametrize("options", [{}, {"dtype": {"b": "float32"}}])
def test_the_calls_of_a_container_repeat_its_options(options: dict[str, Any]) -> None:
    x = {"a": [1, 2], "b": np.ones(2), "c": "text"}
    error = error_of(x, "torch", **options)
    assert zc.explain(x, "torch", **options).error.calls == error.calls  # type: ignore[union-attr]
    expected = zc.convert({"a": np.array([1, 2]), "b": x["b"]}, "torch", **options)
    assert pasted(error.calls[0], x)["b"].dtype == expected["b"].dtype


def test_the_fixes_of_a_container_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They read all leaves, and each leaf has an error."""
    calls: list[int] = []
    made = explain.container_calls
    monkeypatch.setattr(explain, "container_calls", lambda *args: calls.append(1) or made(*args))
    plan = zc.explain(["text"] * 50, "torch")
    assert [each.error.calls for each in plan.leaves.values()] == [plan.error.calls] * 50
    assert len(calls) == 1


def test_fixes_import_nothing(run_python: Callable[..., Any]) -> None:
    process = run_python(
        """
        import sys
        from zerocopy._engine.call_text import with_imports
        print(with_imports("torch.nn.functional.relu(scipy.sparse.coo_array(numpy.asarray(x)))"))
        assert not {"torch", "scipy"} & sys.modules.keys()
        """
    )
    assert process.returncode == 0, process.stderr
    *imports, _ = process.stdout.split("; ")
    assert imports == ["import torch.nn.functional", "import scipy.sparse", "import numpy"]


def test_a_combined_fix_names_the_effect_of_each_option_that_it_keeps() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "n": pd.array([1, None], dtype="Int64")})
    remedy = error_of(frame, "torch", layout="matrix").remedy
    assert 'nulls=0, dtype="float64") fills them with 0, makes all of them float64' in remedy
    assert 'nulls="nan", dtype="float64") fills them with NaN, in floats, makes all of them float64' in remedy


def test_one_fix_serves_all_columns_that_have_it() -> None:
    """One column was filled with 0, and the next with NaN."""
    table = pa.table({"x": [1.5, None], "n": [None, 7], "y": [2.5, None]})
    for names in (["x", "n", "y"], ["n", "y", "x"]):
        error = error_of(table.select(names), "torch")
        assert error.calls[2] == 'zc.convert(x, "torch", nulls="nan", dtype={"n": "float32"})'
        assert error.remedy.endswith('dtype={"n": "float32"}) fills them with NaN, in floats')


def test_the_fix_of_many_columns_grows_with_their_number() -> None:
    """It doubled with each column of a pyarrow.Table: that of 40 took all memory."""
    lengths = []
    for width in (10, 20, 40):
        table = pa.table({f"c{i:02}": pa.array([None, 1.5]) for i in range(width)})
        error = error_of(table, "numpy")
        lengths.append(len(str(error)))
    assert lengths[2] - lengths[1] <= 2.1 * (lengths[1] - lengths[0])
    (code,) = [call for call in error.calls if "fill_null(0)" in call]
    result = pasted(code, table)
    assert [column.tolist() for column in result.values()] == [[0, 1.5]] * 40
