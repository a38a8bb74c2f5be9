"""Writes the tables of README.md and of pages in docs/, and pictures in docs/, from the records in benches/results.

    python benches/tables.py            # rewrites the text between <!-- table: NAME --> and <!-- end -->
    python benches/tables.py --check    # changes nothing; exit status 1 if a table differs from its records

A table uses the newest record of each name; the line below it links to the records. The tables of models use, for every
data set and model, the newest record of `models` and `models-more` that has it (`models-given` likewise). Needs only
the standard library.
"""

import json
import os
import re
import statistics
import sys
from pathlib import Path

import bars
import breakdown
import cluster
import comm_volume
import convergence
import defaults
import gpu
import partition_balance
import scale
import scaling
import staleness
from record import spread

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benches/results"
PAGES = ("README.md", "docs/results.md", "docs/evaluation.md", "docs/plans.md", "docs/partition.md", "docs/config.md",
         "docs/lab.md", "docs/reliability.md", "docs/systems/disttgl.md", "docs/systems/mspipe.md", "docs/systems/pipetgl.md", "docs/systems/sven.md")
CORES = {"xeon-2-cores": "Xeon", "epyc-2-cores": "EPYC"}
MACHINES = CORES | {"epyc-zen3-2-cores": "EPYC (Zen 3)", gpu.FOLDER: "H200"}
# Whose speed the README shows: that of the newest records of all models of events.
SHOWN = "xeon-2-cores"
LEARNED = "tgnn, learned time encoding"
# Names of the models of events in records and tables, in the order of `tgnn-bench models`.
MODELS = {"tgn": "TGN", "jodie": "JODIE", "dyrep": "DyRep", "apan": "APAN", "tgat": "TGAT", "graph-mixer": "GraphMixer",
          "static": "static rows"}
MISSING = "not measured yet"
# The rules that learn nothing that tables of snapshot models show.
SHOWN_RULES = ("local recency, then global recency", "local popularity, then global popularity")
# What tables of all models of events show: the name, its group in a record, and its name there.
SHOWN_OF_RULES = (("EdgeBank", "edgebank", "unlimited"), (SHOWN_RULES[0], "rules", SHOWN_RULES[0]),
                  ("recency of both ends", "rules", "recency of both ends"))
# What rules may know.
PASTS = ("earlier batches", "strictly earlier")


def records_of(machine, name):
    """Returns the paths of all records with a name on a machine, the newest last."""
    dated = re.compile(rf"\d{{4}}-\d\d-\d\d-{re.escape(name)}\.json")
    return sorted((p for p in RESULTS.glob(f"{machine}/*.json") if dated.fullmatch(p.name)), key=lambda p: p.name)


class Record(dict):
    """The newest record with a name on a machine, or the one at a place in time; on any machine (`*`) for scores, which do
    not depend on it."""

    def __init__(self, machine, name, at=-1):
        found = records_of(machine, name)
        if not found:
            sys.exit(f"tables.py: no record of {name} in benches/results/{machine}")
        super().__init__(json.loads(found[at].read_text()))
        self.path, self.name, self.machine = found[at], name, MACHINES[found[at].parent.name]


def newest(name):
    return Record("*", name)


def of_models(name, sets):
    """Returns the rows of every data set and model from the newest record with this name, or `NAME-more`, that has them,
    and these records."""
    rows, records, known = [], [], set()
    found = [Record("*", of, at) for of in (name, f"{name}-more") for at in range(len(records_of("*", of)))]
    for record in sorted(found, key=lambda record: record["date"], reverse=True):
        mine = [r for r in record["rows"] if r["data"] in sets and (r["data"], r["model"]) not in known]
        known |= {(r["data"], r["model"]) for r in mine}
        rows, records = rows + mine, records + [record] * bool(mine)
    return rows, records


def number(x, digits=3):
    """Returns `x` with `digits` significant digits (as decimals if |x| < 1), without an exponent."""
    before = len(str(int(abs(x)))) if abs(x) >= 1 else 0
    return f"{x:.{max(0, digits - before)}f}"


def mib(record_row, *systems):
    return " / ".join(f"{record_row['peak_memory_bytes'][s] / 2**20:.0f}" for s in systems) + " MiB"


def flag(model):
    """Returns the name of the model in `--model`."""
    return model.lower().replace("evolvegcn", "evolve-gcn")


def unmeasured(columns):
    """Returns the cells of a row without a record."""
    return [MISSING, *[""] * (columns - 1)]


def scores(record, metric, part="transductive", **which):
    """Returns the metric of every row of the record whose columns have the values `which`, in their order."""
    rows = [r for r in record["rows"] if all(r[k] == v for k, v in which.items())]
    return [r["test"][part][metric] for r in rows]


# Models of events, the records of their speed, and the peer that each is compared with.
SPEED = (("TGN", "speed", "pyg"), ("JODIE", "speed-jodie", "torch"), ("DyRep", "speed-dyrep", "torch"),
         ("APAN", "speed-apan", "torch"), ("TGAT, two layers", "speed-tgat", "torch"),
         ("GraphMixer", "speed-graph-mixer", "torch"), ("TGN, two layers", "speed-tgn", "torch"))
SNAPSHOT_MODELS = ("WD-GCN", "T-GCN", "EvolveGCN-O")


def epochs_of_events():
    rows, records = [], []
    for machine in CORES:
        for model, name, peer in SPEED:
            if not records_of(machine, name):
                continue
            record = Record(machine, name)
            for r in sorted(record["rows"], key=lambda r: -r["batch"]):
                # GraphMixer's time encoding is always fixed.
                seconds = [number(r["seconds_per_epoch"][s]) if s in r["ratio"] else "" for s in ("tgnn", LEARNED, peer)]
                ratios = ", ".join(f"{r['ratio'][s]:.1f}" for s in ("tgnn", LEARNED) if s in r["ratio"])
                rows.append([model, record.machine, r["batch"], *seconds, ratios, mib(r, "tgnn", peer)])
            records.append(record)
    return ["model", "cores", "batch", "tgnn", LEARNED, "PyTorch", "ratios", "peak memory"], rows, records


def history_times():
    """Compares the rules of which events a query sees."""
    rows, records = [], []
    for model, name, _ in SPEED:
        record = newest(name.replace("speed", "history"))
        [r] = record["rows"]
        batch, time = (r["seconds_per_epoch"][f"history={rule}"] for rule in ("batch", "time"))
        rows.append([model, number(batch), number(time), f"{time / batch:.2f}"])
        records.append(record)
    return ["seconds of an epoch", "`history=batch`", "`history=time`", "ratio"], rows, records


def epochs_of_snapshots():
    rows, records = [], []
    for model in SNAPSHOT_MODELS:
        for machine in CORES:
            record = Record(machine, f"speed-{flag(model)}")
            [r] = record["rows"]
            seconds = [number(r["seconds_per_epoch"][s]) for s in ("tgnn", "csr", "coo", "pyg")]
            rows.append([model, record.machine, *seconds, f"{r['ratio']['tgnn']:.1f}", mib(r, "tgnn", "csr")])
            records.append(record)
    return ["model", "cores", "tgnn", "CSR", "COO", "PyTorch Geometric", "ratio", "peak memory, tgnn / CSR"], rows, records


def at_batch_200(name):
    """Returns the record of a model's speed, and its row at the default batch."""
    record = Record(SHOWN, name)
    return record, next(r for r in record["rows"] if r["batch"] == 200)


def readme_speed():
    rows, records = [], []
    for model, name, peer in SPEED:
        record, r = at_batch_200(name)
        ours, theirs = (number(r["seconds_per_epoch"][s]) for s in ("tgnn", peer))
        rows.append([model, ours, theirs, f"{r['ratio']['tgnn']:.1f}", mib(r, "tgnn", peer)])
        records.append(record)
    return ["seconds of an epoch", "tgnn", "PyTorch", "times as fast", "peak memory, tgnn / PyTorch"], rows, records


def speed_chart():
    """Draws how many times as fast as PyTorch every model trains."""
    events = [(model, at_batch_200(name)[1]["ratio"]["tgnn"]) for model, name, _ in SPEED]
    snapshots = [(model, Record(SHOWN, f"speed-{flag(model)}")["rows"][0]["ratio"]["tgnn"])
                 for model in SNAPSHOT_MODELS]
    return bars.drawn("Training speed on two CPU cores (PyTorch = 1)",
                      [("event streams", "#0072b2", events), ("snapshots", "#009e73", snapshots)])


def prediction():
    record = Record("xeon-2-cores", "predict")
    rows = [[r["batch"], f"{r['events_per_second']:,}", f"{r['step_us']['p50']} us", f"{r['step_us']['p99']} us",
             f"{r['step_us']['max'] / 1000:.0f} ms", f"{r['peak_mib']} MiB"] for r in record["rows"]]
    return ["events a step, at most", "events/s", "a step: median", "99 %", "most", "peak memory"], rows, [record]


def ops():
    record = Record("xeon-2-cores", "ops")
    shown = ("gru_memory", "gru_memory_grad", "temporal_attention", "temporal_attention_grad", "head_linear", "linear",
             "link_decoder", "adam", "sample_neighbors")
    rows = []
    for op in shown:
        # The largest case of an op; for sampling the first one, which samples the most recent neighbours.
        cases = [o for o in record["ops"] if o["op"] == op]
        o = cases[0] if op == "sample_neighbors" else max(cases, key=lambda o: o["bytes"])
        time = f"{number(o['us'])} us" if o["us"] < 1000 else f"{number(o['us'] / 1000)} ms"
        rate = f"{o['gflops']:.0f} GFLOP/s" if o["bound"] == "arithmetic" else f"{o['gb_per_s']:.0f} GB/s"
        rows.append([f"`{op}`", time, rate, f"{100 * o['share_of_peak']:.0f} %"])
    return ["op", "time", "rate", "share of the machine's peak"], rows, [record]


def sparse_products():
    record, widths, graphs = Record("xeon-2-cores", "spmm"), (16, 64, 256), {}
    for p in record["products"]:
        graphs.setdefault((p["vertices"], p["graph"], p["entries"]), {})[p["width"]] = p

    def cell(p):
        times = " / ".join(number(1e6 * p["peer_seconds"][s] / p["us"], 2) for s in ("csr", "coo", "gather"))
        return f"{number(p['us'] / 1000)} ms, {100 * p['share_of_copy']:.0f} %, {times}"

    rows = [[f"{graph}, {vertices:,} vertices, {entries:,} entries", *(cell(of[w]) for w in widths)]
            for (vertices, graph, entries), of in graphs.items()]
    return ["graph", *(f"width {w}" for w in widths)], rows, [record]


def sampling():
    record = Record("xeon-2-cores", "sampling")
    rate = {(r["events"], r["sampling"]): r["events_per_second"] / 1e6 for r in record["rows"]}
    rows = [[f"{n:,}", *(f"{rate[n, s]:.1f}" for s in ("recent", "uniform"))] for n in sorted({n for n, _ in rate})]
    return ["events in the stream", "most recent", "uniform"], rows, [record]


def default_run():
    record = newest("default-run")
    rows = [[f"{memory}, {part}", *(f"{record['test_by_memory'][key][part][m]:.4f}" for m in ("ap", "auc"))]
            for memory, key in (("as trained", "as_trained"), ("memory replayed", "replayed"))
            for part in ("transductive", "inductive")]
    return ["test", "AP", "AUC"], rows, [record]


def of_rules(data):
    """Returns the rows of EdgeBank and the rules on a data set, given the events of earlier batches and given all strictly
    earlier ones, and the record."""
    record = newest("models-rules")
    batch = [row for row in record["rows"] if row["data"] == data]
    return batch, [{**row, **row["strictly_earlier"]} for row in batch], record


# EdgeBank's variants and the rules, each with its group in a row.
def all_rules(rows):
    return [*((f"EdgeBank, {kind}", "edgebank", kind) for kind in rows[0]["edgebank"]),
            *((rule, "rules", rule) for rule in rows[0]["rules"])]


def rule_cells(rows, columns, group, name, digits=3):
    """Returns the mean scores of a rule for each protocol and metric. No deviation: a rule learns nothing, so only the drawn
    negatives differ between seeds."""
    runs = [{**row, "test": row[group][name]} for row in rows]
    return cells(runs, columns, lambda values: f"{statistics.mean(values):.{digits}f}")


def beside_pyg():
    rows, records = [], []
    for data, name in (("Wikipedia", "quality-wikipedia"), ("CollegeMsg", "quality-collegemsg")):
        record = newest(name)
        rate = record["rows"][0]["learning_rate"]
        shown = [spread(scores(record, "ap", part, system=system), 4)
                 for system in ("tgnn", "pyg") for part in ("transductive", "inductive")]
        rows.append([f"{data}, Adam {rate}", *shown])
        records.append(record)
    return ["test AP", "tgnn", "tgnn, inductive", "PyTorch Geometric", "inductive"], rows, records


def cells(runs, columns, cell):
    """Returns `cell` of the scores of the runs for each protocol and metric."""
    if not runs:
        return unmeasured(len(columns))
    return [cell(scores({"rows": runs}, figure, protocol=protocol)) for protocol, figure in columns]


def every_model():
    sets = {"Wikipedia": "wikipedia", "CollegeMsg": "CollegeMsg", "Bitcoin OTC": "soc-sign-bitcoinotc"}
    asked = (("AP", "dyglib, random", "ap"), ("AP, historical", "dyglib, historical", "ap"), ("MRR of 50", "disttgl", "mrr"))
    every, records = of_models("models", sets.values())
    columns = [(protocol, metric) for _, protocol, metric in asked]
    mean = lambda values: f"{statistics.mean(values):.3f}"
    of = lambda runs: [cell for data in sets.values() for cell in cells([r for r in runs if r["data"] == data], columns, mean)]
    rows = [[shown, *of([r for r in every if r["model"] == model])] for model, shown in MODELS.items()]
    tested = [of_rules(data) for data in sets.values()]
    for past, known in enumerate(PASTS):
        for shown, group, name in SHOWN_OF_RULES:
            scored = [rule_cells(of[past], columns, group, name) for of in tested]
            rows.append([f"{shown}, {known}", *(cell for of in scored for cell in of)])
    head = [f"{data}: {what}" if i == 0 else what for data in sets for i, (what, _, _) in enumerate(asked)]
    return ["test, transductive", *head], rows, [*records, tested[0][2]]


def models_of(data, columns, of="models"):
    """Returns a table of one data set: a row for each model and rule, a column for each protocol and metric. Rules have two
    numbers: given the events of earlier batches, and given all strictly earlier ones."""
    def table():
        mine, records = of_models(of, [data])
        rows = [[model, *cells([r for r in mine if r["model"] == model], columns, lambda values: spread(values, 3))]
                for model in MODELS]
        *pasts, record = of_rules(data)
        for shown, group, name in all_rules(pasts[0]):
            both = zip(*(rule_cells(rows_of, columns, group, name) for rows_of in pasts))
            rows.append([shown, *(" / ".join(of) for of in both)])
        head = [f"{protocol}: {figure.upper().replace('_AT_', '@')}" for protocol, figure in columns]
        return ["", *head], rows, [*records, record]
    return table


# AP of DyGLib's paper (table 2, random negatives), with its features: none for UCI, 172 of texts for Wikipedia.
PUBLISHED = {
    "UCI": ("CollegeMsg", {"tgn": "0.923", "jodie": "0.894", "dyrep": "0.651", "tgat": "0.796", "graph-mixer": "0.9325"}, "0.762"),
    # With 172 text features.
    "Wikipedia": (
        "wikipedia",
        {"tgn": "0.985", "jodie": "0.965", "dyrep": "0.949", "tgat": "0.969", "graph-mixer": "0.9725"},
        "0.904",
    ),
}


def beside_published():
    rows, records = [], []
    for data, (name, published, edgebank) in PUBLISHED.items():
        every, of_data = of_models("models", [name])
        records += of_data
        ap = lambda runs: scores({"rows": runs}, "ap", protocol="dyglib, random")
        for model, theirs in published.items():
            mine = ap([r for r in every if r["model"] == model])
            rows.append([f"{data}, {MODELS[model]}", spread(mine, 3) if mine else MISSING, theirs])
        if edgebank:
            banks = ap([{**r, "test": r["edgebank"]["unlimited"]} for r in every])
            rows.append([f"{data}, EdgeBank", f"{statistics.mean(banks):.3f}", edgebank])
    return ["test AP", "here", "published"], rows, records


def readme_scores():
    every, records = of_models("models", ["CollegeMsg"])
    asked = (("dyglib, random", "ap"), ("dyglib, historical", "ap"), ("disttgl", "mrr"))
    _, published, published_edgebank = PUBLISHED["UCI"]

    def row(name, runs, theirs):
        mean = lambda values: f"{statistics.mean(values):.3f}"
        [ap], more = cells(runs, asked[:1], lambda values: spread(values, 3)), cells(runs, asked[1:], mean)
        return [name, ap, theirs, *more]

    rows = [row(shown, [r for r in every if r["model"] == model], published.get(model, ""))
            for model, shown in MODELS.items()]
    *pasts, record = of_rules("CollegeMsg")
    for known, tested in zip(PASTS, pasts):
        for shown, group, name in SHOWN_OF_RULES:
            [ap, *more] = rule_cells(tested, asked, group, name)
            published_here = published_edgebank if shown == "EdgeBank" and tested is pasts[0] else ""
            rows.append([f"{shown}, {known}", ap, published_here, *more])
    head = ["CollegeMsg, test", "AP", "AP, published", "AP, historical negatives", "MRR of 50"]
    return head, rows, [*records, record]


def memory_anew():
    ours, peer = newest("memory-anew"), newest("memory-anew-pyg")
    of = lambda record, name, memory: spread(
        [r["test_by_memory"][memory]["transductive"]["ap"] for r in record["rows"] if r["name"] == name], 3)
    names = [name for name in dict.fromkeys(r["name"] for r in ours["rows"]) if not name.endswith(", not settled")]
    rows = [[name, of(ours, name, "as_trained"), of(ours, f"{name}, not settled", "replayed"), of(ours, name, "replayed")]
            for name in names]
    [theirs] = dict.fromkeys(r["name"] for r in peer["rows"])
    rows.append([theirs, of(peer, theirs, "as_trained"), of(peer, theirs, "replayed"), "not measured"])
    return ["test AP", "as trained", "replayed, not settled", "replayed, settled"], rows, [ours, peer]


def runs_of(record, wanted):
    """Returns the cells of runs by `benches/seeds.py`, each given by name, metric and digits; empty for `None`."""
    return [spread(scores(record, w[1], name=w[0]), w[2]) if w else "" for w in wanted]


def eval_batch():
    record = newest("eval-batch")
    tests = list(dict.fromkeys(r["eval"] for r in record["rows"]))
    of = lambda test, name: [r for r in record["rows"] if r["eval"] == test and r["name"] == name]
    rows = []
    for name in dict.fromkeys(r["name"] for r in record["rows"]):
        rows.append([name, *(spread([r["test"]["transductive"]["ap"] for r in of(test, name)], 3) for test in tests)])
    # What learns nothing has the same score beside every model and seed.
    first = [of(test, record["rows"][0]["name"])[0] for test in tests]
    rows.append(["EdgeBank", *(f"{r['edgebank']['unlimited']['transductive']['ap']:.3f}" for r in first)])
    rule = lambda r: next(b["test"] for b in r["baselines"] if b["name"] == SHOWN_RULES[0])
    rows.append([SHOWN_RULES[0], *(f"{rule(r)['transductive']['ap']:.3f}" for r in first)])
    return ["CollegeMsg, test AP", *(test.removeprefix("--") for test in tests)], rows, [record]


def static_memory():
    record = newest("static-memory")
    wiki, icews = ([f"{data}, {mode}" for mode in ("none", "pretrained", "trained")] for data in ("wikipedia", "icews14 edges"))
    rows = [["Wikipedia, links, 6 epochs: AP", *runs_of(record, [(n, "ap", 4) for n in wiki])]]
    for shown, figure in (("ICEWS14, relations, 5 epochs, `classify.positive_weight=5`: F1", "f1"), ("the same: AP", "ap")):
        rows.append([shown, *runs_of(record, [*((n, figure, 3) for n in icews[:2]), None])])
    return ["", "none", "pretrained", "trained with the model"], rows, [record]


def longer():
    record = newest("longer")
    rows = []
    for model, more in (("JODIE", 40), ("APAN", 30)):
        ten, many = runs_of(record, [(f"wikipedia, {model.lower()}, {n} epochs", "ap", 3) for n in (10, more)])
        rows.append([model, ten, f"{many} ({more})"])
    return ["Wikipedia, test AP", "10 epochs", "more"], rows, [record]


def dyrep():
    longer, settings, wikipedia = newest("dyrep-longer"), newest("dyrep"), newest("dyrep-wikipedia")
    rows = []
    for name in dict.fromkeys(row["name"].partition(", ")[2] for row in longer["rows"]):
        runs = longer["rows"] + wikipedia["rows"]
        of = lambda data: [r["test"]["transductive"]["ap"] for r in runs if r["name"] == f"{data}, {name}"]
        rows.append([name, *(spread(of(data), 3) for data in ("CollegeMsg", "Wikipedia"))])
    for name in ("width 172", "drop-out 0", "batch 50"):
        cells = runs_of(settings, [(name, "ap", 3)]) + runs_of(wikipedia, [(f"Wikipedia, {name}", "ap", 3)])
        rows.append([f"at most 24 epochs, {name}", *cells])
    return ["DyRep, test AP", "CollegeMsg", "Wikipedia"], rows, [longer, settings, wikipedia]


def sven_scores():
    record, rows = newest("sven-scores"), []
    for case in dict.fromkeys(row["name"].rpartition(", ")[0] for row in record["rows"]):
        rows.append([case, *runs_of(record, [(f"{case}, {ranks}", "ap", 3) for ranks in ("one rank", "four ranks")])])
    return ["test AP", "one rank", "`sven`, four ranks"], rows, [record]


def of_convergence():
    """Returns a record with the runs of one memory copy and those of several, which were measured apart, and both."""
    one, several = newest("convergence"), newest("convergence-copies")
    rows = [row for row in one["rows"] if row["parallel"][2] == 1] + several["rows"]
    return {**one, "rows": rows}, [one, several]


def convergence_of_parallels():
    record, records = of_convergence()
    return *convergence.table(record), records


def classes():
    record, rows = newest("classes"), []
    for shown, name in (("Wikipedia, `--task node`: who is banned after an edit (217 of 157,474)", "wikipedia, node"),
                        ("ICEWS14, `--task edge`: one of 230 relations", "icews14, edge"),
                        ("planted, `--task edge`: 3 of 16 classes (`data synth --classes 16 --labels 3 --node-features 32 "
                         "--signal 0.9`)", "planted, edge")):
        rows.append([shown, *runs_of(record, [(name, figure, 3) for figure in ("ap", "auc", "f1")])])
    return ["", "AP", "AUC", "F1"], rows, [record]


def snapshots_beside_torch():
    rows, records = [], []
    for shown, name, digits in (("WD-GCN", "wd-gcn", 3), ("T-GCN", "t-gcn", 3),
                                ("T-GCN, both from the weights that PyTorch drew (`--same-start`)", "t-gcn-same-start", 4),
                                ("EvolveGCN-O", "evolve-gcn-o", 3)):
        record = Record("xeon-2-cores", f"quality-{name}")
        ours, peer = (scores(record, "ap", system=s) for s in ("tgnn", "csr"))
        rows.append([shown, len(ours), spread(ours, digits), spread(peer, digits)])
        records.append(record)
    return ["test AP", "seeds", "tgnn", "PyTorch"], rows, records


def weekly():
    whole, newer = Record("epyc-2-cores", "weekly"), Record("xeon-2-cores", "weekly-t-gcn")
    between = Record("xeon-2-cores", "t-gcn-again")
    of = {}
    for record in (whole, between, newer):  # later records replace earlier measurements
        for name in {r["name"] for r in record["rows"]}:
            of[name] = [r for r in record["rows"] if r["name"] == name]
    sets, rows = ("CollegeMsg", "Bitcoin OTC"), []
    for model in ("WD-GCN", "T-GCN", "EvolveGCN-O", "EvolveGCN-H"):
        runs = [[r["test"]["transductive"] for r in of[f"{data}, {flag(model)}"]] for data in sets]
        rows.append([model, *(f"{statistics.mean(t[m] for t in tests):.3f}" for tests in runs for m in ("ap", "mrr"))])
    for at, baseline in enumerate(b["name"] for b in of["CollegeMsg, wd-gcn"][0]["baselines"]):
        tests = [[r["baselines"][at]["test"]["transductive"] for r in of[f"{data}, wd-gcn"]] for data in sets]
        rows.append([baseline, *(f"{statistics.mean(t[m] for t in of_set):.3f}" for of_set in tests for m in ("ap", "mrr"))])
    rules = newest("weekly-rules")
    for name in (*SHOWN_RULES, "PopTrack"):
        of_set = lambda data, m: [next(b for b in r["baselines"] if b["name"] == name)["test"]["transductive"][m]
                                  for r in rules["rows"] if r["name"] == data]
        rows.append([name, *(f"{statistics.mean(of_set(data, m)):.3f}" for data in sets for m in ("ap", "mrr"))])
    return ["", *(f"{data}: {m}" for data in sets for m in ("AP", "MRR of 101"))], rows, [whole, between, newer, rules]


def of_benchmark(name, draw, machine="epyc-2-cores"):
    """Returns a table that a benchmark draws itself, from the newest record with a name on a machine."""
    def table():
        if not records_of(machine, name):
            return [name], [[MISSING]], []
        record = Record(machine, name)
        return *draw(record), [record]
    return table


def on_gpu(draw):
    """Returns a table of runs on a GPU, and those of them from which it shows something."""
    def table():
        records = [Record(gpu.FOLDER, name) for name in gpu.RUNS]
        head, rows = draw(records)
        cells = [cell for row in (head, *rows) for cell in row]
        return head, rows, [r for r in records if any(r["commit"][:7] in cell for cell in cells)]
    return table


LINKS = [*((f"dyglib, {kind}", "ap") for kind in ("random", "historical", "inductive")), ("tgl", "ap"), ("disttgl", "mrr")]
TABLES = {f.__name__.replace("_", "-"): f for f in (
    readme_speed, readme_scores, epochs_of_events, history_times, epochs_of_snapshots, prediction, ops, sparse_products, sampling, default_run, beside_pyg, beside_published, every_model, eval_batch,
    snapshots_beside_torch, weekly, memory_anew, static_memory, longer, dyrep, sven_scores, classes)}
TABLES["convergence"] = convergence_of_parallels
TABLES["defaults"] = of_benchmark("defaults", defaults.table, "*")
TABLES["scale-memory"] = of_benchmark("scale-memory", scale.memory_table, "*")
TABLES["scale-seconds"] = of_benchmark("scale-seconds", scale.seconds_table, "*")
TABLES |= {f"models-{name}": models_of(data, columns) for name, data, columns in (
    ("wikipedia", "wikipedia", LINKS), ("collegemsg", "CollegeMsg", LINKS), ("bitcoin", "soc-sign-bitcoinotc", LINKS))}
TABLES |= {name: of_benchmark(record, draw) for name, record, draw in (
    ("cluster-times", "cluster", cluster.times_shown), ("sven-breakdown", "breakdown", breakdown.breakdown),
    ("comm-volume", "comm-volume", comm_volume.means_and_ranks),
    ("scaling-disttgl", "scaling-disttgl", scaling.table), ("scaling-pipetgl", "scaling-pipetgl", scaling.table),
    ("staleness", "staleness", staleness.table),
    ("staleness-times", "staleness-times", staleness.table_of_times),
    ("staleness-predicted", "staleness-predicted", staleness.table_of_predictions),
    ("partition-balance", "partition-balance", partition_balance.figure))}
PICTURES = {
    "docs/systems/convergence.svg": ("convergence", lambda _: convergence.plot(of_convergence()[0])),
    "docs/systems/staleness.svg": ("staleness", staleness.plot),
    # Several records: those of `SPEED` and of the snapshot models.
    "docs/speed.svg": ("speed", lambda _: speed_chart()),
}
TABLES |= {name: on_gpu(draw) for name, draw in gpu.TABLES.items()}
TABLES["models-given"] = models_of("wikipedia-tgb", [("tgb", "mrr"), ("tgb", "hits_at_10")], "models-given")


def drawn(name, page):
    """Returns the table and a line with its records, with links relative to the folder of `page`."""
    head, rows, records = TABLES[name]()
    line = lambda cells: "|" + "|".join(f" {cell} " if cell != "" else " " for cell in cells) + "|"
    links = {}
    for r in records:
        link = os.path.relpath(r.path, (ROOT / page).parent)
        links.setdefault(f"{r.machine}, {r['date']}, commit {r['commit'][:7]}", []).append(f"[{r.name}]({link})")
    table = [line(head), line(["---"] * len(head)), *map(line, rows)]
    source = "; ".join(f"{made}: {', '.join(of)}" for made, of in links.items())
    return "\n".join([*table, "", f"Records: {source}."] if records else table)


def main():
    check, stale = sys.argv[1:] == ["--check"], []
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    for page in PAGES:
        text = (ROOT / page).read_text()

        def again(found):
            name = found[1]
            if name not in TABLES:
                sys.exit(f"{page}: no table `{name}`; there are {', '.join(TABLES)}")
            new = f"<!-- table: {name} -->\n{drawn(name, page)}\n<!-- end -->"
            if new != found[0]:
                stale.append(f"{page}: table `{name}` is not that of its records")
            return new

        new = re.sub(r"<!-- table: ([\w-]+) -->\n.*?<!-- end -->", again, text, flags=re.DOTALL)
        if not check:
            (ROOT / page).write_text(new)
    for picture, (name, draw) in PICTURES.items():
        new = draw(newest(name))
        if not (ROOT / picture).exists() or (ROOT / picture).read_text() != new:
            stale.append(f"{picture} is not that of its record")
        if not check:
            (ROOT / picture).write_text(new)
    if check and stale:
        sys.exit("\n".join([*stale, "run python benches/tables.py"]))


if __name__ == "__main__":
    main()
