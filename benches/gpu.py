"""Makes a record of what `scripts/gpu-run` measured on a GPU, and the tables of docs/gpu.md.

    python benches/gpu.py out/gpu-results --out benches/results/h200/DATE-NAME.json

Several folders, of runs of the same program on the same machine, make one record. The tables have a column for every
record that `RUNS` names: to show a later run, add its name there, or replace one.
Needs only the standard library.
"""

import argparse
import json
import re
import statistics
import sys
from pathlib import Path

from record import steady

FOLDER, RUNS = "h200", ("first-contact", "wgmma", "narrow-maps")
HEAD = ("date", "commit", "machine", "command", "gpu", "driver", "more", "hardware")
DEEPEST = 3  # level of a record whose values have lines of their own
SHARES = 4  # the largest shares of allowed errors that a record keeps
# What docs/gpu.md expects of the kernels of a step of TGN at batch 600: op, kernel and microseconds.
EXPECTED = (
    ("gru_memory", "memory_update_list", "2"), ("gru_memory", "memory_update_messages", ""),
    ("gru_memory", "gru_memory", "16-20"),
    ("linear_pair", "linear_pair", "4"), ("head_linear", "head_linear_up", "3.5 and 5"),
    ("temporal_attention", "temporal_attention", "7.5-10.5"),
    ("head_linear", "head_linear_down", "5.5 and 5"), ("linear", "linear", "4"), ("ungroup_norm", "ungroup_norm", "3"),
    ("link_decoder", "link_decoder_products", "4"), ("link_decoder", "link_decoder_logits", "2"),
    ("link_decoder_grad", "link_decoder_grad", "3"), ("link_decoder_input_grad", "link_decoder_input_grad", "4"),
    ("ungroup_norm_grad", "ungroup_norm_grad", "6"), ("scatter_add_rows", "scatter_add_rows", "3"),
    ("linear_input_grad", "linear_input_grad", "4"),
    ("temporal_attention_grad", "temporal_attention_grad", "15.5-17.5 with sums"),
    ("temporal_attention_grad", "temporal_attention_grad_sums", ""),
    ("linear_pair_input_grad", "linear_pair_input_grad", "6"),
    ("gru_memory_grad", "gru_memory_gates_grad", "22 with weights"),
    ("gru_memory_grad", "memory_update_weight_grad", ""), ("adam", "adam", "4"), ("accumulate", "accumulate", "2"))


# ---- the record ----


def of_step(entries, step):
    """Returns the results of a step's commands by name, in their order."""
    return {e["name"]: e["result"] for e in entries if e.get("step") == step and e["result"]}


def accuracy(found):
    """Returns the cases of all ops, those that are off, and the largest shares of an allowed error."""
    worst = sorted((o for o in found["accuracy"] if not o["off"]), key=lambda o: -(o["worst"] or 0))[:SHARES]
    return {"launching": found["launching"], "cases": found["cases"], "not_tried": found["not_tried"],
            "off": [off for o in found["accuracy"] for off in o["off"]],
            "worst": {o["op"]: round(o["worst"], 3) for o in worst}}


def epochs(run):
    """Returns what a record keeps of a training: seconds of every epoch, and which of them are timed."""
    timed = steady(run["epochs"], True)
    device = (run.get("peak_memory_bytes") or {}).get("device")
    return {"plan": run.get("plan"), "precision": run.get("precision"), "threads": run.get("threads"),
            "seconds": [e["train_seconds"] for e in run["epochs"]],
            "median_ms": round(1e3 * statistics.median(e["train_seconds"] for e in timed), 3),
            "losses": [e["train_loss"] for e in run["epochs"]], "device_bytes": device}


def times(found):
    """Returns the times of all ops in their cases beside their rivals'."""
    short = lambda o: {"op": o["op"], "case": o["case"], "us": round(o["us"], 2), "us_cold": round(o["us_cold"], 2),
                       "of_copy": round(o["share_of_copy_cold"], 4), "of_product": round(o["share_of_product"], 4)}
    rivals = lambda o: {r["name"]: round(r["us"], 2) for r in o["rivals"]}
    ops = [short(o) | ({"rivals": rivals(o)} if o["rivals"] else {}) for o in found["ops"]]
    rates = {key: found[key] for key in ("copy_gb_per_s", "cached_copy_gb_per_s", "large_products", "events_us")}
    return rates | {"ops": ops, "missing_rivals": found["missing_rivals"], "not_timed": found["not_timed"]}


def ops_of(found):
    """Returns the times of the ops of a profile, by name."""
    return {o["op"] + (f", {o['place']}" if o["place"] else ""): {"runs": o["runs"], "us": round(o["us"], 2)}
            for o in found.get("ops", [])}


def step_of(entries):
    """Returns the ops of a training step within graphs, and their kernels by ncu."""
    found = of_step(entries, "profile")
    ops = ops_of(found.get("step", {}))
    kept = ("kernel", "launches", "registers", "limit")
    kernels = [{"op": o["op"], **{key: k[key] for key in kept}, "us": round(k["us"], 2)}
               for o in found.get("ncu", {}).get("ops", []) for k in o["kernels"]]
    return {"ops": ops, "kernels": kernels}


def quality(entries):
    """Returns the test scores of whole trainings, by seed, and the seconds of a command."""
    scores = lambda run: {key: run["test"]["transductive"][key] for key in ("ap", "auc")}
    return {e["name"]: {"best_epoch": e["result"]["best_epoch"], **scores(e["result"]), "seconds": e["seconds"]}
            for e in entries if e.get("step") == "quality" and e["result"]}


def sanitized(entries):
    """Returns by tool of compute-sanitizer whether it found its planted mistake, and nothing in the kernels."""
    well = {e["name"]: e["well"] for e in entries if e.get("step") == "sanitizers"}
    return {tool: {"found_planted": well[f"planted {tool}"], "clean": well[tool]}
            for tool in well if f"planted {tool}" in well}


def losses(entries, summary):
    """Returns the losses of the short trainings, and how far from the CPU's they are, which only the summary says."""
    off = dict(re.findall(r"^  (\S+) .*  off by (\S+)  cpu ", summary, re.MULTILINE))
    return {model: {"losses": [e["train_loss"] for e in run["epochs"]], "off_by": float(off[model])}
            for model, run in of_step(entries, "losses").items() if model in off}


def entries_of(folder):
    """Returns what a run has recorded. If it was killed, the last line may be torn."""
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def record_of(folders):
    """Returns the record of what lies in the folders of results."""
    runs = [entries_of(folder) for folder in folders]
    for key in ("commit", "gpu", "driver", "hardware"):
        if any(run[0][key] != runs[0][0][key] for run in runs):
            sys.exit(f"gpu.py: the folders differ in their {key}; make a record of each")
    about = {key: runs[0][0][key] for key in HEAD} | {"command": "; ".join(run[0]["command"] for run in runs)}
    lists = {key: [name for run in runs for name in run[-1].get(key, [])] for key in ("failed", "not_run")}
    seconds = sum(run[-1].get("seconds", 0) for run in runs)
    entries, summary = sum(runs, []), "".join((folder / "summary.txt").read_text() for folder in folders)
    tests = [e for e in entries if e.get("step") == "tests"]
    verify, table = of_step(entries, "verify"), of_step(entries, "table")
    trained = {f"two ranks, {name}" if step == "ranks" else name: epochs(run)
               for step in ("tgn", "pyg", "ranks", "snapshots", "models", "torch", "streams")
               for name, run in of_step(entries, step).items() if isinstance(run, dict) and "epochs" in run}
    return about | {"seconds": round(seconds, 1)} | lists | {
        "tests": {"ran": len(tests), "well": sum(t["well"] for t in tests)},
        "gaps": of_step(entries, "gaps").get("gaps", {}).get("gaps", []),
        "verify": {name: accuracy(found) for name, found in verify.items()},
        "losses": losses(entries, summary), "sanitizers": sanitized(entries),
        "epochs": trained, "quality": quality(entries), "step": step_of(entries),
        "steps": {model: ops_of(found) for model, found in of_step(entries, "steps").items()},
        "table": {name: times(found) for name, found in table.items() if "ops" in found}}


def written(value, deep=1):
    """Returns a record as JSON, with a line for each thing that was measured."""
    if deep > DEEPEST or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value)
    named = isinstance(value, dict)
    names = [f"{json.dumps(key)}: " for key in value] if named else [""] * len(value)
    inner = [name + written(of, deep + 1) for name, of in zip(names, value.values() if named else value)]
    left, right = "{}" if named else "[]"
    indent = "\n" + " " * deep
    return left + indent + f",{indent}".join(inner) + indent[:-1] + right


# ---- tables ----


def head(first, records):
    return [first, *(f"{record['date']}, {record['commit'][:7]}" for record in records)]


def rows_of(records, of, cell):
    """Returns a row for everything that a record has, in the order of the first record that has it."""
    names = dict.fromkeys(name for record in records for name in of(record))
    return [[name, *(cell(of(record)[name]) if name in of(record) else "" for record in records)] for name in names]


def table(first, records, of, cell):
    """Returns a table with a column for each record that has something to show."""
    shown = [record for record in records if of(record)]
    return head(first, shown), rows_of(shown, of, cell)


def gaps(records):
    of = lambda record: {g["name"]: g for g in record["gaps"]}
    return table("us of a node of a graph", records, of, lambda g: f"{g['us']:.2f}")


def trainings(records):
    first, rows = table("ms an epoch", records, lambda record: record["epochs"], lambda run: f"{run['median_ms']:.2f}")
    pairs = [(f"tgn {batch}", f"pyg {batch}") for batch in (600, 4000)]
    named = dict.fromkeys(name for record in records for name in record["epochs"])
    pairs += [(name.removeprefix("torch "), name) for name in named if name.startswith("torch ") and name[6:] in named]
    for ours, theirs in pairs:
        both = [record["epochs"] if {ours, theirs} <= record["epochs"].keys() else None for record in records]
        rows.append([f"{theirs} / {ours}",
                     *(f"{of[theirs]['median_ms'] / of[ours]['median_ms']:.3g} times" if of else "" for of in both)])
    return first, rows


def verified(records):
    def cell(found):
        off = len(found["off"])
        worst = ", ".join(f"`{op}` {share:.2f}" for op, share in found["worst"].items())
        return f"{found['cases'] - off} of {found['cases']} agree; worst {worst}"

    return table("precision, launches", records, lambda record: record["verify"], cell)


def beside_cpu(records):
    of = lambda record: record["losses"]
    return table("loss against the CPU's, relative", records, of, lambda run: f"{run['off_by']:.0e}")


def kernels(records):
    of = lambda record: {(k["op"], k["kernel"]): k for k in record["step"]["kernels"]}
    cell = lambda k: "" if k is None else f"{k['us']:.1f}" if k["launches"] == 1 else f"{k['launches']} x {k['us']:.1f}"
    rows = [[f"`{kernel}`", expected, *(cell(of(record).get((op, kernel))) for record in records)]
            for op, kernel, expected in EXPECTED]
    return ["us of a kernel, by ncu", "expected", *head("", records)[1:]], rows


TABLES = {"gpu-gaps": gaps, "gpu-trainings": trainings, "gpu-verified": verified, "gpu-losses": beside_cpu,
          "gpu-kernels": kernels}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="folders of results of scripts/gpu-run")
    parser.add_argument("--out", type=Path, required=True, help="the record")
    a = parser.parse_args()
    if missing := [folder for folder in a.results if not (folder / "results.jsonl").exists()]:
        parser.error(f"{missing[0]} has no results.jsonl; give the folder in which scripts/gpu-run has left its results")
    a.out.parent.mkdir(parents=True, exist_ok=True)
    a.out.write_text(written(record_of(a.results)) + "\n")


if __name__ == "__main__":
    main()
