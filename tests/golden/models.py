"""JODIE, DyRep and APAN."""

from collections import defaultdict

import torch
from common import (
    EDGE_WIDTH,
    HEADS,
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
from tgn import (
    NEIGHBOURS,
    embed,
    layer_parameters,
    memory_parameters,
    memory_state,
    naive_embed,
    naive_memory,
    update_memory,
    write_memory,
)
from torch.nn import functional

MAILS, RECEIVERS = 3, 2  # slots of APAN's mailboxes; neighbours that receive a mail


class Jodie:
    """A plain recurrent cell, and embeddings that drift with the time since the memory was updated."""

    def __init__(self):
        self.facts = facts(combiner="last", node_features=True, model="jodie")

    def parameters(self):
        parameters = time_parameters(TIME_WIDTH) | memory_parameters(1) | node_parameters(True)
        parameters |= {"project.w": torch.randn(WIDTH), "project.b": torch.randn(WIDTH)}
        return parameters | norm_parameters("project.", WIDTH) | decoder_parameters()

    def state(self):
        return memory_state()

    def forward(self, p, stream, state, batch):
        updated = update_memory(p, state, torch.rnn_tanh_cell)
        h = add_node_features(p, stream, updated)
        updated_at = torch.where(state["has_mail"] == 1, state["mail_time"], state["memory_time"])
        node, time = roots(stream, batch)
        delta = (time - updated_at[node]) / (time + 1)
        y = h[node] * (1 + p["project.w"] * delta[:, None] + p["project.b"])
        z_src, z_dst, z_neg = layer_norm(p, "project.", y).chunk(3)
        return torch.stack([decode(p, z_src, z_dst), decode(p, z_src, z_neg)], 1), updated

    def naive(self, p, stream, state, batch):
        src, dst, times = (stream[name].tolist() for name in ("src", "dst", "time"))

        def embed(node, event):
            h = add_node_features(p, stream, naive_memory(p, state, node), node)
            # The mail of a node is of its latest event. Before the first one, its time is 0.
            earlier = [times[i] for i in range(batch[0]) if node in (src[i], dst[i])]
            delta = (times[event] - (earlier or [0])[-1]) / (times[event] + 1)
            y = torch.stack([x * (1 + w * delta + b) for x, w, b in zip(h, p["project.w"], p["project.b"])])
            return functional.layer_norm(y, [WIDTH], p["project.norm_gain"], p["project.norm_bias"], 1e-5)

        return naive_logits(stream, batch, p, embed)

    def write(self, stream, state, updated, batch):
        write_memory(stream, state, updated, batch, "last")


class DyRep:
    """A plain recurrent cell over mails that hold the partner's embedding, which is attention over its neighbours. The
    embeddings that predict are memory, so that no gradient reaches the attention."""

    def __init__(self, **others):
        self.facts = facts(NEIGHBOURS, HEADS, combiner="last", node_features=True, model="dyrep", **others)
        self.naive_content = None  # embeddings of the batch by the naive formulation, event by event

    def parameters(self):
        attention = layer_parameters(1, WIDTH)
        self.fixed = attention.keys()
        parameters = time_parameters(TIME_WIDTH) | memory_parameters(1) | node_parameters(True)
        return parameters | attention | decoder_parameters()

    def state(self):
        return memory_state()

    def forward(self, p, stream, state, batch):
        """Logits, then memory after the mails and the embeddings [2, b, d] of sources and destinations."""
        updated = update_memory(p, state, torch.rnn_tanh_cell)
        h = add_node_features(p, stream, updated)
        node, time = roots(stream, batch)
        z_src, z_dst, z_neg = h[node].chunk(3)
        logits = torch.stack([decode(p, z_src, z_dst), decode(p, z_src, z_neg)], 1)
        content = embed(p, stream, h, 1, end_of_history(self, batch), node, time)
        return logits, (updated, torch.stack(content.chunk(3)[:2]))

    def naive(self, p, stream, state, batch):
        first, times = end_of_history(self, batch), stream["time"].tolist()
        bottom = lambda node: add_node_features(p, stream, naive_memory(p, state, node), node)
        at = lambda name, event: naive_embed(p, stream, bottom, 1, first, stream[name][event].item(), times[event])
        rows = [torch.stack([at(name, event) for event in batch.tolist()]) for name in ("src", "dst")]
        self.naive_content = torch.stack(rows)
        return naive_logits(stream, batch, p, lambda node, _: bottom(node))

    def write(self, stream, state, fresh, batch):
        updated, content = fresh
        torch.testing.assert_close(content, self.naive_content, rtol=1e-10, atol=1e-11)
        write_memory(stream, state, updated, batch, "last", content)


class Apan:
    """Mailboxes: a node's memory is the result of attention over its latest mails."""

    def __init__(self, combiner, node_features=False, **others):
        self.combiner = combiner
        self.facts = facts(RECEIVERS, HEADS, None, combiner, node_features, model="apan", mails=MAILS, **others)
        # State of the naive formulation: memory, and all mails that a node ever received, as (content and
        # features, time).
        self.naive_memory, self.boxes = torch.zeros(NODES, WIDTH), [[] for _ in range(NODES)]
        self.naive_out = {}  # outputs of the batch, by node and event

    def parameters(self):
        mail = 2 * WIDTH + EDGE_WIDTH + TIME_WIDTH
        update = {
            "w_q": matrix(WIDTH, WIDTH),
            "b_q": bias(WIDTH),
            "w_k": matrix(WIDTH, mail),
            "w_v": matrix(WIDTH, mail),
            "b_v": bias(WIDTH),
            **norm_parameters("", WIDTH),
            "w": matrix(WIDTH, WIDTH),
            "b": bias(WIDTH),
        }
        parameters = time_parameters(TIME_WIDTH) | {"update." + name: value for name, value in update.items()}
        return parameters | node_parameters(self.facts["node_features"] > 0) | decoder_parameters()

    def state(self):
        return {
            "memory": torch.zeros(NODES, WIDTH),
            "mail": torch.zeros(NODES, MAILS, 2 * WIDTH + EDGE_WIDTH),
            "mail_time": torch.zeros(NODES, MAILS, dtype=torch.int64),
            "has_mail": torch.zeros(NODES, MAILS, dtype=torch.int64),
            "next": torch.zeros(NODES, dtype=torch.int64),
        }

    def forward(self, p, stream, state, batch):
        """Logits, and the outputs [2, b, d] of sources and destinations."""
        node, time = roots(stream, batch)
        s = state["memory"][node]
        age = time[:, None] - state["mail_time"][node]
        z = torch.cat([state["mail"][node], time_encoding(p, age)], -1)  # (n,k,2d+f+t)
        query = s @ p["update.w_q"].T + p["update.b_q"]
        key, value = z @ p["update.w_k"].T, z @ p["update.w_v"].T + p["update.b_v"]
        seen = mix(query, key, value, state["has_mail"][node] == 1)
        out = (layer_norm(p, "update.", seen + s) @ p["update.w"].T + p["update.b"]).relu()
        z_src, z_dst, z_neg = add_node_features(p, stream, out, node).chunk(3)
        logits = torch.stack([decode(p, z_src, z_dst), decode(p, z_src, z_neg)], 1)
        return logits, torch.stack(out.chunk(3)[:2])

    def naive(self, p, stream, state, batch):
        times = stream["time"].tolist()
        u = {name.split(".")[1]: value for name, value in p.items() if name.startswith("update.")}
        self.naive_out = {}

        def embed(node, event):
            s = self.naive_memory[node]
            latest = self.boxes[node][-MAILS:]
            z = [torch.cat([mail, time_encoding(p, torch.tensor(times[event] - time))]) for mail, time in latest]
            seen = naive_mix(u["w_q"] @ s + u["b_q"], z, u["w_k"], u["w_v"], u["b_v"])
            y = functional.layer_norm(seen + s, [WIDTH], u["norm_gain"], u["norm_bias"], 1e-5)
            out = functional.relu(u["w"] @ y + u["b"])
            self.naive_out[node, event] = out.detach()
            return add_node_features(p, stream, out, node)

        return naive_logits(stream, batch, p, embed)

    def write(self, stream, state, out, batch):
        """Makes all deliveries at once, in the order of their positions `(2 i + side)(1 + receivers) + j`."""
        ends = torch.stack([stream["src"][batch], stream["dst"][batch]], 1).flatten()  # (2b), event by event
        event = batch.repeat_interleave(2)
        near, _, valid = recent(stream, end_of_history(self, batch), ends, stream["time"][event], RECEIVERS)
        receiver = torch.cat([ends[:, None], near.where(valid, NODES)], 1).flatten()  # row NODES: nobody
        own = out.transpose(0, 1).flatten(0, 1)  # (2b,d)
        mail = torch.cat([own, out.flip(0).transpose(0, 1).flatten(0, 1), stream["edge_features"][event]], 1)

        latest = lambda nodes, positions: torch.full((NODES + 1,), -1).scatter_reduce(0, nodes, positions, "amax")
        root = latest(ends, torch.arange(len(ends)))[:NODES]
        state["memory"][root >= 0] = own[root[root >= 0]]
        last = latest(receiver, torch.arange(len(receiver)))[:NODES]
        node = (last >= 0).nonzero()[:, 0]
        of = last[node] // (1 + RECEIVERS)  # the positive root that the last delivery comes from
        taken = mail[of]
        if self.combiner == "mean":
            every = mail.repeat_interleave(1 + RECEIVERS, 0)
            taken = torch.zeros(NODES + 1, mail.shape[1]).index_add(0, receiver, every)[node]
            taken = taken / torch.bincount(receiver, minlength=NODES + 1)[node, None]
        slot = state["next"][node]
        state["mail"][node, slot] = taken
        state["mail_time"][node, slot] = stream["time"][event[of]]
        state["has_mail"][node, slot] = 1
        state["next"][node] = (slot + 1) % MAILS

        self.naive_write(stream, batch)
        self.compare(state)
        if batch[-1] == len(stream["src"]) - 1:
            assert max(map(len, self.boxes)) > MAILS and min(map(len, self.boxes)) == 0, "a ring wraps, one is empty"

    def naive_write(self, stream, batch):
        times = stream["time"].tolist()
        deliveries = defaultdict(list)  # node -> (mail, time) in order of position
        for event in batch.tolist():
            ends = [stream[name][event].item() for name in ("src", "dst")]
            for node, other in (ends, ends[::-1]):
                out = self.naive_out[node, event]
                self.naive_memory[node] = out
                mail = torch.cat([out, self.naive_out[other, event], stream["edge_features"][event]])
                near = naive_recent(stream, end_of_history(self, batch), node, times[event], RECEIVERS)
                for receiver in [node] + [other for other, _ in near[::-1]]:
                    deliveries[receiver].append((mail, times[event]))
        for node, mails in deliveries.items():
            mail = sum(mail for mail, _ in mails) / len(mails) if self.combiner == "mean" else mails[-1][0]
            self.boxes[node].append((mail, mails[-1][1]))
        assert max(map(len, deliveries.values())) > 2, "a node gets several mails in every batch"

    def compare(self, state):
        """Compares the rings with the naive boxes: mail number i of a node is in slot i modulo the number of slots."""
        torch.testing.assert_close(state["memory"], self.naive_memory, rtol=1e-10, atol=1e-11)
        for node, box in enumerate(self.boxes):
            assert state["next"][node] == len(box) % MAILS
            assert state["has_mail"][node].sum() == min(len(box), MAILS)
            for i, (mail, time) in list(enumerate(box))[-MAILS:]:
                torch.testing.assert_close(state["mail"][node, i % MAILS], mail, rtol=1e-10, atol=1e-11)
                assert state["mail_time"][node, i % MAILS] == time
