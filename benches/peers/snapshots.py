"""Trains WD-GCN, T-GCN and EvolveGCN-O in PyTorch to predict the edges of the next snapshot: peers in the benchmarks.

    python snapshots.py --model wdgcn --data FOLDER --epochs 5 --json        # edge lists, one file per step
    python snapshots.py --model tgcn --random 20 10000 100000 64 --no-eval   # steps, vertices, edges, features
    python snapshots.py --check                                              # against dense formulas, in float64

Models, loss and protocol are those of tgnn. The adjacency of a step with loops (A + I, in both directions, scaled by
degree^-1/2 on both sides) is computed once, before training, and multiplied in one of three ways (`--product`): `csr`,
a sparse CSR product; `coo`, rows gathered, weighted and scattered; `pyg`, PyTorch Geometric's `GCNConv.propagate`.

A step is predicted from the `--length` steps before it. Steps are split 70/15/15 by the predicted step. Training visits
them in random order, with one negative per edge. AP and AUC compare the edges of a part with one negative each; MRR
ranks each edge among all its `--negatives`. A negative of an edge is a vertex other than the source to which the source
has no edge in that step.
"""

import argparse
import gzip
import json
import math
import re
import resource
import shlex
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from link_task import loss_of, metrics, processor
from torch.nn import Parameter
from torch.nn.functional import linear

# The data


class Snapshots(NamedTuple):
    name: str
    nodes: int
    edges: list  # one [2, e] per step, sorted by source, then destination, without duplicates
    weights: list  # one [e] per step
    features: torch.Tensor | None  # [v, f] or [steps v, f]

    def present(self, step):
        """Returns which vertices are present: those with an edge in this or an earlier step."""
        seen = torch.zeros(self.nodes, dtype=torch.bool)
        for edges in self.edges[: step + 1]:
            seen[edges.flatten()] = True
        return seen


def unique(src, dst, weight, nodes):
    """Returns sorted edges without duplicates, each with its last weight."""
    key = src * nodes + dst
    order = np.argsort(key, kind="stable")
    key = key[order]
    last = np.append(key[1:] != key[:-1], True)[: len(key)]
    key, weight = torch.from_numpy(key[last]), torch.from_numpy(weight[order][last])
    return torch.stack([key // nodes, key % nodes]), weight.float()


def read_lines(path):
    """Returns ends [e, 2] and weights [e] of an edge list; weights default to 1."""
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else open(path)
    with opened as lines:
        rows = [line.replace(",", " ").split() for line in lines if line.strip() and line[0] not in "#%"]
    if rows and not rows[0][0].lstrip("-").isdigit():
        rows = rows[1:]  # a header
    ends = np.array([row[:2] for row in rows], dtype=np.int64).reshape(-1, 2)
    return ends, np.array([row[2] if len(row) > 2 else 1 for row in rows], dtype=np.float64)


def read(folder):
    natural = lambda path: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]
    files = sorted((p for p in folder.iterdir() if p.is_file() and p.suffix not in (".npy", ".json")), key=natural)
    steps = [read_lines(path) for path in files]
    names, ends = np.unique(np.concatenate([ends for ends, _ in steps]), return_inverse=True)
    parts = np.split(ends.reshape(-1, 2), np.cumsum([len(ends) for ends, _ in steps])[:-1])
    pairs = [unique(part[:, 0], part[:, 1], weight, len(names)) for part, (_, weight) in zip(parts, steps)]
    path, features = folder / "features.npy", None
    if path.exists():
        features = torch.from_numpy(np.load(path).astype(np.float32)).flatten(0, -2)
    return Snapshots(folder.name, len(names), *map(list, zip(*pairs)), features)


def random_snapshots(steps, nodes, edges, width, seed):
    """Returns synthetic snapshots: degrees follow a power law, and 90 % of the edges persist to the next step."""
    draw = np.random.default_rng(seed)
    ends = lambda count: (nodes * draw.random((2, count)) ** 2).astype(np.int64)
    now, pairs = ends(edges), []
    for _ in range(steps):
        pairs.append(unique(*now, np.ones(edges), nodes))
        now = np.where(draw.random(edges) < 0.9, now, ends(edges))
    features = torch.from_numpy(draw.standard_normal((nodes, width), dtype=np.float32)) if width else None
    return Snapshots(f"random-{nodes}-{edges}", nodes, *map(list, zip(*pairs)), features)


# Products with an adjacency


class SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, matrix, x):
        ctx.matrix = matrix
        return matrix @ x

    @staticmethod
    def backward(ctx, dy):
        return None, ctx.matrix @ dy  # the matrix is symmetric


class Adjacency:
    """The normalised A + I of a step. `self @ x` multiplies it with the rows `x` of the vertices."""

    def __init__(self, edges, weight, present, product, device, dtype):
        v = len(present)
        loops = torch.arange(v)
        key = torch.cat([edges[0] * v + edges[1], edges[1] * v + edges[0]])
        key, index = key.unique(return_inverse=True)
        weight = weight.to(dtype).repeat(2)
        weight = torch.zeros(len(key), dtype=dtype).scatter_reduce(0, index, weight, "amax")
        without = present.clone()
        without[edges[0][edges[0] == edges[1]]] = False  # a vertex with an edge to itself keeps that edge's weight
        row = torch.cat([key // v, loops[without]])
        col = torch.cat([key % v, loops[without]])
        weight = torch.cat([weight, weight.new_ones(int(without.sum()))])
        degree = torch.zeros(v, dtype=dtype).index_add(0, row, weight)
        scale = torch.where(present, degree.clamp(min=1e-30) ** -0.5, torch.zeros((), dtype=dtype))
        self.row, self.col, self.weight = row.to(device), col.to(device), (scale[row] * weight * scale[col]).to(device)
        self.present = present.to(device)[:, None]
        self.product = product
        if product == "csr":
            matrix = torch.sparse_coo_tensor(torch.stack([row, col]), self.weight.cpu(), (v, v))
            self.matrix = matrix.coalesce().to_sparse_csr().to(device)
        elif product == "pyg":
            from torch_geometric.nn import GCNConv

            self.convolution = GCNConv(1, 1, normalize=False)

    def __matmul__(self, x):
        if self.product == "csr":
            return SparseProduct.apply(self.matrix, x)
        if self.product == "pyg":
            return self.convolution.propagate(torch.stack([self.col, self.row]), x=x, edge_weight=self.weight)
        return torch.zeros_like(x).index_add(0, self.row, x[self.col] * self.weight[:, None])


# Models. Each maps adjacencies and inputs of the steps of a group to embeddings of the vertices.


def matrix(rows, columns):
    bound = 1 / math.sqrt(max(columns, 1))
    return Parameter(torch.empty(rows, columns).uniform_(-bound, bound))


def zeros(width):
    return Parameter(torch.zeros(width))


class Convolution(torch.nn.Module):
    """A x W^T; A multiplies the narrower one of x and x W^T. With `ready`, x is already A times the inputs."""

    def __init__(self, out, inputs, bias=True):
        super().__init__()
        self.w, self.b = matrix(out, inputs), zeros(out) if bias else None

    def forward(self, a, x, ready=False):
        if ready or self.w.shape[1] <= self.w.shape[0]:
            return linear(x if ready else a @ x, self.w, self.b)
        x = a @ linear(x, self.w)
        return x if self.b is None else x + self.b


class WdGcn(torch.nn.Module):
    """Graph convolutions of every step, then an LSTM over the steps of each vertex (Manessi et al. 2020)."""

    def __init__(self, inputs, width, layers):
        super().__init__()
        self.gcn = torch.nn.ModuleList(Convolution(width, inputs if k == 0 else width) for k in range(layers))
        self.lstm = torch.nn.LSTMCell(width, width)
        self.width = width

    def forward(self, group, start):
        h, c = start(self.width), start(self.width)
        for a, x, ready in group:
            for k, layer in enumerate(self.gcn):
                x = layer(a, x, ready and k == 0).relu()
            new_h, new_c = self.lstm(x, (h, c))
            h, c = torch.where(a.present, new_h, h), torch.where(a.present, new_c, c)
        return h


class TGcnCell(torch.nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.w_x, self.w_h, self.w_c = matrix(3 * width, inputs), matrix(2 * width, width), matrix(width, width)
        self.b = zeros(3 * width)

    def forward(self, a, u, h, ready):
        d = h.shape[1]
        if ready:
            au, ah = u, a @ h
        else:
            au, ah = (a @ torch.cat([u, h], 1)).split([u.shape[1], d], 1)
        of_u = linear(au, self.w_x, self.b)
        r, z = (of_u[:, : 2 * d] + linear(ah, self.w_h)).sigmoid().chunk(2, 1)
        c = (of_u[:, 2 * d :] + linear(a @ (r * h), self.w_c)).tanh()
        return torch.where(a.present, z * h + (1 - z) * c, h)


class TGcn(torch.nn.Module):
    """Gated recurrent cells whose products are graph convolutions (Zhao et al. 2020)."""

    def __init__(self, inputs, width, layers):
        super().__init__()
        self.cell = torch.nn.ModuleList(TGcnCell(inputs if k == 0 else width, width) for k in range(layers))
        self.width = width

    def forward(self, group, start):
        state = [start(self.width) for _ in self.cell]
        for a, u, ready in group:
            for k, cell in enumerate(self.cell):
                state[k] = u = cell(a, u, state[k], ready and k == 0)
        return state[-1]


class Evolution(torch.nn.Module):
    """The weights of a layer, and the cell that computes the weights of the next step."""

    def __init__(self, out, inputs):
        super().__init__()
        self.start = matrix(out, inputs)
        for gate in "rzc":
            setattr(self, f"w_{gate}", matrix(inputs, inputs))
            setattr(self, f"u_{gate}", matrix(inputs, inputs))
            setattr(self, f"b_{gate}", Parameter(torch.zeros(out, inputs)))

    def forward(self, q):
        r = (linear(q, self.w_r) + linear(q, self.u_r) + self.b_r).sigmoid()
        z = (linear(q, self.w_z) + linear(q, self.u_z) + self.b_z).sigmoid()
        c = (linear(q, self.w_c) + linear(r * q, self.u_c) + self.b_c).tanh()
        return z * q + (1 - z) * c


class EvolveGcnO(torch.nn.Module):
    """Graph convolutions of the last step, with weights that evolve over all steps (Pareja et al. 2020, version O)."""

    def __init__(self, inputs, width, layers):
        super().__init__()
        self.evolve = torch.nn.ModuleList(Evolution(width, inputs if k == 0 else width) for k in range(layers))

    def forward(self, group, start):
        a, h, ready = group[-1]
        for k, layer in enumerate(self.evolve):
            q = layer.start
            for _ in group:
                q = layer(q)
            h = (linear(h, q) if ready and k == 0 else self.convolve(a, h, q)).relu()
        return h

    @staticmethod
    def convolve(a, x, q):
        return linear(a @ x, q) if q.shape[1] <= q.shape[0] else a @ linear(x, q)


class Decoder(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w_src, self.w_dst, self.b = matrix(width, width), matrix(width, width), zeros(width)
        self.w_out, self.b_out = Parameter(matrix(1, width)[0].detach()), zeros(1)

    def forward(self, z, src, candidates):
        """Returns the logits [n, m] of the candidates [n, m] of each source."""
        p, q = linear(z, self.w_src, self.b), linear(z, self.w_dst)
        return (p[src][:, None] + q[candidates]).relu() @ self.w_out + self.b_out


MODELS = {"wdgcn": WdGcn, "tgcn": TGcn, "evolvegcn": EvolveGcnO}


class LinkModel(torch.nn.Module):
    """A model of snapshots with the inputs of its vertices, given features or learned rows, and a decoder."""

    def __init__(self, model, snapshots, steps, width, layers, length):
        super().__init__()
        self.steps, self.length, self.nodes = steps, length, snapshots.nodes
        features = snapshots.features
        self.rows = None if features is not None else matrix(snapshots.nodes, width)
        inputs = width if features is None else features.shape[1]
        self.model, self.decoder = MODELS[model](inputs, width, layers), Decoder(width)
        self.ready = features is not None
        if features is not None:
            of_step = features.split(snapshots.nodes)
            given = [of_step[min(s, len(of_step) - 1)].to(a.weight) for s, a in enumerate(steps)]
            self.inputs = [a @ x for a, x in zip(steps, given)]  # computed once: features are data

    def group(self, target):
        """Returns adjacency and inputs of the steps from which `target` is predicted."""
        steps = range(max(target - self.length, 0), target)
        return [(self.steps[s], self.inputs[s] if self.ready else self.rows, self.ready) for s in steps]

    def embed(self, target):
        weight = self.steps[0].weight
        return self.model(self.group(target), lambda width: weight.new_zeros(self.nodes, width))

    def forward(self, target, src, candidates):
        return self.decoder(self.embed(target), src, candidates)


def named_weights(model, name):
    """Returns the weights by their names in tgnn (docs/weights.md)."""
    found, parts = {}, model.model
    if name == "wdgcn":
        for k, layer in enumerate(parts.gcn, 1):
            found |= {f"gcn.{k}.w": layer.w, f"gcn.{k}.b": layer.b}
        cell = parts.lstm
        found |= {"lstm.w_x": cell.weight_ih, "lstm.w_h": cell.weight_hh, "lstm.b_x": cell.bias_ih, "lstm.b_h": cell.bias_hh}
    elif name == "tgcn":
        for k, cell in enumerate(parts.cell, 1):
            gates = 2 * cell.w_c.shape[0]
            for of, whole in (("w", cell.w_x), ("b", cell.b)):
                found |= {f"cell.{k}.{of}_rz": whole[:gates], f"cell.{k}.{of}_c": whole[gates:]}
            found |= {f"cell.{k}.u_rz": cell.w_h, f"cell.{k}.u_c": cell.w_c}
    else:
        for k, layer in enumerate(parts.evolve, 1):
            found[f"evolve.{k}.start"] = layer.start
            for of, side in (("w", 0), ("u", 0), ("b", 1)):
                r, z, c = (getattr(layer, f"{of}_{gate}") for gate in "rzc")
                found |= {f"evolve.{k}.{of}_rz": torch.cat([r, z], side), f"evolve.{k}.{of}_c": c}
    if model.rows is not None:
        found["vertices.rows"] = model.rows
    found |= {f"decoder.{key}": value for key, value in model.decoder.named_parameters()}
    return {key: value.detach().clone().contiguous() for key, value in found.items()}


# The task


def negatives(edges, nodes, count, generator):
    """Draws `count` vertices for each edge, other than its source, to which the source has no edge."""
    src, dst = edges
    if len(src) == 0:
        return src.new_zeros(0, count)
    key = src * nodes + dst
    source = src[:, None].expand(-1, count)
    drawn = torch.randint(nodes, source.shape, generator=generator, device=src.device)
    for _ in range(8):
        wanted = source * nodes + drawn
        at = torch.searchsorted(key, wanted).clamp(max=len(key) - 1)
        bad = (key[at] == wanted) | (drawn == source)
        drawn[bad] = torch.randint(nodes, (int(bad.sum()),), generator=generator, device=src.device)
    return drawn


def candidates(edges, nodes, count, generator):
    """Returns the destination and `count` negatives of each edge, [e, 1 + count]."""
    return torch.cat([edges[1][:, None], negatives(edges, nodes, count, generator)], 1)


def split(steps):
    """Returns the steps that are predicted in training, validation and test."""
    first = min(max(int(steps * 0.7), 2), steps)
    second = min(max(round(steps * 0.85), first), steps)
    return {"train": range(1, first), "val": range(first, second), "test": range(second, steps)}


def train(model, optimizer, edges, targets, generator):
    """Trains one epoch; returns the mean loss per step and the seconds."""
    model.train()
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(generator.initial_seed()))
    total, began = 0, time.perf_counter()
    for target in (targets[i] for i in order.tolist()):
        optimizer.zero_grad()
        logits = model(target, edges[target][0], candidates(edges[target], model.nodes, 1, generator))
        loss = loss_of(logits[:, 0], logits[:, 1])
        loss.backward()
        optimizer.step()
        total += loss.item()
    return {"train_loss": total / max(len(targets), 1), "train_seconds": time.perf_counter() - began}


@torch.no_grad()
def score(model, edges, targets, count, seed):
    """Returns AP, AUC and MRR of a part."""
    model.eval()
    generator = torch.Generator(edges[0].device).manual_seed(seed)
    logits = []
    for target in targets:
        z = model.embed(target)
        of = candidates(edges[target], model.nodes, count, generator)
        pieces = zip(edges[target][0].split(4096), of.split(4096))
        logits += [model.decoder(z, src, some).cpu() for src, some in pieces]
    logits = torch.cat(logits) if logits else torch.zeros(0, 1 + count)
    found = metrics(logits[:, :2].T)
    if found:
        event, others = logits[:, :1], logits[:, 1:]
        rank = 1 + (others > event).double().sum(1) + 0.5 * (others == event).double().sum(1)
        found["mrr"] = float((1 / rank).mean())
    return found


def run(args, snapshots):
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    present = [snapshots.present(s) for s in range(len(snapshots.edges))]
    make = lambda s: Adjacency(
        snapshots.edges[s], snapshots.weights[s], present[s], args.product, args.device, torch.float32
    )
    steps = [make(s) for s in range(len(snapshots.edges))]
    model = LinkModel(args.model, snapshots, steps, args.width, args.layers, args.length).to(args.device)
    if args.save_start:
        from safetensors.torch import save_file

        save_file(named_weights(model, args.model), args.save_start)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    edges = [e.to(args.device) for e in snapshots.edges]
    parts, epochs, best_epoch, test = split(len(steps)), [], None, None
    for number in range(1, args.epochs + 1):
        generator = torch.Generator(args.device).manual_seed(args.seed * 1_000_003 + number)
        epoch = {"epoch": number} | train(model, optimizer, edges, parts["train"], generator) | {"val": None}
        epochs.append(epoch)
        if not args.no_eval:
            epoch["val"] = score(model, edges, parts["val"], args.negatives, args.seed + 1)
            best = best_epoch and epochs[best_epoch - 1]["val"]["ap"]
            if best is None or epoch["val"]["ap"] > best:
                best_epoch = number
                test = {"transductive": score(model, edges, parts["test"], args.negatives, args.seed + 2)}
        if not args.json:
            print(json.dumps(epoch), flush=True)
    on_gpu = args.device != "cpu"
    summary = {
        "schema": 1,
        "version": torch.__version__,
        "command": shlex.join(["python", *sys.argv]),
        "device": {"kind": args.device, "name": torch.cuda.get_device_name() if on_gpu else processor()},
        "data": {
            "name": snapshots.name,
            "steps": len(steps),
            "nodes": snapshots.nodes,
            "edges": sum(e.shape[1] for e in edges),
            "features": 0 if snapshots.features is None else snapshots.features.shape[1],
        },
        "model": args.model,
        "plan": f"torch {args.product}",
        "length": args.length,
        "negatives": args.negatives,
        "seed": args.seed,
        "epochs": epochs,
        "best_epoch": best_epoch,
        "test": test,
        "peak_memory_bytes": {
            "host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "device": torch.cuda.max_memory_allocated() if on_gpu else 0,
        },
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "threads": args.threads,
    }
    print(json.dumps(summary))


# The check against dense formulas


def dense_adjacency(snapshots, step):
    """Returns the scaled A + I of a step by its definition, and which vertices are present."""
    v, present = snapshots.nodes, snapshots.present(step)
    a = torch.zeros(v, v)
    for u, w, weight in zip(*snapshots.edges[step].tolist(), snapshots.weights[step].tolist()):
        a[u, w], a[w, u] = max(a[u, w], weight), max(a[w, u], weight)
    for u in range(v):
        if a[u, u] == 0 and present[u]:
            a[u, u] = 1
    scale = torch.tensor([a[u].sum() ** -0.5 if present[u] else 0.0 for u in range(v)])
    return scale[:, None] * a * scale, present


def dense_embeddings(model, name, snapshots, target, width, layers):
    """Computes the embeddings of a model by dense formulas, vertex by vertex and gate by gate."""
    p, v, sig = dict(model.model.named_parameters()), snapshots.nodes, torch.sigmoid
    steps = range(max(target - model.length, 0), target)
    graph = {s: dense_adjacency(snapshots, s) for s in steps}
    rows = lambda s: snapshots.features.to(torch.float64).split(v)[s] if snapshots.features is not None else model.rows
    if name == "evolvegcn":
        h = rows(steps[-1])
        for k in range(layers):
            of = lambda key: p[f"evolve.{k}.{key}"]
            q = of("start")
            for _ in steps:
                gate = lambda g, second, act: act(q @ of(f"w_{g}").T + second @ of(f"u_{g}").T + of(f"b_{g}"))
                r, z = gate("r", q, sig), gate("z", q, sig)
                q = z * q + (1 - z) * gate("c", r * q, torch.tanh)
            h = (graph[steps[-1]][0] @ h @ q.T).relu()
        return h
    h = [[torch.zeros(width) for _ in range(v)] for _ in range(layers)]
    c = [torch.zeros(width) for _ in range(v)]
    for s in steps:
        (a, present), x = graph[s], rows(s)
        for k in range(layers):
            if name == "wdgcn":
                x = (a @ (x @ p[f"gcn.{k}.w"].T) + p[f"gcn.{k}.b"]).relu()
                continue
            of = lambda key: p[f"cell.{k}.{key}"]
            before, d = torch.stack(h[k]), width
            part = lambda key, i: of(key)[i * d : (i + 1) * d]
            r = sig(a @ x @ part("w_x", 0).T + a @ before @ part("w_h", 0).T + part("b", 0))
            z = sig(a @ x @ part("w_x", 1).T + a @ before @ part("w_h", 1).T + part("b", 1))
            new = torch.tanh(a @ x @ part("w_x", 2).T + a @ (r * before) @ of("w_c").T + part("b", 2))
            new = z * before + (1 - z) * new
            h[k] = [new[u] if present[u] else before[u] for u in range(v)]
            x = torch.stack(h[k])
        if name == "wdgcn":
            for u in (u for u in range(v) if present[u]):
                of = lambda key: p[f"lstm.{key}"]
                i, f, g, o = (of("weight_ih") @ x[u] + of("bias_ih") + of("weight_hh") @ h[0][u] + of("bias_hh")).chunk(4)
                c[u] = sig(f) * c[u] + sig(i) * torch.tanh(g)
                h[0][u] = sig(o) * torch.tanh(c[u])
    return torch.stack(h[0 if name == "wdgcn" else -1])


def check():
    """Returns the largest difference of losses and gradients from the dense formulas, for every model and product."""
    torch.set_default_dtype(torch.float64)
    worst, width, layers = {}, 5, 2
    products = ["csr", "coo"]
    try:
        import torch_geometric  # noqa: F401

        products.append("pyg")
    except ImportError:
        pass
    for features in (0, 3):
        made = random_snapshots(6, 12, 14, 0, 1)
        weights = [1 + torch.rand(len(w)) for w in made.weights]
        given = torch.rand(6 * 12, features, dtype=torch.float32) if features else None
        snapshots = made._replace(weights=weights, features=given)
        for name in MODELS:
            for product in products:
                torch.manual_seed(3)
                present = [snapshots.present(s) for s in range(6)]
                make = lambda s: Adjacency(
                    snapshots.edges[s], snapshots.weights[s], present[s], product, "cpu", torch.float64
                )
                model = LinkModel(name, snapshots, [make(s) for s in range(6)], width, layers, length=4)
                parameters = list(model.parameters())
                off = 0.0
                for target in (2, 5):
                    edges = snapshots.edges[target]
                    of = candidates(edges, 12, 1, torch.Generator().manual_seed(1))
                    z = dense_embeddings(model, name, snapshots, target, width, layers)
                    decoder, rows = model.decoder, []
                    for u, some in zip(edges[0].tolist(), of.tolist()):
                        hidden = [decoder.w_src @ z[u] + decoder.w_dst @ z[v] + decoder.b for v in some]
                        rows.append(torch.stack([decoder.w_out @ x.relu() + decoder.b_out[0] for x in hidden]))
                    logits = [model(target, edges[0], of), torch.stack(rows)]
                    loss = [loss_of(x[:, 0], x[:, 1]) for x in logits]
                    grads = [torch.autograd.grad(x, parameters, allow_unused=True) for x in loss]
                    pairs = [(a, b) for a, b in zip(*grads) if a is not None or b is not None] + [tuple(loss)]
                    off = max([off] + [float((a - b).detach().abs().max()) for a, b in pairs])
                worst[f"{name}, {product}, {features or 'learned'} features"] = off
    return worst


def main():
    options = argparse.ArgumentParser(description="Trains models of snapshots in PyTorch.")
    options.add_argument("--model", choices=MODELS, default="wdgcn")
    options.add_argument("--data", type=Path, help="a folder of edge lists `src dst [weight]`, one file a step")
    options.add_argument("--random", type=int, nargs=4, metavar=("STEPS", "VERTICES", "EDGES", "FEATURES"))
    options.add_argument("--product", choices=["csr", "coo", "pyg"], default="csr")
    options.add_argument("--epochs", type=int, default=1)
    options.add_argument("--length", type=int, default=5, help="steps that a model reads")
    options.add_argument("--layers", type=int, default=2)
    options.add_argument("--width", type=int, default=64)
    options.add_argument("--negatives", type=int, default=100, help="an edge, in evaluation")
    options.add_argument("--lr", type=float, default=5e-4)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--device", default="cpu", help="cpu or cuda")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--save-start", metavar="FILE", help="write the weights it starts from, which tgnn's --weights takes")
    options.add_argument("--no-eval", action="store_true", help="train only")
    options.add_argument("--json", action="store_true", help="print only the summary, as JSON")
    options.add_argument("--check", action="store_true", help="compare with dense formulas instead, in float64")
    args = options.parse_args()
    if args.check:
        worst = check()
        print(json.dumps(worst, indent=1))
        sys.exit(not max(worst.values()) < 1e-12)
    if args.data is None and args.random is None:
        sys.exit("which snapshots? give --data FOLDER, or --random STEPS VERTICES EDGES FEATURES")
    run(args, read(args.data) if args.data else random_snapshots(*args.random, args.seed))


if __name__ == "__main__":
    main()
