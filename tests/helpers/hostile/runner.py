"""Run seeds in subprocesses, so that a crash or a hang is the finding of one seed."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helpers.paths import ROOT
from helpers.warm import WarmProcess

_WORKER = Path(__file__).with_name("worker.py")


@dataclass(slots=True)
class Report:
    """Counts of outcomes by family, and each finding by its seed."""

    counts: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    codes: collections.Counter[str] = field(default_factory=collections.Counter)
    findings: dict[int, tuple[str, str]] = field(default_factory=dict)  #: family and text, by seed
    slow: list[tuple[float, int]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = []
        for family in sorted({family for family, _ in self.counts}):
            kinds = {kind: n for (name, kind), n in sorted(self.counts.items()) if name == family}
            total = sum(kinds.values())
            lines.append(
                f"{family:16} {total:6,}  " + ", ".join(f"{n:,} {kind}" for kind, n in kinds.items())
            )
        total = sum(self.counts.values())
        lines.append(f"{'all':16} {total:6,}  {len(self.findings):,} findings")
        lines += [
            f"seed {seed} ({family}): {text}\n  again: python -m tests.hostile --count 1 --seed {seed}"
            for seed, (family, text) in sorted(self.findings.items())
        ]
        return "\n".join(lines)


def run(first: int, last: int, family: str = "", warm: WarmProcess | None = None) -> Report:
    """Run the seeds from `first` to before `last`; a warm process has imported the frameworks."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="zerocopy-hostile-") as folder:
        errors = Path(folder, "worker-errors")
        if warm is not None:
            process = warm.run(_program(folder, first, last, family), **_environment(folder, {}))
            if process.returncode:
                raise RuntimeError(f"the worker failed: {process.stderr[-3000:]}")
            _read(Path(folder, "log"), report)
            return report
        with errors.open("wb") as stderr:
            process = subprocess.run(
                [sys.executable, str(_WORKER), folder, str(first), str(last), family],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=_environment(folder, os.environ),
                timeout=600 + 5 * (last - first),
                check=False,
            )
        if process.returncode:
            raise RuntimeError(f"the worker failed: {errors.read_text(errors='replace')[-3000:]}")
        _read(Path(folder, "log"), report)
    return report


def _program(folder: str, first: int, last: int, family: str) -> str:
    """Return the program of a worker."""
    return f"""
        import faulthandler, sys
        from pathlib import Path
        sys.path.insert(0, "tests")
        from helpers.hostile import worker
        faulthandler.enable()
        worker.main(Path({folder!r}), {first}, {last}, {family!r})
    """


def _environment(folder: str, base: Mapping[str, str]) -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "tests")]
    quiet = {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "TMPDIR": folder,
    }
    return {**base, **quiet, "PYTHONPATH": os.pathsep.join(paths)}


def _read(log: Path, report: Report) -> None:
    """Add the outcomes of a log to a report."""
    families: dict[int, str] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        entry = json.loads(line)
        seed = entry["seed"]
        if "kind" not in entry:
            families[seed] = entry["family"]
            continue
        family, kind = families[seed], entry["kind"]
        report.counts[family, kind] += 1
        if entry["seconds"] > 2:
            report.slow.append((entry["seconds"], seed))
        if kind in ("finding", "crash", "hang"):
            report.findings[seed] = (family, entry["detail"])
        elif entry["detail"]:
            report.codes[entry["detail"]] += 1
