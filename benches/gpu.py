"""Makes a record of what `scripts/gpu-run` measured on a GPU, and the tables of docs/results.md and docs/lab.md.

    python benches/gpu.py out/gpu-results --out benches/results/h200/DATE-NAME.json

Several folders, of runs of the same program on the same machine, make one record. The tables of docs/lab.md have a
column for every record that `RUNS` names; those of docs/results.md have the newest value of each row, and its commit. To
show a later run, add its name there.
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
FIRST = 1  # the first of these whose program is like today's
HEAD = ("date", "commit", "machine", "command", "gpu", "driver", "more", "hardware")
DEEPEST = 3  # level of a record whose values have lines of their own
SHARES = 4  # the largest shares of allowed errors that a record keeps
# What was expected of the kernels of a step of TGN at batch 600: op, kernel and microseconds.
EXPECTED = (
    ("gru_memory", "memory_update_list", "2"), ("gru_memory", "memory_update_messages", ""),
    ("gru_memory", "gru_memory", "16-20"),
    ("linear_pair", "linear_pair", "4"), ("head_linear", "head_linear_up", "3.5 and 5"),
    ("temporal_attention", "temporal_attention", "7.5-10.5"), ("temporal_attention", "temporal_attention_small", ""),
    ("head_linear", "head_linear_down", "5.5 and 5"), ("linear", "linear", "4"), ("ungroup_norm", "ungroup_norm", "3"),
    ("link_decoder", "link_decoder_products", "4"), ("link_decoder", "link_decoder_logits", "2"),
    ("link_decoder_grad", "link_decoder_grad", "3"), ("link_decoder_input_grad", "link_decoder_input_grad", "4"),
    ("ungroup_norm_grad", "ungroup_norm_grad", "6"), ("scatter_add_rows", "scatter_add_rows", "3"),
    ("linear_input_grad", "linear_input_grad", "4"),
    ("temporal_attention_grad", "temporal_attention_grad", "15.5-17.5 with sums"),
    ("temporal_attention_grad", "temporal_attention_grad_fixed", ""),
    ("temporal_attention_grad", "temporal_attention_grad_small", ""),
    ("temporal_attention_grad", "temporal_attention_grad_sums", ""),
    ("linear_pair_input_grad", "linear_pair_input_grad", "6"),
    ("gru_memory_grad", "gru_memory_gates_grad", "22 with weights"),
    ("gru_memory_grad", "memory_update_weight_grad", ""),
    ("gru_memory_grad", "memory_update_weight_grad_fixed", ""), ("adam", "adam", "4"), ("accumulate", "accumulate", "2"))


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


def epochs(entry):
    """Returns what a record keeps of a training: seconds of every epoch, and which of them are timed."""
    run = entry["result"]
    timed, peak = steady(run["epochs"], True), run.get("peak_memory_bytes") or {}
    of_epochs = lambda key: [e.get(key) for e in run["epochs"]]
    return {"plan": run.get("plan"), "precision": run.get("precision"), "threads": run.get("threads"),
            "seconds": of_epochs("train_seconds"), "val_seconds": of_epochs("val_seconds"),
            "wall_times": of_epochs("wall_time"), "command_seconds": entry["seconds"],
            "median_ms": round(1e3 * statistics.median(e["train_seconds"] for e in timed), 3),
            "losses": of_epochs("train_loss"), "clocks": entry.get("clocks"), "device_bytes": peak.get("device"),
            "host_bytes": peak.get("host")}


def times(found):
    """Returns the times of all ops in their cases beside their rivals'."""
    short = lambda o: {"op": o["op"], "case": o["case"], "us": round(o["us"], 2), "us_cold": round(o["us_cold"], 2),
                       "of_copy": round(o["share_of_copy_cold"], 4), "of_product": round(o["share_of_product"], 4)}
    rivals = lambda o: {r["name"]: round(r["us"], 2) for r in o["rivals"]}
    ops = [short(o) | ({"rivals": rivals(o)} if o["rivals"] else {}) for o in found["ops"]]
    kept = ("copy_gb_per_s", "cached_copy_gb_per_s", "transfers", "large_products", "events_us")
    rates = {key: found[key] for key in kept if key in found}
    return rates | {"ops": ops, "missing_rivals": found["missing_rivals"], "not_timed": found["not_timed"]}


def ops_of(found):
    """Returns the times of the ops of a profile, by name, and by shape where an op has several."""
    of_shape = lambda s: {"shape": s["shape"], "runs": s["runs"], "us": round(s["us"], 2)}
    shapes = lambda o: {"shapes": [of_shape(s) for s in o["shapes"]]} if len(o.get("shapes", [])) > 1 else {}
    name = lambda o: o["op"] + (f", {o['place']}" if o["place"] else "")
    return {name(o): {"runs": o["runs"], "us": round(o["us"], 2), **shapes(o)} for o in found.get("ops", [])}


def ceilings(found):
    """Returns the rates of transfers and products, and the us of barriers and of ways to ask for the next kernel."""
    kept = ("transfers", "large_products", "cache_bytes")
    return {key: found["rates"][key] for key in kept if key in found.get("rates", {})} | {
        "us": {g["name"]: round(g["us"], 3) for g in found.get("barriers", {}).get("gaps", [])}}


def switches(entries):
    """Returns by training and change that was switched back the turns: ms of an epoch, of the first one, the command's
    seconds and clocks."""
    found = {}
    for e in entries:
        if e.get("step") == "switches" and e.get("well") and "epochs" in (e["result"] or {}):
            case, before, _ = e["name"].split(", ")
            run = epochs(e)
            turn = {"ms": run["median_ms"], "first_ms": round(1e3 * run["seconds"][0], 2), "clocks": run["clocks"],
                    "command_seconds": run["command_seconds"], "device_bytes": run["device_bytes"]}
            found.setdefault(case, {}).setdefault(before, []).append(turn)
    return found


def switched(entries):
    """Returns the trainings of the comparisons of changes with nothing switched back: the first turn of each."""
    first = {}
    for e in entries:
        if e.get("step") == "switches" and e.get("well") and ", before nothing, " in e["name"]:
            case = e["name"].split(", ")[0]
            first.setdefault(case if case.startswith("tgn ") else f"{case}, in turns", epochs(e))
    return first


def starts(entries):
    """Returns the phases of whole trainings."""
    kept = ("phases", "epochs", "settled", "baselines_seconds", "peak_memory_bytes")
    return {e["name"]: {"command_seconds": e["seconds"], "clocks": e.get("clocks"),
                        **{key: e["result"].get(key) for key in kept}}
            for e in entries if e.get("step") == "start" and e.get("result")}


def step_of(entries):
    """Returns the ops of a training step within graphs, and their kernels by ncu."""
    found = of_step(entries, "profile")
    ops = ops_of(found.get("step", {}))
    kept = ("kernel", "launches", "registers", "limit")
    kernels = [{"op": o["op"], **{key: k[key] for key in kept}, "us": round(k["us"], 2)}
               for o in found.get("ncu", {}).get("ops", []) for k in o["kernels"]]
    return {"ops": ops, "kernels": kernels}


def quality(entries):
    """Returns the test scores of whole trainings, by settings and seed, with the curve of validation."""
    def of_run(e):
        run, test = e["result"], e["result"]["test"]["transductive"]
        curve = [(epoch.get("val") or {}).get("ap") for epoch in run["epochs"]]
        return {"best_epoch": run["best_epoch"], "ap": test["ap"], "auc": test["auc"], "seconds": e["seconds"],
                "val_ap": curve}

    return {e["name"]: of_run(e) for e in entries if e.get("step") == "quality" and e["result"]}


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
    steps = ("tgn", "pyg", "ranks", "snapshots", "models", "torch", "streams")
    trained = switched(entries) | {f"two ranks, {e['name']}" if e["step"] == "ranks" else e["name"]: epochs(e)
                                   for step in steps for e in entries if e.get("step") == step
                                   if isinstance(e["result"], dict) and "epochs" in e["result"]}
    return about | {"seconds": round(seconds, 1)} | lists | {
        "tests": {"ran": len(tests), "well": sum(t["well"] for t in tests)},
        "gaps": of_step(entries, "gaps").get("gaps", {}).get("gaps", []),
        "verify": {name: accuracy(found) for name, found in verify.items()},
        "losses": losses(entries, summary), "sanitizers": sanitized(entries),
        "epochs": trained, "switches": switches(entries), "start": starts(entries), "quality": quality(entries),
        "timeline": of_step(entries, "timeline").get("summary", {}),
        "ncu": {name: of for name, of in of_step(entries, "ncu").items() if "kernel" in of or "lines" in of},
        "ceilings": ceilings(of_step(entries, "ceilings")), "step": step_of(entries),
        "steps": {model: ops_of(of) for step in ("steps", "shapes") for model, of in of_step(entries, step).items()},
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


def history(first, records, of, cell):
    """Returns a table with a column for each record that has something to show."""
    shown = [record for record in records if of(record)]
    return head(first, shown), rows_of(shown, of, cell)


def newest(first, records, of, cell):
    """Returns a table of the newest value of each row, with the commit at which it was measured."""
    _, rows = history(first, records, of, lambda found: found)
    shown = [record for record in records if of(record)]
    last = lambda row: max(i for i, found in enumerate(row) if found != "")
    return [first, "", "commit"], [[name, cell(row[last(row)]), shown[last(row)]["commit"][:7]] for name, *row in rows]


def gaps(table, records):
    of = lambda record: {g["name"]: g for g in record["gaps"]}
    return table("us of a node of a graph", records, of, lambda g: f"{g['us']:.2f}")


def ms(record):
    """Returns what a record tells of trainings: ms of an epoch, and how many times those of a peer are longer."""
    found, pairs = record["epochs"], [(f"tgn {batch}", f"pyg {batch}") for batch in (600, 4000)]
    pairs += [(name.removeprefix("torch "), name) for name in found if name.startswith("torch ")]
    times = {f"{theirs} / {ours}": f"{found[theirs]['median_ms'] / found[ours]['median_ms']:.3g} times"
             for ours, theirs in pairs if {ours, theirs} <= found.keys()}
    return {name: f"{run['median_ms']:.2f}" for name, run in found.items()} | times


def trainings(table, records):
    first, rows = table("ms an epoch", records, ms, str)
    return first, sorted(rows, key=lambda row: " / " in row[0])


def verified(table, records):
    def cell(found):
        off = len(found["off"])
        worst = ", ".join(f"`{op}` {share:.2f}" for op, share in found["worst"].items())
        return f"{found['cases'] - off} of {found['cases']} agree; worst {worst}"

    return table("precision, launches", records, lambda record: record["verify"], cell)


def beside_cpu(table, records):
    of = lambda record: record["losses"]
    return table("loss against the CPU's, relative", records, of, lambda run: f"{run['off_by']:.0e}")


def kernels(table, records):
    of = lambda record: {(k["op"], k["kernel"]): k for k in record["step"]["kernels"]}
    cell = lambda k: f"{k['us']:.1f}" if k["launches"] == 1 else f"{k['launches']} x {k['us']:.1f}"
    first, rows = table("us of a kernel, by ncu", records, of, cell)
    by_kernel = {name: cells for name, *cells in rows}
    return first, [[f"`{kernel}`", *by_kernel[op, kernel]] for op, kernel, _ in EXPECTED if (op, kernel) in by_kernel]


def expected_kernels(records):
    """Returns the history of the kernels beside what was expected of them before the first measurement."""
    first, rows = kernels(history, records)
    expected = {f"`{kernel}`": us for _, kernel, us in EXPECTED}
    return [first[0], "expected", *first[1:]], [[name, expected[name], *cells] for name, *cells in rows]


DRAWN = {"gpu-gaps": gaps, "gpu-trainings": trainings, "gpu-verified": verified, "gpu-losses": beside_cpu,
         "gpu-kernels": kernels}
# The gaps are the GPU's, whatever the program.
TABLES = {name: lambda records, draw=draw: draw(newest, records if draw is gaps else records[FIRST:])
          for name, draw in DRAWN.items()}
TABLES |= {f"{name}-history": lambda records, draw=draw: draw(history, records) for name, draw in DRAWN.items()}
TABLES["gpu-kernels-history"] = expected_kernels


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
