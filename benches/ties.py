"""Counts the test events that share their time with events of earlier batches, and what knowing those is worth.

    wikipedia=crates/data/bundled/wikipedia.csv.gz
    python benches/ties.py --out benches/results/NAME.json $wikipedia path/to/contacts.txt.gz:sdt ...

What reads the events of all earlier batches may read some of the query's own time, where a batch ends within that time.
The rule "local recency, then global recency" is tested as it is, and strictly: events of the query's time are held back
until it has passed. It scores the pair (u, v) by the pair's latest event, in both directions; v's latest event decides
ties. AP has one negative from all nodes. MRR has 49, from the destinations if no node is both source and destination,
else from all nodes. Events up to the .85 quantile of time come before the test part, whose first event begins a batch.
A file has numbers of source, destination and time first in every row, or in the order of three letters, such as `:tsd`. Needs NumPy.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from record import head, spread


def read(file, order):
    """Returns sources, destinations (both numbered from 0) and times, in order of time."""
    delimiter = "," if ".csv" in file.suffixes else None
    columns = [order.index(what) for what in "sdt"]
    table = np.loadtxt(file, delimiter=delimiter, skiprows=int(delimiter is not None), usecols=columns)
    table = table[np.argsort(table[:, 2], kind="stable")]
    ends = np.unique(table[:, :2], return_inverse=True)[1].reshape(-1, 2)
    return ends[:, 0], ends[:, 1], table[:, 2]


class Latest:
    """Finds the latest event of a key among the first events. Events are numbered from 1; 0 is none."""

    def __init__(self, keys, events):
        self.width = events.max() + 2
        self.sorted = np.sort(keys * self.width + events)

    def before(self, keys, end):
        """Returns the latest event of each key among the first `end`."""
        at = np.searchsorted(self.sorted, keys * self.width + end, side="right") - 1
        found = self.sorted[at]
        return np.where((at >= 0) & (found // self.width == keys), found % self.width, 0)


class Rule:
    """Local recency, then global recency."""

    def __init__(self, src, dst):
        number = np.arange(1, len(src) + 1)
        self.nodes = max(src.max(), dst.max()) + 1
        self.width = len(src) + 1
        self.pairs = Latest(self.key(src, dst), number)
        self.ends = Latest(np.concatenate([src, dst]), np.concatenate([number, number]))

    def key(self, a, b):
        return np.minimum(a, b) * self.nodes + np.maximum(a, b)

    def scores(self, src, candidates, end):
        """Returns the scores of sources with their candidates, a row each, by the first `end` events."""
        src, end = src[:, None], end[:, None]
        return self.pairs.before(self.key(src, candidates), end) * self.width + self.ends.before(candidates, end)


def ap(scores):
    """Returns the average precision of rows of a positive and a negative. Tied scores form one threshold."""
    values, of = np.unique(-scores, return_inverse=True)
    of = of.reshape(scores.shape)
    positive = np.bincount(of[:, 0], minlength=len(values))
    precision = np.cumsum(positive) / np.cumsum(np.bincount(of.ravel(), minlength=len(values)))
    return float((precision * positive).sum() / len(scores))


def mrr(scores):
    """Returns the mean reciprocal rank of the first of each row; it takes the mean rank among its ties."""
    own, others = scores[:, :1], scores[:, 1:]
    return float((1 / (1 + (others > own).sum(1) + (others == own).sum(1) / 2)).mean())


def measure(name, src, dst, time, batch, seeds):
    """Returns the row of a data set."""
    first = np.searchsorted(time, np.quantile(time, 0.85), side="right")
    test = np.arange(first, len(time))
    batches = first + (test - first) // batch * batch
    # Number of events before the query's time; fewer than those before its batch if the batch begins within that time.
    earlier = np.searchsorted(time, time[test], side="left")
    memories = {"earlier batches": batches, "strict": np.minimum(batches, earlier)}
    rule, nodes = Rule(src, dst), max(src.max(), dst.max()) + 1
    bipartite = not np.isin(src, dst).any()
    pool = np.unique(dst) if bipartite else np.arange(nodes)
    figures = {memory: {"ap": [], "mrr": []} for memory in memories}
    for seed in seeds:
        draw = np.random.default_rng(seed)
        pairs = np.column_stack([dst[test], draw.integers(nodes, size=len(test))])
        ranked = np.column_stack([dst[test], draw.choice(pool, (len(test), 49))])
        for memory, end in memories.items():
            figures[memory]["ap"].append(ap(rule.scores(src[test], pairs, end)))
            figures[memory]["mrr"].append(mrr(rule.scores(src[test], ranked, end)))
    return {
        "data": name,
        "events": len(time),
        "times": len(np.unique(time)),
        "test_events": len(test),
        "tied_with_earlier_batch": float((earlier < batches).mean()),
        "tied_with_earlier_event": float((earlier < test).mean()),
        "figures": figures,
    }


def table(rows):
    """Prints a row for each data set: mean ± standard deviation over the seeds."""
    columns = [(figure, memory) for figure in ("ap", "mrr") for memory in rows[0]["figures"]]
    names = [f"{figure.upper()}, {memory}" for figure, memory in columns]
    print("| | test events | tied with an earlier batch | with any earlier event | " + " | ".join(names) + " |")
    print("| --- |" + " --- |" * (3 + len(names)))
    for row in rows:
        cells = [f"{row['test_events']:,}"]
        cells += [f"{row[share]:.2%}" for share in ("tied_with_earlier_batch", "tied_with_earlier_event")]
        for figure, memory in columns:
            values = row["figures"][memory][figure]
            cells.append(spread(values, 4))
        print(f"| {row['data']} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="a file of events, or FILE:ORDER with the order of its columns")
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    args = parser.parse_args()
    record = head() | {"batch": args.batch, "seeds": args.seeds, "rows": []}
    for data in args.data:
        file, _, order = data.partition(":")
        src, dst, time = read(Path(file), order or "sdt")
        record["rows"].append(measure(Path(file).name.split(".")[0], src, dst, time, args.batch, args.seeds))
    if args.out:
        Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    table(record["rows"])


if __name__ == "__main__":
    main()
