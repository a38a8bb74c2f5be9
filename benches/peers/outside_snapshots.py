"""Checks of models of snapshots; see `outside.py`."""

from importlib.metadata import version

import numpy as np
import torch
from outside_program import ROUNDING, SEED, Trained, keys, largest, load, row, save
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score
from torch.nn.utils.rnn import pack_padded_sequence
from torch_geometric.nn import GCNConv
from torch_geometric.utils import coalesce, structured_negative_sampling, subgraph

STEPS, VERTICES, FEATURES, WIDTH, LENGTH = 20, 300, 5, 8, 4


def graphs(folder):
    """Writes synthetic snapshots as edge lists, with weights, loops, and vertices that appear and disappear."""
    random, snapshots = np.random.default_rng(SEED), []
    kind = random.integers(4, size=VERTICES)
    features = (np.eye(4)[kind] @ random.normal(size=(4, FEATURES)) + random.normal(size=(STEPS, VERTICES, FEATURES))).astype(np.float32)
    save(folder, {"features": features.reshape(-1, FEATURES)})
    for step in range(STEPS):
        there = np.flatnonzero(random.random(VERTICES) < 0.7)
        u, v = np.meshgrid(there, there)
        chosen = random.random(u.shape) < np.where(kind[u] == kind[v], 0.2, 0.02)
        u, v = u[(u <= v) & chosen], v[(u <= v) & chosen]
        weight = (1 + random.integers(16, size=len(u))) / 8
        lines = (f"{a} {b} {w}\n" for a, b, w in zip(u, v, weight))
        (folder / f"step{step:02}.txt").write_text("".join(lines))
        snapshots.append((torch.from_numpy(np.stack([u, v])), torch.from_numpy(weight)))
    return snapshots, torch.from_numpy(features).double()


class WdGcn:
    """PyTorch Geometric's `GCNConv` on the vertices present in each step, then PyTorch's `LSTM` over the steps."""

    def __init__(self, trained):
        with torch.no_grad():
            self.layers = [GCNConv(*trained[f"gcn.{k}.w"].T.shape).double() for k in (1, 2)]
            for k, layer in enumerate(self.layers, 1):
                layer.lin.weight.copy_(trained[f"gcn.{k}.w"])
                layer.bias.copy_(trained[f"gcn.{k}.b"][0])
            self.lstm = torch.nn.LSTM(WIDTH, WIDTH).double()
            for ours, name in (("w_x", "weight_ih"), ("w_h", "weight_hh"), ("b_x", "bias_ih"), ("b_h", "bias_hh")):
                weight = getattr(self.lstm, f"{name}_l0")
                weight.copy_(trained[f"lstm.{ours}"].view(weight.shape))

    @torch.no_grad()
    def __call__(self, group):
        """Returns the embeddings after a group of (edges, weights, features, present); zeros if never present."""
        vertices = len(group[0][2])
        rows = [[] for _ in range(vertices)]
        for edges, weight, x, present in group:
            there = present.nonzero()[:, 0]
            both, weights = torch.cat([edges, edges.flip(0)], 1), torch.cat([weight, weight])
            both, weights = coalesce(both, weights, vertices, reduce="max")  # merges the two copies of a loop
            both, weights = subgraph(there, both, weights, relabel_nodes=True, num_nodes=vertices)
            h = x[there]
            for layer in self.layers:
                h = layer(h, both, weights).relu()
            for v, own in zip(there.tolist(), h):
                rows[v].append(own)
        z = torch.zeros(vertices, WIDTH, dtype=torch.float64)
        some = [v for v in range(vertices) if rows[v]]
        padded = torch.nn.utils.rnn.pad_sequence([torch.stack(rows[v]) for v in some])
        packed = pack_padded_sequence(padded, [len(rows[v]) for v in some], enforce_sorted=False)
        z[some] = self.lstm(packed)[1][0][0]
        return z


def test_steps(steps):
    """Returns the last 15 % of the steps, rounded as `SnapshotSplit` does, each with the steps that its group reads."""
    return [(step, range(max(0, step - LENGTH), step)) for step in range(round(0.85 * steps), steps)]


def snapshot_flags(task):
    sizes = keys("wd-gcn", width=WIDTH) + ["--set", f"group.length={LENGTH}"]
    return ["--model", "wd-gcn", "--task", task, "--learning-rate", "0.005", *sizes]


def active(edges):
    present = torch.zeros(VERTICES, dtype=torch.bool)
    present[edges.flatten()] = True
    return present


def wd_gcn(o):
    """Checks embeddings and link scores of a WD-GCN on weighted graphs whose vertices appear and disappear."""
    data = o.folder / "graphs"
    snapshots, features = graphs(data)
    negatives = 20
    flags = [*snapshot_flags("link"), "--epochs", "15", *keys("snapshots", presence="active"), *keys("group", negatives=negatives)]
    trained = Trained(o.tgnn, o.folder, data, *flags)
    model = WdGcn(trained)
    group = [(*snapshots[step], features[step], active(snapshots[step][0])) for step in range(STEPS)]
    z = trained.embed(range(VERTICES))
    geometric = f"torch_geometric {version('torch_geometric')}"
    peer = f"{geometric}, GCNConv on the subgraph of those there; torch {torch.__version__}, LSTM"
    never = torch.stack([active(snapshots[step][0]) for step in range(STEPS - LENGTH, STEPS)])
    assert not never.all(1).any() and never.any(0).any(), "vertices come and go"
    yield row("WD-GCN, embeddings: edges with weights, vertices that come and go", peer, largest(z, model(group[-LENGTH:])), ROUNDING)

    decoder = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)).double()
    load(decoder[1], trained["decoder.w_out"], trained["decoder.b_out"])

    @torch.no_grad()
    def score(z, src, dst):
        hidden = z[src] @ trained["decoder.w_src"].T + z[dst] @ trained["decoder.w_dst"].T + trained["decoder.b"][0]
        return decoder(hidden)[:, 0]

    torch.manual_seed(SEED)
    embedded = [(model([group[i] for i in read]), snapshots[step][0]) for step, read in test_steps(STEPS)]
    draws = []
    for _ in range(40):
        scores = []
        for z, edges in embedded:
            others = [structured_negative_sampling(edges, VERTICES, False)[2] for _ in range(negatives)]
            scores.append(torch.stack([score(z, edges[0], dst) for dst in [edges[1], *others]], 1))
        scores = torch.cat(scores)
        labels = np.repeat([1, 0], len(scores))
        pair = scores[:, :2].T.flatten().numpy()
        rank = 1 + (scores[:, 1:] > scores[:, :1]).sum(1) + 0.5 * (scores[:, 1:] == scores[:, :1]).sum(1)
        draws.append([average_precision_score(labels, pair), roc_auc_score(labels, pair), float((1 / rank).mean())])
    draws, ours = np.array(draws), trained.summary["test"]["transductive"]
    peer = f"{geometric}, structured_negative_sampling, mean of 40 draws; scikit-learn {version('scikit-learn')}"
    for i, figure in enumerate(("ap", "auc", "mrr")):
        allowed = float(4 * draws[:, i].std(ddof=1))
        yield row(f"snapshot links, {figure}; four deviations of a draw are allowed", peer, abs(ours[figure] - draws[:, i].mean()), allowed)


def classes(o):
    """Checks the metrics of vertex classification by a WD-GCN, on events divided into steps."""
    data, random, events, kinds = o.folder / "labelled", np.random.default_rng(SEED), 3_000, 3
    kind = random.integers(kinds, size=VERTICES)
    features = (np.eye(kinds)[kind] @ random.normal(size=(kinds, FEATURES)) + random.normal(size=(VERTICES, FEATURES))).astype(np.float32)
    src, dst = np.concatenate([np.arange(VERTICES)] * 2), np.concatenate([np.roll(np.arange(VERTICES), 1)] * 2)
    src, dst = (np.concatenate([ends, random.integers(VERTICES, size=events - len(ends))]) for ends in (src, dst))
    step = np.sort(random.integers(STEPS, size=events))
    label = np.where(random.random(events) < 0.8, kind[src], random.integers(kinds, size=events))
    save(data, {"src": src, "dst": dst, "time": step, "label": label, "node_features": features})
    flags = [*snapshot_flags("node"), "--epochs", "10", "--every", "step", *keys("snapshots", classes="true", presence="seen")]
    trained = Trained(o.tgnn, o.folder, data, *flags)
    model, seen, group = WdGcn(trained), torch.zeros(VERTICES, dtype=torch.bool), []
    for i in range(STEPS):
        edges = coalesce(torch.from_numpy(np.stack([src[step == i], dst[step == i]])))
        seen = seen | active(edges)
        group.append((edges, torch.ones(edges.shape[1], dtype=torch.float64), torch.from_numpy(features).double(), seen))
    hidden = len(trained["class_head.w_1"])
    decide = torch.nn.Sequential(torch.nn.Linear(WIDTH, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, kinds)).double()
    load(decide[0], trained["class_head.w_1"], trained["class_head.b_1"])
    load(decide[2], trained["class_head.w_out"], trained["class_head.b_out"])
    logits, wanted = [], []
    for target, read in test_steps(STEPS):
        last = {int(v): int(c) for v, c in zip(src[step == target], label[step == target])}
        with torch.no_grad():
            logits.append(decide(model([group[i] for i in read]))[list(last)])
        wanted += last.values()
    logits, wanted = torch.cat(logits).numpy(), np.array(wanted)
    decided = np.eye(kinds)[wanted].ravel()
    found = {
        "ap": average_precision_score(decided, logits.ravel()),
        "auc": roc_auc_score(decided, logits.ravel()),
        "f1": f1_score(decided, logits.ravel() > 0),
        "accuracy": accuracy_score(wanted, logits.argmax(1)),
    }
    ours = trained.summary["test"]["transductive"]
    peer = f"GCNConv and LSTM as above; scikit-learn {version('scikit-learn')}"
    for figure, value in found.items():
        yield row(f"snapshot classes, {figure} of {len(wanted)} vertices", peer, abs(ours[figure] - value), 1e-6)
