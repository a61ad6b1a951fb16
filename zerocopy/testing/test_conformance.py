"""A test for each case: ``pytest --pyargs zerocopy.testing --zerocopy-producer "mylib:make_array"``."""

from __future__ import annotations

import sys

import pytest

from zerocopy.errors import OptionError
from zerocopy.testing.check import check, read_allowed
from zerocopy.testing.report import CaseResult, Report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the cases: a target that cannot be checked is one error, before the tests."""
    sys.path.insert(0, "")  # as the command does
    config, results = metafunc.config, []
    targets = {side: config.getoption(f"zerocopy_{side}") for side in ("producer", "consumer")}
    for side in filter(targets.get, targets):
        try:
            allow = read_allowed(path) if (path := config.getoption("zerocopy_allow")) else None
            report = check(side, targets[side], None, allow, 60.0)
        except OptionError as error:
            raise pytest.Collector.CollectError(str(error)) from None
        results += [(side, report, result) for result in report.cases]
    metafunc.parametrize(("side", "report", "result"), results, ids=[result.case for *_, result in results])


def test_case(side: str, report: Report, result: CaseResult) -> None:
    if result.status in ("skipped", "allowed"):
        pytest.skip(f"{result.status}: {result.reason}")
    for finding in report.findings:
        if finding.case == result.case and finding.severity != "optional":
            options = "--scripts" + " --consumer" * (side == "consumer")
            text = f"{finding.severity}: {finding.what}\n{finding.clause}"
            pytest.fail(f"{text}\nIts script: zerocopy check {report.target} {options}", pytrace=False)
