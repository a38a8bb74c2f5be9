"""PyTorch Geometric's temporal graph network on one stream of events, as a peer in the benchmarks.

    python pyg_tgn.py --data wikipedia.csv --batch 600 --random-edge-features 172 --no-eval --json

Model and training step follow PyTorch Geometric's own TGN example: identity messages, last aggregator, one layer of
`TransformerConv` with two heads over the most recent neighbours. The protocol is that of `link_task.py`. Neighbours
come from earlier batches, as the library samples them; unlike in tgnn, their events may be at the time of the query.
"""

import torch
import torch_geometric
from link_task import parser, run
from torch.nn import Linear
from torch_geometric.nn import TransformerConv
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, LastNeighborLoader, TGNMemory


class Embedding(torch.nn.Module):
    """Attention of a node over its neighbours; the edge attribute is {time encoding | feature}."""

    def __init__(self, width, edge_width, time_encoder):
        super().__init__()
        self.time_encoder = time_encoder
        self.attention = TransformerConv(width, width // 2, heads=2, dropout=0.1, edge_dim=width + edge_width)

    def forward(self, memory, last_update, edge_index, event_time, feature):
        age = last_update[edge_index[0]] - event_time
        edge = torch.cat([self.time_encoder(age.to(memory.dtype)), feature], dim=-1)
        return self.attention(memory, edge_index, edge)


class Decoder(torch.nn.Module):
    """Scores a link between two embeddings."""

    def __init__(self, width):
        super().__init__()
        self.src, self.dst, self.out = Linear(width, width), Linear(width, width), Linear(width, 1)

    def forward(self, z_src, z_dst):
        return self.out((self.src(z_src) + self.dst(z_dst)).relu()).squeeze(-1)


class Tgn(torch.nn.Module):
    def __init__(self, events, width, neighbours):
        super().__init__()
        self.events = events
        edge_width = events.feature.size(1)
        message = IdentityMessage(edge_width, width, width)
        self.memory = TGNMemory(events.nodes, edge_width, width, width, message, LastAggregator())
        self.embedding = Embedding(width, edge_width, self.memory.time_enc)
        self.decoder = Decoder(width)
        self.neighbours = LastNeighborLoader(events.nodes, size=neighbours, device=events.src.device)
        # Row of each node among the nodes of the batch.
        self.row = torch.empty(events.nodes, dtype=torch.long, device=events.src.device)

    def reset_state(self):
        self.memory.reset_state()
        self.neighbours.reset_state()

    def forward(self, batch, negatives):
        self.memory.detach()
        src, dst = self.events.src[batch], self.events.dst[batch]
        nodes, edge_index, event = self.neighbours(torch.cat([src, dst, negatives]).unique())
        self.row[nodes] = torch.arange(len(nodes), device=nodes.device)
        memory, last_update = self.memory(nodes)
        z = self.embedding(memory, last_update, edge_index, self.events.time[event], self.events.feature[event])
        z_src, z_dst, z_neg = z[self.row[src]], z[self.row[dst]], z[self.row[negatives]]
        return self.decoder(z_src, z_dst), self.decoder(z_src, z_neg)

    def observe(self, batch):
        events = self.events
        src, dst = events.src[batch], events.dst[batch]
        self.memory.update_state(src, dst, events.time[batch], events.feature[batch])
        self.neighbours.insert(src, dst)


def main():
    args = parser("Trains PyTorch Geometric's TGN on a stream of events.").parse_args()
    run(args, "tgn", "pyg", torch_geometric.__version__, lambda events: Tgn(events, args.width, args.neighbors))


if __name__ == "__main__":
    main()
