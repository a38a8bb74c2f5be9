"""Counts the bytes that ranks send one another under each plan, as figure 12 of Sven does.

    cargo build --release
    python benches/comm_volume.py --out benches/results/NAME.json [--folder FOLDER]
    python benches/comm_volume.py --tables benches/results/NAME.json

Trains TGN, APAN and JODIE by ranks of one process, on the first --events events, under each plan: over
batches of 400 to 2400 events, over data sets, and over 2 to 16 ranks. As in the paper, what is not varied is
1000 events a batch, the LastFM-like stream (made in FOLDER) and 4 ranks. The bytes are those of node memory
and mails in the summary of a run; they depend on nothing but data and seed. Takes about three minutes a plan.
Needs only the standard library.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from hosts import local, need_plans, program
from partition_balance import SYNTH, made
from record import head

MODELS, PLANS = ("tgn", "apan", "jodie"), ("sven", "sven-cached", "depcomm", "depcache")
BOTH, WITHOUT = "depcomm", "without gradients"
DEFAULT = {"data": "lastfm-like", "batch": 1000, "ranks": 4}
VARIED = {"batch": (400, 800, 1200, 1600, 2000, 2400), "data": ("wikipedia", *SYNTH), "ranks": (2, 4, 8, 16)}
SHOWN = {"tgn": "TGN", "apan": "APAN", "jodie": "JODIE"}


def state_bytes(row, but=()):
    """Returns the bytes of node memory and mails, with the gradients of rows on their way back, `but` of some kinds."""
    return sum(of["bytes"] for of in row["traffic"] if of["kind"] not in ("routes", "gradients", *but))


def counted(rows):
    """Returns the bytes of the plans of these rows; DepComm's also without gradients, as the paper counts them."""
    both = lambda row: [state_bytes(row), state_bytes(row, ("dispatch gradients",))]
    return [of for row in rows for of in (both(row) if row["plan"] == BOTH else [state_bytes(row)])]


def settings():
    """Returns what is varied, with the values of everything."""
    return [(varied, DEFAULT | {varied: value}) for varied, values in VARIED.items() for value in values]


def table(record):
    """Returns head and rows: for each model the bytes an event under the first plan, and how many times as
    many the other plans send; below each group, the means."""
    first = record["plans"][0]
    found = {tuple(r[key] for key in ("model", "plan", *DEFAULT)): r for r in record["rows"]}
    named = lambda model, plan: f"{SHOWN[model]}: `{plan}`" if plan == first else f"`{plan}`"
    columns = lambda model, plan: [named(model, plan)] + [WITHOUT] * (plan == BOTH)
    head = ["", *(column for m in record["models"] for p in record["plans"] for column in columns(m, p))]
    others, rows = len(counted([{"plan": plan, "traffic": []} for plan in record["plans"]])) - 1, []
    for varied in VARIED:
        of_group = []
        for setting in [setting for of, setting in settings() if of == varied]:
            cells, ratios = [], []
            for model in record["models"]:
                runs = [found[model, plan, *setting.values()] for plan in record["plans"]]
                base, *more = counted(runs)
                cells.append(f"{base / runs[0]['events'] / 1000:.2f} kB")
                cells += [f"{bytes / base:.2f}" for bytes in more]
                ratios += [bytes / base for bytes in more]
            rows.append([f"{varied} {setting[varied]}", *cells])
            of_group.append(ratios)
        means = iter([f"{statistics.mean(column):.2f}" for column in zip(*of_group)])
        cells = [["", *(next(means) for _ in range(others))] for _ in record["models"]]
        rows.append(["mean", *[cell for of_model in cells for cell in of_model]])
    return head, rows


def means_and_ranks(record):
    """Returns head and rows of the table, without those of single batches and data sets."""
    head, rows = table(record)
    means = iter(("mean over batches", "mean over data", "mean over ranks"))
    named = [[next(means), *row[1:]] if row[0] == "mean" else row for row in rows]
    return head, [row for row in named if row[0].startswith(("mean", "ranks"))]


def main():
    as_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_is)
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--tables", help="print the table of a JSON, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--folder", default="out/data", help="where the synthetic streams are")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--plans", nargs="+", default=PLANS, help="sven and what it is compared with")
    parser.add_argument("--events", type=int, default=48_000)
    args = parser.parse_args()
    record = json.loads(Path(args.tables).read_text()) if args.tables else measured(args)
    head, rows = table(record)
    for cells in [head, ["---"] * len(head), *rows]:
        print("| " + " | ".join(cells) + " |")


def measured(args):
    tgnn = program(args.tgnn)
    need_plans(tgnn, args.plans)
    record = head() | {"models": args.models, "plans": args.plans, "synthetic": SYNTH, "rows": []}
    done = set()
    for _, setting in settings():
        data = made(tgnn, setting["data"], args.folder)
        for model in args.models:
            for plan in args.plans:
                row = setting | {"model": model, "plan": plan}
                if tuple(row.values()) in done:
                    continue
                done.add(tuple(row.values()))
                print(" ", *row.values(), file=sys.stderr, flush=True)
                batches = max(1, args.events // row["batch"])
                flags = ["--data", data, "--model", model, "--plan", plan, "--batch", row["batch"]]
                flags += ["--epochs", 1, "--max-batches", batches, "--no-eval"]
                run = local(tgnn, row["ranks"], flags)
                kept = {"events": batches * row["batch"], "traffic": run["ranks"]["traffic"]}
                record["rows"].append(row | kept)
        if args.out:
            Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    return record


if __name__ == "__main__":
    main()
