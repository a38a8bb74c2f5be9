"""Times plans for ranks side by side: in one process, by MPI, and over hosts with limited links.

    cargo build --release && scripts/fetch-mpi
    sudo python benches/cluster.py --out benches/results/NAME.json [--folder FOLDER]
    python benches/cluster.py --tables benches/results/NAME.json

Trains TGN, APAN and JODIE on Wikipedia and on a stream with the sizes of LastFM (made in FOLDER), over 2 and
4 ranks with one thread each. What connects the ranks:

- local: they are threads of one process; mpi: they are processes of this computer, which share memory;
- none, 1gbit, 200mbit: each is on a host of its own (scripts/cluster), whose link has no limit, or this one.

The plans alternate, for several rounds. Of every run the first epoch is left out; an epoch is the first
--max-batches batches of the training events. A run of one rank with two threads is measured beside them.
Takes about a quarter of an hour on two quiet cores. Needs root, ip, tc; otherwise only the standard library.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from hosts import LIMIT, Hosts, by_mpi, local, need_plans, program, summary
from partition_balance import SYNTH, made
from record import head

DATA, MODELS, PLANS = ("wikipedia", "lastfm-like"), ("tgn", "apan", "jodie"), ("sven", "sven-cached", "depcomm", "depcache")
HOSTS, LINKS = (2, 4), ("local", "mpi", "none", "1gbit", "200mbit")


def alone(tgnn, flags):
    """Trains with one rank of two threads, and returns the summary."""
    command = [tgnn, "train", "--threads", "2", "--json", *map(str, flags)]
    return summary(command, subprocess.run(command, capture_output=True, text=True, timeout=LIMIT))


def row_of(args, run, carried, **which):
    """Returns what the record keeps of a run. Bytes are those of one epoch; those of the busiest link say how
    long it takes at least."""
    seconds = [round(epoch["train_seconds"], 4) for epoch in run["epochs"]][1:]
    ranks = run.get("ranks") or {"traffic": []}
    counted = {of["kind"]: round(of["bytes"] / args.epochs) for of in ranks["traffic"]}
    row = which | {"loss": run["epochs"][-1]["train_loss"], "seconds": seconds, "bytes": counted}
    if carried:
        row["sent_over_links"] = round(sum(sent for sent, _ in carried) / args.epochs)
        row["busiest_link"] = round(max(map(max, carried)) / args.epochs)
    return row


def measured(args):
    tgnn = program(args.tgnn)
    need_plans(tgnn, args.plans)
    kept = ("batch", "max_batches", "epochs", "rounds", "plans")
    record = head() | {key: getattr(args, key) for key in kept} | {"synthetic": SYNTH, "rows": []}
    where = {name: made(tgnn, name, args.folder) for name in args.data}
    same = ["--batch", args.batch, "--max-batches", args.max_batches, "--epochs", args.epochs, "--no-eval"]

    def keep(run, carried=None, **which):
        row = row_of(args, run, carried, **which)
        print(" ", *which.values(), *row["seconds"], file=sys.stderr, flush=True)
        record["rows"].append(row)
        if args.out:
            Path(args.out).write_text(json.dumps(record, indent=1) + "\n")

    def alternate(link, train):
        """Runs every case over a link, the plans in turn. `train` returns summary and bytes of the links."""
        for name in args.data:
            for model in args.models:
                for ranks in args.hosts:
                    for i in range(args.rounds):
                        for plan in args.plans if i % 2 == 0 else args.plans[::-1]:
                            flags = ["--data", where[name], "--model", model, "--plan", plan, *same]
                            run, carried = train(ranks, flags)
                            which = {"data": name, "model": model, "ranks": ranks, "link": link, "plan": plan}
                            keep(run, carried, **which)

    for name in args.data:
        for model in args.models:
            for _ in range(args.rounds):
                run = alone(tgnn, ["--data", where[name], "--model", model, *same])
                keep(run, data=name, model=model, ranks=1, link="alone", plan="sequential")
    by = {"local": local, "mpi": by_mpi}
    for link in args.links:
        if link in by:
            alternate(link, lambda ranks, flags: (by[link](tgnn, ranks, flags), None))
        else:
            with Hosts(max(args.hosts), link) as hosts:
                alternate(link, lambda ranks, flags: hosts.train(ranks, tgnn, flags))
    return record


def median(record, **which):
    """Returns the median of the seconds of all epochs of the rows with these values."""
    rows = [r for r in record["rows"] if all(r[key] == value for key, value in which.items())]
    return statistics.median(second for row in rows for second in row["seconds"]) if rows else None


def cases(record):
    """Returns data, model and number of ranks of everything that is measured over ranks."""
    return list(dict.fromkeys((r["data"], r["model"], r["ranks"]) for r in record["rows"] if r["ranks"] > 1))


def times(record):
    """Returns head and rows: the median seconds of an epoch of every plan, for each kind of link."""
    links = list(dict.fromkeys(r["link"] for r in record["rows"] if r["ranks"] > 1))
    shown = {"local": "local", "mpi": "MPI, shared memory", "none": "hosts, no limit", "1gbit": "1 Gbit/s",
             "200mbit": "200 Mbit/s"}
    plans = " / ".join(f"`{plan}`" for plan in record["plans"])
    rows = []
    for data, model, ranks in cases(record):
        alone = median(record, data=data, model=model, link="alone")
        cells = [f"{data}, {model}, {ranks} ranks", f"{alone:.2f}"]
        for link in links:
            which = {"data": data, "model": model, "ranks": ranks, "link": link}
            cells.append(" / ".join(f"{median(record, plan=plan, **which):.2f}" for plan in record["plans"]))
        rows.append(cells)
    return [f"seconds of an epoch: {plans}", "one rank", *(shown.get(link, link) for link in links)], rows


def times_shown(record):
    """Returns the table of times for one data set and the links that the documents show."""
    shown = lambda r: r["data"] == "lastfm-like" and r["link"] in ("alone", "local", "1gbit", "200mbit")
    return times(record | {"rows": [r for r in record["rows"] if shown(r)]})


def volumes(record):
    """Returns head and rows: the megabytes of an epoch by kind. They are the same over every link."""
    kinds, rows = {"routes": ["routes"], "dispatch with its gradients": ["dispatch", "dispatch gradients"],
                   "aggregation": ["aggregation"], "gradients of weights": ["gradients"]}, []
    for data, model, ranks in cases(record):
        cells = [f"{data}, {model}, {ranks} ranks"]
        for plan in record["plans"]:
            of = {"data": data, "model": model, "ranks": ranks, "plan": plan}
            row = next(r for r in record["rows"] if of.items() <= r.items())
            unknown = set(row["bytes"]).difference(*kinds.values())
            assert not unknown, f"no column for {unknown}"
            sums = (sum(row["bytes"].get(kind, 0) for kind in of_column) for of_column in kinds.values())
            cells.append(" / ".join(f"{megabytes / 1e6:.1f}" for megabytes in sums))
        rows.append(cells)
    return ["MB of an epoch: " + " / ".join(kinds), *(f"`{plan}`" for plan in record["plans"])], rows


def main():
    as_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_is)
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--tables", help="print the tables of a JSON, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--folder", default="out/data", help="where the synthetic stream is")
    parser.add_argument("--data", nargs="+", default=DATA, choices=["wikipedia", *SYNTH])
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--plans", nargs="+", default=PLANS)
    parser.add_argument("--hosts", nargs="+", type=int, default=HOSTS)
    parser.add_argument("--links", nargs="+", default=LINKS, help="local, mpi, none, or rates of links")
    parser.add_argument("--batch", type=int, default=1200)
    parser.add_argument("--max-batches", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    record = json.loads(Path(args.tables).read_text()) if args.tables else measured(args)
    for head, rows in (times(record), volumes(record)):
        for cells in [head, ["---"] * len(head), *rows]:
            print("| " + " | ".join(cells) + " |")
        print()


if __name__ == "__main__":
    main()
