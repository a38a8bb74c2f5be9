"""Runs tgnn and a peer alternately on the same machine, and records both.

    cargo build --release
    wikipedia=crates/data/bundled/wikipedia.csv.gz
    python benches/peers/compare.py --data $wikipedia --out benches/results/NAME.json speed
    python benches/peers/compare.py --data $wikipedia --out benches/results/NAME.json speed --model apan
    python benches/peers/compare.py --data FOLDER --out benches/results/NAME.json speed --model wd-gcn
    python benches/peers/compare.py --data $wikipedia --out benches/results/NAME.json history --model apan
    python benches/peers/compare.py --data $wikipedia --out benches/results/NAME.json quality

Without `--model` the peer is PyTorch Geometric's TGN (`pyg_tgn.py`). With `--model` it is the same model as ours in
plain PyTorch: a model of events, where TGAT and TGN have two layers (`torch_models.py`), or a model of snapshots with
each of three sparse products (`snapshots.py`), whose data is a folder of edge lists, as `tgnn-bench data
synth-snapshots` writes.
`speed`: seconds of a training epoch without evaluation. tgnn and the peers alternate for several rounds; the result is
the median over the epochs of all rounds, without the first of each round and, on a device, those that captured graphs.
Events: 172 seeded random edge features, width 100, 10 neighbours (GraphMixer: 20), batch 600 and 200; tgnn with a fixed
and with a learned time encoding (GraphMixer: fixed, as in its peer). Queries see the events before their time, beside
PyTorch Geometric only those of earlier batches, as in its loader. Snapshots: two layers of width 64, groups of 8
steps.
`history`: the same for tgnn alone, with `--history time` and `batch` in turn, batch 200.
`quality`: test AP and AUC of the epoch with the best validation AP, with the same epochs, batch and learning rate,
three seeds. Models of snapshots are scored with one negative per edge, and with `--same-start` both systems start from
the weights that the peer drew.
Every row is printed to standard error and written to the file as soon as it is measured.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from record import ROOT, head, steady  # noqa: E402


def run(command):
    """Returns the summary that `command` prints."""
    print("  $", shlex.join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


EVENTS = ("jodie", "dyrep", "apan", "tgat", "graph-mixer", "tgn")
SNAPSHOTS = {"wd-gcn": "wdgcn", "t-gcn": "tgcn", "evolve-gcn-o": "evolvegcn"}


class Systems:
    """The commands of tgnn and its peers, by name. Without a model: TGN, with PyTorch Geometric's TGN as the peer."""

    def __init__(self, data, device, tgnn, model=None):
        both = ["--data", data, "--device", device, "--threads", "2", "--json"]
        ours = [tgnn, "train", *both, *(["--model", model] if model else [])]
        peer = lambda script, *flags: [sys.executable, f"benches/peers/{script}.py", *both, *flags]
        self.rate = {name: "--lr" for name in ("pyg", "torch", "csr", "coo")} | {"tgnn": "--learning-rate"}
        if model in SNAPSHOTS:
            self.ours = {"tgnn": [*ours, "--group", "8"]}
            of = lambda product: peer("snapshots", "--model", SNAPSHOTS[model], "--length", "8", "--product", product)
            self.peers = {product: of(product) for product in ("csr", "coo", "pyg")}
            self.settings = [{}]
            self.scored = {"tgnn": ["--set", "group.negatives=1"], "csr": ["--negatives", "1"]}
            return
        self.scored = {}
        ours += ["--set", f"{model}.layers=2"] if model in ("tgat", "tgn") else []
        self.of_rule = {rule: [*ours, "--history", rule] for rule in ("time", "batch")}
        ours = ours if model else self.of_rule["batch"]  # PyTorch Geometric's rule
        self.ours = {"tgnn": ours}
        if model != "graph-mixer":  # its time encoding is always fixed
            learned = ["--set", f"{model or 'tgn'}.time_encoding=learned"]
            self.ours["tgnn, learned time encoding"] = [*ours, *learned]
        self.peers = {"torch": peer("torch_models", "--model", model)} if model else {"pyg": peer("pyg_tgn")}
        self.settings = [{"batch": batch, "random-edge-features": 172} for batch in (200, 600)]

    def compare_rules(self):
        """Puts tgnn's rules of which events a query sees in the place of tgnn and its peers, at the default batch."""
        self.ours, self.peers = ({f"history={rule}": self.of_rule[rule]} for rule in ("time", "batch"))
        self.settings = self.settings[:1]


def flags_of(settings):
    return [part for key, value in settings.items() for part in (f"--{key}", str(value))]


def seconds(summary, device):
    """Returns the seconds of the epochs that are timed."""
    return [e["train_seconds"] for e in steady(summary["epochs"], device != "cpu")]


def speed(systems, rounds, epochs, device):
    """Yields a row of times and peak memory for each setting."""
    for settings in systems.settings:
        called = systems.ours | systems.peers
        times, peaks = {name: [] for name in called}, {}
        for _ in range(rounds):
            for name, command in called.items():
                summary = run([*command, *flags_of(settings), "--epochs", epochs, "--no-eval"])
                times[name] += seconds(summary, device)
                peaks[name] = max(peaks.get(name, 0), summary["peak_memory_bytes"]["host"])
        medians = {name: statistics.median(values) for name, values in times.items()}
        best = min(medians[name] for name in systems.peers)
        yield settings | {
            "seconds_per_epoch": medians,
            "all": times,
            "peak_memory_bytes": peaks,
            "ratio": {name: best / own for name, own in medians.items()},
        }


def quality(systems, epochs, settings, rate, seeds, start=None):
    """Yields a row of scores for each seed and system."""
    peer = next(iter(systems.peers))
    # The peer runs first and saves its initial weights in the file `start`.
    starts = {peer: ["--save-start", start], "tgnn": ["--weights", start]} if start else {}
    for seed in range(1, seeds + 1):
        for name, command in ((peer, systems.peers[peer]), ("tgnn", systems.ours["tgnn"])):
            flags = [*flags_of(settings), *systems.scored.get(name, []), *starts.get(name, [])]
            flags += ["--epochs", epochs, "--seed", str(seed)]
            summary = run([*command, *flags, systems.rate[name], rate])
            yield settings | {
                "system": name, "seed": seed, "epochs": int(epochs),
                "learning_rate": float(rate), "best_epoch": summary["best_epoch"], "test": summary["test"],
                "test_by_memory": summary.get("test_by_memory"),
                "val": [e["val"] for e in summary["epochs"]],
            }


def rows_of(a, systems, folder):
    """Returns the rows that the arguments ask for; `folder` is for files that are not kept."""
    if a.what == "history":
        systems.compare_rules()
    if a.batch:
        systems.settings = [settings | {"batch": a.batch} for settings in systems.settings[:1]]
    if a.what != "quality":
        return speed(systems, a.rounds, a.epochs or ("2" if a.device == "cpu" else "6"), a.device)
    batch = {} if a.model in SNAPSHOTS else {"batch": a.batch or 200}
    start = f"{folder}/start.safetensors" if a.same_start else None
    return quality(systems, a.epochs or "10", batch, a.rate, a.seeds, start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "history", "quality"])
    parser.add_argument("--model", choices=[*EVENTS, *SNAPSHOTS], help="beside the same in plain PyTorch")
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", help="10 for quality; else 2, on a device 6")
    parser.add_argument("--batch", type=int, help="events of a batch; else 200, for speed of models of events 200 and 600")
    parser.add_argument("--rate", default="0.0005")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--same-start", action="store_true", help="for quality of models of snapshots: both from the same weights")
    parser.add_argument("--device", default="cpu", help="cpu or cuda, for both")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench", help="the program")
    a = parser.parse_args()
    for flag in ("rounds",) if a.what == "quality" else ("rate", "seeds"):
        if getattr(a, flag) != parser.get_default(flag):
            parser.error(f"--{flag} has no effect on {a.what}")
    if a.what == "history" and a.model in SNAPSHOTS:
        parser.error("history is for models of events")
    if a.batch and a.model in SNAPSHOTS:
        parser.error("--batch has no effect on models of snapshots")
    if a.same_start and (a.what != "quality" or a.model not in SNAPSHOTS):
        parser.error("--same-start is for quality of " + ", ".join(SNAPSHOTS))
    systems = Systems(a.data, a.device, a.tgnn, a.model)
    result = head() | {
        "what": a.what,
        "model": a.model or "tgn",
        "data": Path(a.data).name,
        "device": a.device,
        "hardware": {"cores": os.cpu_count(), "threads_used": 2, "load_before": os.getloadavg()[0]},
        "rows": [],
    }
    a.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for row in rows_of(a, systems, folder):
            print(json.dumps(row), file=sys.stderr, flush=True)
            result["rows"].append(row)
            a.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["rows"], indent=1))


if __name__ == "__main__":
    main()
