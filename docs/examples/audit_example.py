"""Three lines that copy, for ``zerocopy audit docs/examples/audit_example.py``."""

import numpy as np
import polars as pl
import torch

rows, names = 336_776, [f"column_{number}" for number in range(14)]
flights = pl.DataFrame({name: np.arange(rows) for name in names})

columns = flights.to_torch("dict")
delays = torch.tensor(flights["column_0"])
weights = torch.linspace(0, 1, rows)
history = [np.array(weights) for _ in range(3)]
print(columns["column_1"].sum() + delays.sum(), history[0].sum())
