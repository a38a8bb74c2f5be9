"""Checks the rules that learn nothing against an independent program, and records both.

    tgnn-bench data import wikipedia --out out/data/wiki999
    python benches/tgb_negatives.py out/data/wiki999 --negatives 999
    python benches/peers/rules.py --out benches/results/NAME.json out/data/wiki999 ...

Ranks the test events of a folder among its lists of negatives by each of the eleven rules of docs/evaluation.md, given
the events of earlier batches and given all strictly earlier ones: once by `tgnn-bench` (beside one epoch of the model
`static`, which is not looked at), once here, with a dense matrix of pairs and NumPy alone. t-CoMem is ranked by its pair
alone: the activity of the source is the same for all of its candidates. Reports the MRR of both, and how long
`tgnn-bench` took for EdgeBank and the rules, given either, on one core. Needs NumPy.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from record import ROOT, head  # noqa: E402

DECAYS = [0.36, 0.6, 0.8, 0.9, 0.94, 0.97, 0.99, 0.997]


class Past:
    """What a query knows, in dense arrays."""

    def __init__(self, stream, batches, nodes):
        self.stream, self.batches, self.batch = stream, batches, 0
        self.time = np.full(nodes, stream[2][0] - 1)  # of the latest event; before the first one for nodes without any
        self.pair_latest, self.pair_count = np.zeros((nodes, nodes), np.int32), np.zeros((nodes, nodes), np.int32)
        self.latest, self.count = np.zeros(nodes), np.zeros(nodes)
        self.popularity = np.zeros((len(DECAYS), nodes))
        self.events = 0

    def reach(self, end, batch):
        """Goes on to a query in a batch that knows the first `end` events."""
        decays = np.array(DECAYS)
        self.popularity *= (decays ** (batch - self.batch))[:, None]
        self.batch = batch
        for event in range(self.events, end):
            u, v, time = (column[event] for column in self.stream)
            self.events += 1
            for a, b in ((u, v), (v, u)):
                self.pair_latest[a, b] = self.events
            self.pair_count[u, v] += 1
            self.pair_count[v, u] += u != v
            for node in {u, v}:
                self.latest[node] = self.events
                self.count[node] += 1
                self.time[node] = time
            self.popularity[:, v] += decays ** (batch - self.batches[event])

    def scores(self, u, candidates, now):
        """Returns the scores of each rule but PopTrack: the first key, and the one that decides among ties."""
        local = {"recency": self.pair_latest[u, candidates], "popularity": self.pair_count[u, candidates]}
        everywhere = {"recency": self.latest[candidates], "popularity": self.count[candidates]}
        zero = np.zeros(len(candidates))
        yield from ((f"local {name}", key, zero) for name, key in local.items())
        yield from ((f"global {name}", zero, key) for name, key in everywhere.items())
        for name, key in local.items():
            for other, second in everywhere.items():
                yield f"local {name}, then global {other}", key, second
        yield "recency of both ends", -(1.0 + now - self.time[u]) * (1.0 + now - self.time[candidates]), zero
        count = local["popularity"].astype(float)
        yield "t-CoMem", 0.8 * count / (1 + count), zero


def inverse_rank(first, second):
    """Returns the inverse rank of the first candidate. Ties count half."""
    above = (first > first[0]) | ((first == first[0]) & (second > second[0]))
    ties = (first == first[0]) & (second == second[0])
    return 1 / (1 + above.sum() + (ties.sum() - 1) / 2)


def mrr(folder, batch, strict):
    """Returns the MRR of each rule on the test part, given the events of earlier batches, or all that are strictly
    earlier."""
    stream = src, dst, time = [np.load(folder / f"{name}.npy").astype(np.int64) for name in ("src", "dst", "time")]
    lists = {part: np.load(folder / f"{part}_negatives.npy") for part in ("val", "test")}
    end = len(src)
    test = end - len(lists["test"])
    val = test - len(lists["val"])
    starts = np.concatenate([np.arange(*part, batch) for part in ((0, val), (val, test), (test, end))])
    batches = np.searchsorted(starts, np.arange(end), side="right") - 1
    known = np.searchsorted(time, time) if strict else starts[batches]
    past = Past(stream, batches, max(src.max(), dst.max()) + 1)
    by_decay, of = {"val": [[] for _ in DECAYS], "test": [[] for _ in DECAYS]}, {}
    for part, first, last in (("val", val, test), ("test", test, end)):
        for event in range(first, last):
            past.reach(known[event], batches[event])
            negatives = lists[part][event - first]
            candidates = np.concatenate([[dst[event]], negatives[negatives >= 0]])
            for ranks, popularity in zip(by_decay[part], past.popularity):
                ranks.append(inverse_rank(popularity[candidates], np.zeros(len(candidates))))
            if part == "test":
                for name, key, second in past.scores(src[event], candidates, time[event]):
                    of.setdefault(name, []).append(inverse_rank(key, second))
    best = max(range(len(DECAYS)), key=lambda i: np.mean(by_decay["val"][i]))
    of["PopTrack"] = by_decay["test"][best]
    return {name: float(np.mean(ranks)) for name, ranks in of.items()}


def of_program(args, folder, batch):
    """Returns the MRR of each rule by `tgnn-bench`, given either past, and the candidates that it ranked in a second."""
    command = [args.tgnn, "train", "--data", str(folder), "--protocol", "tgb", "--model", "static", "--epochs", "1"]
    command += ["--threads", "1", "--eval-batch", str(batch), "--json"]
    summary = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout)
    lists = [np.load(folder / f"{part}_negatives.npy") for part in ("val", "test")]
    candidates = sum(int((of >= 0).sum()) + len(of) for of in lists)
    rules = [{rule["name"]: rule["test"]["transductive"]["mrr"] for rule in of["baselines"]}
             for of in (summary, summary["strictly_earlier"])]
    return rules, 2 * candidates / summary["baselines_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of .npy with lists of negatives")
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--batches", nargs="+", type=int, default=[200, 1])
    args = parser.parse_args()
    record = head() | {"rows": []}
    for folder in args.folders:
        for batch in args.batches:
            pasts, speed = of_program(args, folder, batch)
            for past, rules in zip(("earlier batches", "strictly earlier"), pasts):
                for name, here in mrr(folder, batch, past == "strictly earlier").items():
                    row = {"data": folder.name, "batch": batch, "past": past, "rule": name, "mrr": rules[name], "numpy": here}
                    record["rows"].append(row | {"candidates_per_second": speed})
                    print(f"{folder.name}, batch {batch}, {past}, {name}: {rules[name]:.6f}, {here:.6f} by NumPy")
            print(f"{speed / 1e6:.1f} million candidates a second")
    if args.out:
        args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
