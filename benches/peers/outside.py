"""Checks the results of tgnn against code by other authors, run unchanged.

    cargo build --release
    python benches/peers/outside.py --out benches/results/NAME.json
    # With checkouts of amazon-science/tgl and yule-BUAA/DyGLib:
    python benches/peers/outside.py --tgl PATH --dyglib PATH jodie tgat

A check trains a small model with tgnn, reads weights and state from its checkpoint, computes the program's results from
them with the other code, and prints the largest difference and the allowed difference. Where the other code computes
something else, one row names the deviation and its size, without a limit, and another row compares without the
deviation. The exit status is 1 if a difference exceeds its limit. Checks that need TGL's code are skipped without
`--tgl`, those that need DyGLib's without `--dyglib`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from outside_events import apan, half, history, jodie, sampling, tgat, tgn
from outside_program import SEED
from outside_snapshots import classes, wd_gcn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from record import head  # noqa: E402

CHECKS = {"tgn": tgn, "jodie": jodie, "apan": apan, "tgat": tgat, "history": history, "sampling": sampling, "half": half, "wd-gcn": wd_gcn, "classes": classes}
WANTS = {"jodie": "tgl", "apan": "tgl", "tgat": "dyglib", "history": "dyglib"}


def commit(checkout):
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=checkout, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS) + "; all without")
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench", help="the program")
    parser.add_argument("--tgl", type=Path, help="a checkout of amazon-science/tgl, for jodie and apan")
    parser.add_argument("--dyglib", type=Path, help="a checkout of yule-BUAA/DyGLib, for tgat, history and sampling; it wants pandas")
    o = parser.parse_args()
    unknown = set(o.checks) - set(CHECKS)
    if unknown:
        parser.error(f"no check {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    torch.set_num_threads(1)  # with more threads, the "last" mail that TGL writes to a node is undefined
    torch.manual_seed(SEED)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        o.folder = Path(folder)
        for name in o.checks or CHECKS:
            if name in WANTS and getattr(o, WANTS[name]) is None:
                print(f"{name}: left out, for want of --{WANTS[name]}", file=sys.stderr)
                continue
            for found in CHECKS[name](o):
                allowed = found["allowed"]
                verdict = "" if allowed is None else "ok" if found["difference"] <= allowed else "BEYOND"
                shown = "another" if allowed is None else f"{allowed:.2g}"
                print(f"{found['difference']:9.2g}  {shown:>8}  {verdict:6}  {found['what']}  [{found['against']}]", flush=True)
                rows.append({"check": name, **found, "verdict": verdict})
    checkouts = {name: commit(path) for name, path in (("amazon-science/tgl", o.tgl), ("yule-BUAA/DyGLib", o.dyglib)) if path}
    versions = {name: version(name) for name in ("torch", "torch_geometric", "scikit-learn", "scipy", "numpy")}
    if o.out:
        o.out.write_text(json.dumps(head() | {"versions": versions, "checkouts": checkouts, "rows": rows}, indent=1) + "\n")
    sys.exit(any(found["verdict"] == "BEYOND" for found in rows))


if __name__ == "__main__":
    main()
