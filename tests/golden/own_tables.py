"""Writes tables of events with names and dates, as pandas and Polars users have them, for
`crates/program/tests/own_data.rs`.

    python tests/golden/own_tables.py tests/golden/foreign/own

Needs NumPy, pandas, Polars and PyArrow. All files have the same 60 events: six users meet six pages of their liking.
"""

import sys
from pathlib import Path

import numpy
import pandas
import polars

EVENTS = 60


def events():
    random = numpy.random.default_rng(1)
    user = random.integers(0, 6, EVENTS)
    page = (user + random.integers(0, 2, EVENTS)) % 6
    # Of microseconds, as pandas has them; 250 ms apart at least.
    time = pandas.Timestamp("2023-11-14T22:13:29") + pandas.to_timedelta(250 * numpy.cumsum(1 + user), unit="ms")
    return pandas.DataFrame(
        {
            "user": [f"u{u}" for u in user],
            "page": [f"page {p}" for p in page],
            "when": time,
            "stars": random.integers(1, 6, EVENTS),
            "kind": random.choice(["edit", "talk"], EVENTS),
            "day": time.date,
            "vector": [[float(u), 0.5] for u in user],
            "share": random.random(EVENTS).round(3).astype("float32"),
        }
    )


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    frame = events()
    frame.to_parquet(folder / "pandas.parquet")
    zoned = frame.assign(when=frame["when"].dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin"))
    zoned.astype({"user": "category", "page": "category"}).to_feather(folder / "pandas.feather")
    table = polars.from_pandas(frame.drop(columns="day"))
    table.write_parquet(folder / "polars.parquet", compression="zstd")
    table.write_ipc_stream(folder / "polars.arrows")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
