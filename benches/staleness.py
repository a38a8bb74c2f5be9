"""Trains with older node memory (MSPipe) and with whole batches in turn (PipeTGL), beside one rank and DistTGL.

    cargo build --release
    python benches/staleness.py --out benches/results/NAME.json --sets wikipedia collegemsg=CollegeMsg.txt lastfm-like \\
        [--folder FOLDER]
    python benches/staleness.py --tables benches/results/NAME.json
    python benches/staleness.py --plot docs/systems/staleness.svg benches/results/NAME.json
    python benches/staleness.py --times --out benches/results/NAME.json
    python benches/staleness.py --predict --out benches/results/NAME.json [--folder FOLDER]

The first command trains each plan with several seeds and validates every epoch. With `--times`, plans alternate for
several rounds, and epochs are timed alone, on one rank and on two. With `--predict`, `tgnn-bench plan simulate` predicts
them on the machine of MSPipe's paper, for its table 2. Cores should be quiet: the staleness that `mspipe` chooses follows
the times of the stages. Needs only the standard library.
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
# Title, batch, epochs, learning rate.
SETS = {
    "wikipedia": ("Wikipedia", 600, 12, 5e-4),
    "wikipedia-slow": ("Wikipedia at 1e-4", 600, 24, 1e-4),
    "collegemsg": ("CollegeMsg", 200, 12, 5e-4),
    "lastfm-like": ("LastFM-like", 600, 6, 5e-4),
}
# Plan, ranks, color.
PLANS = (
    ("sequential", 1, "#555555"), ("mspipe", 1, "#0072b2"), ("mspipe-s", 1, "#56b4e9"),
    ("mspipe:k=1", 1, None), ("mspipe:k=2", 1, None), ("mspipe:k=3", 1, None), ("mspipe:k=4", 1, "#d55e00"),
    ("pipetgl", 2, "#009e73"), ("pipetgl", 4, None), ("pipetgl", 8, "#e69f00"), ("disttgl:1x1x2", 2, "#a05a9c"),
)
TIMED = (
    ("sequential", 1), ("prefetch", 1), ("presample", 1), ("mspipe:k=1", 1), ("mspipe:k=2", 1), ("mspipe", 1),
    ("mspipe-s", 1), ("depcache", 2), ("sven", 2), ("disttgl:1x1x2", 2), ("pipetgl", 2),
)
# Of four ranks with a batch of 600 each. Model, data, and the paper's speed-ups of Presample and MSPipe over TGL.
PREDICTED = (
    ("tgn", "wikipedia", "1.12", "1.54"), ("jodie", "wikipedia", "1.14", "1.65"), ("apan", "wikipedia", "1.06", "1.78"),
    ("tgn", "lastfm-like", "1.36", "2.00"),
)
PREDICTED_PLANS = ("sequential", "presample", "mspipe:k=1", "mspipe:k=2", "mspipe:k=3")
MACHINES = ("a100-pytorch", "a100")


def train(tgnn, path, batch, plan, ranks, *flags):
    command = [tgnn, "train", "--data", path, "--batch", batch, "--plan", plan, "--json", *flags]
    command += ["--ranks", ranks] if ranks > 1 else []
    command = [str(word) for word in command]
    print("  $", *command, file=sys.stderr, flush=True)
    return json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout)


def trained(tgnn, of, path, plan, ranks, seed):
    """Returns validation scores and seconds of a run by epochs, its test score, and what its steps have missed."""
    _, batch, epochs, rate = SETS[of]
    flags = ["--epochs", epochs, "--seed", seed, "--learning-rate", rate]
    flags += ["--set", "settle=false", "--set", f"optimizer.base_batch={batch}"]
    summary = train(tgnn, path, batch, plan, ranks, *flags)
    first = summary["epochs"][0]
    return {
        "data": of, "plan": plan, "ranks": ranks, "seed": seed,
        "train_events": round(first["events_per_second"] * first["train_seconds"] / first["epoch"]),
        "curve": [[e["epoch"], e["val"]["ap"], e["train_seconds"]] for e in summary["epochs"]],
        "best_epoch": summary["best_epoch"], "test": summary["test"]["transductive"]["ap"],
        **{key: summary[key] for key in ("staleness", "chosen", "pipeline") if summary.get(key)},
    }


def measured(args):
    tgnn = program(args.tgnn)
    record = head() | {"rows": []}
    if args.out and Path(args.out).exists():  # rows that are measured again replace earlier ones
        record["rows"] = json.loads(Path(args.out).read_text())["rows"]
    for given in args.sets:
        of, _, path = given.partition("=")
        path = made(tgnn, f"{of}-quarter" if of == "lastfm-like" else path or of, args.folder)
        for seed in args.seeds:
            for plan, ranks in ((plan, ranks) for plan, ranks, _ in PLANS if plan in (args.plans or [plan])):
                key = lambda row: [row[name] for name in ("data", "plan", "ranks", "seed")]
                record["rows"] = [row for row in record["rows"] if key(row) != [of, plan, ranks, seed]]
                record["rows"].append(trained(tgnn, of, path, plan, ranks, seed) | {"commit": record["commit"]})
                if args.out:
                    Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    return record


def timed(args):
    """Times epochs of every plan, round by round."""
    tgnn = program(args.tgnn)
    record = head() | {"batch": 600, "rows": [{"plan": plan, "ranks": ranks, "epochs": []} for plan, ranks in TIMED]}
    for _ in range(args.rounds):
        for row in record["rows"]:
            summary = train(tgnn, "wikipedia", 600, row["plan"], row["ranks"], "--epochs", 4, "--no-eval")
            row["epochs"] += [epoch["train_seconds"] for epoch in summary["epochs"][1:]]
            row["pipeline"] = summary.get("pipeline", [])
            if args.out:
                Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    return record


def predicted(args):
    """Predicts four ranks of another machine under every plan."""
    tgnn = program(args.tgnn)
    record = head() | {"rows": []}
    for model, data, *_ in PREDICTED:
        path = made(tgnn, f"{data}-quarter" if data == "lastfm-like" else data, args.folder)
        for plan in PREDICTED_PLANS:
            command = [tgnn, "plan", "simulate", plan, "--data", str(path), "--model", model, "--ranks", "4", "--json"]
            command += ["--scaling", "weak", "--set", "batch=600", "--max-batches", "24"]
            command += [flag for machine in MACHINES for flag in ("--machine", machine)]
            print("  $", *command, file=sys.stderr, flush=True)
            output = lambda: subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
            found, *others = [json.loads(output()) for _ in range(args.rounds)]
            off = statistics.median(one["here"]["off"] for one in [found, *others])
            of_four = lambda p: p["ranks"][-1]["seconds"] / p["ranks"][-1]["steps"]
            seconds = {p["machine"]["name"]: of_four(p) for p in found["predictions"]}
            record["rows"].append({"model": model, "data": data, "plan": plan, "seconds": seconds, "off": off})
            if args.out:
                Path(args.out).write_text(json.dumps(record, indent=1) + "\n")
    return record


def table_of_predictions(record):
    """Returns head and rows: for every plan, how many times as fast as `sequential` a step is, and what the paper says."""
    rows = []
    for model, data, presample, mspipe in PREDICTED:
        title = f"{model.upper()}, {SETS[data][0]}"
        of = {row["plan"]: row["seconds"] for row in record["rows"] if (row["model"], row["data"]) == (model, data)}
        for machine in MACHINES if of else ():
            times = {plan: of[plan][machine] for plan in PREDICTED_PLANS}
            rows.append([f"{title}, `{machine}`", f"{1e3 * times['sequential']:.{1 if times['sequential'] > 0.005 else 3}f}",
                         *(f"{times['sequential'] / times[plan]:.2f}" for plan in PREDICTED_PLANS[1:])])
        rows.append([f"{title}, the paper", "", presample, mspipe, "", ""])
    return ["times as fast as `sequential`", "ms a step", *(f"`{plan}`" for plan in PREDICTED_PLANS[1:])], rows


def off(record):
    """Returns the errors of the simulator on ranks that exist, least and greatest, by model."""
    of_models = {}
    for row in record["rows"]:
        of_models.setdefault(row["model"], []).append(100 * row["off"])
    return ", ".join(f"{model.upper()} {min(errors):+.0f} to {max(errors):+.0f} %" for model, errors in of_models.items())


def named(plan, ranks):
    if plan == "sequential":
        return "one rank"
    return f"{plan}, {ranks} ranks" if ranks > 1 else plan


def runs_of(record, of, plan, ranks):
    return [row for row in record["rows"] if (row["data"], row["plan"], row["ranks"]) == (of, plan, ranks)]


def sets_of(record):
    return list(dict.fromkeys(row["data"] for row in record["rows"]))


def missed(runs):
    """Returns the share of fetched rows that have missed a write; nothing if runs do not count."""
    counts = [row["staleness"]["missed_writes"] for row in runs if row.get("staleness", {}).get("missed_writes")]
    shares = [100 * (1 - of[0] / sum(of)) for of in counts]
    return f"{statistics.mean(shares):.0f} %" if shares else ""


def steps(runs):
    """Returns the staleness that most steps of the runs had."""
    counts = [row["chosen"]["steps"] for row in runs if "stale_rows" in row.get("chosen", {})]
    if not counts:
        return ""
    of = [sum(count[k] for count in counts if k < len(count)) for k in range(max(map(len, counts)))]
    most = max(range(len(of)), key=of.__getitem__)
    return f"{most} in {100 * of[most] / sum(of):.0f} % of steps"


def table(record):
    """Returns head and rows: scores, and the difference of the test score from that of one rank with the same seed."""
    rows = []
    for of in sets_of(record):
        alone = {row["seed"]: row["test"] for row in runs_of(record, of, "sequential", 1)}
        for plan, ranks, _ in PLANS:
            runs = runs_of(record, of, plan, ranks)
            if not runs:
                continue
            best, tests = [max(point[1] for point in row["curve"]) for row in runs], [row["test"] for row in runs]
            against = [100 * (row["test"] - alone[row["seed"]]) for row in runs if row["seed"] in alone]
            change = "" if plan == "sequential" else f"{statistics.mean(against):+.2f}"
            rows.append([f"{SETS[of][0]}, {named(plan, ranks)}", spread(best, 4), spread(tests, 4), change,
                         missed(runs), steps(runs)])
    return ["", "best validation AP", "test AP", "against one rank, points", "rows that missed a write", "staleness"], rows


def table_of_times(record):
    """Returns head and rows: median seconds of an epoch, with the least and the greatest, against two plans."""
    base = {row["plan"]: statistics.median(row["epochs"]) for row in record["rows"]}
    rows = []
    for row in record["rows"]:
        seconds = statistics.median(row["epochs"])
        change = lambda plan: f"{100 * (seconds / base[plan] - 1):+.0f} %"
        rows.append([f"`{row['plan']}`", row["ranks"], f"{seconds:.2f} ({min(row['epochs']):.2f} to {max(row['epochs']):.2f})",
                     change("sequential"), change("prefetch")])
    return ["plan", "ranks", "seconds an epoch", "against `sequential`", "against `prefetch`"], rows


def plot(record):
    """Returns validation scores against events, for every data set, as SVG."""
    panels = []
    for of in sets_of(record):
        by_events = {}
        for plan, ranks, color in PLANS:
            runs = runs_of(record, of, plan, ranks) if color else []
            if not runs:
                continue
            label, events = (named(plan, ranks), color), runs[0]["train_events"] / 1e6
            for row in runs:
                for epoch, found, _ in row["curve"]:
                    by_events.setdefault(label, {}).setdefault(epoch * events, []).append(found)
        panels.append((f"{SETS[of][0]}: validation AP", "million events seen", by_events))
    return curves.drawn(panels)


def main():
    as_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_is)
    parser.add_argument("--sets", nargs="+", default=["wikipedia"], help="data sets: NAME, or NAME=PATH")
    parser.add_argument("--plans", nargs="+", help="plans to train; all if none is given")
    parser.add_argument("--times", action="store_true", help="time epochs, and train no further")
    parser.add_argument("--predict", action="store_true", help="predict another machine, and train no further")
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--tables", metavar="JSON", help="print the table of a record, and do nothing else")
    parser.add_argument("--plot", nargs=2, metavar=("SVG", "JSON"), help="draw the curves of a record, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--folder", default="out/data", help="where the synthetic stream is made")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.plot:
        return Path(args.plot[0]).write_text(plot(json.loads(Path(args.plot[1]).read_text())))
    new = timed if args.times else predicted if args.predict else measured
    record = json.loads(Path(args.tables).read_text()) if args.tables else new(args)
    first = record["rows"][0]
    draw = table if "curve" in first else table_of_times if "epochs" in first else table_of_predictions
    if "off" in first:
        print("the simulator is off, on ranks of this computer, by", off(record))
    head, rows = draw(record)
    for cells in [head, ["---"] * len(head), *rows]:
        print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
