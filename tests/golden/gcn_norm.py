"""Writes `gcn_norm.json`: the normalised adjacency of small graphs, by PyTorch Geometric.

    python tests/golden/gcn_norm.py tests/golden/gcn_norm.json

A case holds edges `[from, to, weight]`, some of them loops, and the non-zero entries of the matrix,
`[to, from, value]`. PyTorch Geometric gets the edges of an undirected graph in both directions.
"""

import json
import sys
from pathlib import Path

import torch
import torch_geometric
from torch_geometric.nn.conv.gcn_conv import gcn_norm

# Whether edges have a direction; number of vertices; edges.
CASES = [
    (True, 4, [[0, 1, 1.0], [0, 2, 1.0], [1, 2, 1.0], [2, 0, 1.0]]),
    (True, 5, [[0, 0, 2.5], [0, 3, 0.5], [1, 3, 4.0], [3, 1, 0.125], [3, 3, 0.25]]),
    (False, 4, [[0, 1, 1.0], [0, 3, 1.0], [1, 2, 1.0], [1, 3, 1.0]]),
    (False, 6, [[0, 1, 3.0], [1, 1, 0.5], [1, 4, 0.75], [2, 4, 1.5]]),
]


def case(directed, nodes, edges):
    both = edges if directed else edges + [[j, i, w] for i, j, w in edges if i != j]
    index = torch.tensor([[i, j] for i, j, _ in both]).t()
    weight = torch.tensor([w for *_, w in both], dtype=torch.float64)
    index, weight = gcn_norm(index, weight, nodes, add_self_loops=True, dtype=torch.float64)
    rows = sorted([j, i, w] for (i, j), w in zip(index.t().tolist(), weight.tolist()))
    return {"directed": directed, "nodes": nodes, "edges": edges, "rows": rows}


def main():
    cases = [json.dumps(case(*c)) for c in CASES]
    versions = {"torch": torch.__version__, "torch_geometric": torch_geometric.__version__}
    Path(sys.argv[1]).write_text(f'{{"versions": {json.dumps(versions)}, "cases": [\n' + ",\n".join(cases) + "\n]}\n")


if __name__ == "__main__":
    main()
