"""``MoveTo``: scikit-learn's estimator checks, aliases, and a pipeline on torch."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.paths import ROOT
from helpers.versions import needs

import zerocopy as zc

pytest.importorskip("sklearn", minversion="1.8")

import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from zerocopy.integrations.sklearn import MoveTo

X = np.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize(("to", "dtype"), [("numpy", None), ("torch", None), ("jax", "float32")])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:Estimator's parameters changed")
def test_the_checks_of_scikit_learn_pass(to: str, dtype: str | None) -> None:
    pytest.importorskip(to)
    # It compares results with a tolerance for the dtype, which NumPy must know.
    expected = {"check_fit_idempotent": "numpy.finfo does not take dtypes of torch"} if to == "torch" else {}
    results = check_estimator(
        MoveTo(to, dtype=dtype), expected_failed_checks=expected, on_skip=None, on_fail=None
    )
    failed = [row for row in results if row["status"] not in ("passed", "skipped", "xfail")]
    assert not failed, [(row["check_name"], row["exception"]) for row in failed]
    assert len(results) > 40


def test_arrays_are_aliased_there_and_back() -> None:
    torch = pytest.importorskip("torch")
    pipeline = make_pipeline(MoveTo("torch"), MoveTo("numpy"))
    result = pipeline.fit_transform(X)
    assert isinstance(result, np.ndarray)
    assert zc.shares_memory(result, X)
    tensor = MoveTo("torch").fit_transform(X)
    assert isinstance(tensor, torch.Tensor)
    assert not zc.shares_memory(MoveTo("torch", copy=True).fit_transform(X), X)
    assert MoveTo("torch", dtype="float32").fit_transform(X).dtype is torch.float32


@pytest.mark.parametrize(
    "table",
    [
        *("pandas", "pyarrow"),
        pytest.param("polars", marks=needs("scikit-learn", "1.9", "names of the columns of polars 2")),
    ],
)
def test_tables_become_matrices(table: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip(table)
    frame = zc.convert({"a": X[:, 0].copy(), "b": X[:, 1].copy()}, table)
    move = MoveTo("torch").fit(frame)
    assert move.transform(frame).tolist() == X.tolist()
    assert move.n_features_in_ == 2
    if table != "pyarrow":
        assert list(move.get_feature_names_out()) == ["a", "b"]


@pytest.mark.parametrize("to", ["numpy", "polars", "pyarrow", "pandas"])
def test_row_labels_are_not_features(to: str) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip(to)
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}, index=[7, 8])
    move = MoveTo(to)
    assert move.fit_transform(frame).shape == (2, 2)
    assert list(move.get_feature_names_out()) == ["a", "b"]
    with pytest.raises(TypeError, match="'index'"):
        MoveTo(to, index=True)


def test_it_can_be_cloned_pickled_and_configured() -> None:
    move = MoveTo("numpy", dtype="float32", copy=True)
    assert clone(move).get_params() == move.get_params() == pickle.loads(pickle.dumps(move)).get_params()
    assert move.set_params(dtype=None).fit_transform(X).dtype == np.float64
    with pytest.raises(NotFittedError):
        MoveTo("numpy").get_feature_names_out()
    assert list(MoveTo("numpy").fit(X).get_feature_names_out()) == ["x0", "x1"]


def test_set_output() -> None:
    pandas = pytest.importorskip("pandas")
    move = MoveTo("numpy").set_output(transform="pandas")
    result: Any = move.fit_transform(pandas.DataFrame(X, columns=["a", "b"]))
    assert list(result.columns) == ["a", "b"]


def test_bad_data_is_refused() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        MoveTo("torch").fit(sparse.csr_array(X))
    with pytest.raises(ValueError, match="Expected 2D array"):
        MoveTo("numpy").fit(torch.zeros(3))
    with pytest.raises(ValueError, match="is expecting 2 features"):
        MoveTo("numpy").fit(X).transform(torch.zeros(3, 5))
    with pytest.raises(zc.errors.UnknownFrameworkError):
        MoveTo("troch").fit(X).transform(X)


PIPELINE = """
import numpy as np, sklearn, torch
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from zerocopy.integrations.sklearn import MoveTo

X = np.random.default_rng(0).normal(size=(100, 5))
steps = StandardScaler(), PCA(n_components=2, svd_solver="full")
expected = make_pipeline(*steps).fit_transform(X)
with sklearn.config_context(array_api_dispatch=True):
    pipeline = make_pipeline(MoveTo("torch"), *steps)
    result = pipeline.fit_transform(X)
    assert isinstance(result, torch.Tensor), type(result)
    assert isinstance(pipeline[-1].components_, torch.Tensor)
    back = make_pipeline(pipeline, MoveTo("numpy")).transform(X)
assert isinstance(back, np.ndarray)
np.testing.assert_allclose(np.abs(back), np.abs(expected), rtol=1e-6)
print("it ran on torch")
"""


@pytest.mark.full
def test_a_pipeline_runs_on_torch() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    run = subprocess.run(
        [sys.executable, "-c", PIPELINE],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.stdout == "it ran on torch\n", run.stderr[-3000:]


def test_move_to_passes_the_options_of_convert() -> None:
    from zerocopy.integrations.sklearn.move_to import OPTIONS

    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [1, 2]})
    assert set(MoveTo().get_params()) == {"to", *OPTIONS}
    with pytest.raises(zc.LossyConversionError, match="nulls=0"):
        MoveTo("numpy").fit_transform(frame)
    assert MoveTo("numpy", nulls=0).fit_transform(frame).tolist() == [[1, 1], [0, 2]]
    chosen = MoveTo("numpy", columns=["b"]).fit(frame)
    assert chosen.transform(frame).tolist() == [[1], [2]]
    assert list(chosen.get_feature_names_out()) == ["b"]
    with pytest.raises(TypeError, match="unexpected keyword"):
        MoveTo("numpy", stream=1)


@pytest.mark.full
def test_the_tests_of_scikit_learn_pass_with_zerocopy_in_place_of_its_conversions() -> None:
    pytest.importorskip("torch")
    tests = Path(sklearn.__file__).parent / "utils" / "tests" / "test_array_api.py"
    options = ["-q", "-p", "no:cacheprovider", "-p", "helpers.adopters_plugin", "-k", "estimator"]
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "SCIPY_ARRAY_API": "1"}
    completed = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tests)],
        cwd=tests.parent,
        env={**os.environ, **paths},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stdout
    assert "converted to numpy" in completed.stdout
