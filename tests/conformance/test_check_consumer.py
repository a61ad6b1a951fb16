"""`zerocopy.testing.check_consumer`: clean consumers pass, planted faults and hazards are found."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.paths import ROOT
from helpers.tiers import runs_all
from helpers.toy_consumers import TABLE_FAULTS, TENSOR_FAULTS, from_arrow, from_dlpack

from zerocopy.errors import OptionError
from zerocopy.testing import check_consumer, child, consumer

if not hasattr(os, "fork"):
    pytest.skip("a function of a test is checked in a fork", allow_module_level=True)


def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fork wait for no release."""
    monkeypatch.setattr(consumer, "time", SimpleNamespace(sleep=lambda seconds: None))


def severities(report: Any) -> dict[str, str]:
    return {finding.case: finding.severity for finding in report.findings}


@pytest.mark.parametrize(
    ("consume", "protocols"),
    [
        (partial(from_dlpack), ["dlpack"]),
        (partial(from_arrow), ["arrow_c_array", "arrow_c_stream"]),
        (lambda producer: np.from_dlpack(producer), ["dlpack"]),
        (lambda producer: np.asarray(producer), ["array_interface", "buffer"]),
        (lambda producer: np.array(memoryview(producer), copy=True), ["buffer"]),
    ],
    ids=["toy tensors", "toy tables", "from_dlpack", "asarray", "copies"],
)
def test_a_clean_consumer_passes(consume: Any, protocols: list[str]) -> None:
    report = check_consumer(consume, protocols)
    assert report.passed, report
    assert {result.status for result in report.cases} == {"passed"}


@pytest.mark.parametrize("fault", [*TENSOR_FAULTS, *TABLE_FAULTS])
def test_planted_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    no_sleep(monkeypatch)
    case, severity = TABLE_FAULTS.get(fault) or TENSOR_FAULTS[fault]
    case = case if fault in TABLE_FAULTS else f"dlpack.consume-{case}"
    consume = partial(from_arrow if fault in TABLE_FAULTS else from_dlpack, fault=fault)
    report = check_consumer(consume, [case.partition(".")[0]])
    assert severities(report)[case] == severity, report


def hang() -> None:
    faulthandler.cancel_dump_traceback_later()
    signal.signal(signal.SIGABRT, signal.SIG_IGN)
    signal.pause()


def raise_interrupt() -> None:
    raise KeyboardInterrupt


def read_in_a_thread(action: Callable[[], Any]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


KEPT: list[Any] = []
#: Consumers that read right, and do this first with a producer on device 99: the finding, if there is one.
ATTACKS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "keeps the capsule": (lambda x: KEPT.append(x.__dlpack__(max_version=(1, 0))), "leak", "1 structs, 0"),
    "forks": (lambda x: os.fork(), "crash", "it forks, and returns in the new process too"),
    "exits": (lambda x: os._exit(0), "crash", "the process ended with status 0"),
    "raises": (lambda x: raise_interrupt(), "crash", "KeyboardInterrupt"),
    "hangs": (lambda x: hang(), "crash", "it did not end within 2 s"),
    "stops": (lambda x: os.kill(os.getpid(), signal.SIGSTOP), "crash", "ended with signal 19"),
    "closes all": (lambda x: os.closerange(0, 1000), "", ""),
    "closes the output": (lambda x: (sys.stdout.close(), os.close(1)), "", ""),
    "prints": (lambda x: [os.write(each, b"File x\n" * (4 << 20)) for each in (1, 2)], "", ""),
    "reads in a thread": (lambda x: read_in_a_thread(lambda: x.__dlpack__(max_version=(1, 0))), "", ""),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_findings_and_the_check_ends(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    no_sleep(monkeypatch)
    monkeypatch.setattr(child, "_GRACE", 0.5)
    act, severity, text = ATTACKS[attack]

    def consume(producer: Any) -> Any:
        if producer.__dlpack_device__()[0] == 99:
            act(producer)
            raise BufferError("another device")
        return np.from_dlpack(producer)

    report = check_consumer(consume, ["dlpack"], timeout=2)
    severities = {each.case: (each.severity, text in each.what) for each in report.findings}
    assert severities == ({"dlpack.consume-unknown-device": (severity, True)} if severity else {}), report


def test_a_consumer_of_another_protocol_is_not_checked() -> None:
    report = check_consumer(lambda producer: np.from_dlpack(producer))
    skipped = {result.case.partition(".")[0] for result in report.cases if result.status == "skipped"}
    assert skipped == {*consumer.CASES} - {"dlpack"}
    assert report.passed


def test_the_caller_reads_the_result() -> None:
    class Wrapped:
        def __init__(self, array: Any) -> None:
            self.array = array

    consume: Callable[[Any], Any] = lambda producer: Wrapped(np.from_dlpack(producer))  # noqa: E731
    first, *others = check_consumer(consume, ["dlpack"]).cases  # a named protocol that it does not take
    assert (first.status, first.case) == ("failed", "dlpack.consume-plain")
    assert {result.status for result in others} == {"skipped"}
    report = check_consumer(consume, ["dlpack"], read=lambda result: result.array)
    assert {result.status for result in report.cases} == {"passed"}
    report = check_consumer("numpy:from_dlpack", ["dlpack"], read="numpy:asarray")
    assert (report.target, {result.status for result in report.cases}) == ("numpy:from_dlpack", {"passed"})


def test_an_error_that_is_set_when_a_callback_runs_is_not_lost() -> None:
    if find_spec("pyarrow") is None:
        pytest.skip("needs pyarrow")
    import pyarrow as pa

    # pyarrow releases the stream while the error of its last batch is set.
    report = check_consumer(lambda producer: pa.table(producer), ["arrow_c_stream"])
    assert {result.status for result in report.cases} == {"passed"}, report


def test_a_script_shows_the_finding_without_zerocopy() -> None:
    report = check_consumer("helpers.toy_consumers:without_byte_offset", ["dlpack"])
    (finding,) = report.findings
    assert finding.case == "dlpack.consume-byte-offset"
    assert "zerocopy" not in finding.script
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-c", finding.script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert "not ('float32', (8,)" in done.stderr.splitlines()[-1]


def test_wrong_values_have_the_severity_of_wrong_values() -> None:
    report = check_consumer(lambda producer: np.from_dlpack(producer).ravel(), "dlpack")
    assert severities(report)["dlpack.consume-legacy"] == "wrong value"


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(
        OptionError, match=r"it takes none of dlpack, .*; it does not take dlpack: .*\n.*read="
    ):
        check_consumer(lambda producer: object())
    with pytest.raises(OptionError, match="protocols"):
        check_consumer("numpy:from_dlpack", ["dlpac"])
    with pytest.raises(OptionError, match="nothing"):
        check_consumer("numpy:nothing")
    with pytest.raises(OptionError, match="protocols must be names from dlpack, "):  # it has no case
        check_consumer("no_such_module:name", ["cuda_array_interface"])
    with pytest.raises(OptionError, match="No module named 'no_such_module'"):
        check_consumer(np.from_dlpack, ["dlpack"], read="no_such_module:name")


#: Consumers of frameworks, their protocols, and the hazards of docs/hazards that are found.
FRAMEWORKS: dict[str, tuple[list[str], dict[str, str]]] = {
    "torch:from_dlpack": (
        ["dlpack"],
        {"dlpack.consume-negative-strides": "crash", "dlpack.consume-read-only": "flag ignored"},
    ),
    "jax.numpy:from_dlpack": (["dlpack"], {"dlpack.consume-float64": "wrong value"}),
    "helpers.toy_consumers:tensorflow_from_dlpack": (["dlpack"], {}),
    "helpers.toy_consumers:pandas_from_arrow": (["arrow_c_array", "arrow_c_stream"], {}),
    "helpers.toy_consumers:duckdb_from_arrow": (["arrow_c_stream"], {}),
    "pyarrow:array": (["arrow_c_array", "arrow_c_device_array"], {}),
    "polars:DataFrame": (
        ["arrow_c_array", "arrow_c_stream"],
        {"arrow_c_array.consume-released": "wrong value"},
    ),
    "nanoarrow:Array": (
        ["arrow_c_array", "arrow_c_stream"],
        {"arrow_c_array.consume-released": "wrong value"},
    ),
}


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_hazards_of_frameworks_are_found(target: str) -> None:
    if not runs_all():
        pytest.skip("the full tier imports frameworks in new processes")
    package = target.removeprefix("helpers.toy_consumers:").partition("_")[0].partition(":")[0]
    if find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"needs {package}")
    protocols, hazards = FRAMEWORKS[target]
    report = check_consumer(target, protocols, timeout=300.0)
    assert hazards.items() <= severities(report).items(), report
    plain = [result.status for result in report.cases if result.case.endswith("consume-plain")]
    assert plain == ["passed"] * len(protocols)
