"""The models of snapshots, on whole groups and on a group that lacks its first steps.

A model is an object with
- `facts`: the entries of the file's metadata;
- `parameters()`, by name;
- `embed(p, data, steps)`: embeddings `[v, d]` after the steps of a group, computed on whole matrices;
- `naive(p, data, steps)`: the same again, for one vertex and gate at a time, transformed first and then aggregated.
"""

import torch
from common import bias, matrix, named

STEPS, VERTICES, FEATURES, WIDTH, LENGTH = 6, 7, 5, 4, 5
# Steps that a group reads: all five, or two of them with the first three missing. Each group predicts the
# step after its last.
GROUPS = {"whole": range(1, 6), "short": range(2)}


# Snapshots


def make_snapshots():
    """Vertices come and go, edges have weights, some pairs have both directions, some vertices have loops. In step 2
    no vertex is present. In step 3 no vertex has an edge, and fewer are present than a summary has rows."""
    present = torch.rand(STEPS, VERTICES) < 0.8
    present[2] = False
    present[3] = torch.arange(VERTICES) % 3 == 1
    present[1, 0] = present[4, 0] = present[5, :2] = True
    edges = []
    for step in (0, 1, 4, 5):
        there = present[step].nonzero()[:, 0].tolist()
        pairs = {(u, v) for u in there for v in there if torch.rand(()) < 0.3}
        pairs |= {(there[0], there[1]), (there[1], there[0])}
        edges += [(step, u, v, 0.25 * (1 + torch.randint(8, ()).item())) for u, v in sorted(pairs)]
    assert any(u == v for _, u, v, _ in edges) and present.any(0).all()
    step, src, dst, weight = (list(column) for column in zip(*edges))
    return {
        "step": torch.tensor(step),
        "src": torch.tensor(src),
        "dst": torch.tensor(dst),
        "weight": torch.tensor(weight),
        "present": present.long(),
        "features": torch.randn(STEPS * VERTICES, FEATURES),
    }


def add_adjacency(data):
    """`[t, v, v]`: S (A + I) S, with the greater weight of a pair, and a loop where A has none; and S, `[t v]`."""
    a = torch.zeros(STEPS, VERTICES, VERTICES)
    for step, u, v, w in zip(*(data[name].tolist() for name in ("step", "src", "dst", "weight"))):
        a[step, u, v] = a[step, v, u] = max(a[step, u, v].item(), w)
    loop = torch.diag_embed((data["present"] == 1) & (a.diagonal(dim1=1, dim2=2) == 0))
    a = a + loop
    degree = a.sum(2)
    scale = degree.where(degree > 0, 1).rsqrt().where(degree > 0, 0)
    return data | {"scale": scale.flatten()}, scale[:, :, None] * a * scale[:, None, :]


def naive_mix(a, x):
    """A x, vertex by vertex."""
    return torch.stack([sum((w * row for w, row in zip(of, x)), torch.zeros(x.shape[1])) for of in a])


def convolve(a, x, w, b):
    return a @ x @ w.T + b


def own(p, prefix):
    """The parameters whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in p.items() if name.startswith(prefix)}


def keep(present, new, old):
    return torch.where(present[:, None] == 1, new, old)


class Snapshots:
    """The common part of the models."""

    def __init__(self, model, seed):
        self.facts = {"model": model, "steps": STEPS, "vertices": VERTICES, "features": FEATURES, "width": WIDTH}
        self.facts |= {"length": LENGTH, "seed": seed}

    def widths(self):
        return [(1, FEATURES), (2, WIDTH)]  # number of a layer or cell, and width of its inputs


class WdGcn(Snapshots):
    def parameters(self):
        p = {}
        for k, width in self.widths():
            p |= {f"gcn.{k}.w": matrix(WIDTH, width), f"gcn.{k}.b": bias(WIDTH)}
        lstm = {name: matrix(4 * WIDTH, WIDTH) for name in ("w_x", "w_h")} | {
            "b_x": bias(4 * WIDTH),
            "b_h": bias(4 * WIDTH),
        }
        return p | named("lstm", lstm)

    def embed(self, p, data, steps):
        h = c = torch.zeros(VERTICES, WIDTH)
        for step in steps:
            x = data["x"][step]
            for k, _ in self.widths():
                x = convolve(data["a"][step], x, p[f"gcn.{k}.w"], p[f"gcn.{k}.b"]).relu()
            lstm = (p["lstm." + name] for name in ("w_x", "w_h", "b_x", "b_h"))
            new = torch.lstm_cell(x, (h, c), *lstm)
            h, c = (keep(data["present"][step], *pair) for pair in zip(new, (h, c)))
        return h

    def naive(self, p, data, steps):
        h, c = [torch.zeros(WIDTH)] * VERTICES, [torch.zeros(WIDTH)] * VERTICES
        for step in steps:
            x = data["x"][step]
            for k, _ in self.widths():
                x = (naive_mix(data["a"][step], x @ p[f"gcn.{k}.w"].T) + p[f"gcn.{k}.b"]).relu()
            for v in data["present"][step].nonzero()[:, 0].tolist():
                pre = p["lstm.w_x"] @ x[v] + p["lstm.b_x"] + p["lstm.w_h"] @ h[v] + p["lstm.b_h"]
                i, f, g, o = pre.chunk(4)
                c[v] = f.sigmoid() * c[v] + i.sigmoid() * g.tanh()
                h[v] = o.sigmoid() * c[v].tanh()
        return torch.stack(h)


class TGcn(Snapshots):
    def parameters(self):
        p = {}
        for k, width in self.widths():
            cell = {"w_rz": matrix(2 * WIDTH, width), "u_rz": matrix(2 * WIDTH, WIDTH), "b_rz": bias(2 * WIDTH)}
            cell |= {"w_c": matrix(WIDTH, width), "u_c": matrix(WIDTH, WIDTH), "b_c": bias(WIDTH)}
            p |= named(f"cell.{k}", cell)
        return p

    def embed(self, p, data, steps):
        h = {k: torch.zeros(VERTICES, WIDTH) for k, _ in self.widths()}
        for step in steps:
            u, a = data["x"][step], data["a"][step]
            for k, _ in self.widths():
                w = own(p, f"cell.{k}.")
                # The concatenated form of the paper: one convolution of {u | h}.
                w_rz, w_c = (torch.cat([w["w_" + of], w["u_" + of]], 1) for of in ("rz", "c"))
                r, z = convolve(a, torch.cat([u, h[k]], 1), w_rz, w["b_rz"]).sigmoid().chunk(2, 1)
                candidate = convolve(a, torch.cat([u, r * h[k]], 1), w_c, w["b_c"]).tanh()
                h[k] = keep(data["present"][step], z * h[k] + (1 - z) * candidate, h[k])
                u = h[k]
        return u

    def naive(self, p, data, steps):
        h = {k: torch.zeros(VERTICES, WIDTH) for k, _ in self.widths()}
        for step in steps:
            u, a = data["x"][step], data["a"][step]
            for k, _ in self.widths():
                name = f"cell.{k}."
                (w_r, w_z), (u_r, u_z) = (p[name + of].chunk(2) for of in ("w_rz", "u_rz"))
                b_r, b_z = p[name + "b_rz"].chunk(2)
                r = (naive_mix(a, u @ w_r.T) + naive_mix(a, h[k] @ u_r.T) + b_r).sigmoid()
                z = (naive_mix(a, u @ w_z.T) + naive_mix(a, h[k] @ u_z.T) + b_z).sigmoid()
                reset = (r * h[k]) @ p[name + "u_c"].T
                candidate = (naive_mix(a, u @ p[name + "w_c"].T) + naive_mix(a, reset) + p[name + "b_c"]).tanh()
                new = [z[v] * h[k][v] + (1 - z[v]) * candidate[v] for v in range(VERTICES)]
                there = data["present"][step].tolist()
                h[k] = torch.stack([new[v] if there[v] else h[k][v] for v in range(VERTICES)])
                u = h[k]
        return u


class EvolveGcn(Snapshots):
    def __init__(self, model, seed):
        super().__init__(model, seed)
        self.summarised = model == "evolve_gcn_h"

    def parameters(self):
        p = {}
        for k, width in self.widths():
            layer = {"start": matrix(WIDTH, width)}
            layer |= {"w_rz": matrix(2 * width, width), "u_rz": matrix(2 * width, width)}
            layer |= {"b_rz": 0.1 * torch.randn(WIDTH, 2 * width)}
            layer |= {"w_c": matrix(width, width), "u_c": matrix(width, width), "b_c": 0.1 * torch.randn(WIDTH, width)}
            p |= named(f"evolve.{k}", layer | ({"p": torch.randn(width)} if self.summarised else {}))
        return p

    def summary(self, p, rows, present):
        """`[d, in]`: the rows with the greatest scores; if there are too few, the last one is repeated."""
        y = rows @ p / p.norm()
        there = present.nonzero()[:, 0]
        if len(there) == 0:
            return torch.zeros(WIDTH, rows.shape[1])
        top = there[y[there].topk(min(WIDTH, len(there))).indices]
        top = torch.cat([top, top[-1:].expand(WIDTH - len(top))])
        return rows[top] * y[top].tanh()[:, None]

    def embed(self, p, data, steps):
        q = {k: p[f"evolve.{k}.start"] for k, _ in self.widths()}
        for step in steps:
            h = data["x"][step]
            for k, _ in self.widths():
                w = own(p, f"evolve.{k}.")
                x = self.summary(w["p"], h, data["present"][step]) if self.summarised else q[k]
                r, z = (x @ w["w_rz"].T + q[k] @ w["u_rz"].T + w["b_rz"]).sigmoid().chunk(2, 1)
                candidate = (x @ w["w_c"].T + (r * q[k]) @ w["u_c"].T + w["b_c"]).tanh()
                q[k] = z * q[k] + (1 - z) * candidate
                h = (data["a"][step] @ h @ q[k].T).relu()
        return h

    def naive(self, p, data, steps):
        """As the authors write it: weights `[in, out]`, gates from columns, an update gate that is one minus ours."""
        q = {k: p[f"evolve.{k}.start"].T for k, _ in self.widths()}
        for step in steps:
            h = data["x"][step]
            for k, width in self.widths():
                w = own(p, f"evolve.{k}.")
                x = q[k]
                if self.summarised:
                    there = [v for v in range(VERTICES) if data["present"][step][v]]
                    score = {v: sum(a * b for a, b in zip(h[v], w["p"])) / w["p"].square().sum().sqrt() for v in there}
                    best = sorted(there, key=lambda v: -score[v].item())[:WIDTH]
                    best += best[-1:] * (WIDTH - len(best))
                    columns = [h[v] * score[v].tanh() for v in best] or [torch.zeros(width)] * WIDTH
                    x = torch.stack(columns, 1)
                (w_r, w_z), (u_r, u_z) = (w[of].chunk(2) for of in ("w_rz", "u_rz"))
                b_r, b_z = w["b_rz"].T.chunk(2)
                reset = (w_r @ x + u_r @ q[k] + b_r).sigmoid()
                update = (-(w_z @ x + u_z @ q[k] + b_z)).sigmoid()
                candidate = (w["w_c"] @ x + w["u_c"] @ (reset * q[k]) + w["b_c"].T).tanh()
                q[k] = (1 - update) * q[k] + update * candidate
                h = naive_mix(data["a"][step], h @ q[k]).relu()
        return h


# From most seeds the ReLUs leave embeddings that hardly differ between vertices; from these seeds they do
# not.
MODELS = {
    "wd_gcn": WdGcn("wd_gcn", 22),
    "t_gcn": TGcn("t_gcn", 15),
    "evolve_gcn_o": EvolveGcn("evolve_gcn_o", 5),
    "evolve_gcn_h": EvolveGcn("evolve_gcn_h", 22),
}


def group_case(model):
    """The tensors of a file: the snapshots, the parameters, and for each group the embeddings and the gradients of
    `sum(z * dz)`."""
    torch.manual_seed(model.facts["seed"])
    tensors, a = add_adjacency(make_snapshots())
    x = tensors["features"].view(STEPS, VERTICES, -1) * tensors["present"][:, :, None]
    data = {"a": a, "x": x, "present": tensors["present"]}
    p = model.parameters()
    tensors |= named("init", p) | {"dz": torch.randn(VERTICES, WIDTH)}
    for parameter in p.values():
        parameter.requires_grad_()
    for group, steps in GROUPS.items():
        z, again = model.embed(p, data, steps), model.naive(p, data, steps)
        grads, naive_grads = (
            torch.autograd.grad((out * tensors["dz"]).sum(), p.values(), materialize_grads=True) for out in (z, again)
        )
        torch.testing.assert_close((again, naive_grads), (z, grads), rtol=1e-10, atol=1e-11)
        assert z.detach().std(0).max() > 0.04, "the embeddings tell vertices apart"
        tensors |= named(group, {"z": z}) | named(f"{group}.grad", dict(zip(p, grads)))
    return tensors
