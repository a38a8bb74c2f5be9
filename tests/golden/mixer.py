"""GraphMixer: MLP-Mixer blocks over the rows of a node's recent events, and its node encoder."""

import math

import torch
from common import (
    EDGE_WIDTH,
    NODE_WIDTH,
    TIME_WIDTH,
    WIDTH,
    bias,
    decode,
    decoder_parameters,
    end_of_history,
    facts,
    layer_norm,
    matrix,
    naive_logits,
    naive_recent,
    node_parameters,
    norm_parameters,
    recent,
    roots,
)
from torch.nn import functional

SLOTS, TOKEN_WIDTH = 4, 5  # neighbours; width of the tokens
EXPANSION = {"token": 0.5, "channel": 2.0}  # hidden units, as a multiple of the width
FREQUENCIES = 10 ** (-9 * torch.arange(TIME_WIDTH, dtype=torch.float64) / (TIME_WIDTH - 1))


def network_parameters(prefix, width, expansion):
    hidden = int(expansion * width)
    return norm_parameters(prefix, width) | {
        prefix + "w_1": matrix(hidden, width),
        prefix + "b_1": bias(hidden),
        prefix + "w_2": matrix(width, hidden),
        prefix + "b_2": bias(width),
    }


def network(p, prefix, x):
    hidden = functional.gelu(layer_norm(p, prefix, x) @ p[prefix + "w_1"].T + p[prefix + "b_1"])
    return hidden @ p[prefix + "w_2"].T + p[prefix + "b_2"]


def naive_network(p, prefix, x):
    """`network` for one row, one hidden unit after another."""
    x = functional.layer_norm(x, [len(x)], p[prefix + "norm_gain"], p[prefix + "norm_bias"], 1e-5)
    z = [w @ x + b for w, b in zip(p[prefix + "w_1"], p[prefix + "b_1"])]
    hidden = torch.stack([z_i * (1 + torch.erf(z_i / math.sqrt(2))) / 2 for z_i in z])
    return torch.stack([w @ hidden + b for w, b in zip(p[prefix + "w_2"], p[prefix + "b_2"])])


class GraphMixer:
    def __init__(self, layers, node_features=False, **others):
        self.layers = layers
        others |= {"model": "graph-mixer", "width": TOKEN_WIDTH}
        others |= {f"{mixes}_expansion": expansion for mixes, expansion in EXPANSION.items()}
        self.facts = facts(SLOTS, None, layers, node_features=node_features, memory=False, **others)

    def parameters(self):
        parameters = {"input.w": matrix(TOKEN_WIDTH, EDGE_WIDTH + TIME_WIDTH), "input.b": bias(TOKEN_WIDTH)}
        for layer in range(self.layers):
            for mixes, width in (("token", SLOTS), ("channel", TOKEN_WIDTH)):
                parameters |= network_parameters(f"embed.{layer}.{mixes}_", width, EXPANSION[mixes])
        parameters |= {"output.w": matrix(WIDTH, TOKEN_WIDTH), "output.b": bias(WIDTH)}
        return parameters | node_parameters(self.facts["node_features"] > 0) | decoder_parameters()

    def state(self):
        return {}

    def forward(self, p, stream, state, batch):
        """Shapes in the comments: n roots, k slots, f edge features, t time encoding, d width."""
        node, time = roots(stream, batch)
        near, event, valid = recent(stream, end_of_history(self, batch), node, time, SLOTS)
        phi = torch.cos((time[:, None] - stream["time"][event])[..., None] * FREQUENCIES)
        x = torch.cat([stream["edge_features"][event], phi], -1) * valid[..., None]  # (n,k,f+t)
        x = x @ p["input.w"].T + p["input.b"]  # (n,k,d)
        for layer in range(self.layers):
            x = x + network(p, f"embed.{layer}.token_", x.transpose(1, 2)).transpose(1, 2)
            x = x + network(p, f"embed.{layer}.channel_", x)
        z = x.mean(1) @ p["output.w"].T + p["output.b"]
        if "node_features" in stream:
            rows = stream["node_features"]
            mean = (rows[near] * valid[..., None]).sum(1) / valid.sum(1, keepdim=True).clamp(min=1)
            z = z + (rows[node] + mean) @ p["node.w"].T + p["node.b"]
        z_src, z_dst, z_neg = z.chunk(3)
        return torch.stack([decode(p, z_src, z_dst), decode(p, z_src, z_neg)], 1), None

    def naive(self, p, stream, state, batch):
        first, times = end_of_history(self, batch), stream["time"].tolist()

        def embed(node, event):
            near = naive_recent(stream, first, node, times[event], SLOTS)[::-1]
            tokens = []
            for _, i in near:
                phi = torch.stack([torch.cos((times[event] - times[i]) * w) for w in FREQUENCIES])
                tokens.append(p["input.w"] @ torch.cat([stream["edge_features"][i], phi]) + p["input.b"])
            tokens += [p["input.b"]] * (SLOTS - len(near))  # a slot without an event is a row of zeros
            for layer in range(self.layers):
                prefix = f"embed.{layer}."
                channels = [torch.stack([x[c] for x in tokens]) for c in range(TOKEN_WIDTH)]
                mixed = [naive_network(p, prefix + "token_", channel) for channel in channels]
                tokens = [x + torch.stack([m[j] for m in mixed]) for j, x in enumerate(tokens)]
                tokens = [x + naive_network(p, prefix + "channel_", x) for x in tokens]
            z = p["output.w"] @ (sum(tokens) / SLOTS) + p["output.b"]
            if "node_features" in stream:
                rows = stream["node_features"]
                mean = sum(rows[other] for other, _ in near) / len(near) if near else torch.zeros(NODE_WIDTH)
                z = z + p["node.w"] @ (rows[node] + mean) + p["node.b"]
            return z

        return naive_logits(stream, batch, p, embed)

    def write(self, stream, state, fresh, batch):
        pass
