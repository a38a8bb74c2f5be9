"""TGN with any number of layers, and TGAT, which is TGN's attention without the memory."""

from collections import defaultdict

import torch
from common import (
    EDGE_WIDTH,
    HEADS,
    NODE_WIDTH,
    NODES,
    TIME_WIDTH,
    WIDTH,
    add_node_features,
    bias,
    decode,
    decoder_parameters,
    end_of_history,
    facts,
    layer_norm,
    matrix,
    mix,
    naive_logits,
    naive_mix,
    naive_recent,
    node_parameters,
    norm_parameters,
    recent,
    roots,
    time_encoding,
    time_parameters,
)
from torch.nn import functional

NEIGHBOURS = 3


# Attention. Shapes in the comments: v nodes, n roots, k slots.


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
    } | norm_parameters(prefix, outputs)


def layer_parameters(layers, inputs):
    parameters = {}
    for layer in range(layers):
        width = WIDTH if layer else inputs
        parameters |= attention_parameters(f"embed.{layer}.", width, WIDTH, EDGE_WIDTH, TIME_WIDTH)
    return parameters


def attend(p, prefix, h_root, h_near, edge, dt, valid):
    """One layer for n roots over k slots; `valid` marks the slots that hold a neighbour."""
    root_time = time_encoding(p, torch.zeros(len(valid)))
    query = h_root @ p[prefix + "w_q"].T + root_time @ p[prefix + "w_q_time"].T + p[prefix + "b_q"]
    z = torch.cat([h_near, edge, time_encoding(p, dt)], -1)  # (n,k,d+f+t)
    key, value = z @ p[prefix + "w_k"].T, z @ p[prefix + "w_v"].T + p[prefix + "b_v"]
    attention = mix(query, key, value, valid)
    out = attention @ p[prefix + "w_o"].T + h_root @ p[prefix + "w_o_root"].T + p[prefix + "b_o"]
    return layer_norm(p, prefix, out.relu())


def embed(p, stream, h, layers, first, node, time, at_events=False):
    """Embeddings [n, d] of nodes, each at its time; `h` are the rows below the first layer.

    Neighbours are embedded at the query's time, as in TGN, or at the times of their events, as in TGAT.
    """
    if layers == 0:
        return h[node]
    near, event, valid = recent(stream, first, node, time, NEIGHBOURS)
    h_root = embed(p, stream, h, layers - 1, first, node, time, at_events)
    near_time = stream["time"][event].flatten() if at_events else time.repeat_interleave(NEIGHBOURS)
    h_near = embed(p, stream, h, layers - 1, first, near.flatten(), near_time, at_events)
    edge = stream["edge_features"][event]
    dt = time[:, None] - stream["time"][event]
    return attend(p, f"embed.{layers - 1}.", h_root, h_near.view(*near.shape, -1), edge, dt, valid)


def naive_embed(p, stream, bottom, layers, first, node, time, at_events=False):
    """`embed` for one node; `bottom` computes its row below the first layer."""
    if layers == 0:
        return bottom(node)
    layer = {name.split(".")[2]: p[name] for name in p if name.startswith(f"embed.{layers - 1}.")}
    times = stream["time"].tolist()
    z = []
    for other, i in naive_recent(stream, first, node, time, NEIGHBOURS):
        near = naive_embed(p, stream, bottom, layers - 1, first, other, times[i] if at_events else time, at_events)
        z.append(torch.cat([near, stream["edge_features"][i], time_encoding(p, torch.tensor(time - times[i]))]))
    root = naive_embed(p, stream, bottom, layers - 1, first, node, time, at_events)
    query = layer["w_q"] @ root + layer["w_q_time"] @ torch.cos(p["time.b"]) + layer["b_q"]
    attention = naive_mix(query, z, layer["w_k"], layer["w_v"], layer["b_v"])
    out = functional.relu(layer["w_o"] @ attention + layer["w_o_root"] @ root + layer["b_o"])
    return functional.layer_norm(out, [WIDTH], layer["norm_gain"], layer["norm_bias"], 1e-5)


def forward_layers(p, stream, h, layers, first, batch, at_events=False):
    """Logits [b, 2] of the events and of their negatives, whose history ends before event `first`."""
    z_src, z_dst, z_neg = embed(p, stream, h, layers, first, *roots(stream, batch), at_events).chunk(3)
    return torch.stack([decode(p, z_src, z_dst), decode(p, z_src, z_neg)], 1)


def naive_layers(p, stream, bottom, layers, first, batch, at_events=False):
    times = stream["time"].tolist()
    at = lambda node, event: naive_embed(p, stream, bottom, layers, first, node, times[event], at_events)
    return naive_logits(stream, batch, p, at)


# Memory and mails, with full rows `{s_self | s_partner | e}`


def memory_parameters(gates):
    return {
        "memory.w_x": matrix(gates * WIDTH, 2 * WIDTH + EDGE_WIDTH + TIME_WIDTH),
        "memory.w_h": matrix(gates * WIDTH, WIDTH),
        "memory.b_x": bias(gates * WIDTH),
        "memory.b_h": bias(gates * WIDTH),
    }


def memory_state():
    return {
        "memory": torch.zeros(NODES, WIDTH),
        "memory_time": torch.zeros(NODES, dtype=torch.int64),
        "mail": torch.zeros(NODES, 2 * WIDTH + EDGE_WIDTH),
        "mail_time": torch.zeros(NODES, dtype=torch.int64),
        "has_mail": torch.zeros(NODES, dtype=torch.int64),
    }


def update_memory(p, state, cell):
    """s' of every node; a node without a mail keeps s."""
    age = state["mail_time"] - state["memory_time"]
    message = torch.cat([state["mail"], time_encoding(p, age)], -1)  # (v,2d+f+t)
    weights = [p["memory." + name] for name in ("w_x", "w_h", "b_x", "b_h")]
    updated = cell(message, state["memory"], *weights)
    return torch.where(state["has_mail"][:, None] == 1, updated, state["memory"])


def write_memory(stream, state, updated, batch, combiner, content=None):
    """Positive roots keep s' and the time of the consumed mail, then take the mail of this batch.

    A mail holds its partner's s' or, if given, the partner's row of `content`, [2, b, d]: sources, destinations.
    """
    ends = defaultdict(list)  # node -> (partner's row, event) in order of position; a self-loop appears twice
    for i, event in enumerate(batch.tolist()):
        src, dst = stream["src"][event].item(), stream["dst"][event].item()
        of_src, of_dst = (updated[src], updated[dst]) if content is None else content[:, i]
        ends[src].append((of_dst, event))
        ends[dst].append((of_src, event))
    for node, events in ends.items():
        state["memory"][node] = updated[node]
        state["memory_time"][node] = state["mail_time"][node]  # both are 0 before the first mail
        taken = events if combiner == "mean" else events[-1:]
        received = [torch.cat([row, stream["edge_features"][event]]) for row, event in taken]
        state["mail"][node] = torch.cat([updated[node], torch.stack(received).mean(0)])
        state["mail_time"][node] = stream["time"][events[-1][1]]
        state["has_mail"][node] = 1


def naive_memory(p, state, node):
    s = state["memory"][node]
    if state["has_mail"][node] == 0:
        return s
    age = state["mail_time"][node] - state["memory_time"][node]
    x = p["memory.w_x"] @ torch.cat([state["mail"][node], time_encoding(p, age)]) + p["memory.b_x"]
    h = p["memory.w_h"] @ s + p["memory.b_h"]
    if len(x) == WIDTH:
        return torch.tanh(x + h)
    (r_x, z_x, n_x), (r_h, z_h, n_h) = x.chunk(3), h.chunk(3)
    reset, keep = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    return (1 - keep) * torch.tanh(n_x + reset * n_h) + keep * s


# The models


class Tgn:
    def __init__(self, layers, combiner, node_features=False, **others):
        self.layers, self.combiner = layers, combiner
        self.facts = facts(NEIGHBOURS, HEADS, layers, combiner, node_features, **others)

    def parameters(self):
        parameters = time_parameters(TIME_WIDTH) | memory_parameters(3)
        parameters |= node_parameters(self.facts["node_features"] > 0)
        return parameters | layer_parameters(self.layers, WIDTH) | decoder_parameters()

    def state(self):
        return memory_state()

    def forward(self, p, stream, state, batch):
        updated = update_memory(p, state, torch.gru_cell)
        h = add_node_features(p, stream, updated)
        return forward_layers(p, stream, h, self.layers, end_of_history(self, batch), batch), updated

    def naive(self, p, stream, state, batch):
        bottom = lambda node: add_node_features(p, stream, naive_memory(p, state, node), node)
        return naive_layers(p, stream, bottom, self.layers, end_of_history(self, batch), batch)

    def write(self, stream, state, updated, batch):
        write_memory(stream, state, updated, batch, self.combiner)


class Tgat:
    """Node features as they are, and attention over them."""

    def __init__(self, layers, neighbour_time, **others):
        self.layers, self.at_events = layers, neighbour_time == "event"
        others |= {"model": "tgat", "neighbour_time": neighbour_time}
        self.facts = facts(NEIGHBOURS, HEADS, layers, node_features=True, memory=False, **others)

    def parameters(self):
        return time_parameters(TIME_WIDTH) | layer_parameters(self.layers, NODE_WIDTH) | decoder_parameters()

    def state(self):
        return {}

    def forward(self, p, stream, state, batch):
        first, rows = end_of_history(self, batch), stream["node_features"]
        return forward_layers(p, stream, rows, self.layers, first, batch, self.at_events), None

    def naive(self, p, stream, state, batch):
        bottom = lambda node: stream["node_features"][node]
        return naive_layers(p, stream, bottom, self.layers, end_of_history(self, batch), batch, self.at_events)

    def write(self, stream, state, fresh, batch):
        pass
