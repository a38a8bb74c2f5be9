"""Compares partitions of node memory as figure 14 of Sven does: over batch sizes and numbers of ranks.

    cargo build --release
    python benches/partition_balance.py --out benches/results/NAME.json [--folder FOLDER]
    python benches/partition_balance.py --tables benches/results/NAME.json

Batches of 400 to 2400 events are counted for 8 ranks, and 2 to 64 ranks for batches of 1200 events, as in the paper. The
data are the bundled Wikipedia events and two synthetic streams, which are made in FOLDER: one with the sizes of Reddit,
which the paper uses, and one with those of LastFM. The models are TGN, which reads 10 recent neighbours, and APAN, which
writes to 10. Every number is of one epoch of training events, in rows a batch. Needs only the standard library.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from record import ROOT, head

SYNTH = {
    "reddit-like": "--like reddit --edge-features 0",
    "lastfm-like": "--like lastfm",
}
MODELS = {"tgn": "--neighbors 10", "apan": "--neighbors 0 --recipients 10"}
BATCHES, RANKS = (400, 800, 1200, 1600, 2000, 2400), (2, 4, 8, 16, 32, 64)
DEFAULT_BATCH, DEFAULT_RANKS = 1200, 8
PARTITIONERS = ("re-flex-bicut", "range", "interval")
# Greatest reductions of the balance cost against range and interval, in percent, from the paper (sections 5.4.1, 5.4.2).
PAPER = {"batch": (59.2, 48.5), "ranks": (27.6, 10.1)}


def made(tgnn, name, folder):
    """Returns the data set, which is generated if it is synthetic and not there yet."""
    if name not in SYNTH:
        return name
    path = Path(folder) / name
    if not path.exists():
        flags = SYNTH[name].split()
        # What a stream writes about itself must not get into the output of the benchmark.
        command = [tgnn, "data", "synth", "--name", name, "--out", path, *flags]
        subprocess.run(command, stdout=sys.stderr, check=True)
    return path


def run(tgnn, data, model, batch, ranks):
    flags = ["--batch", str(batch), "--ranks", str(ranks), "--max-batches", "100000", *MODELS[model].split()]
    command = [tgnn, "partition", "--data", str(data), *flags, "--json"]
    print("  $", *command, file=sys.stderr, flush=True)
    found = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout)
    rows = {}
    for p in found["partitioners"]:
        pairs = [n for i, row in enumerate(p["matrix"]) for j, n in enumerate(row) if i != j]
        residuals = [max(pairs) - n for n in pairs]
        quartiles = statistics.quantiles(residuals, n=4, method="inclusive")
        mean = lambda n: round(n / found["batches"], 3)
        kept = {key: mean(p[key]) for key in ("cost", "most_received", "most_residual", "total")}
        rows[p["by"]] = kept | {"imbalance": round(p["imbalance"], 4), "residual_quartiles": [*map(mean, quartiles)],
                                "seconds": round(p["seconds"], 3)}
    return {"batches": found["batches"], "lower_bound": mean(found["lower_bound"]), "count_seconds": found["count_seconds"],
            "partitioners": rows}


def reduction(row, key, other):
    ours, theirs = (row["partitioners"][by][key] for by in (PARTITIONERS[0], other))
    return 100 * (1 - ours / theirs) if theirs else 0.0


def figure(record):
    """Returns head and rows for APAN on the stream with the sizes of Reddit, which the paper's figure 14 is about."""
    head = ["", "lower bound", *PARTITIONERS, "against range", "against interval"]
    rows = []
    for varied in ("batch", "ranks"):
        changes = []
        for r in record["rows"]:
            if (r["data"], r["model"], r["varied"]) != ("reddit-like", "apan", varied):
                continue
            costs = [r["lower_bound"], *(r["partitioners"][by]["cost"] for by in PARTITIONERS)]
            changes.append([reduction(r, "cost", other) for other in PARTITIONERS[1:]])
            rows.append([f"{varied} {r[varied]}", *(f"{c:.0f}" for c in costs), *(f"{c:.1f} %" for c in changes[-1])])
        rows.append(["greatest", *[""] * 4, *(f"{max(column):.1f} %" for column in zip(*changes))])
        rows.append(["the paper's", *[""] * 4, *(f"{c} %" for c in PAPER[varied])])
    return head, rows


def tables(record):
    """Prints a table for each data set and model: costs, and reductions of cost and of the greatest residual."""
    head = ["", "lower bound", *PARTITIONERS, "cost, against range", "interval", "residual, against range", "interval"]
    for data, model in dict.fromkeys((r["data"], r["model"]) for r in record["rows"]):
        print(f"\n**{data}, {model}**\n\n|" + "|".join(f" {cell} " for cell in head) + "|\n" + "| --- " * len(head) + "|")
        for varied in ("batch", "ranks"):
            mine = [r for r in record["rows"] if (r["data"], r["model"], r["varied"]) == (data, model, varied)]
            changes = [[reduction(r, key, other) for key in ("cost", "most_residual") for other in PARTITIONERS[1:]]
                       for r in mine]
            for row, change in zip(mine, changes):
                costs = [row["lower_bound"], *(row["partitioners"][by]["cost"] for by in PARTITIONERS)]
                cells = [f"{varied} {row[varied]}", *(f"{c:.1f}" for c in costs), *(f"{c:.1f} %" for c in change)]
                print("| " + " | ".join(cells) + " |")
            most = [f"{max(column):.1f} %" for column in zip(*changes)]
            print(f"| greatest | | | | | " + " | ".join(most) + " |")
    paper = "; ".join(f"over {what}: {a} % against range, {b} % against interval" for what, (a, b) in PAPER.items())
    print(f"\nSven (APAN on Reddit), {paper}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--tables", help="print the tables of a JSON, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--folder", default="out/data", help="where the synthetic streams are")
    args = parser.parse_args()
    if args.tables:
        return tables(json.loads(Path(args.tables).read_text()))
    tgnn = Path(args.tgnn).resolve()
    record = head() | {"synthetic": SYNTH, "models": MODELS, "rows": []}
    for name in ("wikipedia", *SYNTH):
        data = made(tgnn, name, args.folder)
        for model in MODELS:
            settings = [("batch", b, DEFAULT_RANKS) for b in BATCHES] + [("ranks", DEFAULT_BATCH, n) for n in RANKS]
            for varied, batch, ranks in settings:
                row = {"data": name, "model": model, "varied": varied, "batch": batch, "ranks": ranks}
                record["rows"].append(row | run(tgnn, data if name == "wikipedia" else data.resolve(), model, batch, ranks))
        if args.out:
            Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    tables(record)


if __name__ == "__main__":
    main()
