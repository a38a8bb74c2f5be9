"""Predicts training over 1 to 64 ranks, as figure 11b of Sven measures it.

    cargo build --release
    python benches/scaling.py --out benches/results/NAME.json [--folder FOLDER]
    python benches/scaling.py --tables benches/results/NAME.json

The plan is sven, the stream has the sizes of LastFM (made in FOLDER), and every rank has batches of 1200 events (weak
scaling), as in the paper. What ranks compute and send is recorded in two steps; `tgnn-bench plan simulate` predicts how
long that takes on the machines of machines/. Takes about five minutes on two quiet cores, and 8 GB of memory. Needs only
the standard library.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from hosts import program
from partition_balance import made
from record import head

MODELS = {"tgn": "TGN", "apan": "APAN", "jodie": "JODIE"}
MACHINES, DATA = ("v100-pytorch", "v100", "h100"), "lastfm-like"
# The greatest speed-up over 64 GPUs in the paper, section 5.2.2; less than 20 for JODIE.
PAPER = {"tgn": "31", "apan": "40", "jodie": "< 20"}


def measured(args):
    tgnn = program(args.tgnn)
    data = made(tgnn, DATA, args.folder)
    record = head() | {"ranks": args.ranks, "batch": args.batch, "rows": []}
    for model in MODELS:
        command = [tgnn, "plan", "simulate", args.plan, "--data", str(data), "--model", model, "--json"]
        command += ["--ranks", str(args.ranks), "--scaling", "weak", "--max-batches", "2"]
        command += ["--set", f"batch={args.batch}", *(flag for m in MACHINES for flag in ("--machine", m))]
        print("  $", *command, file=sys.stderr, flush=True)
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
        record["rows"].append(found | {"data": DATA})
        if args.out:
            Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    return record


def table(record):
    """Returns head and rows: for each model and machine, how many times as many events a second as one rank."""
    numbers = [row["ranks"] for row in record["rows"][0]["predictions"][0]["ranks"]]
    rows = []
    for of_model in record["rows"]:
        for prediction in of_model["predictions"]:
            first, *_, last = prediction["ranks"]
            ms = lambda row: f"{1e3 * row['seconds'] / row['steps']:.{1 if row['seconds'] > 0.02 else 3}f}"
            speed_ups = [f"{row['speed_up']:.2f}" for row in prediction["ranks"][1:]]
            rows.append([f"{MODELS[of_model['model']]}, `{prediction['machine']['name']}`", *speed_ups,
                         f"{ms(first)} / {ms(last)}", f"{100 * last['computing']:.0f} %"])
        rows.append([f"{MODELS[of_model['model']]}, the paper", *[""] * (len(numbers) - 2), PAPER[of_model["model"]], "", ""])
    return ["times as fast as one rank", *map(str, numbers[1:]), "ms a step, first / last", "computing"], rows


def off(record):
    """Returns the errors of the simulator on ranks that exist."""
    return ", ".join(f"{MODELS[r['model']]} {100 * r['here']['off']:+.0f} %" for r in record["rows"])


def main():
    as_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_is)
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--tables", help="print the table of a JSON, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--folder", default="out/data", help="where the synthetic stream is")
    parser.add_argument("--plan", default="sven")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1200)
    args = parser.parse_args()
    record = json.loads(Path(args.tables).read_text()) if args.tables else measured(args)
    head, rows = table(record)
    print("the simulator is off, on ranks of this computer, by", off(record))
    for cells in [head, ["---"] * len(head), *rows]:
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
