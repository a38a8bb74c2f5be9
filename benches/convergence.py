"""Trains by DistTGL's three kinds of parallelism, and draws how fast they converge (its figures 9 and 11).

    cargo build --release
    python benches/convergence.py --out benches/results/NAME.json --sets wikipedia collegemsg=CollegeMsg.txt \\
        icews14=FOLDER lastfm-like [--folder FOLDER]
    python benches/convergence.py --tables benches/results/NAME.json
    python benches/convergence.py --plot docs/systems/convergence.svg benches/results/NAME.json

Every run traverses the same number of events, with several seeds. As in the paper, every rank computes as many events a
step, the learning rate is proportional to the events of a step, and every pass, of j epochs, is validated: by the mean
reciprocal rank among 49 negatives, or by the micro F1 of classes of edges. The LastFM-like stream is made in FOLDER; it
is the first quarter of the one of partition_balance.py. Needs only the standard library.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import curves
from hosts import program
from partition_balance import SYNTH, made
from record import ROOT, head, spread

SYNTH["lastfm-like-quarter"] = SYNTH["lastfm-like"] + " --events 323275"
LINKS, CLASSES = "mrr", "f1"
# Title, metric, batch of a rank, epochs, further flags of `train`.
SETS = {
    "wikipedia": ("Wikipedia", LINKS, 600, 32, ""),
    "collegemsg": ("CollegeMsg", LINKS, 200, 32, ""),
    "icews14": ("ICEWS14, relations", CLASSES, 200, 48, "--set classify.positive_weight=5"),
    "lastfm-like": ("LastFM-like", LINKS, 600, 16, ""),
}
# i, j and k. Classes have no negatives, so they exclude epoch parallelism.
PARALLEL = {LINKS: ((1, 1, 1), (1, 1, 8), (1, 8, 1), (8, 1, 1), (2, 2, 2)), CLASSES: ((1, 1, 1), (1, 1, 8), (8, 1, 1), (2, 1, 4))}
COLORS = {(1, 1, 1): "#555555", (1, 1, 8): "#0072b2", (1, 8, 1): "#e69f00", (8, 1, 1): "#d55e00", (2, 2, 2): "#009e73", (2, 1, 4): "#a05a9c"}


def named(parallel):
    return "x".join(map(str, parallel)) if parallel != (1, 1, 1) else "one rank"


def train(tgnn, of, path, parallel, seed):
    """Returns the validation scores of a run, by epochs, and its test score."""
    _, metric, batch, epochs, flags = SETS[of]
    i, j, k = parallel
    command = [tgnn, "train", "--data", path, "--batch", batch * i, "--epochs", epochs, "--seed", seed, "--json"]
    command += ["--protocol", "disttgl"] if metric == LINKS else ["--task", "edge"]
    command += ["--set", f"optimizer.base_batch={batch}", "--set", "settle=false", *flags.split()]
    command += ["--ranks", i * j * k, "--plan", f"disttgl:{i}x{j}x{k}"] if i * j * k > 1 else []
    command = [str(word) for word in command]
    print("  $", *command, file=sys.stderr, flush=True)
    summary = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout)
    return {
        "data": of, "parallel": parallel, "seed": seed, "metric": metric,
        "train_events": round(summary["epochs"][0]["events_per_second"] * summary["epochs"][0]["train_seconds"] / j),
        "curve": [[e["epoch"], e["val"][metric]] for e in summary["epochs"]],
        "best_epoch": summary["best_epoch"], "test": summary["test"]["transductive"][metric],
    }


def measured(args):
    tgnn = program(args.tgnn)
    record = head() | {"rows": []}
    for given in args.sets:
        of, _, path = given.partition("=")
        path = made(tgnn, f"{of}-quarter" if of == "lastfm-like" else path or of, args.folder)
        for seed in args.seeds:
            for parallel in PARALLEL[SETS[of][1]]:
                if args.parallel and named(parallel) not in args.parallel:
                    continue
                record["rows"].append(train(tgnn, of, path, parallel, seed))
                if args.out:
                    Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    return record


def runs_of(record, of, parallel):
    return [row for row in record["rows"] if (row["data"], tuple(row["parallel"])) == (of, parallel)]


def sets_of(record):
    return list(dict.fromkeys(row["data"] for row in record["rows"]))


def epochs_to(curve, score):
    """Returns the epoch at which a curve reaches a score; None if it does not."""
    return next((epoch for epoch, found in curve if found >= score), None)


def table(record):
    """Returns head and rows: scores, after how many epochs 90 % of one rank's best validation score is reached, and how many
    times as few steps that takes."""
    rows = []
    for of in sets_of(record):
        title, metric, batch, epochs, _ = SETS[of]
        alone = {row["seed"]: max(found for _, found in row["curve"]) for row in runs_of(record, of, (1, 1, 1))}
        for parallel in PARALLEL[metric]:
            runs = runs_of(record, of, parallel)
            if not runs:
                rows.append([f"{title}, {named(parallel)}", f"{batch * parallel[0]}", "not measured yet", *[""] * 3])
                continue
            tests, best = ([f(row) for row in runs] for f in (lambda r: r["test"], lambda r: max(f for _, f in r["curve"])))
            if not alone:
                rows.append([f"{title}, {named(parallel)}", f"{batch * parallel[0]}", spread(best, 3), spread(tests, 3), "", ""])
                continue
            reached = [epochs_to(row["curve"], 0.9 * alone[row["seed"]]) for row in runs if row["seed"] in alone]
            of_one = statistics.mean(epochs_to(row["curve"], 0.9 * alone[row["seed"]]) for row in runs_of(record, of, (1, 1, 1)))
            fewer = parallel[0] * parallel[1] * parallel[2]
            there = None not in reached
            shown = f"{statistics.mean(reached):.0f}" if there else f"more than {epochs}"
            speed_up = f"{of_one * fewer / statistics.mean(reached):.1f}" if there else f"less than {of_one * fewer / epochs:.1f}"
            rows.append([f"{title}, {named(parallel)}", f"{batch * parallel[0]}", spread(best, 3), spread(tests, 3), shown, speed_up])
    return ["", "batch", "best validation", "test", "epochs to 90 %", "times as few steps"], rows


def plot(record):
    """Returns the curves of all data sets as SVG."""
    panels = []
    for of in sets_of(record):
        title, metric, *_ = SETS[of]
        events = runs_of(record, of, (1, 1, 1))[0]["train_events"] / 1e6
        found = {}
        for parallel in PARALLEL[metric]:
            for row in runs_of(record, of, parallel):
                at = found.setdefault((named(parallel), COLORS[parallel]), {})
                for epoch, score in row["curve"]:
                    at.setdefault(epoch * events, []).append(score)
        panels.append((f'{title}: {"MRR of 50" if metric == LINKS else "micro F1"}', "million events seen", found))
    return curves.drawn(panels)


def main():
    as_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_is)
    parser.add_argument("--sets", nargs="+", default=["wikipedia"], help="data sets: NAME, or NAME=PATH")
    parser.add_argument("--parallel", nargs="+", metavar="IxJxK", help="train by these alone, such as 1x1x8")
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--tables", metavar="JSON", help="print the table of a record, and do nothing else")
    parser.add_argument("--plot", nargs=2, metavar=("SVG", "JSON"), help="draw the curves of a record, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--folder", default="out/data", help="where the synthetic stream is made")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    args = parser.parse_args()
    if args.plot:
        return Path(args.plot[0]).write_text(plot(json.loads(Path(args.plot[1]).read_text())))
    record = json.loads(Path(args.tables).read_text()) if args.tables else measured(args)
    head, rows = table(record)
    for cells in [head, ["---"] * len(head), *rows]:
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
