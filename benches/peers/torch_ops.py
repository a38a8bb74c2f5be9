"""Times PyTorch's counterparts of tgnn's ops, at the sizes of a training step of TGN on Wikipedia, batch 600.

    python benches/peers/torch_ops.py --device cuda    # prints JSON; compare: tgnn-bench kernels --device cuda --json

Each op runs repeatedly for about a tenth of a second, five times; the median counts. On a GPU the time is measured
between two CUDA events, after a warm-up: as in training, launches cost time only while the device is idle. Values are
random, never zeros. Products run with PyTorch's default (f32), then with TF32 allowed.
"""

import argparse
import json
import statistics
import time

import torch

# Mails of a batch; widths of a message {s | s_partner | e | Phi} and of the memory; nodes; roots; neighbours; edge
# features; events.
MAILS, MESSAGE, WIDTH, NODES, ROOTS, NEIGHBORS, FEATURES, EVENTS = 1165, 472, 100, 9228, 1800, 10, 172, 157474
# A snapshot: its vertices, and the number of neighbours of each.
VERTICES, DEGREE = 10_000, 20


def ops(device):
    """Yields the name of an op, the corresponding op of tgnn, and a call that runs it."""
    real = lambda *shape: torch.randn(*shape, device=device)
    ids = lambda n, below: torch.randint(below, (n,), device=device)
    gru = torch.nn.GRUCell(MESSAGE, WIDTH, device=device)
    x, h, dy = real(MAILS, MESSAGE).requires_grad_(), real(MAILS, WIDTH).requires_grad_(), real(MAILS, WIDTH)
    yield "GRUCell forward", "gru_memory", lambda: gru(x, h)

    def forward_and_backward():
        gru.zero_grad(set_to_none=True)
        x.grad = h.grad = None
        gru(x, h).backward(dy)

    yield "GRUCell forward and backward", "gru_memory + gru_memory_grad", forward_and_backward
    occurrences = ids(ROOTS * (1 + NEIGHBORS), NODES)
    yield "unique", "unique", lambda: torch.unique(occurrences, return_inverse=True)
    memory, edges, index = real(NODES, WIDTH), real(EVENTS, FEATURES), ids(ROOTS * NEIGHBORS, EVENTS)
    yield "index_select", "gather_rows", lambda: edges.index_select(0, index)
    rows, targets = real(ROOTS * NEIGHBORS, WIDTH), ids(ROOTS * NEIGHBORS, NODES)
    yield "index_add", "scatter_add_rows", lambda: memory.index_add(0, targets, rows)
    roots, w, b = real(ROOTS, WIDTH), real(WIDTH, WIDTH), real(WIDTH)
    yield "linear", "linear", lambda: torch.nn.functional.linear(roots, w, b)
    gain, bias = real(WIDTH), real(WIDTH)
    yield "layer_norm", "layer_norm", lambda: torch.nn.functional.layer_norm(roots, (WIDTH,), gain, bias)
    attention = torch.nn.MultiheadAttention(2 * WIDTH, 2, kdim=2 * WIDTH + FEATURES, vdim=2 * WIDTH + FEATURES,
                                            batch_first=True, device=device)
    query, raw = real(ROOTS, 1, 2 * WIDTH), real(ROOTS, NEIGHBORS, 2 * WIDTH + FEATURES)
    yield "MultiheadAttention forward", "head_linear + temporal_attention", lambda: attention(query, raw, raw)[0]
    starts, cols = torch.arange(VERTICES + 1, device=device) * DEGREE, ids(VERTICES * DEGREE, VERTICES)
    csr = torch.sparse_csr_tensor(starts.int(), cols.int(), real(VERTICES * DEGREE), (VERTICES, VERTICES))
    rows_of_vertices = real(VERTICES, 64)
    yield "sparse CSR @ dense", "spmm", lambda: csr @ rows_of_vertices
    parameters = [real(n).requires_grad_() for n in (172_000, 100_000, 30_000, 4_000, 1_000, 300)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    adam = torch.optim.Adam(parameters, fused=device != "cpu")
    yield "Adam", "adam", adam.step


def seconds(call, device):
    """Returns the seconds of one call."""

    def once(times):
        if device == "cpu":
            started = time.perf_counter()
            for _ in range(times):
                call()
            return time.perf_counter() - started
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    once(3)
    times = max(1, round(0.1 / max(once(1), 1e-6)))
    return statistics.median(once(times) / times for _ in range(5))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    a = parser.parse_args()
    torch.manual_seed(1)
    rows = []
    for precision in ("f32", "tf32") if a.device != "cpu" else ("f32",):
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        for name, rivals, call in ops(a.device):
            rows.append({"op": name, "rivals": rivals, "precision": precision, "us": 1e6 * seconds(call, a.device)})
    name = torch.cuda.get_device_name() if a.device != "cpu" else "cpu"
    print(json.dumps({"torch": torch.__version__, "device": name, "threads": torch.get_num_threads(), "ops": rows}, indent=1))


if __name__ == "__main__":
    main()
