"""JODIE, DyRep, APAN, TGAT, GraphMixer and TGN in PyTorch, optimised as far as possible without custom kernels: peers
in the benchmarks.

    python torch_models.py --model apan --data wikipedia.csv --batch 600 --random-edge-features 172 --no-eval --json
    python torch_models.py --check    # ten batches of each against tests/golden, in float64

The models are the same as in tgnn, parameter for parameter (`tests/golden`), with the protocol of `link_task.py`. State
is stored in tables that are read and written by index. Nodes, and targets of deeper layers, are computed once even if
they occur several times in a batch (`unique`); so are the terms of keys and values that depend only on a node or an
event. Mails store the id of their event instead of its features.
"""

import json
import math
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from link_task import loss_of, parser, run
from torch.nn import Parameter
from torch.nn.functional import dropout, embedding, gelu, layer_norm, linear

HEADS = 2
DROPOUT = 0.1


class History:
    """The events of each node in time order, as one list sorted by node. Which of them a query sees is tgnn's
    `--history`: with `time`, all before its time; with `batch`, of these only those of earlier batches."""

    def __init__(self, events):
        self.rule = "time"
        count = len(events.src)
        event = torch.arange(count, device=events.src.device)
        again = events.src != events.dst  # a self-loop is one event of its node
        node = torch.cat([events.src, events.dst[again]])
        # Events are numbered in time order, so the keys of a node are in time order, too.
        self.key, order = (node * count + torch.cat([event, event[again]])).sort()
        self.other = torch.cat([events.dst, events.src[again]])[order]
        self.event = self.key % count
        self.begin = torch.searchsorted(self.key, torch.arange(events.nodes, device=node.device) * count)
        self.tied = torch.searchsorted(events.time, events.time)  # the first event at an event's time
        self.count = count

    def ends(self, event, first):
        """Returns the end of the history of each event: the first event at the same time; with the rule `batch` at
        most `first`, where the batch begins."""
        return self.tied[event] if self.rule == "time" else self.tied[event].clamp(max=first)

    def recent(self, node, end, k):
        """Returns the k latest neighbours [n, k], latest first, their events, and which slots are used. An unused slot
        holds the node itself."""
        last = torch.searchsorted(self.key, node * self.count + end)
        place = last[:, None] - 1 - torch.arange(k, device=node.device)
        there = place >= self.begin[node, None]
        place = place.where(there, 0)
        return torch.where(there, self.other[place], node[:, None]), self.event[place], there


def last_positions(rows, count):
    """Returns the last position of each row number below `count` in `rows`, or -1 if it does not occur."""
    position = torch.arange(len(rows), device=rows.device)
    return rows.new_full((count,), -1).scatter_reduce(0, rows, position, "amax")


# Layers. Dimensions in comments: n roots, k slots, h heads, p head width.


def uniform(inputs, *shape):
    """Returns a parameter with the initial values of PyTorch's `Linear` and cells, and of tgnn."""
    bound = 1 / math.sqrt(max(inputs, 1))
    return Parameter(torch.empty(shape).uniform_(-bound, bound))


def matrix(rows, columns):
    return uniform(columns, rows, columns)


def zeros(width):
    return Parameter(torch.zeros(width))


def frequencies(width):
    return 10 ** (-9 * torch.arange(width) / (width - 1))


class TimeEncoding(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w, self.b = Parameter(frequencies(width)), zeros(width)

    def forward(self, seconds):
        return torch.cos(seconds.to(self.w.dtype)[..., None] * self.w + self.b)


class FixedTimeEncoding(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("w", frequencies(width))

    def forward(self, seconds):
        return (seconds.to(self.w.dtype)[..., None] * self.w).cos_()


class Norm(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm_gain, self.norm_bias = Parameter(torch.ones(width)), zeros(width)

    def norm(self, x):
        return layer_norm(x, x.shape[-1:], self.norm_gain, self.norm_bias)


class Cell(torch.nn.Module):
    def __init__(self, function, gates, width, inputs):
        super().__init__()
        self.function = function
        self.w_x, self.w_h = uniform(width, gates * width, inputs), uniform(width, gates * width, width)
        self.b_x, self.b_h = uniform(width, gates * width), uniform(width, gates * width)

    def forward(self, x, h):
        return self.function(x, h, self.w_x, self.w_h, self.b_x, self.b_h)


class Affine(torch.nn.Module):
    def __init__(self, width, inputs):
        super().__init__()
        self.w, self.b = matrix(width, inputs), uniform(inputs, width)

    def forward(self, x):
        return linear(x, self.w, self.b)


class Decoder(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w_src, self.w_dst, self.b = matrix(width, width), matrix(width, width), uniform(width, width)
        self.w_out, self.b_out = uniform(width, width), uniform(width, 1)

    def forward(self, z):
        """Returns the logits of events and negatives from embeddings of sources, destinations and negatives."""
        src, dst, neg = z.chunk(3)
        src = linear(src, self.w_src, self.b)
        return tuple((src + linear(x, self.w_dst)).relu() @ self.w_out + self.b_out for x in (dst, neg))


class KeysAndValues(Norm):
    """Attention whose keys and values are linear in {a row of each table | time encoding}."""

    def __init__(self, width, tables, time_width):
        super().__init__(width)
        self.columns = [*tables, time_width]
        inputs = sum(self.columns)
        self.w_k, self.w_v, self.b_v = matrix(width, inputs), matrix(width, inputs), uniform(inputs, width)

    def attend(self, query, tables, phi, there):
        """Returns the concatenated heads [n, h*p]; zeros for a root without used slots. `tables` are pairs of rows and
        an index: either one row per index entry and an index of each slot, or k rows per entry and an index of each
        root."""
        *weights, of_time = torch.cat([self.w_k, self.w_v]).split(self.columns, 1)
        both = linear(phi, of_time, torch.cat([torch.zeros_like(self.b_v), self.b_v]))  # (n,k,2hp)
        for (rows, index), w in zip(tables, weights):
            if rows.shape[-1] > 0:
                both += embedding(index, linear(rows, w).flatten(1)).view_as(both)
        n, k = there.shape
        key, value = both.view(n, k, 2, HEADS, -1).permute(2, 0, 3, 1, 4).reshape(2, n * HEADS, k, -1)
        query = query.reshape(n * HEADS, -1, 1) / math.sqrt(key.shape[-1])
        score = torch.bmm(key, query).view(n, HEADS, k)
        # Thanks to the finite mask and the product with it, a root without used slots gets zeros, and no NaN gradient.
        weight = score.masked_fill(~there[:, None], -1e30).softmax(-1) * there[:, None]
        weight = dropout(weight, DROPOUT, self.training).view(n * HEADS, 1, k)
        return torch.bmm(weight, value).view(n, -1)


class Attention(KeysAndValues):
    def __init__(self, inputs, width, edge_width, time_width):
        super().__init__(width, [inputs, edge_width], time_width)
        # The parts of one product share its number of inputs.
        both = inputs + time_width
        self.w_q, self.w_q_time = uniform(both, width, inputs), uniform(both, width, time_width)
        self.b_q = uniform(both, width)
        both = width + inputs
        self.w_o, self.w_o_root = uniform(both, width, width), uniform(both, width, inputs)
        self.b_o = uniform(both, width)

    def forward(self, h, now, near):
        """Returns the embeddings of the roots from those below; `now` is the encoding of a time gap of zero."""
        root = h[near.root]
        query = linear(root, self.w_q, linear(now, self.w_q_time, self.b_q))
        seen = near.seen
        mixed = self.attend(query, [(h, near.row), (seen.edge, seen.edge_row)], seen.phi, seen.there)
        out = linear(mixed, self.w_o, self.b_o) + linear(root, self.w_o_root)
        return self.norm(dropout(out, DROPOUT, self.training).relu())


class Seen(NamedTuple):
    """What is known of the events in the slots of n roots."""

    edge: torch.Tensor  # [m, f] features of the unique events
    edge_row: torch.Tensor  # [n, k] rows of the slots in `edge`
    phi: torch.Tensor  # [n, k, t] time encodings
    there: torch.Tensor  # [n, k] whether a slot holds a neighbour


class Near(NamedTuple):
    """The inputs of one layer."""

    root: torch.Tensor  # [n] rows of the roots in the embeddings below
    row: torch.Tensor  # [n, k] rows of the slots in the embeddings below
    seen: Seen


def fast_dropout(x):
    """Dropout by 16 random bits for each number. PyTorch's own takes 64 and, on AMD's processors, draws them on one
    core. That would be a quarter of GraphMixer's time; in the other models dropout costs little."""
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
    kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= round(DROPOUT * 2**16) - 2**15
    return x * kept.to(x.dtype).mul_(1 / (1 - DROPOUT))


class Mixer(torch.nn.Module):
    """A block of the MLP-Mixer over k tokens of d channels: a network over the tokens, then one over the channels."""

    def __init__(self, tokens, channels, token_expansion, channel_expansion):
        super().__init__()
        for name, width, expansion in (("token", tokens, token_expansion), ("channel", channels, channel_expansion)):
            hidden = max(int(expansion * width), 1)
            parameters = {
                "norm_gain": Parameter(torch.ones(width)),
                "norm_bias": zeros(width),
                "w_1": matrix(hidden, width),
                "b_1": uniform(width, hidden),
                "w_2": matrix(width, hidden),
                "b_2": uniform(hidden, width),
            }
            for part, parameter in parameters.items():
                self.register_parameter(f"{name}_{part}", parameter)

    def network(self, name, x):
        of = lambda part: getattr(self, f"{name}_{part}")
        drop = fast_dropout if self.training else lambda y: y
        normal = layer_norm(x, x.shape[-1:], of("norm_gain"), of("norm_bias"))
        return drop(linear(drop(gelu(linear(normal, of("w_1"), of("b_1")))), of("w_2"), of("b_2")))

    def forward(self, x):
        """Returns the mixed tokens [n, k, d] of the roots."""
        x = x + self.network("token", x.transpose(1, 2)).transpose(1, 2)
        return x + self.network("channel", x)


# Models


class Model(torch.nn.Module):
    """Base class of the models. Roots are the sources, then the destinations, then the negatives of a batch."""

    def __init__(self, events, width, time_width, maps_nodes=True, time=TimeEncoding):
        super().__init__()
        self.events, self.history, self.empty = events, History(events), {}
        self.time, self.decoder = time(time_width), Decoder(width)
        inputs = events.node_feature.shape[1]
        self.node = Affine(width, inputs) if maps_nodes and inputs else None

    def table(self, name, *shape, fill=0, dtype=None):
        """Registers a state table with a row for each node; `fill` is its value when empty."""
        dtype = dtype or self.events.feature.dtype
        self.register_buffer(name, torch.full((self.events.nodes, *shape), fill, dtype=dtype))
        self.empty[name] = fill

    def reset_state(self):
        for name, fill in self.empty.items():
            getattr(self, name).fill_(fill)

    def roots(self, batch, negatives):
        return torch.cat([self.events.src[batch], self.events.dst[batch], negatives])

    def add_node_features(self, h, nodes):
        return h + self.node(self.events.node_feature[nodes]) if self.node else h

    def forward(self, batch, negatives):
        return self.decoder(self.embeddings(self.roots(batch, negatives), batch))

    def observe(self, batch):
        pass


def event_by_event(rows, size):
    """Returns the rows of sources and destinations [2 b], with source and destination of each event adjacent."""
    return rows[: 2 * size].view(2, size, *rows.shape[1:]).transpose(0, 1).flatten(0, 1)


class Memory(Model):
    """Node memory that a recurrent cell updates from the node's last mail: the partner's memory and the event."""

    def __init__(self, events, width, time_width, cell, gates):
        super().__init__(events, width, time_width)
        inputs = 2 * width + events.feature.shape[1] + time_width
        self.memory = Cell(cell, gates, width, inputs)
        self.table("s", width)
        self.table("s_time", dtype=torch.int64)
        self.table("mail", width)
        self.table("mail_event", fill=-1, dtype=torch.int64)
        self.table("mail_time", dtype=torch.int64)

    def updated(self, nodes):
        """Returns the updated memory s' of unique nodes."""
        s = self.s[nodes]
        mailed = (self.mail_event[nodes] >= 0).nonzero()[:, 0]
        own = nodes[mailed]
        phi = self.time(self.mail_time[own] - self.s_time[own])
        message = torch.cat([s[mailed], self.mail[own], self.events.feature[self.mail_event[own]], phi], 1)
        return s.index_copy(0, mailed, self.memory(message, s[mailed]))

    def bottom(self, nodes, root_rows):
        """Returns embeddings below the first layer, of unique nodes; `root_rows` are the rows of the roots in
        `nodes`."""
        s = self.updated(nodes)
        self.fresh = nodes, root_rows, s.detach()
        return self.add_node_features(s, nodes)

    def content(self, s, ends):
        """Returns what a node's partner gets of it in a mail, event by event; `ends` are the rows of the nodes in
        their memory `s`."""
        return s[ends]

    def observe(self, batch):
        nodes, root_rows, s = self.fresh
        ends = event_by_event(root_rows, batch.stop - batch.start)
        last = last_positions(ends, len(nodes))
        rows = (last >= 0).nonzero()[:, 0]
        last, own = last[rows], nodes[rows]
        event = batch.start + last // 2
        self.s[own] = s[rows]
        self.s_time[own] = self.mail_time[own]  # before the first mail both times are 0
        self.mail[own] = self.content(s, ends)[last ^ 1]
        self.mail_event[own] = event
        self.mail_time[own] = self.events.time[event]

    def state(self):
        """Returns the state as in tests/golden, with complete mails."""
        has = self.mail_event >= 0
        mail = torch.cat([self.s, self.mail, self.events.feature[self.mail_event.clamp(min=0)]], 1)
        return {
            "memory": self.s,
            "memory_time": self.s_time,
            "mail": mail * has[:, None],
            "mail_time": self.mail_time,
            "has_mail": has.long(),
        }


class Jodie(Memory):
    def __init__(self, events, width, time_width):
        super().__init__(events, width, time_width, torch.rnn_tanh_cell, 1)
        self.project = Norm(width)
        self.project.w, self.project.b = Parameter(torch.randn(width)), Parameter(torch.randn(width))

    def embeddings(self, roots, batch):
        nodes, row = roots.unique(return_inverse=True)
        h = self.bottom(nodes, row)
        time = self.events.time[batch].repeat(3)
        delta = (time - self.mail_time[roots]).to(h.dtype) / (time.to(h.dtype) + 1)
        return self.project.norm(h[row] * (1 + self.project.w * delta[:, None] + self.project.b))


def sample(model, node, at, first):
    """Returns the latest neighbours [n, k] of nodes before the events `at`, the events with them, and what is known of
    these events. The batch begins at event `first`."""
    events, history = model.events, model.history
    near, event, there = history.recent(node, history.ends(at, first), model.neighbours)
    phi = model.time(events.time[at, None] - events.time[event])
    unique, edge_row = event.unique(return_inverse=True)
    return near, event, Seen(events.feature[unique], edge_row, phi, there)


def numbers(batch, device):
    return torch.arange(batch.start, batch.stop, device=device)


def looks(model, roots, batch, layers, at_events=False):
    """Returns the inputs of each layer, lowest layer first, the unique nodes below, and the rows of the roots in them.

    Neighbours are embedded at the time of the query, as in TGN, or with `at_events` at the time of their event, as in
    TGAT.
    """
    count = model.history.count
    # A target is a node at the time of an event.
    node, at = roots, numbers(batch, roots.device).repeat(3)
    found = []
    for layer in reversed(range(layers)):
        near, event, seen = sample(model, node, at, batch.start)
        below = torch.cat([node, near.flatten()])
        if layer > 0:
            near_at = torch.where(seen.there & at_events, event, at[:, None])
            pair, row = torch.unique(below * count + torch.cat([at, near_at.flatten()]), return_inverse=True)
            below, at = pair // count, pair % count
        else:
            below, row = below.unique(return_inverse=True)
        found.append(Near(row[: len(node)], row[len(node) :].view(near.shape), seen))
        node = below
    rows = torch.arange(len(roots), device=roots.device)
    for near in found:
        rows = near.root[rows]
    return found[::-1], node, rows


class Layers(torch.nn.ModuleList):
    """A stack of attention layers."""

    def __init__(self, layers, inputs, width, edge_width, time_width):
        super().__init__(
            Attention(width if layer else inputs, width, edge_width, time_width) for layer in range(layers)
        )

    def forward(self, h, now, found):
        for layer, near in zip(self, found):
            h = layer(h, now, near)
        return h


class Tgn(Memory):
    def __init__(self, events, width, time_width, layers, neighbours):
        super().__init__(events, width, time_width, torch.gru_cell, 3)
        self.neighbours = neighbours
        self.embed = Layers(layers, width, width, events.feature.shape[1], time_width)

    def embeddings(self, roots, batch):
        found, nodes, rows = looks(self, roots, batch, len(self.embed))
        return self.embed(self.bottom(nodes, rows), torch.cos(self.time.b), found)


class DyRep(Memory):
    """Predicts from the memory. Mails hold the partner's embedding, which is attention over its neighbours.

    The attention is not learned: mails are state, and nothing else reads these embeddings.
    """

    def __init__(self, events, width, time_width, neighbours):
        super().__init__(events, width, time_width, torch.rnn_tanh_cell, 1)
        self.neighbours = neighbours
        self.embed = Layers(1, width, width, events.feature.shape[1], time_width).requires_grad_(False)

    def embeddings(self, roots, batch):
        # Only the positive roots, which come first, send mails.
        senders, at = roots[: 2 * (batch.stop - batch.start)], numbers(batch, roots.device).repeat(2)
        with torch.no_grad():
            near, _, seen = sample(self, senders, at, batch.start)
        nodes, row = torch.cat([roots, near.flatten()]).unique(return_inverse=True)
        rows, near_row = row[: len(roots)], row[len(roots) :].view(near.shape)
        h = self.bottom(nodes, rows)
        with torch.no_grad():
            found = [Near(rows[: len(senders)], near_row, seen)]
            self.sent = event_by_event(self.embed(h, torch.cos(self.time.b), found), batch.stop - batch.start)
        return h[rows]

    def content(self, s, ends):
        return self.sent


class GraphMixer(Model):
    """MLP-Mixer blocks over a node's latest events; no memory, and a time encoding that is not learned."""

    def __init__(self, events, embedding, time_width, layers, neighbours, width, *expansions):
        super().__init__(events, embedding, time_width, time=FixedTimeEncoding)
        self.neighbours = neighbours
        self.columns = [events.feature.shape[1], time_width]
        self.input, self.output = Affine(width, sum(self.columns)), Affine(embedding, width)
        self.embed = torch.nn.Sequential(*(Mixer(neighbours, width, *expansions) for _ in range(layers)))

    def embeddings(self, roots, batch):
        near, _, seen = sample(self, roots, numbers(batch, roots.device).repeat(3), batch.start)
        of_edge, of_time = self.input.w.split(self.columns, 1)
        tokens = linear(seen.phi, of_time)  # (n,k,d)
        tokens += embedding(seen.edge_row, linear(seen.edge, of_edge))
        there = seen.there[..., None].to(tokens.dtype)
        z = self.output(self.embed(torch.addcmul(self.input.b, tokens, there)).mean(1))
        if self.node:
            rows = self.events.node_feature
            mean = (rows[near] * there).sum(1) / there.sum(1).clamp(min=1)
            z = z + self.node(rows[roots] + mean)
        return z

    def state(self):
        return {}


class Tgat(Model):
    def __init__(self, events, width, time_width, layers, neighbours):
        super().__init__(events, width, time_width, maps_nodes=False)
        self.neighbours = neighbours
        self.embed = Layers(layers, events.node_feature.shape[1], width, events.feature.shape[1], time_width)

    def embeddings(self, roots, batch):
        found, nodes, _ = looks(self, roots, batch, len(self.embed), at_events=True)
        return self.embed(self.events.node_feature[nodes], torch.cos(self.time.b), found)

    def state(self):
        return {}


class Update(KeysAndValues):
    """APAN's update: computes new memory by attention over the mails of a node."""

    def __init__(self, width, edge_width, time_width):
        super().__init__(width, [2 * width + edge_width], time_width)
        self.w_q, self.b_q = matrix(width, width), uniform(width, width)
        self.w, self.b = matrix(width, width), uniform(width, width)

    def forward(self, s, mails, row, phi, there):
        """Returns the new memory of the roots; `row` are their rows in the unique nodes' memories `s` and `mails`."""
        query = linear(s, self.w_q, self.b_q)[row]
        seen = self.attend(query, [(mails, row)], phi, there)
        out = linear(self.norm(seen + s[row]), self.w, self.b)
        return dropout(out.relu(), DROPOUT, self.training)


class Apan(Model):
    def __init__(self, events, width, time_width, mails, neighbours):
        super().__init__(events, width, time_width)
        self.neighbours = neighbours
        self.update = Update(width, events.feature.shape[1], time_width)
        self.table("s", width)
        self.table("mail", mails, 2 * width)
        self.table("mail_event", mails, fill=-1, dtype=torch.int64)
        self.table("mail_time", mails, dtype=torch.int64)
        self.table("next", dtype=torch.int64)

    def embeddings(self, roots, batch):
        nodes, row = roots.unique(return_inverse=True)
        event = self.mail_event[nodes]
        mails = torch.cat([self.mail[nodes], self.events.feature[event.clamp(min=0)]], -1)  # (m,k,2d+f)
        phi = self.time(self.events.time[batch].repeat(3)[:, None] - self.mail_time[roots])
        out = self.update(self.s[nodes], mails, row, phi, (event >= 0)[row])
        self.out = out.detach()
        return self.add_node_features(out, roots)

    def observe(self, batch):
        """Delivers the mails of a batch. A node gets one mail, from the last root that delivers to it."""
        events, size = self.events, batch.stop - batch.start
        out = event_by_event(self.out, size)  # (2b,d)
        ends = torch.stack([events.src[batch], events.dst[batch]], 1).flatten()
        near, _, _ = self.history.recent(ends, self.history.ends(batch, batch.start).repeat_interleave(2), self.neighbours)
        nodes, row = ends.unique(return_inverse=True)
        self.s[nodes] = out[last_positions(row, len(nodes))]
        # An unused slot holds the node itself, which is already a receiver of the same mail.
        receivers = torch.cat([ends[:, None], near], 1)
        nodes, row = receivers.unique(return_inverse=True)
        root = last_positions(row.flatten(), len(nodes)) // receivers.shape[1]
        event, slot = batch.start + root // 2, self.next[nodes]
        self.mail[nodes, slot] = torch.cat([out[root], out[root ^ 1]], 1)
        self.mail_event[nodes, slot] = event
        self.mail_time[nodes, slot] = events.time[event]
        self.next[nodes] = (slot + 1) % self.mail.shape[1]

    def state(self):
        has = self.mail_event >= 0
        mail = torch.cat([self.mail, self.events.feature[self.mail_event.clamp(min=0)]], -1) * has[..., None]
        return {"memory": self.s, "mail": mail, "mail_time": self.mail_time, "has_mail": has.long(), "next": self.next}


# The check against the golden files


class GoldenEvents:
    """The stream of a golden file; its other content is in `tensors` and `facts`."""

    def __init__(self, path, dtype):
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header, data = json.loads(content[8 : 8 + size]), memoryview(bytearray(content[8 + size :]))
        self.facts = header.pop("__metadata__")
        kinds = {"F64": torch.float64, "I64": torch.int64}
        read = lambda e: torch.frombuffer(data[slice(*e["data_offsets"])], dtype=kinds[e["dtype"]]).view(e["shape"])
        self.tensors = {name: read(entry) for name, entry in header.items()}
        self.src, self.dst, self.time, self.negative = (self.tensors[name] for name in ("src", "dst", "time", "neg"))
        self.nodes = self.fact("nodes")
        self.feature = self.tensors["edge_features"].to(dtype)
        self.node_feature = self.tensors.get("node_features", torch.zeros(self.nodes, 0)).to(dtype)

    def fact(self, name):
        return int(self.facts[name])

    def under(self, prefix):
        """Returns the tensors whose names begin with `prefix`, by the rest of their names."""
        return {name[len(prefix) :]: value for name, value in self.tensors.items() if name.startswith(prefix)}


GOLDEN = {"tgn_three_layers": "tgn", "graph_mixer": "graph-mixer"}
GOLDEN |= {name: name for name in ("tgn", "tgat", "jodie", "dyrep", "apan")}
# The sizes of a model in a golden file, if it has them.
SIZES = {"layers": int, "neighbours": int, "mails": int, "width": int}
SIZES |= {"token_expansion": float, "channel_expansion": float}


def off(got, want):
    """Returns the largest difference, relative to the largest magnitude in its tensor."""
    assert got.keys() == want.keys(), f"{sorted(got)} are not {sorted(want)}"
    far = lambda name: (got[name] - want[name]).abs().nan_to_num(nan=math.inf).max()
    return max(((far(name) / want[name].abs().max().clamp(min=1e-3)).item() for name in want), default=0.0)


def check(file, name, dtype):
    """Repeats the training of a golden file; returns the errors of each batch (losses, gradients, state) and of the
    final parameters."""
    events = GoldenEvents(Path(__file__).resolve().parents[2] / f"tests/golden/{file}.safetensors", dtype)
    fact, work = events.fact, range(0, len(events.src), events.fact("batch"))
    sizes = {key: kind(events.facts[key]) for key, kind in SIZES.items() if key in events.facts}
    torch.set_default_dtype(dtype)
    model = build(name, events, fact("embedding"), fact("time"), **sizes)
    model.history.rule = events.facts.get("history", "batch")  # JODIE has none
    model.eval()  # no dropout
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            parameter.copy_(events.under("init.")[parameter_name])
    optimizer = torch.optim.Adam(model.parameters(), lr=float(events.facts["learning_rate"]), fused=True)
    worst = {}
    for k, start in enumerate(work):
        batch = slice(start, min(start + work.step, work.stop))
        optimizer.zero_grad()
        logits = model(batch, events.negative[batch])
        loss = loss_of(*logits)
        model.observe(batch)
        loss.backward()
        grads = {f"grad.{n}": p.grad for n, p in model.named_parameters() if p.requires_grad}
        found = {"loss": loss.detach(), "logits": torch.stack(logits, 1).detach()} | grads | model.state()
        worst[f"batch {k}"] = off(found, events.under(f"batch.{k}."))
        optimizer.step()
    worst["final"] = off({n: p.detach() for n, p in model.named_parameters()}, events.under("final."))
    return worst


# The program


def build(name, events, embedding, time_width, layers=2, neighbours=10, mails=10, width=None, token_expansion=0.5,
          channel_expansion=4.0):
    """Returns a model; `width` is that of GraphMixer's tokens, if it differs from that of the embeddings."""
    if name == "jodie":
        return Jodie(events, embedding, time_width)
    if name == "dyrep":
        return DyRep(events, embedding, time_width, neighbours)
    if name == "apan":
        return Apan(events, embedding, time_width, mails, neighbours)
    if name == "graph-mixer":
        tokens = width or embedding, token_expansion, channel_expansion
        return GraphMixer(events, embedding, time_width, layers, neighbours, *tokens)
    return {"tgn": Tgn, "tgat": Tgat}[name](events, embedding, time_width, layers, neighbours)


def main():
    options = parser("Trains JODIE, DyRep, APAN, TGAT, GraphMixer or TGN in PyTorch on a stream of events.")
    options.add_argument("--model", choices=["jodie", "dyrep", "apan", "tgat", "graph-mixer", "tgn"], default="tgn")
    options.add_argument("--layers", type=int, default=2, help="of attention: tgat, tgn; mixer blocks: graph-mixer")
    options.add_argument("--mails", type=int, default=10, help="slots of a mailbox: apan")
    options.add_argument("--history", choices=["time", "batch"], default="time", help="the events that a query sees")
    options.add_argument("--check", action="store_true", help="compare with tests/golden instead, in float64")
    options.set_defaults(neighbors=None)
    args = options.parse_args()
    if args.check:
        worst = {file: max(check(file, name, torch.float64).values()) for file, name in GOLDEN.items()}
        print(json.dumps(worst, indent=1))
        # In GraphMixer's first batch no root has neighbours, and many gradients are zero but for rounding. Adam divides
        # them by about 1e-8, so later batches start from weights that differ by up to 1e-9.
        sys.exit(max(worst.values()) > 1e-8)
    neighbours = args.neighbors or (20 if args.model == "graph-mixer" else 10)  # as in tgnn
    sizes = {"layers": args.layers, "neighbours": neighbours, "mails": args.mails}

    def make(events):
        model = build(args.model, events, args.width, args.width, **sizes)
        model.history.rule = args.history
        return model

    run(args, args.model, "torch", torch.__version__, make)


if __name__ == "__main__":
    main()
