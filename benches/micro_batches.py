"""Times every number of micro-batches, and the one that is fitted, as figure 16 of Sven's paper does (section 5.6).

    cargo build --release
    python benches/micro_batches.py --out benches/results/NAME.json [--folder FOLDER]
    sudo python benches/micro_batches.py --links local 200mbit ...   # also over hosts with limited links
    python benches/micro_batches.py --tables benches/results/NAME.json

Trains TGN, JODIE and APAN on a stream with the sizes of LastFM (made in FOLDER) with batches of 400 to 2400 events, by
the plan `sven` with 1 to 8 micro-batches and with the fitted number. APAN's rows are not divided, so its times show how
much times vary. The ranks have one thread each; `local` ones are threads of one process, the others are on hosts with
limited links (scripts/cluster). An epoch is the first --max-batches batches of the training events. Of every run the
first one is left out; the numbers alternate, for several rounds. Takes about seven minutes on two quiet cores, and an
hour more over hosts, which also need root, ip, tc and scripts/fetch-mpi. Needs only the standard library.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import cluster
from hosts import Hosts, by_mpi, local, need_plans, program
from partition_balance import SYNTH, made
from record import head

MODELS, BATCHES, NUMBERS = ("tgn", "jodie", "apan"), (400, 800, 1200, 1600, 2000, 2400), range(1, 9)
SHOWN = {"local": "local", "mpi": "MPI", "none": "no limit", "1gbit": "1 Gbit/s", "200mbit": "200 Mbit/s"}
# The plan `sven`.
RANKS = {"partition": "re-flex-bicut", "update": "readers"}
STAGES = {**dict.fromkeys(("sample", "route", "fetch_features"), (2, 1)), "dispatch": (3, 0), "aggregate": (3, 0),
          "reduce_gradients": (4, 0)}


def plans(numbers, folder):
    """Writes a plan for each number, and one that has it fitted. Returns their paths, by number."""
    paths = {}
    for number in (*numbers, "fitted"):
        ranks = RANKS | {"micro_batches": number}
        text = [f'name = "parts-{number}"', "[staleness]", "gradients = 1", "[ranks]"]
        text += [f"{key} = {json.dumps(value)}" for key, value in ranks.items()]
        for stage, (lane, depth) in STAGES.items():
            text += [f"[stages.{stage}]", f"lane = {lane}", f"prefetch_depth = {depth}"]
        paths[number] = Path(folder) / f"parts-{number}.toml"
        paths[number].write_text("\n".join(text) + "\n")
    return paths


def measured(args):
    tgnn, data = program(args.tgnn), "lastfm-like"
    kept = ("ranks", "numbers", "max_batches", "epochs", "rounds")
    record = head() | {key: getattr(args, key) for key in kept} | {"synthetic": {data: SYNTH[data]}, "rows": []}
    where = made(tgnn, data, args.folder)

    def sweep(link, paths, train):
        """Trains in every way over a link, the numbers in turn."""
        for model in args.models:
            for batch in args.batches:
                for i in range(args.rounds):
                    for number in list(paths) if i % 2 == 0 else list(paths)[::-1]:
                        flags = ["--data", where, "--model", model, "--plan", paths[number], "--batch", batch,
                                 "--max-batches", args.max_batches, "--epochs", args.epochs, "--no-eval"]
                        which = {"link": link, "model": model, "batch": batch, "number": number}
                        keep(train(flags), which)

    def keep(run, which):
        row = which | {"seconds": [round(epoch["train_seconds"], 4) for epoch in run["epochs"]][1:]}
        if "chosen" in run:
            row["chosen"] = run["chosen"]
            which |= {"chosen": run["chosen"]["micro_batches"]}
        print(" ", *which.values(), *row["seconds"], file=sys.stderr, flush=True)
        record["rows"].append(row)
        if args.out:
            Path(args.out).write_text(json.dumps(record, indent=1) + "\n")

    with tempfile.TemporaryDirectory(prefix="tgnn-plans-") as folder:
        paths = plans(args.numbers, folder)
        need_plans(tgnn, list(paths.values()))
        by = {"local": local, "mpi": by_mpi}
        for link in args.links:
            if link in by:
                sweep(link, paths, lambda flags: by[link](tgnn, args.ranks, flags))
            else:
                with Hosts(args.ranks, link) as hosts:
                    sweep(link, paths, lambda flags: hosts.train(args.ranks, tgnn, flags)[0])
    return record


def table(record):
    """Returns head and rows: milliseconds of an epoch by number, the least in bold; those of the fitted runs; what each of
    these chose; and the places of these numbers among all, if there was a choice. Below, how often that is 1 or 2."""
    rows, found = [], []
    for link, model, batch in dict.fromkeys((r["link"], r["model"], r["batch"]) for r in record["rows"]):
        case = {"link": link, "model": model, "batch": batch}
        seconds = {n: cluster.median(record, number=n, **case) for n in (*record["numbers"], "fitted")}
        order = sorted(record["numbers"], key=seconds.get)
        cells = [f"**{1000 * s:.0f}**" if n == order[0] else f"{1000 * s:.0f}" for n, s in seconds.items()]
        choices = [r["chosen"] for r in record["rows"] if r["number"] == "fitted" and case.items() <= r.items()]
        chosen = [choice["micro_batches"] for choice in choices]
        places = [order.index(n) + 1 for n, choice in zip(chosen, choices) if choice["fit"] and n in order]
        found += places
        rows.append([f"{SHOWN.get(link, link)}, {model}, batch {batch}", *cells, ", ".join(map(str, chosen)),
                     ", ".join(map(str, places))])
    near = f"1 or 2 in {sum(place <= 2 for place in found)} of {len(found)} runs"
    rows.append(["all", *[""] * (len(record["numbers"]) + 2), near])
    return ["ms of an epoch", *(f"n = {n}" for n in record["numbers"]), "fitted", "chosen n", "its place"], rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--tables", help="print the table of a JSON, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--folder", default="out/data", help="where the synthetic stream is")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--numbers", nargs="+", type=int, default=[*NUMBERS], choices=NUMBERS)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--links", nargs="+", default=["local"], help="local, mpi, none, or rates of links")
    parser.add_argument("--max-batches", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    record = json.loads(Path(args.tables).read_text()) if args.tables else measured(args)
    head, rows = table(record)
    for cells in [head, ["---"] * len(head), *rows]:
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    sys.exit(main())
