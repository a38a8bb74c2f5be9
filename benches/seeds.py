"""Trains each configuration with several seeds, records the metrics of every summary, prints a table of means.

    cargo build --release
    python benches/seeds.py --out benches/results/NAME.json "name: flags of train" "another name: other flags" ...
    python benches/seeds.py --out benches/results/NAME.json "a peer: benches/peers/temporal_regression.py its flags"
    python benches/seeds.py --out benches/results/NAME.json "name: flags of train" --eval="flags of eval" --eval="other flags"
    python benches/seeds.py --tables benches/results/NAME.json

Needs only the standard library; peers have their own requirements.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from record import ROOT, head, spread


def results(command):
    """Returns what the records keep of the summary that a command prints."""
    print("  $", shlex.join(command), file=sys.stderr, flush=True)
    done = subprocess.run([*command, "--json"], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    summary = json.loads(done.stdout)
    return {key: summary.get(key) for key in ("version", "seed", "best_epoch", "test", "test_by_memory", "edgebank", "baselines", "parameters")}


def rows(args, run, seed):
    """Yields the rows of one training: of tgnn, or of a peer if the flags begin with a script. With `--eval`, a row for
    each test of the best epoch instead."""
    name, _, flags = run.partition(": ")
    words = shlex.split(flags)
    program = [sys.executable] if words[0].endswith(".py") else [args.tgnn, "train"]
    command = [*program, *words, "--seed", str(seed)]
    if not args.eval:
        yield {"name": name, "flags": flags, **results(command)}
        return
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "run")
        results([*command, "--out", out])
        for test in args.eval:
            of_test = results([args.tgnn, "eval", "--checkpoint", out, *shlex.split(test)])
            yield {"name": name, "flags": flags, "eval": test, **of_test}


def tables(record):
    """Prints a row for each configuration and its baselines: mean ± standard deviation over the seeds."""
    figures = ("ap", "auc", "mrr", "hits_at_10", "f1", "accuracy", "mae", "rmse")
    rows = record["rows"]
    shown = [f for f in figures if any(r["test"]["transductive"].get(f) is not None for r in rows)]
    print("| | " + " | ".join(f.replace("_at_", "@").upper() for f in shown) + " |")
    print("| --- |" + " --- |" * len(shown))
    called = lambda row: f"{row['name']}, {row['eval']}" if "eval" in row else row["name"]
    for name in dict.fromkeys(map(called, rows)):
        mine = [row for row in rows if called(row) == name]
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
                cells.append(spread(values, 4) if values else "")
            print(f"| {label} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", help="NAME: flags of `tgnn-bench train`")
    parser.add_argument("--eval", action="append", help="flags of `tgnn-bench eval`: test the best epoch with them, once for each")
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--tables", help="print the table of a JSON, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    args = parser.parse_args()
    if args.tables:
        return tables(json.loads(Path(args.tables).read_text()))
    record = head() | {"rows": []}
    for run in args.runs:
        for seed in args.seeds:
            for row in rows(args, run, seed):
                record["rows"].append(row)
                if args.out:
                    Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    tables(record)


if __name__ == "__main__":
    main()
