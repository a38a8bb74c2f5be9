"""Draws lists of negatives by TGB's rule for a folder of .npy files without such lists.

    tgnn-bench data import wikipedia --out wiki
    python benches/tgb_negatives.py wiki --negatives 100
    tgnn-bench train --data wiki --protocol tgb

For every event of the validation and test parts (split by time as in TGB), up to half of the negatives are destinations
of the source's training events; the others are drawn from all destinations. No negative is a destination of the source
at the time of the event, and no negative occurs twice. TGB's own lists (`py-tgb`, strategy `hist_rnd`) follow the same
rule with other draws, so scores on these lists are not comparable with TGB's leaderboard. Needs NumPy.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--negatives", type=int, default=100)
    parser.add_argument("--seed", type=int, default=123)
    args = parser.parse_args()
    src, dst, time = (np.load(args.folder / f"{name}.npy").astype(np.int64) for name in ("src", "dst", "time"))
    val_time, test_time = np.quantile(time, [0.70, 0.85])
    rng = np.random.default_rng(args.seed)
    everyone = np.unique(dst)
    met = defaultdict(set)
    for s, d in zip(src[time <= val_time], dst[time <= val_time]):
        met[s].add(d)
    now = defaultdict(set)
    for s, d, t in zip(src, dst, time):
        now[s, t].add(d)
    parts = {"val": (time > val_time) & (time <= test_time), "test": time > test_time}
    for part, mask in parts.items():
        lists = np.full((mask.sum(), args.negatives), -1, np.int32)
        for row, s, t in zip(lists, src[mask], time[mask]):
            history = np.array(sorted(met[s] - now[s, t]), np.int64)
            history = rng.permutation(history)[: args.negatives // 2]
            others = np.setdiff1d(everyone, np.concatenate([history, list(now[s, t])]))
            drawn = rng.permutation(others)[: args.negatives - len(history)]
            row[: len(history) + len(drawn)] = np.concatenate([history, drawn])
        np.save(args.folder / f"{part}_negatives.npy", lists)
        print(f"{part}: {len(lists)} lists of {args.negatives}")


if __name__ == "__main__":
    main()
