"""Writes the golden files that the Rust tests compare with.

    python tests/golden/make.py tests/golden

The models are plain float64 implementations; autograd and Adam are PyTorch's. Nothing is optimised: mails are full
rows `{s_self | s_partner | e}`, and attention computes its keys and values. A second, naive formulation (`naive*`)
also computes each batch of a network; the script fails if the two differ.

| file | contents |
| --- | --- |
| `gru.safetensors` | `torch.nn.GRUCell`: inputs, output and gradients; gates in the order r, z, n |
| `rnn.safetensors` | `torch.nn.RNNCell`, tanh: inputs, output and gradients |
| `attention.safetensors` | one temporal attention layer: inputs, output and gradients; empty slots are -1 |
| `tgn.safetensors` | ten batches of training: one layer, last combiner |
| `tgn_two_layers_mean.safetensors` | ten batches: two layers, mean combiner, node features |
| `tgn_three_layers.safetensors` | ten batches: three layers, last combiner |
| `tgat.safetensors` | ten batches of TGAT: two layers, node features, neighbours at the times of their events |
| `tgat_query_time.safetensors` | the same with neighbours at the time of the query |
| `graph_mixer.safetensors` | ten batches of GraphMixer: two blocks over four neighbours, node features |
| `jodie.safetensors` | ten batches of JODIE: last combiner, node features |
| `dyrep.safetensors` | ten batches of DyRep: last combiner, node features; the attention (`embed.*`) has no gradients |
| `apan.safetensors` | ten batches of APAN: three mail slots, two neighbours receive a mail, last combiner |
| `apan_mean.safetensors` | the same with the mean combiner and node features |
| `wd_gcn.safetensors`, `t_gcn.safetensors`, `evolve_gcn_o.safetensors`, `evolve_gcn_h.safetensors` | two groups of snapshots each |

The history of `tgn`, `tgat`, `graph_mixer`, `dyrep` and `apan` ends at the time of the query, that of the others before
the batch.

A training file holds the stream (`src`, `dst`, `time`, `neg`, `edge_features`, `node_features`), the parameters
before (`init.NAME`) and after (`final.NAME`) training, and for each batch k, as `batch.k.*`:
- the loss, the logits (column 0 the event, column 1 its negative), and `grad.NAME` at the parameters before the step;
- the state after the write, if the model has one: memory `[v, d]`, memory_time, mail, mail_time and has_mail, one row
  per node. APAN's mails have one row per slot, `[v, k, ...]`, zeros if it is empty, and `next` is the slot that a
  node's next mail takes.

A file of snapshots holds edges (`step`, `src`, `dst`, `weight`), `present` `[t, v]`, `features` `[t v, f]`, `scale`
`[t v]`, the parameters (`init.NAME`), `dz`, and for the groups `whole` and `short`: the embeddings `z` `[v, d]` after
the last step, and `grad.NAME` of `sum(z dz)`.
"""

import sys
from pathlib import Path

import torch
from common import HEADS, SEED, named, time_parameters, train, write
from mixer import GraphMixer
from models import Apan, DyRep, Jodie
from snapshots import MODELS, group_case
from tgn import Tgat, Tgn, attend, attention_parameters


def cell_case(kind):
    torch.manual_seed(SEED)
    cell = kind(7, 4)
    x, h, dout = torch.randn(5, 7, requires_grad=True), torch.randn(5, 4, requires_grad=True), torch.randn(5, 4)
    weights = {"w_x": cell.weight_ih, "w_h": cell.weight_hh, "b_x": cell.bias_ih, "b_h": cell.bias_hh}
    inputs = {"x": x, "h": h} | weights
    out = cell(x, h)
    out.backward(dout)
    return inputs | {"out": out, "dout": dout} | {"d" + name: tensor.grad for name, tensor in inputs.items()}


def attention_case():
    torch.manual_seed(SEED)
    rows, roots, slots, edges, inputs, outputs, edge_width, time_width = 9, 6, 4, 10, 5, 6, 3, 4
    p = time_parameters(time_width) | attention_parameters("embed.0.", inputs, outputs, edge_width, time_width)
    h = torch.randn(rows, inputs)
    edge_features = torch.randn(edges, edge_width)
    count = torch.tensor([2, 0, 4, 1, 3, 4])
    valid = torch.arange(slots) < count[:, None]
    root = torch.randint(rows, (roots,))
    neighbour = torch.randint(rows, (roots, slots)).where(valid, -1)
    edge = torch.randint(edges, (roots, slots)).where(valid, -1)
    dt = torch.randint(1, 10_000, (roots, slots)).sort().values.where(valid, -1)
    dout = torch.randn(roots, outputs)
    for tensor in (h, *p.values()):
        tensor.requires_grad_()
    out = attend(p, "embed.0.", h[root], h[neighbour], edge_features[edge], dt, valid)
    out.backward(dout)
    index = {"root": root, "neighbour": neighbour, "edge": edge, "dt": dt, "count": count}
    tensors = {"h": h, "edge_features": edge_features} | index | p | {"out": out, "dout": dout, "dh": h.grad}
    return tensors | named("grad", {name: tensor.grad for name, tensor in p.items()})


def main():
    out = Path(sys.argv[1])
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    for name, kind in [("gru", torch.nn.GRUCell), ("rnn", torch.nn.RNNCell)]:
        write(out / f"{name}.safetensors", cell_case(kind), rows=5, inputs=7, width=4)
    write(out / "attention.safetensors", attention_case(), heads=HEADS)
    # Stacked layers and Adam amplify rounding. From most seeds, ten steps take float32 so far from float64
    # that a test could not see a mistake; from these seeds they do not.
    for name, model in {
        "tgn": Tgn(1, "last", seed=29, history="time"),
        "tgn_two_layers_mean": Tgn(2, "mean", node_features=True),
        "tgn_three_layers": Tgn(3, "last", seed=68),
        "tgat": Tgat(2, "event", seed=39, history="time"),
        "tgat_query_time": Tgat(2, "query", seed=39),
        "graph_mixer": GraphMixer(2, node_features=True, history="time"),
        "jodie": Jodie(),
        "dyrep": DyRep(history="time"),
        "apan": Apan("last", history="time"),
        "apan_mean": Apan("mean", node_features=True),
    }.items():
        write(out / f"{name}.safetensors", train(model), **model.facts)
    for name, model in MODELS.items():
        write(out / f"{name}.safetensors", group_case(model), **model.facts)


if __name__ == "__main__":
    main()
