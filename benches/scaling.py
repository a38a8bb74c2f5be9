"""Predicts training over 1 to 64 ranks, as figure 11b of Sven and figure 12a of DistTGL measure it.

    cargo build --release
    python benches/scaling.py --system sven --out benches/results/NAME.json [--folder FOLDER]
    python benches/scaling.py --system disttgl --out benches/results/NAME.json [--folder FOLDER]
    python benches/scaling.py --system pipetgl --out benches/results/NAME.json
    python benches/scaling.py --tables benches/results/NAME.json

Every rank has batches of the paper's size: its share of larger batches (weak scaling), or, for PipeTGL, whole ones. What
ranks compute and send is recorded in two steps, in 24 for PipeTGL, or in 64 for epoch parallelism. `tgnn-bench plan simulate` predicts how long that takes on the machines of machines/. Synthetic
streams are made in FOLDER. On two quiet cores `sven` takes about five minutes, `disttgl` one; both need 8 GB of memory.
Needs only the standard library.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from hosts import program
from partition_balance import SYNTH, made
from record import head

# A stream with the tasks of GDELT; its features are narrower, so that 32 ranks fit in the memory of a small computer.
SYNTH["gdelt-like"] = "--like gdelt --events 300000 --edge-features 32 --node-features 64"
# For each case: title, data, plan, batch, further flags, and what the paper says for the greatest numbers of ranks. For
# Sven these are speed-ups over 64 GPUs (section 5.2.2); for DistTGL the means over its data sets (section 4.2).
SYSTEMS = {
    "sven": {
        "machines": ("v100-pytorch", "v100", "h100"), "ranks": 64,
        "cases": (
            ("TGN", "lastfm-like", "sven", 1200, "--model tgn", {64: "31"}),
            ("APAN", "lastfm-like", "sven", 1200, "--model apan", {64: "40"}),
            ("JODIE", "lastfm-like", "sven", 1200, "--model jodie", {64: "< 20"}),
        ),
    },
    "disttgl": {
        "machines": ("t4-pytorch", "t4", "h100"), "ranks": 32,
        "cases": (
            ("Wikipedia, 1x1x32", "wikipedia", "disttgl:1x1x32", 600, "", {8: "7.27", 32: "25.08"}),
            ("Wikipedia, 1x8x1", "wikipedia", "disttgl:1x8x1", 600, "--ranks 8 --max-batches 64", {}),
            ("GDELT-like, 8x1x4", "gdelt-like", "disttgl:8x1x4", 3200, "--set task=edge", {8: "7.27", 32: "25.08"}),
        ),
    },
    "pipetgl": {
        "machines": ("rtx4090-pytorch", "rtx4090", "h100"), "ranks": 8, "scaling": "strong", "steps": 24,
        "cases": (
            ("TGN, one pipeline", "wikipedia", "pipetgl", 600, "", {2: "1.63, 1.70", 4: "2.80, 2.51"}),
            ("TGN, 2 memory copies", "wikipedia", "pipetgl:k=2", 600, "", {8: "4.74, 2.95"}),
            ("JODIE, one pipeline", "wikipedia", "pipetgl", 600, "--model jodie", {}),
        ),
    },
}


def measured(args):
    tgnn, system = program(args.tgnn), SYSTEMS[args.system]
    record = head() | {"system": args.system, "rows": []}
    for title, data, plan, batch, flags, _ in system["cases"]:
        command = [tgnn, "plan", "simulate", plan, "--data", str(made(tgnn, data, args.folder)), "--json", *flags.split()]
        command += ["--scaling", system.get("scaling", "weak"), "--set", f"batch={batch}"]
        steps = str(system.get("steps", 2))
        command += [] if "--ranks" in flags else ["--ranks", str(system["ranks"]), "--max-batches", steps]
        command += [flag for machine in system["machines"] for flag in ("--machine", machine)]
        print("  $", *command, file=sys.stderr, flush=True)
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
        record["rows"].append(found | {"title": title, "data": data})
        if args.out:
            Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    return record


def title_of(case):
    """Returns the title of a case; the first records have models instead."""
    return case.get("title", case["model"].upper())


def table(record):
    """Returns head and rows: for each case and machine, how many times as many events a second as one rank."""
    numbers = [row["ranks"] for row in record["rows"][0]["predictions"][0]["ranks"]]
    papers = {title: paper for title, *_, paper in SYSTEMS[record.get("system", "sven")]["cases"]}
    rows = []
    for case in record["rows"]:
        title = title_of(case)
        for prediction in case["predictions"]:
            first, *_, last = prediction["ranks"]
            ms = lambda row: f"{1e3 * row['seconds'] / row['steps']:.{1 if row['seconds'] > 0.02 else 3}f}"
            speed_ups = [f"{row['speed_up']:.2f}" for row in prediction["ranks"][1:]]
            speed_ups += [""] * (len(numbers) - 1 - len(speed_ups))
            rows.append([f"{title}, `{prediction['machine']['name']}`", *speed_ups,
                         f"{ms(first)} / {ms(last)}", f"{100 * last['computing']:.0f} %"])
        paper = papers[title]
        if paper:
            rows.append([f"{title}, the paper", *(paper.get(n, "") for n in numbers[1:]), "", ""])
    return ["times as fast as one rank", *map(str, numbers[1:]), "ms a step, first / last", "computing"], rows


def off(record):
    """Returns the errors of the simulator on ranks that exist."""
    return ", ".join(f"{title_of(r)} {100 * r['here']['off']:+.0f} %" for r in record["rows"])


def main():
    as_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_is)
    parser.add_argument("--system", choices=SYSTEMS, default="sven")
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--tables", help="print the table of a JSON, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--folder", default="out/data", help="where synthetic streams are")
    args = parser.parse_args()
    record = json.loads(Path(args.tables).read_text()) if args.tables else measured(args)
    head, rows = table(record)
    print("the simulator is off, on ranks of this computer, by", off(record))
    for cells in [head, ["---"] * len(head), *rows]:
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
