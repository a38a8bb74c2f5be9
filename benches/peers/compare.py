"""Runs tgnn and a peer in turn on the same machine, and records both.

    cargo build --release
    python benches/peers/compare.py --data data/wikipedia.csv.gz --out benches/results/NAME.json speed
    python benches/peers/compare.py --data data/wikipedia.csv.gz --out benches/results/NAME.json speed --model apan
    python benches/peers/compare.py --data data/wikipedia.csv.gz --out benches/results/NAME.json quality

Without `--model` the peer is PyTorch Geometric's TGN (`pyg_tgn.py`); with it, the same model as ours in plain PyTorch
(`torch_models.py`), TGAT and TGN of two layers.
`speed`: seconds of a training epoch (no evaluation), 172 seeded random edge features, width 100, 10 neighbours,
at batch 600 and 200; ours with its time encoding fixed, then learned, and the peer in turn, several rounds; the median
over rounds of the later epochs.
`quality`: test AP and AUC of the epoch with the best validation AP, the same epochs, batch and step size, three seeds.
"""

import argparse
import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(command):
    """The summary that `command` prints."""
    print("  $", shlex.join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


class Systems:
    """How ours and the peer are called. No model: TGN, with PyTorch Geometric's as its peer."""

    def __init__(self, data, device, tgnn, model=None):
        both = ["--data", data, "--device", device, "--threads", "2", "--json"]
        self.tgnn, self.rival, self.learned = [tgnn, "train", *both], "pyg", f"{model or 'tgn'}.time_encoding=learned"
        self.script = [sys.executable, "benches/peers/pyg_tgn.py", *both]
        if model:
            layers = ["--set", f"{model}.layers=2"] if model in ("tgat", "tgn") else []
            self.tgnn += ["--model", model, *layers]
            self.rival = "torch"
            self.script = [sys.executable, "benches/peers/torch_models.py", *both, "--model", model]

    def ours(self, *flags):
        return run([*self.tgnn, *flags])

    def learning(self, *flags):
        """With a time encoding that is learned, as the peer's is."""
        return self.ours("--set", self.learned, *flags)

    def peer(self, *flags):
        return run([*self.script, *flags])


def seconds(summary):
    """Seconds of the epochs after the first, which warms up."""
    epochs = summary["epochs"]
    return [e["train_seconds"] for e in (epochs[1:] or epochs)]


def speed(systems, rounds):
    rows = []
    for batch in ("600", "200"):
        flags = ["--batch", batch, "--epochs", "2", "--random-edge-features", "172", "--no-eval"]
        called = {"tgnn": systems.ours, "tgnn, learned time encoding": systems.learning, systems.rival: systems.peer}
        times, peaks = {name: [] for name in called}, {}
        for _ in range(rounds):
            for name, system in called.items():
                summary = system(*flags)
                times[name] += seconds(summary)
                peaks[name] = max(peaks.get(name, 0), summary["peak_memory_bytes"]["host"])
        medians = {name: statistics.median(values) for name, values in times.items()}
        rows.append({
            "batch": int(batch),
            "seconds_per_epoch": medians,
            "all": times,
            "peak_memory_bytes": peaks,
            "ratio": {name: medians[systems.rival] / own for name, own in medians.items()},
        })
    return rows


def quality(systems, epochs, batch, rate, seeds):
    rows = []
    for seed in map(str, range(1, seeds + 1)):
        flags = ["--batch", batch, "--epochs", epochs, "--seed", seed]
        for name, system, step in (("tgnn", systems.ours, "--learning-rate"), (systems.rival, systems.peer, "--lr")):
            summary = system(*flags, step, rate)
            rows.append({
                "system": name, "seed": int(seed), "batch": int(batch), "epochs": int(epochs),
                "learning_rate": float(rate), "best_epoch": summary["best_epoch"], "test": summary["test"],
                "val": [e["val"] for e in summary["epochs"]],
            })
    return rows


def cpu():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((l.split(":", 1)[1].strip() for l in lines if l.startswith("model name")), platform.processor())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "quality"])
    parser.add_argument("--model", choices=["jodie", "apan", "tgat", "tgn"], help="beside the same in plain PyTorch")
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", default="10")
    parser.add_argument("--batch", default="200")
    parser.add_argument("--rate", default="0.0005")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu", help="cpu or cuda, for both")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench", help="the program")
    a = parser.parse_args()
    systems = Systems(a.data, a.device, a.tgnn, a.model)
    rows = speed(systems, a.rounds) if a.what == "speed" else quality(systems, a.epochs, a.batch, a.rate, a.seeds)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    result = {
        "what": a.what,
        "model": a.model or "tgn",
        "data": Path(a.data).name,
        "date": datetime.date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "command": shlex.join(["python", *sys.argv]),
        "device": a.device,
        "hardware": {"cpu": cpu(), "cores": os.cpu_count(), "threads_used": 2, "load_before": os.getloadavg()[0]},
        "rows": rows,
    }
    a.out.parent.mkdir(parents=True, exist_ok=True)
    a.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
