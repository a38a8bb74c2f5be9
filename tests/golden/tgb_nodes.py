"""Writes `foreign/tgbn_*/`, small data sets of node property prediction as TGB leaves them on disk, and `tgb_nodes.json`, what
`py-tgb` makes of them: nodes, features, labels, the part of every label time, and the NDCG of TGB's baselines.

    python -P tests/golden/tgb_nodes.py tests/golden     # -P: tgb.py beside it is not the package

It also writes NDCG@10 of drawn scores with ties, by scikit-learn. Needs py-tgb 2.3 and scikit-learn.

The baselines are those of TGB's repository, `modules/heuristics.py`, which the package does not contain; the loop over
batches is that of `examples/nodeproppred/*/persistant_forecast.py`. Its answer depends on the batch where a batch spans
several label times: batches here are of one event, so that every label time has its own.
"""

import json
import math
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy
from sklearn.metrics import ndcg_score
from tgb.nodeproppred.dataset import NodePropPredDataset
from tgb.nodeproppred.evaluate import Evaluator
from tgb.utils import info

SEED = 12
EVENTS, USERS, THINGS = 60, 5, 14
HEADERS = {
    "trade": "year,nation,trading nation,weight", "genre": "time,user_id,genre,weight",
    "reddit": "ts,src,subreddit,num_words,score", "token": "timestamp,user_address,token_address,value,IsSender",
}  # fmt: skip


class PersistantForecaster:
    def __init__(self, classes):
        self.last, self.classes = {}, classes

    def update(self, node, label):
        self.last[node] = label

    def query(self, node):
        return self.last.get(node, numpy.zeros(self.classes))


class MovingAverage(PersistantForecaster):
    window = 7

    def update(self, node, label):
        if node in self.last:
            label = (self.last[node] * (self.window - 1) + label) / self.window
        self.last[node] = label


def files(random, kind):
    """The lines of an edge list, and those of its labels."""
    steps = random.integers(0, 2, EVENTS) if kind == "trade" else random.integers(0, 40, EVENTS)
    time = (1986 if kind == "trade" else 1_288_483_200) + numpy.cumsum(steps)
    src, dst = random.integers(0, USERS, EVENTS), random.integers(0, THINGS, EVENTS)
    dst[:THINGS] = numpy.arange(THINGS)
    src[:USERS] = numpy.arange(USERS)
    thing = (lambda d: f"n{d}") if kind == "trade" else (lambda d: f"t{d}")
    edges = []
    for s, d, t in zip(src, dst, time):
        value = round(float(random.uniform(0.01, 9)), 3)
        rest = {"reddit": f"{s},{int(random.integers(-3, 40))}", "token": f"{value},{int(random.integers(0, 2))}"}
        edges.append(f"{t},n{s},{thing(d)},{rest.get(kind, value)}")
    labels = []
    for t in sorted(set(random.choice(time, 12)) | {time[-1]}) if kind != "token" else time[5::6] + 1:
        for s in random.permutation(USERS)[: random.integers(1, USERS + 1)]:
            for d in random.permutation(THINGS)[: random.integers(1, 13)]:
                labels.append(f"{t},n{s},{thing(d)},{round(float(random.uniform(0, 1)), 4)}")
    # A label that is given twice, and a row whose weights are all zero.
    labels.append(labels[0].rsplit(",", 1)[0] + ",0.125")
    known = {tuple(row.split(",")[:2]) for row in labels}
    t, node = next((t, s) for t, _ in sorted(known) for s in range(USERS) if (t, f"n{s}") not in known)
    labels.append(f"{t},n{node},{thing(2)},0.0")
    return edges, labels


def read(kind, folder):
    """The data set class, on files in a folder of ours instead of the package's."""
    name = f"tgbn-{kind}"
    data = object.__new__(NodePropPredDataset)
    data.name, data.root, data._num_classes = name, str(folder), info.DATA_NUM_CLASSES[name]
    data.meta_dict = {"fname": f"{folder}/{name}_edgelist.csv", "nodefile": f"{folder}/{name}_node_labels.csv"}
    data.label_ts_idx = 0
    data.pre_process()
    if kind == "token":
        data.pre_process()  # its features are logarithms when they come from the processed files
    return data


def passes(data, name, full):
    """The label times of each part, and the NDCG of the baselines, by the loop of TGB's examples."""
    classes = len(next(iter(next(iter(data.label_dict.values())).values())))
    evaluator, baselines = Evaluator(name), [PersistantForecaster(classes), MovingAverage(classes)]
    told = {}
    for part, mask in zip(("train", "val", "test"), (data.train_mask, data.val_mask, data.test_mask)):
        times, scores = [], [[], []]
        label_t = data.return_label_ts()
        for t in full["timestamps"][mask].astype(int):
            while t > label_t:
                found = data.find_next_labels_batch(t)
                if found is None:
                    break
                label_ts, nodes, labels = found
                labels = labels.astype(numpy.float32)
                label_t = data.return_label_ts()
                times.append(int(label_ts[0]))
                for baseline, score in zip(baselines, scores):
                    guesses = []
                    for node, label in zip(nodes, labels):
                        guesses.append(baseline.query(node))
                        baseline.update(node, label)
                    answer = {"y_true": labels, "y_pred": numpy.stack(guesses), "eval_metric": ["ndcg"]}
                    score.append(float(evaluator.eval(answer)["ndcg"]))
        persistent, moving = (float(numpy.mean(score)) if score else None for score in scores)
        told[part] = {"times": times, "persistent": persistent, "moving": moving}
    return told


def sets(random, out):
    told = {}
    for kind, header in HEADERS.items():
        folder, name = out / f"tgbn_{kind}", f"tgbn-{kind}"
        folder.mkdir(parents=True, exist_ok=True)
        edges, labels = files(random, kind)
        texts = {"edgelist": [header, *edges], "node_labels": ["ts,node,class,weight", *labels]}
        with tempfile.TemporaryDirectory() as copy:
            for what, lines in texts.items():
                for place in (folder, Path(copy)):
                    (place / f"{name}_{what}.csv").write_text("\n".join(lines) + "\n")
            data = read(kind, copy)
        full = data.full_data
        rows = [(int(t), int(node), label) for t in data.label_ts for node, label in data.label_dict[t].items()]
        told[kind] = {
            "src": full["sources"].astype(int).tolist(), "dst": full["destinations"].astype(int).tolist(),
            "time": full["timestamps"].astype(int).tolist(), "features": full["edge_feat"].tolist(),
            "train": int(data.train_mask.sum()), "val": int(data.val_mask.sum()),
            "labels": [[t, node, label.tolist()] for t, node, label in rows], "parts": passes(data, name, full),
        }  # fmt: skip
    return told


def ndcg(random):
    """Weights and scores of rows, with ties, and their NDCG@10."""
    cases = []
    for classes in (2, 5, 10, 11, 40):
        for levels in (1, 2, 4, 1000):
            weights = random.integers(0, 5, classes).astype(float) / 4 * (random.random(classes) < 0.6)
            scores = random.integers(0, levels, classes).astype(float) / 8
            value = ndcg_score(weights[None], scores[None], k=10)
            cases.append({"weights": weights.tolist(), "scores": scores.tolist(), "ndcg": float(value)})
    return cases


def main():
    out = Path(sys.argv[1])
    random = numpy.random.default_rng(SEED)
    told = {"sets": sets(random, out / "foreign"), "ndcg": ndcg(random)}
    told["versions"] = {name: version(name) for name in ("py-tgb", "numpy", "scikit-learn")}
    assert all(math.isfinite(case["ndcg"]) for case in told["ndcg"])
    (out / "tgb_nodes.json").write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
