"""Trains and tests every model under every protocol on several data sets, with three seeds; records, prints tables.

    cargo build --release
    python benches/models.py --out benches/results/NAME.json wikipedia path/to/CollegeMsg.txt ...
    python benches/models.py --rules --out benches/results/NAME-models-rules.json wikipedia ...
    python benches/models.py --tables benches/results/NAME.json

Models are trained and selected under `dyglib` with random negatives. The best epoch is then also tested under the other
protocols and negatives, starting from the node memory at the end of validation (under `tgl`: settled, with node memory
made anew). EdgeBank and the rules that learn nothing are tested beside each model, against the same negatives. `--rules`
records only those: they learn nothing, so they are tested beside one epoch of the model `static`, which is not looked
at. A data set `NAME:FOLDER` comes with TGB's lists of negatives (`benches/tgb_negatives.py`) and is trained and tested
under `tgb` instead. Needs only the standard library.
"""

import argparse
import itertools
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from record import ROOT, head, spread

# Name of the protocol, flags of `eval`, and the metrics to report.
PROTOCOLS = [
    ("dyglib, random", ["--protocol", "dyglib"], ["ap", "auc"]),
    ("dyglib, historical", ["--protocol", "dyglib", "--negatives", "historical"], ["ap", "auc"]),
    ("dyglib, inductive", ["--protocol", "dyglib", "--negatives", "inductive"], ["ap", "auc"]),
    ("tgl", ["--protocol", "tgl"], ["ap", "auc"]),
    ("disttgl", ["--protocol", "disttgl"], ["mrr"]),
]
TGB = ("tgb", ["--protocol", "tgb"], ["mrr", "hits_at_10"])


def run(command):
    print("  $", shlex.join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def of_rules(tested, of):
    """Returns the scores of EdgeBank and the rules in a summary, or in its part with another past."""
    return {
        "edgebank": {kind: of(scores) for kind, scores in tested["edgebank"].items()},
        "rules": {rule["name"]: of(rule["test"]) for rule in tested["baselines"]},
    }


def measure(args, model, seed, name, data, protocols, first):
    """Trains a model once, and returns its rows, one for each protocol."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "run")
        train = [args.tgnn, "train", "--data", data, "--model", model, "--seed", str(seed), "--epochs", str(args.epochs)]
        train += ["--batch", str(args.batch), "--out", out, "--json", *first, *args.flags]
        trained = run(train)
        for protocol, flags, figures in protocols:
            tested = run([args.tgnn, "eval", "--checkpoint", out, "--json", *flags])
            of = lambda scores: {
                part: {figure: scores[part][figure] for figure in figures} for part in ("transductive", "inductive")
            }
            row = {"data": name, "model": model, "seed": seed, "protocol": protocol}
            if not args.rules:
                row |= {"best_epoch": trained["best_epoch"], "test": of(tested["test"])}
            rows.append(row | of_rules(tested, of) | {"strictly_earlier": of_rules(tested["strictly_earlier"], of)})
    return rows


def tables(record):
    """Prints a table for each data set, with a row for each model and rule and a column for each protocol and metric:
    the mean over the seeds ± the standard deviation; of rules, given the events of earlier batches / all strictly
    earlier ones."""
    rows = record["rows"]
    for data in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == data]
        columns = [
            (protocol, figure)
            for protocol, _, figures in [*PROTOCOLS, TGB]
            if any(row["protocol"] == protocol for row in mine)
            for figure in figures
        ]
        print(f"\n{data}, test part (transductive):\n")
        print("| | " + " | ".join(f"{p}: {f.replace('_at_', '@').upper()}" for p, f in columns) + " |")
        print("| --- |" + " --- |" * len(columns))
        for model in dict.fromkeys(row["model"] for row in mine if "test" in row):
            cells = []
            for protocol, figure in columns:
                values = [
                    row["test"]["transductive"][figure]
                    for row in mine
                    if row["model"] == model and row["protocol"] == protocol
                ]
                cells.append(spread(values, 3) if values else "")
            print(f"| {model} | " + " | ".join(cells) + " |")
        baselines = [(f"EdgeBank, {kind}", "edgebank", kind) for kind in mine[0]["edgebank"]]
        baselines += [(rule, "rules", rule) for rule in mine[0]["rules"]]
        for shown, group, name in baselines:
            cells = []
            for protocol, figure in columns:
                tested = [row for row in mine if row["protocol"] == protocol]
                pasts = [tested, [row["strictly_earlier"] for row in tested if "strictly_earlier" in row]]
                values = [[row[group][name]["transductive"][figure] for row in past] for past in pasts]
                cells.append(" / ".join(f"{statistics.mean(of):.3f}" for of in values if of))
            print(f"| {shown} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help="wikipedia, a file, or NAME:FOLDER with lists of negatives")
    parser.add_argument("--out", help="JSON to write; what it holds is not measured again")
    parser.add_argument("--tables", help="print the tables of a JSON, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--models", nargs="+", help="default: every model of events")
    parser.add_argument("--rules", action="store_true", help="record only EdgeBank and the rules that learn nothing")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="more flags of `train`, last")
    args = parser.parse_args()
    if args.tables:
        return tables(json.loads(Path(args.tables).read_text()))
    if args.rules:
        args.models, args.epochs = ["static"], 1
    if not args.models:
        names = subprocess.run([args.tgnn, "models", "--names", "events"], stdout=subprocess.PIPE, check=True, text=True)
        args.models = names.stdout.split()
    record = head() | {"batch": args.batch, "epochs": args.epochs, "rows": []}
    if args.out and Path(args.out).exists():
        record = json.loads(Path(args.out).read_text())
    for data in args.data:
        name, _, folder = data.partition(":")
        of_data = (name, folder, [TGB], ["--protocol", "tgb"]) if folder else (Path(name).name.split(".")[0], name, PROTOCOLS, [])
        for model, seed in itertools.product(args.models, args.seeds):
            same = {"data": of_data[0], "model": model, "seed": seed}
            if any(same.items() <= row.items() for row in record["rows"]):
                continue
            record["rows"] += measure(args, model, seed, *of_data)
            if args.out:
                Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    tables(record)


if __name__ == "__main__":
    main()
