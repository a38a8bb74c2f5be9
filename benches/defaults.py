"""Holds the default run against rules that learn nothing, on streams of 1,000 to 1,000,000 events.

    cargo build --release
    python benches/defaults.py --data FOLDER --out benches/results/NAME.json [NAME ...]

Every stream is trained by `tgnn-bench train --data FILE`, without any other flag but the seed. Where EdgeBank scores
higher, one longer run (four times the epochs, no early end) shows whether it was the size of the run that lacked.
FOLDER holds the public files `wikipedia.csv` (JODIE), `CollegeMsg.txt`, `email-Eu-core-temporal.txt.gz`,
`sx-mathoverflow.txt.gz`, `soc-sign-bitcoinotc.csv` (SNAP) and `tij_pres_SFHH.txt.gz` (SocioPatterns); the other streams
are made by `data synth`, or are the first events of these. NAMEs choose streams. A record that exists is continued.
Needs only the standard library.
"""

import argparse
import gzip
import itertools
import json
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from record import ROOT, head, spread

# Streams by the number of their events: the flags of `data synth`, or a file, or a file and a number of first lines.
STREAMS = {
    "made: known pairs, 1,000": "--events 1000 --sources 60 --destinations 40 --repeat 0.95 --signal 0 --edge-features 0",
    "made: a rule, 1,000": "--events 1000 --sources 60 --destinations 40",
    "SFHH, first 3,000": ("tij_pres_SFHH.txt.gz", 3_000),
    "made: known pairs, 3,000": "--events 3000 --sources 400 --destinations 120 --repeat 0.9 --signal 0 --edge-features 0",
    "made: no parts, 10,000": "--events 10000 --sources 1000 --destinations 0 --edge-features 0",
    "Wikipedia, first 10,000": ("wikipedia.csv", 10_001),
    "Bitcoin OTC": "soc-sign-bitcoinotc.csv",
    "CollegeMsg": "CollegeMsg.txt",
    "made: a rule, 100,000": "--events 100000 --sources 5000 --destinations 800",
    "Wikipedia": "wikipedia.csv",
    "email-Eu": "email-Eu-core-temporal.txt.gz",
    "MathOverflow": "sx-mathoverflow.txt.gz",
    "SFHH, first 1,000,000": ("tij_pres_SFHH.txt.gz", 1_000_000),
}


def stream(tgnn, name, source, data):
    """Returns the path of a stream, made under target/ if it is no file of `data`."""
    made = ROOT / "target/defaults"
    made.mkdir(parents=True, exist_ok=True)
    file_name = "".join(c if c.isalnum() else "-" for c in name)
    if isinstance(source, tuple):
        file, lines = data / source[0], source[1]
        text = gzip.open(file, "rt") if file.suffix == ".gz" else open(file)
        made /= f"{file_name}.{'csv' if '.csv' in file.name else 'txt'}"
        with text:
            made.write_text("".join(itertools.islice(text, lines)))
        return made
    if source.startswith("--"):
        made /= file_name
        subprocess.run([tgnn, "data", "synth", "--out", made, "--force", *source.split()], check=True, stdout=subprocess.DEVNULL)
        return made
    return data / source


def train(tgnn, data, seed, *flags):
    """Returns what a run of a stream came to."""
    command = [tgnn, "train", "--data", data, "--seed", str(seed), "--json", *flags]
    print("  $", shlex.join(map(str, command)), file=sys.stderr, flush=True)
    s = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    bank = {kind: scores["transductive"]["ap"] for kind, scores in s["edgebank"].items()}
    rules = {rule["name"]: rule["test"]["transductive"]["ap"] for rule in s["baselines"]}
    sizes = {key: s[key] for key in ("batch", "best_epoch")} | {"epochs": len(s["epochs"]), "events": s["data"]["events"]}
    return sizes | {"seed": seed, "ap": s["test"]["transductive"]["ap"], "edgebank": bank, "rules": rules, "flags": list(flags)}


def is_below(row):
    return row["ap"] < max(row["edgebank"].values())


def table(record):
    """Returns head and rows: each stream with its sizes, the mean scores of its default runs and their standard deviation,
    EdgeBank's better one, the best of the other rules, and longer runs of the seeds whose default run is below EdgeBank."""
    rows = []
    for name in dict.fromkeys(row["name"] for row in record["rows"]):
        runs = [row for row in record["rows"] if row["name"] == name]
        by_default, longer = ([row for row in runs if bool(row["flags"]) == is_longer] for is_longer in (False, True))
        mean = lambda values: f"{statistics.mean(values):.3f}"
        rules = {rule: statistics.mean(row["rules"][rule] for row in by_default) for rule in by_default[0]["rules"]}
        best = max(rules, key=rules.get)
        epochs = sorted(row["epochs"] for row in by_default)
        rows.append([name, f"{by_default[0]['events']:,}", by_default[0]["batch"],
                     " to ".join(dict.fromkeys((str(epochs[0]), str(epochs[-1])))),
                     spread([row["ap"] for row in by_default], 3), mean([max(row["edgebank"].values()) for row in by_default]),
                     f"{rules[best]:.3f} ({best})",
                     f"{spread([row['ap'] for row in longer], 3)} ({len(longer)})" if longer else ""])
    return ["stream", "events", "batch", "epochs", "default: AP", "EdgeBank: AP", "best rule: AP", "longer: AP (seeds)"], rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="streams, by the beginning of their names (default: all)")
    parser.add_argument("--data", type=Path, required=True, help="folder with the public files")
    parser.add_argument("--out", type=Path, required=True, help="JSON to write, or to continue")
    parser.add_argument("--tgnn", default=ROOT / "target/release/tgnn-bench")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    args = parser.parse_args()
    for name in args.names:
        if not any(stream.startswith(name) for stream in STREAMS):
            parser.error(f"there is no stream {name}; give the beginning of one of: {'; '.join(STREAMS)}")
    if not args.data.is_dir():
        parser.error(f"{args.data} is no folder")
    record = json.loads(args.out.read_text()) if args.out.exists() else head() | {"rows": []}
    if any("rules" not in row for row in record["rows"]):
        parser.error(f"{args.out} is an older record, without the rules; write another one")
    for name, source in STREAMS.items():
        if args.names and not name.startswith(tuple(args.names)):
            continue
        path = stream(args.tgnn, name, source, args.data)
        for seed in args.seeds:
            if any(row["name"] == name and row["seed"] == seed for row in record["rows"]):
                continue
            rows = [train(args.tgnn, path, seed)]
            if is_below(rows[0]):
                longer = str(4 * rows[0]["epochs"])
                rows.append(train(args.tgnn, path, seed, "--epochs", longer, "--set", "patience=0"))
            record["rows"] += [{"name": name} | row for row in rows]
            args.out.write_text(json.dumps(record, indent=1) + "\n")
    head_of_table, rows = table(record)
    print("\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in (head_of_table, ["---"] * len(head_of_table), *rows)))


if __name__ == "__main__":
    main()
