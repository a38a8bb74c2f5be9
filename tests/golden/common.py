"""Common parts of the scripts that write the golden files: files, parameters, the stream, the link task, training.

A model is an object with
- `facts`: the entries of the file's metadata, in order; `node_features` is among them;
- `parameters()`, by name, and `state()`, which batches carry over; both are created after the stream;
- `forward(p, stream, state, batch)`: logits `[b, 2]`, and the values that `write` needs;
- `naive(p, stream, state, batch)`: the logits again, computed for one node, head and slot at a time;
- `write(stream, state, fresh, batch)`: updates the state with the values of the forward pass.
"""

import hashlib
import json
import math

import torch
from torch.nn import functional

SEED = 8  # of every file whose metadata have no other seed
NODES, EVENTS, BATCH = 12, 66, 7
WIDTH, TIME_WIDTH, EDGE_WIDTH, NODE_WIDTH = 6, 4, 5, 2  # memory and embedding; time encoding; features
HEADS = 2
LEARNING_RATE = 1e-2
# Gaps between events are less than this many seconds. A gap of 400 gives phases w * dt that float32 cannot
# follow for more than about four batches, because Adam moves even the slowest w by 1e-2; with gaps below 4 it
# follows all ten.
GAP = 4


# Files


def write(path, tensors, **facts):
    """Writes a safetensors file with the same bytes on every run (the library's metadata has no fixed order)."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        rows = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {
            "dtype": {torch.float64: "F64", torch.int64: "I64"}[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(rows)],
        }
        data += rows
    facts = {"torch": torch.__version__, "seed": SEED, "sha256": hashlib.sha256(data).hexdigest(), **facts}
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


def norm_parameters(prefix, width):
    return {prefix + "norm_gain": 1 + bias(width), prefix + "norm_bias": bias(width)}


def time_parameters(width):
    return {"time.w": 10 ** (-9 * torch.arange(width) / (width - 1)), "time.b": bias(width)}


def node_parameters(node_features):
    return {"node.w": matrix(WIDTH, NODE_WIDTH), "node.b": bias(WIDTH)} if node_features else {}


def decoder_parameters():
    return {
        "decoder.w_src": matrix(WIDTH, WIDTH),
        "decoder.w_dst": matrix(WIDTH, WIDTH),
        "decoder.b": bias(WIDTH),
        "decoder.w_out": matrix(1, WIDTH)[0],
        "decoder.b_out": bias(1),
    }


# Parts of networks. Shapes in the comments: n roots, k slots, h heads, p head width.


def time_encoding(p, dt):
    return torch.cos(dt[..., None] * p["time.w"] + p["time.b"])


def layer_norm(p, prefix, x):
    x = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, correction=0, keepdim=True) + 1e-5)
    return x * p[prefix + "norm_gain"] + p[prefix + "norm_bias"]


def mix(query, key, value, valid):
    """Heads side by side, [n, h*p]: values weighted by the softmax over the valid slots, zeros if none is valid."""
    n, k = valid.shape
    query = query.view(n, 1, HEADS, -1)  # (n,1,h,p)
    key = key.view(n, k, HEADS, -1)  # (n,k,h,p)
    value = value.view(n, k, HEADS, -1)
    score = (query * key).sum(-1) / math.sqrt(key.shape[-1])  # (n,k,h)
    # A finite mask and the product keep a root without slots at zero, and its gradient free of NaN.
    weight = score.masked_fill(~valid[..., None], -1e30).softmax(1) * valid[..., None]
    return (weight[..., None] * value).sum(1).flatten(1)  # (n,h*p)


def naive_mix(query, z, w_k, w_v, b_v):
    """`mix` for one root, one head after another, over the inputs `z` of its keys and values."""
    if not z:
        return torch.zeros(WIDTH)
    heads = []
    for rows in torch.arange(WIDTH).chunk(HEADS):
        score = torch.stack([query[rows] @ (w_k[rows] @ z_j) for z_j in z]) / math.sqrt(len(rows))
        mixed = sum(weight * z_j for weight, z_j in zip(score.softmax(0), z))
        heads.append(w_v[rows] @ mixed + b_v[rows])
    return torch.cat(heads)


def add_node_features(p, stream, h, nodes=slice(None)):
    if "node_features" in stream:
        h = h + stream["node_features"][nodes] @ p["node.w"].T + p["node.b"]
    return h


def decode(p, z_src, z_dst):
    hidden = z_src @ p["decoder.w_src"].T + z_dst @ p["decoder.w_dst"].T + p["decoder.b"]
    return hidden.relu() @ p["decoder.w_out"] + p["decoder.b_out"]


def loss_of(logits):
    return functional.softplus(-logits[:, 0]).mean() + functional.softplus(logits[:, 1]).mean()


# The stream


def make_stream(node_features):
    """Random events with equal times, some across a batch boundary, and nodes of every kind."""
    gap = torch.randint(GAP, (EVENTS,)) * (torch.rand(EVENTS) < 0.75)
    gap[[0, 7, 20, 21]] = 0
    src = torch.randint(10, (EVENTS,)) * (torch.rand(EVENTS) < 0.6)  # node 0 has many events
    dst = torch.randint(10, (EVENTS,))
    src[7], dst[21] = src[6], dst[20]  # the events on both sides of a boundary with equal times share a node
    dst[17] = src[17]  # a self-loop
    dst[40] = 10  # the first event of node 10; node 11 has none
    neg = torch.randint(NODES, (EVENTS,))
    neg[[3, 50]] = 11
    stream = {"src": src, "dst": dst, "time": gap.cumsum(0), "neg": neg}
    stream["edge_features"] = torch.randn(EVENTS, EDGE_WIDTH)
    if node_features:
        stream["node_features"] = torch.randn(NODES, NODE_WIDTH)
    pairs = [{(u.item(), v.item()) for u, v in zip(s, d)} for s, d in zip(src.split(BATCH), dst.split(BATCH))]
    assert sum(map(len, pairs)) < EVENTS, "some batch has a pair twice"
    return stream


def roots(stream, batch):
    """Nodes `[3 b]`, sources first, then destinations and negatives, and their times."""
    return torch.cat([stream[name][batch] for name in ("src", "dst", "neg")]), stream["time"][batch].repeat(3)


def end_of_history(model, batch):
    """The event before which queries of a batch see events that are strictly before their time."""
    return EVENTS if model.facts["history"] == "time" else batch[0].item()


def recent(stream, first, node, time, k):
    """Neighbours and events `[n, k]`, most recent first, and a mask of the valid slots: the latest events of each
    node that are before `first` and strictly before the node's time."""
    event = torch.arange(EVENTS)
    ends = (stream["src"] == node[:, None]) | (stream["dst"] == node[:, None])
    seen = ends & (stream["time"] < time[:, None]) & (event < first)  # (n,events)
    slot = torch.where(seen, event, -1).topk(k).values  # (n,k)
    event, valid = slot.clamp(min=0), slot >= 0
    src, dst = stream["src"][event], stream["dst"][event]
    return torch.where(src == node[:, None], dst, src), event, valid


def naive_recent(stream, first, node, time, k):
    """`recent` for one node: a list of (neighbour, event), most recent last."""
    src, dst, times = (stream[name].tolist() for name in ("src", "dst", "time"))
    seen = [i for i in range(first) if node in (src[i], dst[i]) and times[i] < time]
    return [(src[i] + dst[i] - node, i) for i in seen[-k:]]


# Training


def facts(neighbours=None, heads=None, layers=None, combiner=None, node_features=False, memory=True, history="batch",
          **others):
    """Sizes and choices of a file, in order, without those that the model does not have."""
    every = {
        **others,
        "history": history,
        "nodes": NODES,
        "events": EVENTS,
        "batch": BATCH,
        "memory": WIDTH if memory else None,
        "time": TIME_WIDTH,
        "embedding": WIDTH,
        "edge_features": EDGE_WIDTH,
        "node_features": NODE_WIDTH if node_features else 0,
        "neighbours": neighbours,
        "heads": heads,
        "layers": layers,
        "combiner": combiner,
        "learning_rate": LEARNING_RATE,
    }
    return {name: value for name, value in every.items() if value is not None}


def train(model):
    """The tensors of a training file."""
    torch.manual_seed(model.facts.get("seed", SEED))
    stream = make_stream(model.facts["node_features"] > 0)
    p = model.parameters()
    tensors = stream | named("init", p)
    learned = {name: value for name, value in p.items() if name not in getattr(model, "fixed", ())}
    for parameter in learned.values():
        parameter.requires_grad_()
    optimizer = torch.optim.Adam(learned.values(), lr=LEARNING_RATE)
    state = model.state()
    for k, batch in enumerate(torch.arange(EVENTS).split(BATCH)):
        logits, fresh = model.forward(p, stream, state, batch)
        loss = loss_of(logits)
        grads = torch.autograd.grad(loss, learned.values())
        naive_loss = loss_of(model.naive(p, stream, state, batch))
        naive_grads = torch.autograd.grad(naive_loss, learned.values(), materialize_grads=True)
        torch.testing.assert_close((naive_loss, naive_grads), (loss, grads), rtol=1e-10, atol=1e-11)

        with torch.no_grad():
            model.write(stream, state, fresh, batch)
        for parameter, grad in zip(learned.values(), grads):
            parameter.grad = grad
        optimizer.step()
        tensors |= named(f"batch.{k}", {"loss": loss, "logits": logits} | state)
        tensors |= named(f"batch.{k}.grad", dict(zip(learned, grads)))
    return tensors | named("final", p)


def naive_logits(stream, batch, p, embed):
    """Logits of a batch; `embed` computes the embedding of a node at the time of an event."""
    rows = []
    for event in batch.tolist():
        z = [embed(stream[name][event].item(), event) for name in ("src", "dst", "neg")]
        rows.append(torch.cat([decode(p, z[0], z[1]), decode(p, z[0], z[2])]))
    return torch.stack(rows)
