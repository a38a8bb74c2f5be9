"""Runs plans in turn on the same data, records what each did and what was predicted of it, prints a table.

    cargo build --release
    python benches/plans.py --out benches/results/NAME.json "name: flags of plan simulate" "another name: other flags" ...
    python benches/plans.py --tables benches/results/NAME.json

Every run is `tgnn-bench plan simulate PLAN`: an epoch to warm up, in which plans that go by predictions find them, an epoch whose ops
are timed, an epoch that is predicted and run. Plans take turns, several rounds; tables have the median round of each. Needs Python's
own library alone.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from record import ROOT, head

SNAPSHOTS = ["sequential", "blad-even", "blad-nm", "blad"]
EVENTS = ["sequential", "prefetch"]


def run(tgnn, plan, flags):
    command = [tgnn, "plan", "simulate", plan, *shlex.split(flags), "--json"]
    print("  $", shlex.join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    found = json.loads(done.stdout)
    ops = found["costs"]["ops"].values()
    seconds = sum(op["mean"] * op["runs"] for op in ops)
    error = sum(op["error"] * op["mean"] * op["runs"] for op in ops) / seconds
    return {key: found[key] for key in ("predicted", "ran", "off", "chosen")} | {"op_error": error}


def tables(record):
    percent = lambda x: f"{100 * x:.1f} %"
    print("| | plan | seconds | against sequential | overlap | sync | predicted | ops |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in dict.fromkeys(row["name"] for row in record["rows"]):
        mine = [row for row in record["rows"] if row["name"] == name]
        plans = list(dict.fromkeys(row["plan"] for row in mine))
        median = {}
        for plan in plans:
            runs = sorted((row for row in mine if row["plan"] == plan), key=lambda row: row["ran"]["seconds"])
            median[plan] = runs[len(runs) // 2]
        base = median[plans[0]]["ran"]["seconds"]
        for plan, row in median.items():
            ran = row["ran"]
            offs = statistics.median(abs(r["off"]) for r in mine if r["plan"] == plan)
            two = ran["busy"][1] > 0
            cells = [
                f"{ran['seconds']:.3f}",
                f"{ran['seconds'] / base - 1:+.1%}" if plan != plans[0] else "",
                percent(ran["overlap"]) if two else "",
                percent(ran["sync"]) if two else "",
                f"{100 * row['off']:+.1f} % (median {percent(offs)})",
                percent(row["op_error"]),
            ]
            print(f"| {name} | `{plan}` | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", help="NAME: flags of `tgnn-bench plan simulate`")
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--tables", help="print the table of a JSON, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.tables:
        return tables(json.loads(Path(args.tables).read_text()))
    record = head() | {"rows": []}
    for named in args.runs:
        name, _, flags = named.partition(": ")
        of_snapshots = "gcn" in flags
        for _ in range(args.rounds):
            for plan in SNAPSHOTS if of_snapshots else EVENTS:
                row = {"name": name, "flags": flags, "plan": plan, **run(args.tgnn, plan, flags)}
                record["rows"].append(row)
                if args.out:
                    Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    tables(record)


if __name__ == "__main__":
    main()
