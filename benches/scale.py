"""Measures time and memory of training on streams of 10^5 to 10^8 events, and holds the memory that a run says it needs
against what it takes.

    cargo build --release
    python benches/scale.py memory --out benches/results/NAME.json
    python benches/scale.py seconds --out benches/results/NAME.json

The streams have the sizes of five data sets of TGB (Gastinger et al., "TGB 2.0", NeurIPS 2024, and Huang et al., "Temporal
Graph Benchmark", NeurIPS 2023), a wide one like GDELT, and one of 10^8 events; `data synth` makes them under
target/scale. JODIE and TGN are trained in batches of 600 on all cores. `memory`: with evaluation and without, every pass
at most 2,000 batches; tables and state are those of the whole stream. Taken is the largest resident memory without pages
of files (`RssAnon`, looked at every 10 ms). `seconds`: a whole epoch without evaluation. A record that exists is
continued. `--streams` and `--models` choose. Needs Linux, and only the standard library.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

from record import ROOT, head

# Events, sources, destinations (0: no parts), width of the edge features.
STREAMS = {
    "wiki": (157_474, 8_227, 1_000, 172),
    "gdelt": (3_000_000, 16_682, 0, 130),
    "review": (4_873_540, 298_590, 54_047, 1),
    "coin": (22_809_486, 638_486, 0, 1),
    "comment": (44_314_507, 994_790, 0, 1),
    "flight": (67_169_570, 18_143, 0, 1),
    "100 M": (100_000_000, 1_000_000, 0, 0),
}
MIB = 1 << 20
MOST_BATCHES = 2000


def made(tgnn, name):
    """Returns the folder of a stream, and the seconds that it took to make."""
    events, sources, destinations, width = STREAMS[name]
    folder = ROOT / "target/scale" / name.replace(" ", "")
    if folder.exists():
        return folder
    sizes = ["--events", events, "--sources", sources, "--destinations", destinations, "--edge-features", width]
    subprocess.run([tgnn, "data", "synth", "--out", folder, "--name", name, *map(str, sizes)], check=True, stdout=subprocess.DEVNULL)
    return folder


def taken(pid):
    """Returns the resident memory of a process without pages of files, in bytes; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"RssAnon:\s+(\d+)", status)
    return int(found[1]) * 1024 if found else 0


def train(command):
    """Runs a training. Returns its summary, what it says of memory, the seconds until then, and the peak."""
    print("  $", shlex.join(map(str, command)), file=sys.stderr, flush=True)
    began = time.monotonic()
    ran = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak, over = [0], threading.Event()

    def watch():
        while not over.wait(0.01):
            peak[0] = max(peak[0], taken(ran.pid))

    watching = threading.Thread(target=watch)
    watching.start()
    out = threading.Thread(target=lambda: said.append(ran.stdout.read()))
    said, memory, set_up = [], None, None
    out.start()
    for line in ran.stderr:
        if line.startswith("memory "):
            memory, set_up = line.split(None, 1)[1].strip(), time.monotonic() - began
    code = ran.wait()
    over.set(), watching.join(), out.join()
    if code:
        sys.exit(f"the command ended with {code}")
    return json.loads(said[0]), memory, set_up, peak[0]


def runs(record):
    """Returns the rows of each stream and model, by whether they evaluate."""
    return {
        key: {row["evaluates"]: row for row in record["rows"] if (row["stream"], row["model"]) == key}
        for key in dict.fromkeys((row["stream"], row["model"]) for row in record["rows"])
    }


def memory_table(record):
    """Returns head and rows: the memory that was said and taken, in MiB, without evaluation and with it."""
    rows = []
    for (stream, model), of_run in runs(record).items():
        memory = [f"{row['said_bytes'] / MIB:,.0f} / {row['taken_bytes'] / MIB:,.0f}" for row in (of_run[False], of_run[True])]
        ratios = [f"{row['said_bytes'] / row['taken_bytes']:.2f}" for row in (of_run[False], of_run[True])]
        rows.append([stream, f"{of_run[False]['events']:,}", f"{of_run[False]['nodes']:,}", model.upper(), memory[0], ratios[0], memory[1], ratios[1]])
    return ["stream", "events", "nodes", "model", "MiB said / taken", "ratio", "with evaluation", "ratio"], rows


def seconds_table(record):
    """Returns head and rows: the seconds of an epoch."""
    rows = []
    for (stream, model), of_run in runs(record).items():
        row = of_run[False]
        seconds = [f"{row['set_up_seconds']:.1f}", f"{row['epoch_seconds']:,.1f}", f"{row['events_per_second']:,}"]
        rows.append([stream, f"{row['events']:,}", model.upper(), *seconds])
    return ["stream", "events", "model", "seconds to the first step", "seconds of the epoch", "events/s"], rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["memory", "seconds"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--streams", default=",".join(STREAMS), help="with commas between them")
    parser.add_argument("--models", default="jodie,tgn")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench", help="the program")
    a = parser.parse_args()
    most = MOST_BATCHES if a.what == "memory" else None
    key = lambda row: (row["stream"], row["model"], row["evaluates"])
    new = head() | {"what": a.what, "cores": os.cpu_count(), "batch": 600, "max_batches": most, "rows": []}
    record = json.loads(a.out.read_text()) if a.out.exists() else new
    known = {key(row) for row in record["rows"]}
    unknown = [name for name in a.streams.split(",") if name not in STREAMS]
    if unknown:
        parser.error(f"there is no stream {unknown[0]}; give {', '.join(STREAMS)}")
    for name in a.streams.split(","):
        folder = made(a.tgnn, name)
        for model in a.models.split(","):
            for evaluates in (False, True)[: 1 + (a.what == "memory")]:
                row = {"stream": name, "model": model, "evaluates": evaluates}
                if key(row) in known:
                    continue
                command = [a.tgnn, "train", "--data", folder, "--model", model, "--batch", "600", "--epochs", "1", "--json"]
                command += ["--set", "static.mode=off"] + ([] if evaluates else ["--no-eval"])
                command += ["--max-batches", str(most)] if most else []
                summary, memory, set_up, peak = train([*map(str, command)])
                said = int(memory.split()[0]) * MIB
                row |= {
                    "events": summary["data"]["events"],
                    "nodes": summary["data"]["nodes"],
                    "set_up_seconds": round(set_up, 2),
                    "epoch_seconds": round(summary["epochs"][0]["train_seconds"], 2),
                    "events_per_second": round(summary["epochs"][0]["events_per_second"]),
                    "rules_seconds": summary.get("baselines_seconds"),
                    "memory": memory,
                    "said_bytes": said,
                    "taken_bytes": peak,
                    "ratio": round(said / peak, 3),
                }
                print(json.dumps(row), file=sys.stderr, flush=True)
                record["rows"].append(row)
                a.out.parent.mkdir(parents=True, exist_ok=True)
                a.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
