"""Runs plans alternately on the same data, records the measured and predicted times of each, prints a table.

    cargo build --release
    python benches/plans.py --out benches/results/NAME.json "name: flags of plan simulate" "another: flags" ...
    python benches/plans.py --tables benches/results/NAME.json
    python benches/plans.py --out benches/results/NAME.json --against OTHER/tgnn-bench "name: flags of train" ...

Every run is `tgnn-bench plan simulate PLAN`, with three epochs: a warm-up, in which plans that need predictions measure
them; an epoch whose ops are timed; and an epoch that is predicted and run. The plans alternate for several rounds; the
table has the median round of each. With `--against`, two builds alternate instead, and so does the build that runs
first; the measurement is the seconds of the epochs of plan `sequential`, without the first epoch. Needs only the
standard library.
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
EVENTS = ["sequential", "prefetch", "overlap"]


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
    """Prints a row for each data set and model. For the first plan: seconds of the median round (and the range over all
    rounds), and the median error of the prediction. For each other plan: the change of the time against the first plan,
    overlap and sync of the median round, and the median error of the prediction."""
    percent = lambda x: f"{100 * x:.0f} %"
    for plans in (SNAPSHOTS, EVENTS):
        names = list(dict.fromkeys(row["name"] for row in record["rows"] if row["plan"] == plans[-1]))
        if not names:
            continue
        others = [f"`{plan}`: time, overlap, sync, off" for plan in plans[1:]]
        print(f"| | `{plans[0]}` | off | " + " | ".join(others) + " |")
        print("| --- " * (len(plans) + 2) + "|")
        for name in names:
            cells, base = [], None
            for plan in plans:
                runs = [row for row in record["rows"] if (row["name"], row["plan"]) == (name, plan)]
                runs.sort(key=lambda row: row["ran"]["seconds"])
                seconds, ran = [row["ran"]["seconds"] for row in runs], runs[len(runs) // 2]["ran"]
                off = percent(statistics.median(abs(row["off"]) for row in runs))
                if base is None:
                    base = ran["seconds"]
                    cells += [f"{base:.3f} s ({seconds[0]:.3f}-{seconds[-1]:.3f})", off]
                else:
                    change = f"{ran['seconds'] / base - 1:+.0%}".replace("%", " %")
                    cells.append(", ".join([change, percent(ran["overlap"]), percent(ran["sync"]), off]))
            print(f"| {name} | " + " | ".join(cells) + " |")
        print()


def against(args, record):
    """Runs epochs of two builds alternately, and prints the ratio of their medians in each round."""
    for named in args.runs:
        name, _, flags = named.partition(": ")
        for i in range(args.rounds):
            row = {"name": name, "flags": flags, "round": i + 1}
            builds = [("this", args.tgnn), ("other", args.against)]
            for build, tgnn in builds if i % 2 else builds[::-1]:
                command = [tgnn, "train", "--no-eval", "--json", "--set", "plan=sequential", *shlex.split(flags)]
                print("  $", shlex.join(command), file=sys.stderr, flush=True)
                done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
                row[build] = [epoch["train_seconds"] for epoch in json.loads(done.stdout)["epochs"]][1:]
            record["rows"].append(row)
            args.out and Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
        mine = [row for row in record["rows"] if row["name"] == name]
        ratios = sorted(statistics.median(row["this"]) / statistics.median(row["other"]) for row in mine)
        seconds = [statistics.median(second for row in mine for second in row[build]) for build in ("this", "other")]
        print(f"{name}: {seconds[0]:.3f} s against {seconds[1]:.3f}, ratios", *(f"{ratio:.2f}" for ratio in ratios))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", help="NAME: flags of `tgnn-bench plan simulate`")
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--tables", help="print the table of a JSON, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--against", help="another build, to run in turn with this one")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.tables:
        return tables(json.loads(Path(args.tables).read_text()))
    record = head() | {"rows": []}
    if args.against:
        return against(args, record)
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
