"""Writes `time_split.json`, the parts that the tests of `crates/data/src/split.rs` compare with.

    python tests/golden/time_split.py tests/golden/time_split.json

TGB's split: the quantiles 1 - 0.15 - 0.15 and 1 - 0.15 of all times, by NumPy. Events up to the first quantile train,
later ones up to the second validate, the rest test. A case holds the times and the number of events in each part.
"""

import json
import sys
from pathlib import Path

import numpy

SEED = 8
# Events, largest step between two of them, time of the first. Steps of 0 or 1 give many events the same time.
SIZES = [
    (1, 1, 0), (2, 9, 0), (3, 9, 5), (7, 1, 0), (10, 1, 1_648_811_421), (20, 3, -40), (21, 0, 17), (33, 1, 0),
    (40, 5, 1_288_483_200), (61, 2, 1_288_483_200), (100, 1, 0), (101, 90_000, 1_288_483_200),
]  # fmt: skip


def case(random, events, step, start):
    times = start + numpy.cumsum(random.integers(step + 1, size=events))
    val_time, test_time = numpy.quantile(times, [1 - 0.15 - 0.15, 1 - 0.15])
    train = times <= val_time
    val = (times > val_time) & (times <= test_time)
    test = times > test_time
    return {"time": times.tolist(), "train": int(train.sum()), "val": int(val.sum()), "test": int(test.sum())}


def main():
    random = numpy.random.default_rng(SEED)
    cases = [json.dumps(case(random, *size)) for size in SIZES]
    head = f'{{"seed": {SEED}, "versions": {{"numpy": "{numpy.__version__}"}}, "cases": [\n'
    Path(sys.argv[1]).write_text(head + ",\n".join(cases) + "\n]}\n")


if __name__ == "__main__":
    main()
