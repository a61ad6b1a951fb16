"""A test for each case: ``pytest --pyargs zerocopy.testing --producer "mylib:make_array"``."""

from __future__ import annotations

from functools import cache

import pytest

from zerocopy.testing.cases import cases_of
from zerocopy.testing.check import check, read_allowed
from zerocopy.testing.report import Report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    sides = [side for side in ("producer", "consumer") if metafunc.config.getoption(side)]
    names = [(side, case.id) for side in sides for case in cases_of(side)]
    metafunc.parametrize(("side", "name"), names, ids=[name for _, name in names])


@cache
def report_of(side: str, target: str, allow: str | None) -> Report:
    return check(side, target, None, read_allowed(allow) if allow else None, 60.0)


def test_case(side: str, name: str, pytestconfig: pytest.Config) -> None:
    report = report_of(side, pytestconfig.getoption(side), pytestconfig.getoption("--allow"))
    (result,) = (each for each in report.cases if each.case == name)
    if result.status in ("skipped", "allowed"):
        pytest.skip(f"{result.status}: {result.reason}")
    for finding in report.findings:
        if finding.case == name and finding.severity != "optional":
            pytest.fail(
                f"{finding.severity}: {finding.what}\n{finding.clause}\n\n{finding.script}", pytrace=False
            )
