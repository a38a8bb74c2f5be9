"""Trains each configuration with several seeds, records the metrics of every summary, prints a table of means.

    cargo build --release
    python benches/seeds.py --out benches/results/NAME.json "name: flags of train" "another name: other flags" ...
    python benches/seeds.py --out benches/results/NAME.json "a peer: benches/peers/temporal_regression.py its flags"
    python benches/seeds.py --tables benches/results/NAME.json

Needs only the standard library; peers have their own requirements.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from record import ROOT, head


def train(tgnn, flags, seed):
    """Returns the metrics of one training: of tgnn, or of a peer if `flags` begin with a script."""
    flags = shlex.split(flags)
    program = [sys.executable] if flags[0].endswith(".py") else [tgnn, "train"]
    command = [*program, *flags, "--seed", str(seed), "--json"]
    print("  $", shlex.join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    summary = json.loads(done.stdout)
    return {key: summary.get(key) for key in ("version", "seed", "best_epoch", "test", "test_by_memory", "edgebank", "baselines", "parameters")}


def tables(record):
    """Prints a row for each configuration and its baselines: mean ± standard deviation over the seeds."""
    figures = ("ap", "auc", "mrr", "hits_at_10", "f1", "accuracy", "mae", "rmse")
    rows = record["rows"]
    shown = [f for f in figures if any(r["test"]["transductive"].get(f) is not None for r in rows)]
    print("| | " + " | ".join(f.replace("_at_", "@").upper() for f in shown) + " |")
    print("| --- |" + " --- |" * len(shown))
    for name in dict.fromkeys(row["name"] for row in rows):
        mine = [row for row in rows if row["name"] == name]
        parts = {name: [row["test"] for row in mine]}
        for kind in mine[0]["edgebank"] or {}:
            parts[f"{name}: EdgeBank, {kind}"] = [row["edgebank"][kind] for row in mine]
        for at, baseline in enumerate(mine[0]["baselines"] or []):
            parts[f"{name}: {baseline['name']}"] = [row["baselines"][at]["test"] for row in mine]
        for label, tests in parts.items():
            cells = []
            for figure in shown:
                values = [test["transductive"].get(figure) for test in tests]
                values = [v for v in values if v is not None]
                spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
                cells.append(f"{statistics.mean(values):.4f}{spread}" if values else "")
            print(f"| {label} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", help="NAME: flags of `tgnn-bench train`")
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--tables", help="print the table of a JSON, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    args = parser.parse_args()
    if args.tables:
        return tables(json.loads(Path(args.tables).read_text()))
    record = head() | {"rows": []}
    for run in args.runs:
        name, _, flags = run.partition(": ")
        for seed in args.seeds:
            record["rows"].append({"name": name, "flags": flags, **train(args.tgnn, flags, seed)})
            if args.out:
                Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    tables(record)


if __name__ == "__main__":
    main()
