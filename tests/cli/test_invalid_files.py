"""``zerocopy matrix --input`` exits with code 2 for invalid content, and for files beyond its limits.

Most files are read in this process, as the command's child process reads them; a child costs half a second.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.versions import has

from zerocopy.cli import datasets

pa = pytest.importorskip("pyarrow")
pytest.importorskip("click")
pytest.importorskip("rich")

from helpers import crafted_arrow  # noqa: E402  # it imports pyarrow

MAX_BYTES = 1 << 20

#: Runs the command once for each file, in one process: a crash ends the output at that file.
RUN_ALL = """
import json, sys
from click.testing import CliRunner
from zerocopy.cli.main import command

for path in json.loads(sys.argv[1]):
    print(json.dumps(path), end=" ", flush=True)
    limits = ["--max-bytes", "MAX_BYTES", "--frameworks", "numpy", "--repeat", "1"]
    result = CliRunner().invoke(command(), ["matrix", "--input", path, *limits])
    print(json.dumps([result.exit_code, result.output]), flush=True)
""".replace("MAX_BYTES", str(MAX_BYTES))


def crafted(folder: Path, most: int = 1000) -> dict[str, str]:
    """Write the crafted files, the first `most` of each kind; return their names by path."""
    names = {}
    kinds = (
        crafted_arrow.content(),
        crafted_arrow.metadata(),
        crafted_arrow.files(),
        crafted_arrow.bombs(MAX_BYTES),
    )
    for kind in kinds:
        for name, data in islice(kind, most):
            path = folder / f"{len(names):03}.{'feather' if len(names) % 7 == 3 else 'arrow'}"
            path.write_bytes(data)
            names[str(path)] = name
    return names


@pytest.mark.hazard("untrusted-data#arrow-file-with-wrong-content")
def test_command_exits_2_for_each_kind_of_crafted_arrow_file(
    tmp_path: Path, run_python: Callable[..., Any]
) -> None:
    names = crafted(tmp_path, most=2)
    program = RUN_ALL.replace("json.loads(sys.argv[1])", repr(list(names)))
    process = run_python(program)
    results = [line.split(" ", 1) for line in process.stdout.splitlines()]
    assert process.returncode == 0, (names[json.loads(results[-1][0])], process.stderr)
    wrong = {}
    for path, result in results:
        exit_code, output = json.loads(result)
        if exit_code != 2 or "Error" not in output or "Traceback" in output:
            wrong[names[json.loads(path)]] = (exit_code, output)
    assert not wrong
    assert len(results) == len(names)


def test_valid_arrow_files_and_streams_are_read(tmp_path: Path) -> None:
    for number, (name, data) in enumerate(crafted_arrow.valid()):
        path = tmp_path / f"{number}.arrow"
        path.write_bytes(data)
        assert datasets.read(path, MAX_BYTES).columns["x"].to_pylist()[499] == "text 499", name


def test_each_kind_of_arrow_error_has_its_message(tmp_path: Path) -> None:
    messages = {}
    for path, name in crafted(tmp_path).items():
        if name == "buffer longer than the body" and not has("pyarrow", "26"):
            continue  # accepted, because the rows lie in the body
        with pytest.raises(datasets.DataError) as caught:
            datasets.read(Path(path), MAX_BYTES)
        messages[name] = str(caught.value)
        assert "\n" not in messages[name]
    assert len(messages) > 40
    assert "UTF8" in messages["text not UTF-8"]
    assert "out of bounds" in messages["code past the dictionary"]
    assert "too small" in messages["buffer shorter than its rows"]
    for name, _ in crafted_arrow.bombs(MAX_BYTES):
        assert "pass a larger --max-bytes" in messages[name]


def refused(path: Path, max_bytes: int = MAX_BYTES) -> str:
    with pytest.raises(datasets.DataError) as caught:
        datasets.load(path, max_bytes)
    return str(caught.value)


@pytest.mark.hazard("untrusted-data#files-that-are-not-regular", "untrusted-data#large-files")
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet", ".arrow", ".feather"])
def test_only_regular_files_of_limited_size_are_opened(tmp_path: Path, suffix: str) -> None:
    pipe = tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)
    assert "not a regular file" in refused(pipe)
    device = tmp_path / f"zero{suffix}"
    device.symlink_to("/dev/zero")
    assert "not a regular file" in refused(device)
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    assert "directory" in refused(folder)
    large = tmp_path / f"large{suffix}"
    with large.open("wb") as file:
        file.truncate(1 << 40)
    assert "1,099,511,627,776 bytes, more than the limit" in refused(large, datasets.MAX_BYTES)


@pytest.mark.hazard("untrusted-data#small-files-with-much-content")
def test_members_of_an_npz_are_limited_after_decompression(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros(MAX_BYTES), y=np.zeros(3))
    assert path.stat().st_size < MAX_BYTES
    assert "it has 8,388,632 bytes, more than the limit" in refused(path)
    assert datasets.read(path).arrays["y"].tolist() == [0, 0, 0]


@pytest.mark.hazard("untrusted-data#small-files-with-much-content")
def test_parquet_file_is_limited_after_decompression(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    numbers, texts = tmp_path / "numbers.parquet", tmp_path / "texts.parquet"
    parquet.write_table(pa.table({"x": np.zeros(MAX_BYTES)}), numbers, compression="zstd")
    parquet.write_table(pa.table({"x": ["a" * 10_000] * 20_000}), texts, compression="zstd")
    for path in (numbers, texts):
        assert path.stat().st_size < MAX_BYTES
        assert "pass a larger --max-bytes" in refused(path)
        assert list(datasets.read(path).columns) == ["x"]


@pytest.mark.hazard("untrusted-data#small-files-with-much-content")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit memory")
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_memory_of_the_process_that_reads_is_limited(tmp_path: Path, suffix: str) -> None:
    """Each file has a few hundred kilobytes, and needs more memory than 1 MiB allows."""
    import pyarrow.parquet as parquet

    path, numbers = tmp_path / f"x.{suffix}", np.zeros(12 << 20)
    if suffix == "parquet":
        parquet.write_table(pa.table({"x": numbers}), path, compression="zstd", row_group_size=len(numbers))
    else:
        path.write_bytes(crafted_arrow.file_of(pa.array(numbers), compression="zstd"))
    message = refused(path)
    assert f"needs more memory than {(4 << 20) + (64 << 20):,} bytes" in message
    assert "pass a larger --max-bytes" in message


@pytest.mark.hazard("untrusted-data#content-that-ends-its-reader")
@pytest.mark.parametrize(
    ("program", "how"),
    [("import os; os.abort()", "SIGABRT"), ("raise SystemExit(9)", "exit code 9")],
)
def test_end_of_the_process_that_reads_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, how: str
) -> None:
    monkeypatch.setattr(datasets, "_CHILD", program)
    path = tmp_path / "x.npy"
    np.save(path, np.arange(3))
    message = refused(path)
    assert f"a process that read it ended with {how}" in message
    assert "pass a larger --max-bytes" in message


def test_modules_in_the_working_directory_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(9)")
    np.save(tmp_path / "x.npy", np.arange(3))
    monkeypatch.chdir(tmp_path)
    assert datasets.load("x.npy").arrays["x"].tolist() == [0, 1, 2]


@pytest.mark.hazard("untrusted-data#arrow-file-with-wrong-content")
def test_parquet_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    path = tmp_path / "x.parquet"
    offsets = pa.py_buffer(np.array([0, 2], "i4"))
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff\xfe")])
    parquet.write_table(pa.table({"x": text}), path)
    assert "UTF8" in refused(path)


def test_help_names_the_limit() -> None:
    from click.testing import CliRunner

    from zerocopy.cli.main import command

    output = CliRunner().invoke(command(), ["matrix", "--help"]).output
    assert "--max-bytes" in output
    assert "1 GiB" in output
