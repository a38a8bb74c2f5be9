"""Trains by DistTGL's three kinds of parallelism, and draws how fast they converge (its figures 9 and 11).

    cargo build --release
    python benches/convergence.py --out benches/results/NAME.json --sets wikipedia collegemsg=CollegeMsg.txt \\
        icews14=FOLDER lastfm-like [--folder FOLDER]
    python benches/convergence.py --tables benches/results/NAME.json
    python benches/convergence.py --plot docs/convergence.svg benches/results/NAME.json

Every run traverses the same number of events, with several seeds. As in the paper, every rank computes as many events a
step, the learning rate is proportional to the events of a step, and every pass is validated: by the mean reciprocal rank
among 49 negatives, or by the micro F1 of classes of edges. The LastFM-like stream is made in FOLDER; it is the first
quarter of the one of partition_balance.py. Needs only the standard library.
"""

import argparse
import json
import statistics
import subprocess
import sys
from html import escape
from pathlib import Path

from hosts import program
from partition_balance import SYNTH, made
from record import ROOT, head

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
        "train_events": round(summary["epochs"][0]["events_per_second"] * summary["epochs"][0]["train_seconds"] / (j * k)),
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
                continue
            tests, best = ([f(row) for row in runs] for f in (lambda r: r["test"], lambda r: max(f for _, f in r["curve"])))
            spread = lambda values: f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}" if len(values) > 1 else f"{values[0]:.3f}"
            reached = [epochs_to(row["curve"], 0.9 * alone[row["seed"]]) for row in runs if row["seed"] in alone]
            of_one = statistics.mean(epochs_to(row["curve"], 0.9 * alone[row["seed"]]) for row in runs_of(record, of, (1, 1, 1)))
            fewer = parallel[0] * parallel[1] * parallel[2]
            there = None not in reached
            shown = f"{statistics.mean(reached):.0f}" if there else f"more than {epochs}"
            speed_up = f"{of_one * fewer / statistics.mean(reached):.1f}" if there else f"less than {of_one * fewer / epochs:.1f}"
            rows.append([f"{title}, {named(parallel)}", f"{batch * parallel[0]}", spread(best), spread(tests), shown, speed_up])
    return ["", "batch", "best validation", "test", "epochs to 90 %", "times as few steps"], rows


# The plot: a panel for each data set, two in a row.
PANEL, GAP, LEFT, TOP = (360, 230), (70, 70), 58, 64


def panel(record, of, x, y):
    """Draws the curves of a data set at a place: means over the seeds, and the range from least to greatest."""
    title, metric, _, epochs, _ = SETS[of]
    curves = {}
    for parallel in PARALLEL[metric]:
        by_epoch = {}
        for row in runs_of(record, of, parallel):
            for epoch, found in row["curve"]:
                by_epoch.setdefault(epoch, []).append(found)
        if by_epoch:
            curves[parallel] = sorted(by_epoch.items())
    values = [v for curve in curves.values() for _, found in curve for v in found]
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2) if (max(values) - min(values)) / s <= 7)
    low, high = step * int(min(values) / step), step * (int(max(values) / step) + 1)
    events = runs_of(record, of, (1, 1, 1))[0]["train_events"] / 1e6
    width, height = PANEL
    at = lambda epoch, value: (x + width * epoch / epochs, y + height * (1 - (value - low) / (high - low)))
    out = [f'<text x="{x}" y="{y - 10}" font-weight="bold">{escape(title)}: {"MRR of 49" if metric == LINKS else "micro F1"}</text>']
    for nth in range(round((high - low) / step) + 1):
        value = low + nth * step
        _, line = at(0, value)
        out.append(f'<path d="M{x} {line:.1f}h{width}" stroke="#e4e4e4"/><text x="{x - 6}" y="{line + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    tick = next(t for t in (0.1, 0.2, 0.25, 0.5, 1, 2) if events * epochs / t <= 8)
    for nth in range(int(events * epochs / tick) + 1):
        place, _ = at(nth * tick / events, low)
        out.append(f'<text x="{place:.1f}" y="{y + height + 16}" text-anchor="middle">{nth * tick:g}</text>')
    out.append(f'<text x="{x + width / 2}" y="{y + height + 32}" text-anchor="middle">million events seen</text>')
    for parallel, curve in curves.items():
        color = COLORS[parallel]
        if len(curve) > 1:
            edge = [at(e, max(f)) for e, f in curve] + [at(e, min(f)) for e, f in reversed(curve)]
            out.append(f'<polygon points="{points(edge)}" fill="{color}" opacity="0.13"/>')
        line = [at(e, statistics.mean(f)) for e, f in curve]
        out.append(f'<polyline points="{points(line)}" fill="none" stroke="{color}" stroke-width="1.8"/>')
        out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.4" fill="{color}"/>' for px, py in line]
    return out


def points(places):
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def plot(record):
    """Returns the curves of all data sets as SVG."""
    sets = sets_of(record)
    rows = (len(sets) + 1) // 2
    width, height = LEFT + 2 * PANEL[0] + GAP[0] + 20, TOP + rows * (PANEL[1] + GAP[1])
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>']
    used = [p for p in COLORS if any(runs_of(record, of, p) for of in sets)]
    for nth, parallel in enumerate(used):
        x, color = LEFT + nth * 120, COLORS[parallel]
        out.append(f'<path d="M{x} 20h24" stroke="{color}" stroke-width="2.5"/><text x="{x + 30}" y="24">{named(parallel)}</text>')
    for nth, of in enumerate(sets):
        out += panel(record, of, LEFT + (nth % 2) * (PANEL[0] + GAP[0]), TOP + (nth // 2) * (PANEL[1] + GAP[1]))
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    as_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_is)
    parser.add_argument("--sets", nargs="+", default=["wikipedia"], help="data sets: NAME, or NAME=PATH")
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
