"""Writes the golden files that the Rust tests compare with.

    python tests/golden/make.py tests/golden

A plain float64 implementation of the temporal graph network, autograd and Adam by PyTorch. Everything is
written out: mails are full rows `{s_self | s_partner | e}`, attention forms its keys and values. Each batch of
the network is also computed by a second, naive formulation (`naive_*`); the script fails if the two differ.

| file | holds |
| --- | --- |
| `gru.safetensors` | `torch.nn.GRUCell`: inputs, output and gradients; gates in the order r, z, n |
| `rnn.safetensors` | `torch.nn.RNNCell`, tanh: inputs, output and gradients |
| `attention.safetensors` | one temporal attention layer: inputs, output and gradients; empty slots are -1 |
| `tgn.safetensors` | ten batches of training: one layer, last combiner |
| `tgn_two_layers_mean.safetensors` | ten batches: two layers, mean combiner, node features |

A training file holds the stream (`src`, `dst`, `time`, `neg`, `edge_features`, `node_features`), the parameters
before (`init.NAME`) and after (`final.NAME`), and for each batch k, as `batch.k.*`: loss, logits (column 0 the
event, column 1 its negative) and `grad.NAME` with the parameters before the step; memory, memory_time, mail,
mail_time and has_mail after the write.
"""

import hashlib
import json
import math
import sys
from collections import defaultdict
from pathlib import Path

import torch
from torch.nn import functional

SEED = 8  # of every file
NODES, EVENTS, BATCH = 12, 66, 7
WIDTH, TIME_WIDTH, EDGE_WIDTH, NODE_WIDTH = 6, 4, 5, 2  # of memory and embedding, of the others
NEIGHBOURS, HEADS = 3, 2
LEARNING_RATE = 1e-2
# Seconds between two events are fewer. A gap of 400 gives phases w * dt that float32 cannot follow for more than
# about four batches, since Adam moves even the slowest w by 1e-2; a gap of 4 lets it follow all ten.
GAP = 4


# Files


def write(path, tensors, **sizes):
    """Writes a safetensors file byte for byte the same on every run (the library's metadata has no order)."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        rows = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {
            "dtype": {torch.float64: "F64", torch.int64: "I64"}[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(rows)],
        }
        data += rows
    facts = {"torch": torch.__version__, "seed": SEED, "sha256": hashlib.sha256(data).hexdigest(), **sizes}
    header["__metadata__"] = {name: str(value) for name, value in facts.items()}
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)


def named(prefix, tensors):
    return {f"{prefix}.{name}": tensor.clone() for name, tensor in tensors.items()}


# Parameters


def matrix(rows, columns):
    return torch.randn(rows, columns) / math.sqrt(columns)


def bias(width):
    return 0.1 * torch.randn(width)


def time_parameters(width):
    return {"time.w": 10 ** (-9 * torch.arange(width) / (width - 1)), "time.b": bias(width)}


def attention_parameters(prefix, inputs, outputs, edge_width, time_width):
    return {
        prefix + "w_q": matrix(outputs, inputs),
        prefix + "w_q_time": matrix(outputs, time_width),
        prefix + "b_q": bias(outputs),
        prefix + "w_k": matrix(outputs, inputs + edge_width + time_width),
        prefix + "w_v": matrix(outputs, inputs + edge_width + time_width),
        prefix + "b_v": bias(outputs),
        prefix + "w_o": matrix(outputs, outputs),
        prefix + "w_o_root": matrix(outputs, inputs),
        prefix + "b_o": bias(outputs),
        prefix + "norm_gain": 1 + bias(outputs),
        prefix + "norm_bias": bias(outputs),
    }


def tgn_parameters(layers, node_features):
    parameters = time_parameters(TIME_WIDTH) | {
        "memory.w_x": matrix(3 * WIDTH, 2 * WIDTH + EDGE_WIDTH + TIME_WIDTH),
        "memory.w_h": matrix(3 * WIDTH, WIDTH),
        "memory.b_x": bias(3 * WIDTH),
        "memory.b_h": bias(3 * WIDTH),
    }
    if node_features:
        parameters |= {"node.w": matrix(WIDTH, NODE_WIDTH), "node.b": bias(WIDTH)}
    for layer in range(layers):
        parameters |= attention_parameters(f"embed.{layer}.", WIDTH, WIDTH, EDGE_WIDTH, TIME_WIDTH)
    return parameters | {
        "decoder.w_src": matrix(WIDTH, WIDTH),
        "decoder.w_dst": matrix(WIDTH, WIDTH),
        "decoder.b": bias(WIDTH),
        "decoder.w_out": matrix(1, WIDTH)[0],
        "decoder.b_out": bias(1),
    }


# The network. Shapes at the margin: v nodes, n roots, k slots, h heads, p head width.


def time_encoding(p, dt):
    return torch.cos(dt[..., None] * p["time.w"] + p["time.b"])


def attend(p, prefix, h_root, h_near, edge, dt, valid):
    """One layer for n roots over k slots, of which `valid` ones hold a neighbour."""
    n, k = valid.shape
    root_time = time_encoding(p, torch.zeros(n))
    query = h_root @ p[prefix + "w_q"].T + root_time @ p[prefix + "w_q_time"].T + p[prefix + "b_q"]
    z = torch.cat([h_near, edge, time_encoding(p, dt)], -1)  # (n,k,d+f+t)
    query = query.view(n, 1, HEADS, -1)  # (n,1,h,p)
    key = (z @ p[prefix + "w_k"].T).view(n, k, HEADS, -1)  # (n,k,h,p)
    value = (z @ p[prefix + "w_v"].T + p[prefix + "b_v"]).view(n, k, HEADS, -1)
    score = (query * key).sum(-1) / math.sqrt(key.shape[-1])  # (n,k,h)
    # A finite mask and the product keep a root without neighbours at zero, and its gradient free of NaN.
    weight = score.masked_fill(~valid[..., None], -1e30).softmax(1) * valid[..., None]
    attention = (weight[..., None] * value).sum(1).flatten(1)  # (n,h*p)
    out = attention @ p[prefix + "w_o"].T + h_root @ p[prefix + "w_o_root"].T + p[prefix + "b_o"]
    out = out.relu()
    out = (out - out.mean(-1, keepdim=True)) / torch.sqrt(out.var(-1, correction=0, keepdim=True) + 1e-5)
    return out * p[prefix + "norm_gain"] + p[prefix + "norm_bias"]


def recent(stream, first, node, time):
    """The latest events of each node before `first` and strictly before its time, most recent first."""
    event = torch.arange(EVENTS)
    ends = (stream["src"] == node[:, None]) | (stream["dst"] == node[:, None])
    seen = ends & (stream["time"] < time[:, None]) & (event < first)  # (n,events)
    slot = torch.where(seen, event, -1).topk(NEIGHBOURS).values  # (n,k)
    return slot.clamp(min=0), slot >= 0


def update_memory(p, state):
    """s' of every node: a node without a mail keeps s."""
    age = state["mail_time"] - state["memory_time"]
    message = torch.cat([state["mail"], time_encoding(p, age)], -1)  # (v,2d+f+t)
    weights = [p["memory." + name] for name in ("w_x", "w_h", "b_x", "b_h")]
    updated = torch.gru_cell(message, state["memory"], *weights)
    return torch.where(state["has_mail"][:, None] == 1, updated, state["memory"])


def embed(p, stream, h, layers, first, node, time):
    """Embeddings [n, d] of nodes, each at its time; `h` are the rows below the first layer."""
    if layers == 0:
        return h[node]
    event, valid = recent(stream, first, node, time)
    src, dst = stream["src"][event], stream["dst"][event]
    near = torch.where(src == node[:, None], dst, src)
    h_root = embed(p, stream, h, layers - 1, first, node, time)
    h_near = embed(p, stream, h, layers - 1, first, near.flatten(), time.repeat_interleave(NEIGHBOURS))
    edge = stream["edge_features"][event]
    dt = time[:, None] - stream["time"][event]
    return attend(p, f"embed.{layers - 1}.", h_root, h_near.view(*near.shape, -1), edge, dt, valid)


def decode(p, z_src, z_dst):
    hidden = z_src @ p["decoder.w_src"].T + z_dst @ p["decoder.w_dst"].T + p["decoder.b"]
    return hidden.relu() @ p["decoder.w_out"] + p["decoder.b_out"]


def forward(p, stream, state, layers, batch):
    """Logits [b, 2] of the events and of their negatives, and s' of every node."""
    updated = h = update_memory(p, state)
    if "node_features" in stream:
        h = h + stream["node_features"] @ p["node.w"].T + p["node.b"]
    roots = torch.cat([stream[name][batch] for name in ("src", "dst", "neg")])
    z = embed(p, stream, h, layers, batch[0], roots, stream["time"][batch].repeat(3))
    z_src, z_dst, z_neg = z.chunk(3)
    return torch.stack([decode(p, z_src, z_dst), decode(p, z_src, z_neg)], 1), updated


def loss_of(logits):
    return functional.softplus(-logits[:, 0]).mean() + functional.softplus(logits[:, 1]).mean()


def write_memory(stream, state, updated, batch, combiner):
    """Positive roots keep s' and the time of the mail it consumed, then take the mail of this batch."""
    ends = defaultdict(list)  # node -> (partner, event) in order of position; a self-loop stands twice
    for event in batch.tolist():
        src, dst = stream["src"][event].item(), stream["dst"][event].item()
        ends[src].append((dst, event))
        ends[dst].append((src, event))
    for node, events in ends.items():
        state["memory"][node] = updated[node]
        state["memory_time"][node] = state["mail_time"][node]  # both are 0 before the first mail
        taken = events if combiner == "mean" else events[-1:]
        received = [torch.cat([updated[partner], stream["edge_features"][event]]) for partner, event in taken]
        state["mail"][node] = torch.cat([updated[node], torch.stack(received).mean(0)])
        state["mail_time"][node] = stream["time"][events[-1][1]]
        state["has_mail"][node] = 1


# The same once more, one node, head and slot at a time


def naive_memory(p, state, node):
    s = state["memory"][node]
    if state["has_mail"][node] == 0:
        return s
    age = state["mail_time"][node] - state["memory_time"][node]
    x = p["memory.w_x"] @ torch.cat([state["mail"][node], time_encoding(p, age)]) + p["memory.b_x"]
    h = p["memory.w_h"] @ s + p["memory.b_h"]
    (r_x, z_x, n_x), (r_h, z_h, n_h) = x.chunk(3), h.chunk(3)
    reset, keep = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    return (1 - keep) * torch.tanh(n_x + reset * n_h) + keep * s


def naive_embed(p, stream, state, layers, first, node, time):
    if layers == 0:
        h = naive_memory(p, state, node)
        if "node_features" in stream:
            h = h + p["node.w"] @ stream["node_features"][node] + p["node.b"]
        return h
    layer = {name.split(".")[2]: p[name] for name in p if name.startswith(f"embed.{layers - 1}.")}
    src, dst, times = (stream[name].tolist() for name in ("src", "dst", "time"))
    seen = [i for i in range(first) if node in (src[i], dst[i]) and times[i] < time]
    z = []
    for i in seen[-NEIGHBOURS:]:
        near = naive_embed(p, stream, state, layers - 1, first, src[i] + dst[i] - node, time)
        z.append(torch.cat([near, stream["edge_features"][i], time_encoding(p, torch.tensor(time - times[i]))]))
    root = naive_embed(p, stream, state, layers - 1, first, node, time)
    query = layer["w_q"] @ root + layer["w_q_time"] @ torch.cos(p["time.b"]) + layer["b_q"]
    attention = torch.zeros(WIDTH)
    if seen:
        heads = []
        for rows in torch.arange(WIDTH).chunk(HEADS):
            score = torch.stack([query[rows] @ (layer["w_k"][rows] @ z_j) for z_j in z]) / math.sqrt(len(rows))
            mixed = sum(weight * z_j for weight, z_j in zip(score.softmax(0), z))
            heads.append(layer["w_v"][rows] @ mixed + layer["b_v"][rows])
        attention = torch.cat(heads)
    out = functional.relu(layer["w_o"] @ attention + layer["w_o_root"] @ root + layer["b_o"])
    return functional.layer_norm(out, [WIDTH], layer["norm_gain"], layer["norm_bias"], 1e-5)


def naive_logits(p, stream, state, layers, batch):
    rows = []
    for event in batch.tolist():
        src, dst, neg, time = (stream[name][event].item() for name in ("src", "dst", "neg", "time"))
        z = [naive_embed(p, stream, state, layers, batch[0].item(), node, time) for node in (src, dst, neg)]
        rows.append(torch.cat([decode(p, z[0], z[1]), decode(p, z[0], z[2])]))
    return torch.stack(rows)


# Cases


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


def make_stream(node_features):
    """Random events with ties in time, some across a batch boundary, and nodes of every kind."""
    gap = torch.randint(GAP, (EVENTS,)) * (torch.rand(EVENTS) < 0.75)
    gap[[0, 7, 20, 21]] = 0
    src = torch.randint(10, (EVENTS,)) * (torch.rand(EVENTS) < 0.6)  # node 0 is hot
    dst = torch.randint(10, (EVENTS,))
    src[7], dst[21] = src[6], dst[20]  # both sides of a tied boundary share a node
    dst[17] = src[17]  # a self-loop
    dst[40] = 10  # a node that comes late; node 11 never does
    neg = torch.randint(NODES, (EVENTS,))
    neg[[3, 50]] = 11
    stream = {"src": src, "dst": dst, "time": gap.cumsum(0), "neg": neg}
    stream["edge_features"] = torch.randn(EVENTS, EDGE_WIDTH)
    if node_features:
        stream["node_features"] = torch.randn(NODES, NODE_WIDTH)
    return stream


def tgn_case(layers, combiner, node_features):
    torch.manual_seed(SEED)
    stream = make_stream(node_features)
    p = tgn_parameters(layers, node_features)
    tensors = stream | named("init", p)
    for parameter in p.values():
        parameter.requires_grad_()
    optimizer = torch.optim.Adam(p.values(), lr=LEARNING_RATE)
    state = {
        "memory": torch.zeros(NODES, WIDTH),
        "memory_time": torch.zeros(NODES, dtype=torch.int64),
        "mail": torch.zeros(NODES, 2 * WIDTH + EDGE_WIDTH),
        "mail_time": torch.zeros(NODES, dtype=torch.int64),
        "has_mail": torch.zeros(NODES, dtype=torch.int64),
    }
    for k, batch in enumerate(torch.arange(EVENTS).split(BATCH)):
        logits, updated = forward(p, stream, state, layers, batch)
        loss = loss_of(logits)
        grads = torch.autograd.grad(loss, p.values())
        naive_loss = loss_of(naive_logits(p, stream, state, layers, batch))
        naive_grads = torch.autograd.grad(naive_loss, p.values(), materialize_grads=True)
        torch.testing.assert_close((naive_loss, naive_grads), (loss, grads), rtol=1e-10, atol=1e-11)

        write_memory(stream, state, updated.detach(), batch, combiner)
        for parameter, grad in zip(p.values(), grads):
            parameter.grad = grad
        optimizer.step()
        tensors |= named(f"batch.{k}", {"loss": loss, "logits": logits} | state)
        tensors |= named(f"batch.{k}.grad", dict(zip(p, grads)))
    return tensors | named("final", p)


def main():
    out = Path(sys.argv[1])
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    for name, kind in [("gru", torch.nn.GRUCell), ("rnn", torch.nn.RNNCell)]:
        write(out / f"{name}.safetensors", cell_case(kind), rows=5, inputs=7, width=4)
    write(out / "attention.safetensors", attention_case(), heads=HEADS)
    for name, layers, combiner, node_width in [
        ("tgn", 1, "last", 0),
        ("tgn_two_layers_mean", 2, "mean", NODE_WIDTH),
    ]:
        sizes = {
            "nodes": NODES,
            "events": EVENTS,
            "batch": BATCH,
            "memory": WIDTH,
            "time": TIME_WIDTH,
            "embedding": WIDTH,
            "edge_features": EDGE_WIDTH,
            "node_features": node_width,
            "neighbours": NEIGHBOURS,
            "heads": HEADS,
            "layers": layers,
            "combiner": combiner,
            "learning_rate": LEARNING_RATE,
        }
        write(out / f"{name}.safetensors", tgn_case(layers, combiner, node_width > 0), **sizes)


if __name__ == "__main__":
    main()
