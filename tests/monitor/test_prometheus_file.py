"""The file for node_exporter's textfile collector: a reader never sees a part of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.monitor_samples import ChangingObserver

pytest.importorskip("prometheus_client")
from zerocopy.errors import MonitorFileError
from zerocopy.monitor.prometheus import PrometheusFile, exposition


def test_each_sample_replaces_the_file(tmp_path: Path) -> None:
    path, observer = tmp_path / "zerocopy.prom", ChangingObserver()
    file = PrometheusFile(str(path))
    assert not path.exists()
    for _ in range(2):
        sample = observer.read()
        file.write(sample)
        assert path.read_text() == exposition(sample)
    assert os.listdir(tmp_path) == ["zerocopy.prom"]


def test_a_failed_write_keeps_the_former_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, observer = tmp_path / "zerocopy.prom", ChangingObserver()
    file = PrometheusFile(str(path))
    file.write(observer.read())
    before = path.read_text()

    def fail(before: object, after: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="No space left"):
        file.write(observer.read())
    assert path.read_text() == before
    assert os.listdir(tmp_path) == ["zerocopy.prom"]


def test_a_link_stays(tmp_path: Path) -> None:
    (tmp_path / "link.prom").symlink_to(tmp_path / "target.prom")
    PrometheusFile(str(tmp_path / "link.prom")).write(ChangingObserver().read())
    assert (tmp_path / "link.prom").is_symlink()
    assert (tmp_path / "target.prom").is_file()


@pytest.mark.hazard("robustness#existing-output")
@pytest.mark.parametrize("path", ["/dev/null", "/dev/full", "/", "/nonexistent/a.prom"])
def test_devices_and_folders_are_refused(path: str) -> None:
    with pytest.raises(MonitorFileError):
        PrometheusFile(path)
    assert not os.path.isfile("/dev/null")
