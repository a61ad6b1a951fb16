"""`zerocopy.testing.check_producer`: clean producers pass, faults are found, crashes end a child."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from shutil import rmtree
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy.testing import check_producer
from zerocopy.testing.capsules import get_name, set_name
from zerocopy.testing.cases import PROTOCOLS, cases_of
from zerocopy.testing.script import PLACEHOLDER, script_of

if not hasattr(os, "fork"):
    pytest.skip("a function of a test is checked in a fork", allow_module_level=True)


class Producer:
    """A clean producer over an ndarray."""

    def __init__(self) -> None:
        self.x = np.arange(6.0).reshape(2, 3)

    def __dlpack__(self, **options: Any) -> Any:
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return 1, 0


class Capsules(Producer):
    """A clean producer of all protocols but the exchange API, over NumPy and pyarrow."""

    def __init__(self, dtype: str = "float64", shape: tuple[int, ...] = (6,)) -> None:
        super().__init__()
        self.x = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)

    def __getitem__(self, index: Any) -> Any:
        view = Capsules()
        view.x = self.x[index]
        return view

    @property
    def shape(self) -> tuple[int, ...]:
        return self.x.shape

    @property
    def __array_interface__(self) -> Any:
        return self.x.__array_interface__

    def column(self) -> Any:
        return pytest.importorskip("pyarrow").array(self.x)

    def __arrow_c_schema__(self) -> Any:
        return self.column().type.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.column().__arrow_c_array__(requested_schema)

    def __arrow_c_device_array__(self, requested_schema: Any = None, **options: Any) -> Any:
        return self.column().__arrow_c_device_array__(requested_schema, **options)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        pa = pytest.importorskip("pyarrow")
        return pa.chunked_array([self.column()]).__arrow_c_stream__(requested_schema)


class OtherDevice(Producer):
    def __dlpack_device__(self) -> Any:
        return 2, 0


class Killed(Producer):
    """A crash in one method only."""

    def __dlpack_device__(self) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)


class Hangs(Producer):
    def __dlpack_device__(self) -> Any:
        time.sleep(60)


def statuses(report: Any) -> dict[str, str]:
    return {result.case: result.status for result in report.cases}


def test_a_clean_producer_passes() -> None:
    report = check_producer(Capsules)
    assert report.passed, report
    assert not report.findings, report
    assert [result.case for result in report.cases] == [case.id for case in cases_of("producer")]
    skipped = {result.protocol for result in report.cases if result.status != "passed"}
    assert not skipped & {"arrow_c_array", "arrow_c_stream", "arrow_c_device_array"}, report.cases
    assert report.versions["numpy"] == np.__version__
    assert max(map(len, str(report).splitlines())) <= 80


def test_a_finding_names_its_case_and_its_clause_and_has_a_script_that_runs() -> None:
    report = check_producer(lambda: OtherDevice(), ["dlpack"])
    finding = next(each for each in report.findings if each.case == "dlpack.device")
    assert (finding.case, finding.severity, finding.protocol) == ("dlpack.device", "wrong value", "dlpack")
    assert "(2, 0)" in finding.what
    assert "https://" in finding.clause
    assert not report.passed
    assert json.loads(report.to_json())["findings"][0]["case"] == "dlpack.device"
    suite = ElementTree.fromstring(report.to_junit())
    assert [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None] == [
        "dlpack.device"
    ]
    made = "import numpy as np\nclass target(np.ndarray):\n def __new__(cls): return np.ones(3).view(cls)\n"
    made += " def __dlpack_device__(self): return 2, 0\n"
    script = finding.script.replace(PLACEHOLDER, made)
    assert "zerocopy" not in script
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "Violation: __dlpack_device__() is (2, 0)" in completed.stderr


@pytest.mark.parametrize(
    ("make", "timeout", "text"),
    [(Killed, 60.0, "Segmentation fault"), (Hangs, 5.0, "it did not end within 5 s; File")],
)
def test_a_crash_and_a_hang_are_findings_of_their_case(make: Any, timeout: float, text: str) -> None:
    report = check_producer(lambda: make(), ["dlpack"], timeout=timeout)
    (finding,) = (each for each in report.findings if each.severity == "crash")
    assert finding.case == "dlpack.device"
    assert text in finding.what
    assert "__dlpack_device__" in finding.what
    assert set(statuses(report).values()) <= {"passed", "failed", "skipped"}


OTHER_HANDLER = """
import faulthandler, os, signal
import numpy as np
from zerocopy.testing import check_producer

class Killed(np.ndarray):
    def __dlpack_device__(self):
        os.kill(os.getpid(), signal.SIGSEGV)

faulthandler.enable()
signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # as a library replaces the handler of faulthandler
print(check_producer(lambda: np.ones(3).view(Killed), ["dlpack"]))
"""


def test_a_crash_is_shown_although_a_library_has_its_own_handler() -> None:
    done = subprocess.run([sys.executable, "-c", OTHER_HANDLER], capture_output=True, text=True)
    assert "Segmentation fault" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("target", "call", "status"),
    [("target.make", "os.kill(os.getpid(), 19)", "19"), ("'target:make'", "os.killpg(0, 9)", "9")],
    ids=["stops", "kills"],
)
def test_a_target_that_stops_itself_or_kills_its_group(
    target: str, call: str, status: str, tmp_path: Path
) -> None:
    """The check neither waits for ever nor is killed; a session of its own protects the tests."""
    (tmp_path / "target.py").write_text(
        f"import os, sys\n\n\ndef make():\n    assert os.read(0, 1) == b''\n    {call}\n"
    )
    program = f"import target\nfrom zerocopy.testing import check_producer\ncheck_producer({target})"
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{ROOT}"}, text=True,
        capture_output=True, start_new_session=True, stdin=subprocess.PIPE, timeout=100,
    )  # fmt: skip
    assert f"the process ended with signal {status}" in process.stderr, process


def test_a_target_that_exits_is_reported_with_its_text() -> None:
    def make() -> Any:
        raise SystemExit("no licence")

    with pytest.raises(zc.errors.OptionError, match="SystemExit: no licence"):
        check_producer(make)


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), float("inf"), 1e12, "5"])
def test_a_timeout_is_a_positive_number(timeout: Any) -> None:
    with pytest.raises(zc.errors.OptionError, match="timeout must be above 0 and below 1e9 s, not"):
        check_producer(Producer, timeout=timeout)


def test_reasons_of_both_sides_are_in_one_file() -> None:
    allow = {"dlpack.device": "known", "dlpack.consume-plain": "of the other side"}
    assert not check_producer(lambda: OtherDevice(), ["dlpack"], allow=allow).findings


def test_a_folder_that_does_not_exist_is_refused_before_the_cases(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "zerocopy",
        "check",
        "numpy:nothing",
        "--junit",
        str(tmp_path / "no" / "x"),
    ]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert process.returncode == 2
    assert "No such file or directory" in process.stderr


def test_an_allowed_finding_is_left_out_with_its_reason() -> None:
    report = check_producer(lambda: OtherDevice(), allow={"dlpack.device": "known"})
    assert not report.findings
    (allowed,) = (each for each in report.cases if each.status == "allowed")
    assert allowed.reason.startswith("known: ")


def test_a_protocol_that_is_named_must_be_offered() -> None:
    assert check_producer(Producer).passed
    report = check_producer(Producer, ["dlpack", "arrow_c_stream"])
    assert [finding.case for finding in report.findings] == ["arrow_c_stream.valid"]
    assert report.findings[0].what == "the object has no __arrow_c_stream__"
    (finding,) = check_producer(object, "dlpack").findings
    assert (finding.what, finding.severity) == ("the object has no __dlpack__", "wrong value")


def test_a_severity_is_that_of_what_happened() -> None:
    """No device, a refusal of copy=False that consumers do not handle, and a capsule that was used before."""

    class NoDevice:
        def __dlpack__(self, **options: Any) -> Any:
            return np.arange(6.0).__dlpack__(**options)

    class Refuses(Producer):
        def __dlpack__(self, *, copy: bool | None = None, **options: Any) -> Any:
            if copy is False:
                raise TypeError("no")
            return self.x.__dlpack__(copy=copy, **options)

    class OwnDevice(Producer):
        def __dlpack__(self, *, dl_device: Any = None, **options: Any) -> Any:
            if dl_device is not None:
                raise BufferError("only other devices")
            return self.x.__dlpack__(**options)

    class Used(Producer):
        def __dlpack__(self, **options: Any) -> Any:
            capsule = self.x.__dlpack__(**options)
            set_name(capsule, {b"dltensor": b"used_dltensor"}.get(get_name(capsule), b"used"))
            return capsule

    severities = {}
    for make in (NoDevice, Refuses, OwnDevice, Used):
        for finding in check_producer(make).findings:
            severities[make.__name__, finding.case] = finding.severity
    assert severities["NoDevice", "dlpack.device"] == "wrong value"
    assert severities["Refuses", "dlpack.copy"] == "wrong error class"
    assert severities["OwnDevice", "dlpack.dl_device"] == "flag ignored"
    used = {severity for (name, _), severity in severities.items() if name == "Used"}
    assert used == {"wrong value"}


def test_a_malformed_export_is_not_a_use_after_free() -> None:
    class Single:
        def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
            return Capsules().column().__arrow_c_array__()[1]

    class Unnamed(type):
        @property
        def __dlpack_c_exchange_api__(cls) -> Any:
            return np.ones(3).__dlpack__()

    for make in (Single, Unnamed("Table", (), {"__dlpack_c_exchange_api__": None})):
        assert {each.severity for each in check_producer(make).findings} == {"wrong value"}


def test_a_report_shortens_what_happened_and_not_addresses() -> None:
    class Many(Producer):
        def __dlpack__(self, **options: Any) -> Any:
            raise ValueError(" ".join(map(str, range(1000))))

    report = check_producer(Many)
    assert report.findings[0].what.endswith("999")
    lines = str(report).splitlines()
    assert sum(line.startswith("    ") for line in lines) == 3 * len(report.findings)
    addresses = {finding.clause.partition("(")[2].partition(")")[0] for finding in report.findings}
    assert all(any(address in line for line in lines) for address in addresses)


def run_suite(folder: Path, producer: str) -> str:
    """Run the tests of `zerocopy.testing` as the command pytest, without the current folder on the path."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "zerocopy.pytest_plugin", "--pyargs", "zerocopy.testing"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "pytest", *options, "--zerocopy-producer", producer]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout


def test_the_suite_of_pytest_imports_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "imglib.py").write_text(
        "import numpy as np\n\n\nclass Image:\n"
        "    def __dlpack__(self, **options):\n        return np.ones(3).__dlpack__(**options)\n"
    )
    output = run_suite(tmp_path, "imglib:Image")
    assert "wrong value: the object has no __dlpack_device__" in output, output
    assert "class Violation" not in output  # its script
    assert "zerocopy check imglib:Image --scripts" in output
    output = run_suite(tmp_path, "imglib:nothing")
    assert output.count("module 'imglib' has no attribute 'nothing'") == 1, output
    assert "1 error" in output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("no_such_module:make",), "No module named 'no_such_module'"),
        ((lambda: 1 / 0,), "ZeroDivisionError"),
        ((Producer, []), "protocols must be names from dlpack, "),
        ((Producer, ["dlpak"]), 'did you mean protocols="dlpack"?'),
        ((Producer, None, {"dlpack.devise": "why"}), 'did you mean allow="dlpack.device"?'),
        ((object,), "it offers none of dlpack, dlpack_c_exchange_api,"),
        ((Producer(),), "'Producer' is not a function.\n  To fix: pass a function, such as the class"),
        (("numpy",), 'To fix: write "numpy:name"'),
        (("numpy:pi",), "'float' object is not callable.\n  To fix: name a function or a class"),
    ],
    ids=["module", "raises", "no protocol", "protocol", "case", "nothing", "object", "no name", "value"],
)
def test_wrong_arguments_raise(arguments: Any, text: str) -> None:
    options = {"allow": arguments[2]} if len(arguments) > 2 else {}
    with pytest.raises(zc.errors.OptionError) as caught:
        check_producer(*arguments[:2], **options)
    assert text in str(caught.value)
    assert "To fix: " in str(caught.value)


def test_the_script_of_each_case_runs_without_the_package() -> None:
    """Names that a script lacks would raise NameError; it imports the readers of Arrow's structs alone."""
    for case in cases_of("producer"):
        script = script_of(case, "mine")
        lines = [line for line in script.splitlines() if "zerocopy" in line and "import" in line]
        assert not [line for line in lines if "zerocopy.testing" in line], case.id
        assert len(lines) <= 3, lines
        program, outcome = script.replace("target = ...", "target = made"), ""
        try:
            exec(compile(program, case.id, "exec"), {"made": Capsules})
        except Exception as error:  # noqa: BLE001 - a class of the script
            outcome = type(error).__name__
        assert outcome in ("", "Skip"), case.id


def test_each_case_belongs_to_a_protocol_and_says_what_it_checks() -> None:
    for case in cases_of("producer"):
        assert case.protocol in PROTOCOLS
        assert case.run.__doc__, case.id
        assert "https://" in case.clause, case.id


@pytest.mark.parametrize("data", [None, b"garbage\n", b"[1]\n", b"\xff\n"])
def test_a_target_that_deletes_or_writes_the_files_of_the_check(data: bytes | None, tmp_path: Path) -> None:
    def harm() -> None:
        for folder in tmp_path.glob("zerocopy-check-*"):
            if data is None:
                rmtree(folder)
            else:
                (folder / "out").write_bytes(data)

    class Harmful(Producer):
        def __dlpack_device__(self) -> Any:
            return harm() or (1, 0)

    def make() -> Any:
        return harm() or Producer()

    with patch.object(tempfile, "tempdir", str(tmp_path)):
        text = "the process ended with status 70" if data is None else "it writes to the file of the results"
        with pytest.raises(zc.errors.OptionError, match=text):
            check_producer(make, ["dlpack"])
        if data is None:
            (finding,) = check_producer(lambda: Harmful(), ["dlpack"]).findings
            assert (finding.case, finding.severity) == ("dlpack.device", "crash")


def test_a_check_that_is_interrupted_leaves_no_process() -> None:
    children, fork = [], os.fork

    def recorded_fork() -> int:
        children.append(fork())
        return children[-1]

    interrupt = patch.object(time, "sleep", side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt), interrupt, patch.object(os, "fork", recorded_fork):
        check_producer(lambda: Hangs(), ["dlpack"])
    (child,) = children
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)


def test_a_crash_leaves_no_core_file() -> None:
    resource = pytest.importorskip("resource")

    def make() -> Any:
        raise SystemExit(f"limit {resource.getrlimit(resource.RLIMIT_CORE)[0]}")

    with pytest.raises(zc.errors.OptionError, match="SystemExit: limit 0"):
        check_producer(make)
