"""Times PyTorch's sparse products of a matrix written by `crates/training/benches/spmm.rs`: prints seconds by product
for each width.

    python benches/peers/torch_spmm.py FOLDER --threads 2 --widths 16 64    # called by `cargo bench --bench spmm`

`csr` and `coo` are `torch.sparse` matrices times a dense matrix. `gather` is the default in PyTorch Geometric's layers:
rows of the neighbours, times their weights, summed by `scatter`, or by `index_add` if PyTorch Geometric is not
installed. Each product runs for half a second; the median counts, without the first two runs.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy
import torch

try:
    from torch_geometric.utils import scatter
except ImportError:

    def scatter(rows, index, dim, dim_size, reduce):
        return rows.new_zeros(dim_size, rows.shape[1]).index_add_(dim, index, rows)


def seconds(call):
    """Returns the median seconds of one call."""
    times, started = [], time.perf_counter()
    while len(times) < 7 or time.perf_counter() - started < 0.5:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--widths", type=int, nargs="+", required=True)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    read = lambda name, kind: torch.from_numpy(numpy.fromfile(a.folder / name, kind))
    starts, cols, values = read("starts", "i8"), read("cols", "i8"), read("values", "f4")
    nodes = len(starts) - 1
    rows = torch.repeat_interleave(torch.arange(nodes), starts.diff())
    csr = torch.sparse_csr_tensor(starts, cols, values, (nodes, nodes))
    coo = torch.sparse_coo_tensor(torch.stack([rows, cols]), values, (nodes, nodes)).coalesce()
    lines = []
    for width in a.widths:
        x = torch.randn(nodes, width)
        gather = lambda: scatter(values[:, None] * x[cols], rows, dim=0, dim_size=nodes, reduce="sum")
        want = csr @ x
        for found in (coo @ x, gather()):
            torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-4)
        calls = {"csr": lambda: csr @ x, "coo": lambda: coo @ x, "gather": gather}
        lines.append({name: seconds(call) for name, call in calls.items()})
    print(json.dumps(lines))


if __name__ == "__main__":
    main()
