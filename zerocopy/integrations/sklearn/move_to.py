"""The transformer ``MoveTo``."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from zerocopy import registry
from zerocopy._engine.call_text import rewrite
from zerocopy._engine.convert import convert
from zerocopy._engine.fixes import compose_calls
from zerocopy._engine.options import SIGNATURE
from zerocopy._engine.planner import Call
from zerocopy._engine.target import text
from zerocopy.errors import UnsupportedConversionError, ZeroCopyError
from zerocopy.errors.invalid_option import unknown_option
from zerocopy.request import NAMES, ConvertOptions
from zerocopy.tables.labels import RENAME, duplicates, listed

#: Options that belong to one call: scikit-learn sets parameters before it has data.
_OF_ONE_CALL = frozenset(("stream", "leaves", "out", "connection", "index"))
#: Methods that make a table of a column or of a query.
_TABLES_OF = ("to_frame", "collect")
OPTIONS = tuple(name for name in NAMES if name not in _OF_ONE_CALL)


def _as_step(code: str) -> str:
    """Return a fix by options as a step of a pipeline."""
    before, call, arguments = code.rpartition("zc.convert(x, ")
    if not call or before.rstrip("; ") == before != "":
        return code
    arguments = arguments.replace(", index=False", "")  # which `transform` adds
    return f"{before}from zerocopy.integrations.sklearn import MoveTo; MoveTo({arguments}.fit_transform(x)"


class MoveTo(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A stateless transformer that hands the data to another framework, without a copy where possible.

    With ``sklearn.config_context(array_api_dispatch=True)``, the next steps of a pipeline run on that
    framework, if they support the array API. scikit-learn needs the environment variable
    ``SCIPY_ARRAY_API=1`` for it, set before SciPy is imported.

    Parameters
    ----------
    to : str, module or type
        The target, as for :func:`zerocopy.convert`.
    device, copy, writable, dtype, validate, layout, columns, nulls, encode, names : optional
        The options of :func:`zerocopy.convert`. The default of `layout` is ``"matrix"`` for a table whose
        target has tensors.

    Attributes
    ----------
    n_features_in_ : int
        The number of columns of the data in `fit`.
    feature_names_in_ : ndarray of str
        Their names, if the data had names.

    Notes
    -----
    ``transform`` takes a 2-D array of any framework, a table whose columns are numbers, or what
    ``numpy.asarray`` makes a 2-D array of numbers. NaN and infinity pass. Sparse matrices are refused.
    ``set_output`` works with arrays that pandas or polars can read. The target `y` of a pipeline is not
    moved: scikit-learn's estimators move it to the framework of the data themselves, or need it there.

    Examples
    --------
    >>> import numpy as np
    >>> from zerocopy.integrations.sklearn import MoveTo
    >>> MoveTo("torch").fit_transform(np.array([[1.0, 2.0]]))
    tensor([[1., 2.]], dtype=torch.float64)
    """

    def __init__(self, to: Any = "torch", **options: Unpack[ConvertOptions]) -> None:
        for name in options:
            if name not in OPTIONS:
                raise TypeError(unknown_option("MoveTo", name, OPTIONS))
        self.to = to
        for name in OPTIONS:
            setattr(self, name, options.get(name))

    # scikit-learn reads the names of the parameters from the signature.
    __init__.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter("self", Parameter.POSITIONAL_OR_KEYWORD),
            Parameter("to", Parameter.POSITIONAL_OR_KEYWORD, default="torch"),
            *(SIGNATURE.parameters[name] for name in OPTIONS),
        ]
    )

    def fit(self, X: Any, y: Any = None) -> Self:
        """Store the number and the names of the columns; `y` is not used.

        Parameters
        ----------
        X : array or table of shape (n_samples, n_features)
        y : object, optional

        Returns
        -------
        MoveTo
            Itself.

        Raises
        ------
        ValueError, TypeError
            `X` is not two-dimensional, is sparse or is not numeric.
        """
        self._checked(X, reset=True)
        return self

    def transform(self, X: Any) -> Any:
        """Return the data as a 2-D array of the target.

        Parameters
        ----------
        X : array or table of shape (n_samples, n_features)

        Returns
        -------
        object
            An array of the target, which aliases `X` where possible.

        Raises
        ------
        ValueError, TypeError
            `X` is not two-dimensional, is sparse, is not numeric, or has other columns than in `fit`.
        ZeroCopyError
            As :func:`zerocopy.convert`.
        """
        data, is_table = self._checked(X, reset=False)
        options = self._options()
        if is_table:
            target = registry.by_name(text(self.to).strip("'"))
            extra = {"index": False} if target.tables else {"layout": "matrix"}  # row labels are not features
            options = options if "index" in target.options else extra | options
        try:
            return convert(data, self.to, **options)
        except ZeroCopyError as error:
            rewrite(error, _as_step)
            raise

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the result's columns, for ``set_output`` and later steps.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns, if the data in `fit` had none.

        Returns
        -------
        numpy.ndarray of str
        """
        names = super().get_feature_names_out(input_features)
        return names if self.columns is None else np.asarray(self.columns, object)

    def _checked(self, X: Any, reset: bool) -> tuple[Any, bool]:
        """Return the data after scikit-learn's checks, and whether it is a table."""
        framework = registry.target_of(type(X))
        is_table = framework is not None and framework.tables and getattr(X, "ndim", 2) == 2
        is_array = framework is not None and framework.kind != "compound" and framework.name != "numpy"
        if is_table or is_array:
            # `check_array` would copy a table into an array, and fail for arrays on a GPU.
            shape = getattr(X, "shape", ())
            if len(shape) != 2:
                fix = next((f"x.{name}()" for name in _TABLES_OF if hasattr(X, name)), "x.reshape(-1, 1)")
                raise ValueError(
                    f"Expected 2D array, got {len(shape)}D array instead. Reshape your data: {fix}"
                )
            try:
                validate_data(self, X, reset=reset, skip_check_array=True)
            except Exception:
                if is_table:  # narwhals, by which scikit-learn reads the names, has an error of its own
                    self._refuse_duplicates(X)
                raise
            return X, is_table
        return validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite=False), False

    def _refuse_duplicates(self, X: Any) -> None:
        if twice := duplicates(registry.target_of(type(X)).table(X).labels):  # type: ignore[union-attr]
            why = f"several columns are called {listed(twice)}, and scikit-learn requires unique names"
            asked = f"MoveTo({self.to!r})"
            error = UnsupportedConversionError(asked, why, code="duplicate-names", fixes=[RENAME])
            compose_calls(error, Call(X, self.to, self._options()))
            try:
                raise error
            finally:
                del error

    def _options(self) -> dict[str, Any]:
        return {name: value for name in OPTIONS if (value := getattr(self, name)) is not None}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = True
        # scikit-learn compares dtypes with NumPy's, and the result has those of the target.
        tags.transformer_tags.preserves_dtype = []
        return tags
