"""Measures what a service waits for, and ranks on a machine that is busy.

    cargo build --release
    python benches/service.py --out benches/results/NAME.json

`save`: JODIE with 600,000 nodes (its state is 492 MB) scores 400,000 events in batches of 200, and saves its state every
second meanwhile: for how long the stream waited, the longest step, and the peak of memory beside that of a run that saves
at its end only. Then SIGTERM reaches it after 2,000 single events: the time until it has saved and ended.
`busy`: six epochs of TGN on 2,000 events, by one rank and by two, alone and beside eight processes that do nothing but
compute; the median of five runs in turn. Needs Linux, and only the standard library.
"""

import argparse
import json
import os
import random
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import ROOT, head


def run(command, folder):
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)


def report(text):
    """Returns what the report of `predict` says."""
    find = lambda pattern: float(re.search(pattern, text)[1].replace(",", ""))
    waited = re.search(r"the stream waited ([\d.]+) ms", text)
    return {
        "events_per_second": find(r"speed +([\d,]+) events/s"),
        "longest_step_ms": find(r"a step .* at most ([\d.]+) us") / 1e3,
        "peak_mib": find(r"memory +([\d,]+) MiB"),
        "waited_ms": waited and float(waited[1]),
    }


def save(tgnn, folder):
    words = lambda text: [tgnn, *shlex.split(text)]
    run(words("data synth --out data --events 1000000 --sources 500000 --destinations 100000 --edge-features 1"), folder)
    run(words("train --data data --model jodie --epochs 1 --max-batches 20 --no-eval --out run --set static.mode=off"), folder)
    draw = random.Random(1)
    lines = [f"{draw.randrange(500_000)},{500_000 + draw.randrange(100_000)},{30_000_000 + 3 * i},0.5\n" for i in range(400_000)]
    (folder / "later.csv").write_text("".join(lines))
    stream = "predict --checkpoint run --input later.csv --batch 200 --out scores.csv --save"
    whole = report(run(words(f"{stream} at-end"), folder).stderr)
    between = report(run(words(f"{stream} between --save-every 1s"), folder).stderr)
    pipe = subprocess.PIPE
    service = subprocess.Popen(words("predict --checkpoint run --save signal"), cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    for line in lines[:2000]:
        service.stdin.write(line)
        service.stdin.flush()
        service.stdout.readline()
    told = time.monotonic()
    service.send_signal(signal.SIGTERM)
    code = service.wait()
    ended = time.monotonic() - told
    size = sum(file.stat().st_size for file in (folder / "signal").iterdir())
    return {"saved_bytes": size, "at_end_only": whole, "every_second": between, "ended_after_seconds": round(ended, 2), "exit": code}


def busy(tgnn, folder):
    run([tgnn, *shlex.split("data synth --out small --events 2000 --sources 80 --destinations 40 --edge-features 4 --mean-gap 60")], folder)
    command = "train --data small --epochs 6 --batch 50 --threads 1 --no-eval --set static.mode=off --ranks"
    seconds = {}
    for load in (0, 8):
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
        try:
            for _ in range(5):
                for ranks in (1, 2):
                    began = time.monotonic()
                    run([tgnn, *shlex.split(f"{command} {ranks}")], folder)
                    seconds.setdefault(f"{ranks} ranks, {load} busy processes", []).append(round(time.monotonic() - began, 3))
        finally:
            for other in others:
                other.kill()
    return {"seconds": seconds, "medians": {name: statistics.median(values) for name, values in seconds.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tgnn", default=str(ROOT / "target/release/tgnn-bench"), help="the program")
    a = parser.parse_args()
    record = head() | {"cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as folder:
        record |= {"save": save(a.tgnn, Path(folder)), "busy": busy(a.tgnn, Path(folder))}
    a.out.parent.mkdir(parents=True, exist_ok=True)
    a.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
