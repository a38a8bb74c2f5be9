"""Times Sven as one part of it is added after the other, as figure 15 of its paper does (section 5.5).

    cargo build --release && scripts/fetch-mpi
    sudo python benches/breakdown.py --out benches/results/NAME.json [--folder FOLDER]
    python benches/breakdown.py --tables benches/results/NAME.json

Trains TGN, APAN and JODIE on a stream with the sizes of LastFM (made in FOLDER), over hosts with limited links
(scripts/cluster), with one thread each. It begins with node memory that is partitioned by ranges, of which every
occurrence of a node travels. Of every run the first epoch is left out; the plans alternate, for several rounds.
Takes about ten minutes on two quiet cores. Needs root, ip, tc; otherwise only the standard library.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import cluster

# Each part with what it changes: the section [ranks], the stages, and the section [staleness].
RANKS = {"memory": "partitioned", "partition": "range", "update": "readers", "deduplicate": "none"}
PREFETCH = {stage: (2, 1) for stage in ("sample", "route", "fetch_features")}
PARTS = {
    "partitioned by ranges": ({}, {}),
    "+ deduplicated": ({"deduplicate": "both"}, {}),
    "+ Re-FlexBiCut": ({"partition": "re-flex-bicut"}, {}),
    "+ prefetch": ({}, PREFETCH),
    "+ micro-batches": ({"micro_batches": 2}, {"dispatch": (3, 0), "aggregate": (3, 0)}),
    "+ asynchronous all-reduce": ({}, {"reduce_gradients": (4, 0)}, {"gradients": 1}),
}


def plans(folder):
    """Writes a plan for each part, with all parts before it. Returns their paths, by part."""
    ranks, stages, paths = dict(RANKS), {}, {}
    for number, (part, (of_ranks, of_stages, *staleness)) in enumerate(PARTS.items()):
        ranks, stages = ranks | of_ranks, stages | of_stages
        text = [f'name = "part-{number}"', "[ranks]", *(f"{key} = {json.dumps(value)}" for key, value in ranks.items())]
        for steps in staleness:
            text += ["[staleness]", *(f"{key} = {value}" for key, value in steps.items())]
        for stage, (lane, depth) in stages.items():
            text += [f"[stages.{stage}]", f"lane = {lane}", f"prefetch_depth = {depth}"]
        path = Path(folder) / f"part-{number}.toml"
        path.write_text("\n".join(text) + "\n")
        paths[part] = str(path)
    return paths


def measured(args):
    with tempfile.TemporaryDirectory(prefix="tgnn-plans-") as folder:
        paths = plans(folder)
        args.plans, out = list(paths.values()), args.out
        record = cluster.measured(argparse.Namespace(**vars(args) | {"out": None}))
    part_of = {path: part for part, path in paths.items()}
    record["plans"] = list(PARTS)
    for row in record["rows"]:
        row["plan"] = part_of.get(row["plan"], row["plan"])
    if out:
        Path(out).write_text(json.dumps(record, indent=1) + "\n")
    return record


def breakdown(record):
    """Returns head and rows: the median seconds of an epoch with the parts so far, and how many times as fast as
    without the last one."""
    links = list(dict.fromkeys(r["link"] for r in record["rows"] if r["ranks"] > 1))
    columns = [(link, model) for link in links for model in dict.fromkeys(r["model"] for r in record["rows"])]
    shown = {"1gbit": "1 Gbit/s", "200mbit": "200 Mbit/s"}
    rows, before = [], {}
    for part in record["plans"]:
        cells = [part]
        for link, model in columns:
            seconds = cluster.median(record, link=link, model=model, plan=part)
            faster = f" ({before[link, model] / seconds:.2f})" if (link, model) in before else ""
            cells.append(f"{seconds:.2f}{faster}")
            before[link, model] = seconds
        rows.append(cells)
    return ["seconds of an epoch (times as fast)", *(f"{shown.get(link, link)}, {model}" for link, model in columns)], rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--tables", help="print the table of a JSON, and do nothing else")
    parser.add_argument("--tgnn", default="target/release/tgnn-bench")
    parser.add_argument("--folder", default="out/data", help="where the synthetic stream is")
    parser.add_argument("--data", nargs=1, default=["lastfm-like"], choices=cluster.DATA)
    parser.add_argument("--models", nargs="+", default=cluster.MODELS)
    parser.add_argument("--hosts", nargs=1, type=int, default=[4])
    parser.add_argument("--links", nargs="+", default=["1gbit", "200mbit"], help="rates of links")
    parser.add_argument("--batch", type=int, default=1200)
    parser.add_argument("--max-batches", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    record = json.loads(Path(args.tables).read_text()) if args.tables else measured(args)
    head, rows = breakdown(record)
    for cells in [head, ["---"] * len(head), *rows]:
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    sys.exit(main())
