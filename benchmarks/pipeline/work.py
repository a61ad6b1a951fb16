"""The work between the borders: one engine for each stage, the same for all contenders.

The task is to predict which flights arrive more than 15 minutes late, from data known at departure.
The model is a logistic regression on separate columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pipeline.data import COLUMNS, OBSERVATION, STATIONS

LATE = 15  # minutes
BATCH = 1 << 15  # rows
EPOCHS = 2
RATE = 0.5

NUMBERS = ("dep_delay", "distance", "temp", "humid", "wind_speed", "precip", "visib")
CYCLES = {"hour": 24, "month": 12}
FEATURES = (*NUMBERS, *(f"{name}_{wave}" for name in CYCLES for wave in ("sin", "cos")))

Columns = dict[str, Any]


def read_parquet(path: Path) -> Any:
    """Return the flights as a pyarrow.Table."""
    import pyarrow.parquet as pq

    return pq.read_table(path, columns=COLUMNS)


def read_records(path: Path) -> Any:
    """Return the weather as a structured array."""
    return np.fromfile(path, OBSERVATION)


def features_in_polars(flights: Any, weather: Any) -> Any:
    """Join the weather, and return features and label as columns of float32, each in one chunk."""
    import polars as pl

    joined = (
        flights.filter(pl.col("arr_delay").is_not_null())
        .with_columns(
            station=pl.col("origin").replace_strict(STATIONS, return_dtype=pl.Int32),
            time=pl.col("time_hour").dt.replace_time_zone(None),
        )
        .join(weather, on=["station", "time"], how="left", maintain_order="left")
        .select(
            *(pl.col(name).cast(pl.Float64).fill_nan(None).fill_null(strategy="mean") for name in NUMBERS),
            *(pl.col(name) * (2 * math.pi / period) for name, period in CYCLES.items()),
            late=pl.col("arr_delay") > LATE,
        )
    )
    numbers = [pl.col(name) for name in NUMBERS]
    chosen = joined.select(
        *((number - number.mean()) / number.std() for number in numbers),
        *(pl.col(name).sin().alias(f"{name}_sin") for name in CYCLES),
        *(pl.col(name).cos().alias(f"{name}_cos") for name in CYCLES),
        pl.col("late"),
    )
    return chosen.cast(pl.Float32).rechunk()


def features_in_cudf(flights: Any, weather: Any) -> Any:
    """Do the same with calls that cuDF and pandas share."""
    flights = flights[flights["arr_delay"].notnull()]
    keys = {
        "station": flights["origin"].map(STATIONS).astype("int32"),
        "time": flights["time_hour"].dt.tz_localize(None).astype("datetime64[ms]"),
        "row": np.arange(len(flights)),
    }
    # A join on a GPU returns rows in any order.
    joined = flights.assign(**keys).merge(weather, on=["station", "time"], how="left").sort_values("row")
    joined = joined.reset_index(drop=True)
    numbers = {name: joined[name].astype("float64") for name in NUMBERS}
    filled = {name: number.fillna(number.mean()) for name, number in numbers.items()}
    features = {name: (number - number.mean()) / number.std() for name, number in filled.items()}
    for name, period in CYCLES.items():
        angle = joined[name] * (2 * math.pi / period)
        features |= {f"{name}_sin": np.sin(angle), f"{name}_cos": np.cos(angle)}
    features["late"] = joined["arr_delay"] > LATE
    return type(joined)({name: column.astype("float32") for name, column in features.items()})


def train(columns: Columns) -> Columns:
    """Fit by gradient descent over batches; return the columns and a weight for each."""
    import torch

    late = columns["late"]
    features = [columns[name] for name in FEATURES]
    weights = torch.zeros(len(features) + 1, device=late.device)  # the last one is the bias
    for _ in range(EPOCHS):
        for start in range(0, len(late), BATCH):
            batch = [feature[start : start + BATCH] for feature in features]
            off = weights[-1].expand(len(batch[0])).clone()
            for weight, feature in zip(weights, batch, strict=False):
                off.addcmul_(weight, feature)
            off.sigmoid_().sub_(late[start : start + BATCH])
            slope = torch.stack([*(torch.dot(feature, off) for feature in batch), off.sum()])
            weights -= slope * (RATE / len(off))
    return {**columns, "weights": weights}


def score_in_jax(columns: Columns) -> Columns:
    """Return the probability that each flight is late, and whether it was."""
    return {"score": _compiled()(_inputs(columns)), "late": columns["late"]}


def score_in_cupy(columns: Columns) -> Columns:
    """Do the same with CuPy."""
    import cupy

    return {"score": logistic(cupy, _inputs(columns)), "late": columns["late"]}


def logistic(np_like: Any, columns: Mapping[str, Any]) -> Any:
    """Apply the model, with the functions of NumPy, JAX or CuPy."""
    weights = columns["weights"]
    total = weights[len(FEATURES)]
    for i, name in enumerate(FEATURES):
        total = total + weights[i] * columns[name]
    return 1 / (1 + np_like.exp(-total))


@cache
def _compiled() -> Any:
    import jax

    return jax.jit(lambda columns: logistic(jax.numpy, columns))


def _inputs(columns: Columns) -> Columns:
    return {name: columns[name] for name in (*FEATURES, "weights")}


def metrics(columns: Columns) -> dict[str, float]:
    """Return accuracy, logarithmic loss, Brier score and area under the curve."""
    score, late = columns["score"], columns["late"]
    likely = np.clip(score, 1e-6, 1 - 1e-6)
    loss = -np.where(late == 1, np.log(likely), np.log1p(-likely))
    ranks = np.empty(len(score))
    ranks[np.argsort(score)] = np.arange(1, len(score) + 1)
    hits = int(np.sum(late == 1))
    above = ranks[late == 1].sum() - hits * (hits + 1) / 2
    return {
        "accuracy": float(np.mean((score > 0.5) == (late == 1))),
        "log loss": float(np.mean(loss, dtype=np.float64)),
        "Brier score": float(np.mean((score - late) ** 2, dtype=np.float64)),
        "AUC": float(above / (hits * (len(score) - hits))),
    }


def write_parquet(table: Any, path: Path) -> Path:
    """Write the scores."""
    import pyarrow.parquet as pq

    pq.write_table(table, path)
    return path
