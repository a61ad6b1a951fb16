"""The names of `zerocopy`: a change of them is a change of this list."""

from __future__ import annotations

import ast

import pytest
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy import testing

NAMES = """
Channel Column CopyRequiredError DType Device DeviceError Encoded Framework FrameworkInfo FrameworkName
FrameworkNotInstalledError Kind LossyConversionError Masked Plan Pool Reason Shared Source StridedView
Table UnsupportedConversionError Weights ZeroCopyError __version__ accepts aligned aligned_numpy
aos_to_soa array_namespace bridge channel check_pairs convert converter dataset decode empty errors
explain forbid_copies frameworks install_pool installed_pool is_array is_column is_table kind loader
monitor open_weights register save share shared shared_empty shares_memory soa_to_aos view
"""
ERRORS = """
ChannelClosedError ChannelTimeoutError DeviceOptionError HandleAccessError HandleFormatError
LoaderStateError LoaderUseError MissingFileError MonitorFileError MonitorStateError OptionError
OtherHostError PoolClosedError PoolInstalledError PoolLimitError PoolTooLateError PoolUnavailableError
ReadError SharedMemoryError StaleHandleError UnknownFrameworkError
"""


def test_the_names_are_listed() -> None:
    assert zc.__all__ == NAMES.split()


def test_type_checkers_know_the_names() -> None:
    tree = ast.parse((ROOT / "zerocopy" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imported = [
        alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert sorted(map(str, imported)) == zc.__all__


def test_every_error_is_a_name_of_its_module() -> None:
    named = {name for name in vars(zc.errors) if name.endswith("Error")}
    assert named - {*zc.__all__} == {*ERRORS.split()}
    for name in named:
        error = getattr(zc.errors, name)
        assert issubclass(error, zc.ZeroCopyError)
        assert error.__module__ == "zerocopy.errors"


def test_names_of_testing_and_of_the_plugin_of_pytest(pytestconfig: pytest.Config) -> None:
    """docs/support.md covers them."""
    assert testing.__all__ == ["CaseResult", "Finding", "Report", "check_consumer", "check_producer"]
    options = {name for name in vars(pytestconfig.option) if name.startswith("zerocopy_")}
    assert options == {"zerocopy_allow", "zerocopy_consumer", "zerocopy_copies", "zerocopy_producer"}
    marks = [mark.partition("(")[0] for mark in pytestconfig.getini("markers")]
    assert "zero_copy" in marks


@pytest.mark.parametrize("name", ["load", "matrix", "namespace", "plan_for", *ERRORS.split()])
def test_names_that_zerocopy_lacks(name: str) -> None:
    with pytest.raises(AttributeError, match=f"^module 'zerocopy' has no attribute '{name}'$"):
        getattr(zc, name)


def test_the_errors_need_no_import_of_their_own(run_python) -> None:
    completed = run_python(
        """
        import sys, zerocopy as zc
        assert "zerocopy.errors" not in sys.modules
        assert issubclass(zc.errors.ReadError, OSError)
        own = {name for name in sys.modules if name.startswith("zerocopy.")}
        parts = {"interpreter", "forks", "errors", "errors.base", "errors.warning", "formatting"}
        assert own <= {f"zerocopy.{part}" for part in parts}, own
        """
    )
    assert completed.returncode == 0, completed.stderr
